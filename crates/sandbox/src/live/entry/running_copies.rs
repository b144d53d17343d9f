//! The copies of a sandbox's files: one after the other, and cancelled by its deletion.

use crate::model::held::cancel::CancelToken;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The copies of one sandbox that wait or run.
pub(crate) struct RunningCopies {
    /// Held by the copy that runs.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// Those that the deletion of the sandbox cancels.
    tokens: Mutex<Vec<CancelToken>>,
}

/// A copy that can be cancelled. Dropping it forgets the copy.
pub(crate) struct RunningCopy<'a> {
    copies: &'a RunningCopies,
    pub(crate) cancel: CancelToken,
}

impl RunningCopies {
    pub(crate) fn new() -> Self {
        Self { turn: tokio::sync::Mutex::new(()), tokens: Mutex::default() }
    }

    pub(crate) fn begin(&self) -> RunningCopy<'_> {
        let cancel = CancelToken::default();
        self.lock().push(cancel.clone());
        RunningCopy { copies: self, cancel }
    }

    /// Ends all copies, because the sandbox is deleted.
    pub(crate) fn cancel(&self) {
        self.lock().iter().for_each(CancelToken::cancel);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CancelToken>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningCopy<'_> {
    fn drop(&mut self) {
        self.copies.lock().retain(|token| !token.is(&self.cancel));
    }
}
