//! A sandbox that stands still while its files are copied.

use crate::model::ids::SessionId;
use crate::model::info::Lost;
use crate::model::record::Record;
use crate::model::state::State;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A sandbox none of whose processes runs, and whose driver waits. Dropping it lets the sandbox
/// continue.
#[derive(Debug)]
pub struct HeldSandbox {
    /// The state of the sandbox while it is held.
    pub state: State,
    /// Whether its processes are frozen; otherwise none runs.
    pub frozen: bool,
    /// Number of shells whose latest state could not be saved.
    pub unsaved_shells: usize,
    /// What is recorded about it.
    pub(crate) contents: HeldContents,
    since: Instant,
    expired: Arc<AtomicBool>,
    release: oneshot::Sender<()>,
}

/// What is recorded about a sandbox while it stands still.
#[derive(Debug)]
pub(crate) struct HeldContents {
    pub(crate) record: Record,
    /// Ids and records of its sessions.
    pub(crate) sessions: Vec<(SessionId, String)>,
    /// What runs in it, and the states of shells that could not be saved.
    pub(crate) lost: Vec<Lost>,
}

/// The driver's end of a [`HeldSandbox`].
pub(crate) struct Holder {
    expired: Arc<AtomicBool>,
    released: oneshot::Receiver<()>,
}

/// Creates both ends. The time begins at `since`, when the processes were frozen.
pub(crate) fn hold(
    state: State,
    frozen: bool,
    unsaved_shells: usize,
    contents: HeldContents,
    since: Instant,
) -> (HeldSandbox, Holder) {
    let (release, released) = oneshot::channel();
    let expired = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&expired);
    (
        HeldSandbox { state, frozen, unsaved_shells, contents, since, expired: own, release },
        Holder { expired, released },
    )
}

impl HeldSandbox {
    /// Lets the sandbox continue. Returns how long it stood still; `None` if it continued before,
    /// because that took too long.
    #[must_use]
    pub fn release(self) -> Option<Duration> {
        let stood = self.since.elapsed();
        let expired = self.expired.load(Ordering::Acquire);
        drop(self.release);
        (!expired).then_some(stood)
    }
}

impl HeldSandbox {
    /// As [`HeldSandbox::release`]. Also returns what is recorded about the sandbox. The time is 0
    /// if no process ran.
    pub(crate) fn release_with_contents(self) -> (HeldContents, Option<Duration>) {
        let stood = if self.frozen { self.since.elapsed() } else { Duration::ZERO };
        let expired = self.expired.load(Ordering::Acquire);
        drop(self.release);
        (self.contents, (!expired).then_some(stood))
    }
}

impl Holder {
    /// Waits until the other end is released or dropped, or `limit` has passed.
    pub(crate) async fn wait(self, limit: Duration) {
        if tokio::time::timeout(limit, self.released).await.is_err() {
            self.expired.store(true, Ordering::Release);
        }
    }
}
