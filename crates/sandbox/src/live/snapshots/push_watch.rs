//! Whether sandboxes of the class `store` get their first snapshot in the object store. Until then, nobody can
//! restore them, so a node on which that does not succeed must not get more of them.

use crate::live::failpoint;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a sandbox waits while no push advances, until the node takes no new ones.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// How pushes go on this server.
#[derive(Debug)]
pub(crate) struct PushWatch(Mutex<Watched>);

#[derive(Debug)]
struct Watched {
    /// The number of sandboxes without a snapshot in the object store.
    not_durable: usize,
    /// Since when one of them has had a snapshot that waits to be pushed.
    waiting_since: Option<Instant>,
    /// When a push last advanced.
    advanced_at: Instant,
}

/// How pushes go on a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PushState {
    /// The number of sandboxes of the class `store` without a snapshot in the object store.
    pub not_durable: usize,
    /// Whether pushes do not advance although sandboxes wait for their first one.
    pub is_stuck: bool,
}

impl Default for PushWatch {
    fn default() -> Self {
        let advanced_at = Instant::now();
        Self(Mutex::new(Watched { not_durable: 0, waiting_since: None, advanced_at }))
    }
}

impl PushWatch {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A push has advanced or succeeded.
    pub(crate) fn advanced(&self) {
        self.lock().advanced_at = Instant::now();
    }

    /// How many sandboxes have no snapshot in the store, and since when the first of their snapshots waits.
    pub(crate) fn saw(&self, not_durable: usize, waiting_since: Option<Instant>) {
        let mut watched = self.lock();
        watched.not_durable = not_durable;
        watched.waiting_since = waiting_since;
    }

    pub(crate) fn state(&self) -> PushState {
        let watched = self.lock();
        let stuck_after = failpoint::limit("pushes.stuck", STUCK_AFTER);
        let is_old = |at: Instant| at.elapsed() >= stuck_after;
        let is_stuck = watched.waiting_since.is_some_and(is_old) && is_old(watched.advanced_at);
        PushState { not_durable: watched.not_durable, is_stuck }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_stuck_only_while_something_waits_and_nothing_advances() {
        let watch = PushWatch::default();
        let Some(long_ago) = Instant::now().checked_sub(STUCK_AFTER) else { return };
        watch.saw(3, Some(long_ago));
        assert_eq!(
            watch.state(),
            PushState { not_durable: 3, is_stuck: false },
            "it has just begun"
        );
        watch.lock().advanced_at = long_ago;
        assert!(watch.state().is_stuck);
        watch.advanced();
        assert!(!watch.state().is_stuck);
        watch.lock().advanced_at = long_ago;
        watch.saw(1, Some(Instant::now()));
        assert!(!watch.state().is_stuck, "it has not waited for long");
        watch.saw(0, None);
        assert_eq!(watch.state(), PushState::default());
    }
}
