//! Counts the uses of a sandbox. A sandbox does not fall asleep while it is in use.
//!
//! Each request holds an [`ActivityGuard`], and so does every connection that serves a client: a
//! WebSocket, a running command, a file transfer. Idle connections in the pool hold none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The use count of one sandbox.
#[derive(Debug)]
pub(crate) struct Activity {
    now: Mutex<Now>,
    /// Notified when the last guard is dropped.
    freed: Notify,
}

#[derive(Debug)]
struct Now {
    count: usize,
    /// Time of the last change of the count. It is monotonic, so changes of the wall clock do not
    /// matter.
    last: Instant,
    open: bool,
}

/// Counts as one use of a sandbox until it is dropped.
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

    /// Counts one more use. `None` means that the sandbox sleeps or is falling asleep and must be
    /// woken first.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<ActivityGuard> {
        let mut now = self.lock();
        if !now.open {
            return None;
        }
        now.count += 1;
        now.last = Instant::now();
        Some(ActivityGuard(Arc::clone(self)))
    }

    /// Stops further uses. Returns false without a change if the sandbox is in use. The lock that
    /// this shares with [`Activity::enter`] ensures that no request comes in between.
    pub(crate) fn close(&self) -> bool {
        let mut now = self.lock();
        now.open &= now.count > 0;
        !now.open
    }

    /// Stops further uses, also while the sandbox is in use. Those that have begun fail when its
    /// processes end.
    pub(crate) fn close_in_use(&self) {
        self.lock().open = false;
    }

    /// Allows uses again and restarts the idle time.
    pub(crate) fn open(&self) {
        let mut now = self.lock();
        (now.open, now.last) = (true, Instant::now());
    }

    /// Restarts the idle time because a program inside was active.
    pub(crate) fn touch(&self) {
        self.lock().last = Instant::now();
    }

    /// Resolves when the sandbox has not been in use for `after`. Cancel-safe.
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
                // A permit from an earlier end only causes one more round of the loop.
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
        assert!(!uses.close(), "a guard is held");
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
