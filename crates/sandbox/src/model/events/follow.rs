//! A reader of events: its position, and the error for one that falls behind.

use crate::model::events::{EventLog, SandboxEvent};
use crate::model::ids::SandboxId;
use std::sync::Arc;
use tokio::sync::watch;

/// Maximum number of events in one batch.
const BATCH: usize = 256;

/// A reader's position in a tenant's events.
#[derive(Debug)]
pub struct Follow {
    log: Arc<EventLog>,
    next: watch::Receiver<u64>,
    at: u64,
    /// The sandbox and its incarnation; `None` means all sandboxes of the tenant.
    sandbox: Option<(SandboxId, Arc<str>)>,
}

/// Events that a reader asked for and that are no longer in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Id of the first missing event.
    pub from: u64,
    /// Id of the first available event.
    pub to: u64,
}

/// The reader was too slow: events that it had not read are no longer in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("events {} to {} are no longer held", .0.from, .0.to - 1)]
pub struct TooSlow(pub Gap);

impl Follow {
    pub(crate) fn new(
        log: Arc<EventLog>,
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
                // A server whose clock was ahead has issued this id.
                Some(last) if last >= ring.next => gap(0),
                Some(last) if last + 1 < ring.first() => gap(last + 1),
                Some(last) => (last + 1, None),
            }
        };
        (Self { log, next, at, sandbox }, gap)
    }

    /// The id of the event after which this reader continues. It need not exist.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at.saturating_sub(1)
    }

    /// Waits for the next events and returns at least one of them. Cancel-safe.
    ///
    /// # Errors
    /// [`TooSlow`].
    pub async fn next(&mut self) -> Result<Vec<Arc<SandboxEvent>>, TooSlow> {
        loop {
            self.next.borrow_and_update();
            let found = self.look()?;
            if !found.is_empty() {
                return Ok(found);
            }
            // This reader keeps the log alive, and the log owns the sender.
            let _ = self.next.changed().await;
        }
    }

    fn look(&mut self) -> Result<Vec<Arc<SandboxEvent>>, TooSlow> {
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
