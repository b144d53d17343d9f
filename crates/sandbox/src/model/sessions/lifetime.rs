//! The lifetime of a session, as the clients of its shell and its terminal see it.
//!
//! A deletion must leave no shell behind: a shell that is opened after the deletion has closed the
//! session's shell would belong to no session, and the next session with the same id would find it.
//! The deletion therefore first marks the session as ended, then waits for every call that is
//! opening a shell or terminal, and only then closes what is open.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a deletion waits for calls that are opening a shell. The timeouts of those calls are
/// shorter.
const OPENING_WAIT: Duration = Duration::from_secs(20);

/// Shared by a session and, weakly, by the clients of its shell.
#[derive(Debug)]
pub(crate) struct Lifetime {
    ended: Mutex<bool>,
    openers: watch::Sender<()>,
}

/// Held while a shell or terminal of a session is being opened. The session's deletion waits for
/// it.
#[derive(Debug)]
pub(crate) struct OpeningGuard {
    _opener: watch::Receiver<()>,
}

impl Default for Lifetime {
    fn default() -> Self {
        Self { ended: Mutex::new(false), openers: watch::Sender::new(()) }
    }
}

impl Lifetime {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the session was deleted.
    pub(crate) fn ended(&self) -> bool {
        *self.lock()
    }

    /// Announces that a shell or terminal is about to be opened; `None` after the session's end.
    pub(crate) fn opening(&self) -> Option<OpeningGuard> {
        let ended = self.lock();
        (!*ended).then(|| OpeningGuard { _opener: self.openers.subscribe() })
    }

    /// Ends the session, as [`Lifetime::end`], without a wait.
    pub(crate) fn mark_ended(&self) {
        *self.lock() = true;
    }

    /// Ends the session: nothing can be opened from now on. Returns when every call that was
    /// opening a shell has finished, or after `OPENING_WAIT`.
    pub(crate) async fn end(&self) {
        *self.lock() = true;
        let _ = timeout(OPENING_WAIT, self.openers.closed()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn the_end_waits_for_who_is_opening_and_lets_nobody_in_after() {
        let life = Arc::new(Lifetime::default());
        let guard = life.opening().unwrap();
        let end = tokio::spawn({
            let life = Arc::clone(&life);
            async move { life.end().await }
        });
        while !life.ended() {
            tokio::task::yield_now().await;
        }
        assert!(life.opening().is_none());
        assert!(!end.is_finished());
        drop(guard);
        end.await.unwrap();
    }
}
