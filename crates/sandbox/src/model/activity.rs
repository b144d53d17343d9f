//! Counts the work in a sandbox, which does not fall asleep while there is any.
//!
//! A request holds an [`ActivityGuard`], and so does every connection that serves a client: a
//! socket, a command with a waiting client, a file transfer. Idle connections in the pool hold
//! none.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// The count of one sandbox.
#[derive(Debug)]
pub(crate) struct Activity {
    now: Mutex<Now>,
    /// The last one has gone.
    freed: Notify,
}

#[derive(Debug)]
struct Now {
    count: usize,
    /// When somebody last came or went; monotonic, so that no change of the wall clock matters.
    last: Instant,
    open: bool,
}

/// Somebody works in a sandbox, for as long as this is held.
#[derive(Debug)]
pub(crate) struct ActivityGuard(Arc<Activity>);

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        let now = Now { count: 0, last: Instant::now(), open: true };
        Arc::new(Self { now: Mutex::new(now), freed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: it is falling asleep or asleep, and is to be woken first.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<ActivityGuard> {
        let mut now = self.lock();
        if !now.open {
            return None;
        }
        now.count += 1;
        now.last = Instant::now();
        Some(ActivityGuard(Arc::clone(self)))
    }

    /// Lets nobody in any more; false (and no change) while somebody is there. This and
    /// [`Activity::enter`] are the two sides of one lock: no request comes between.
    pub(crate) fn close(&self) -> bool {
        let mut now = self.lock();
        now.open &= now.count > 0;
        !now.open
    }

    /// Lets everybody in, and counts from now.
    pub(crate) fn open(&self) {
        let mut now = self.lock();
        (now.open, now.last) = (true, Instant::now());
    }

    /// Something happened inside without anybody here.
    pub(crate) fn touch(&self) {
        self.lock().last = Instant::now();
    }

    /// Ends when nobody was there for `after`. Cancel-safe.
    pub(crate) async fn idle(&self, after: Duration) {
        loop {
            let (count, last) = {
                let now = self.lock();
                (now.count, now.last)
            };
            let left = after.saturating_sub(last.elapsed());
            match (count, left) {
                (0, Duration::ZERO) => return,
                (0, left) => tokio::time::sleep(left).await,
                // A permit that an earlier end has left only makes this look once more.
                _ => self.freed.notified().await,
            }
        }
    }
}

impl Clone for ActivityGuard {
    fn clone(&self) -> Self {
        self.0.lock().count += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        let mut now = self.0.lock();
        now.count -= 1;
        now.last = Instant::now();
        let freed = now.count == 0;
        drop(now);
        if freed {
            self.0.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: L2.
    #[test]
    fn it_closes_for_nobody_who_is_there_and_lets_nobody_in_after() {
        let uses = Activity::new();
        let held = uses.enter().unwrap();
        let other = held.clone();
        drop(held);
        assert!(!uses.close(), "somebody is there");
        assert!(uses.enter().is_some(), "a close that was refused changes nothing");
        drop(other);
        assert!(uses.close());
        assert!(uses.close(), "it stays closed");
        assert!(uses.enter().is_none());
        uses.open();
        assert!(uses.enter().is_some());
    }

    #[tokio::test]
    async fn idle_counts_from_the_end_of_the_last_use() {
        let uses = Activity::new();
        let after = Duration::from_millis(40);
        let held = uses.enter().unwrap();
        assert!(tokio::time::timeout(after * 3, uses.idle(after)).await.is_err());
        let begin = Instant::now();
        drop(held);
        tokio::time::timeout(after * 100, uses.idle(after)).await.unwrap();
        assert!(begin.elapsed() >= after);
    }
}
