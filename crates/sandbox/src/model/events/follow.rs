//! A reader of events: its position, and the error for one that falls behind.

use crate::model::{
    events::{Event, Log},
    ids::SandboxId,
};
use std::sync::Arc;
use tokio::sync::watch;

/// The most that a reader takes at once.
const BATCH: usize = 256;

/// A reader's place.
#[derive(Debug)]
pub struct Follow {
    log: Arc<Log>,
    next: watch::Receiver<u64>,
    at: u64,
    /// Which sandbox, and which life of it; `None`: all.
    sandbox: Option<(SandboxId, Arc<str>)>,
}

/// Events that a reader asked for and that are no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first that is missing.
    pub from: u64,
    /// The first that is there.
    pub to: u64,
}

/// The reader was so slow that events it had not read are no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("events {} to {} are no longer held", .0.from, .0.to - 1)]
pub struct TooSlow(pub Gap);

impl Follow {
    pub(crate) fn new(
        log: Arc<Log>,
        sandbox: Option<(SandboxId, Arc<str>)>,
        last: Option<u64>,
    ) -> (Self, Option<Gap>) {
        let next = log.next.subscribe();
        let id = sandbox.as_ref().map(|(id, _)| id.clone());
        *log.followers().entry(id).or_default() += 1;
        log.more.notify_one();
        let (at, gap) = {
            let ring = log.lock();
            let gap = |from| (ring.first(), Some(Gap { from, to: ring.first() }));
            match last {
                None => (ring.next, None),
                // One of the future was given by a server whose clock was ahead.
                Some(last) if last >= ring.next => gap(0),
                Some(last) if last + 1 < ring.first() => gap(last + 1),
                Some(last) => (last + 1, None),
            }
        };
        (Self { log, next, at, sandbox }, gap)
    }

    /// The next events, at least one, as many as are there and fit. Cancel-safe.
    ///
    /// # Errors
    /// [`TooSlow`].
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, TooSlow> {
        loop {
            self.next.borrow_and_update();
            let found = self.look()?;
            if !found.is_empty() {
                return Ok(found);
            }
            // The sender lives in the log that this holds.
            let _ = self.next.changed().await;
        }
    }

    fn look(&mut self) -> Result<Vec<Arc<Event>>, TooSlow> {
        let ring = self.log.lock();
        if self.at < ring.first() {
            return Err(TooSlow(Gap { from: self.at, to: ring.first() }));
        }
        let skip = usize::try_from(self.at - ring.first()).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        for event in ring.held.iter().skip(skip) {
            if found.len() >= BATCH {
                break;
            }
            self.at = event.id + 1;
            let own = |(_, incarnation): &(_, Arc<str>)| *incarnation == event.incarnation;
            if self.sandbox.as_ref().is_none_or(own) {
                found.push(Arc::clone(event));
            }
        }
        Ok(found)
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let mut followers = self.log.followers();
        let id = self.sandbox.as_ref().map(|(id, _)| id.clone());
        if let Some(count) = followers.get_mut(&id) {
            *count -= 1;
        }
        followers.retain(|_, count| *count > 0);
    }
}
