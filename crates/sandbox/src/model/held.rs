//! A sandbox that stands still while its files are copied.

pub(crate) mod cancel;

use crate::model::error::Error;
use crate::model::ids::SessionId;
use crate::model::info::ownership::Departure;
use crate::model::info::{EndedSandbox, Lost};
use crate::model::record::Record;
use crate::model::record::snapshot_layers::{LayerStack, RecordedLayer};
use crate::model::state::State;
use cancel::CancelToken;
use isolet_storage::StillMoment;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

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
    expired: CancelToken,
    release: oneshot::Sender<HoldEnd>,
    layers: mpsc::Sender<TakeLayer>,
}

/// The request that a sandbox in which nothing runs gives its directories to a layer.
pub(crate) struct TakeLayer {
    pub(crate) layer: RecordedLayer,
    /// Answered with the layers of the sandbox, when its record names the new one.
    pub(crate) answer: oneshot::Sender<Result<LayerStack, Error>>,
}

/// What is recorded about a sandbox while it stands still.
#[derive(Debug)]
pub(crate) struct HeldContents {
    pub(crate) record: Record,
    /// Ids and records of its sessions.
    pub(crate) sessions: Vec<(SessionId, String)>,
    /// Those of its sessions that a copy does not get, but the sandbox on another node.
    pub(crate) own_sessions: Vec<(SessionId, String)>,
    /// What runs in it, and the states of shells that could not be saved.
    pub(crate) lost: Vec<Lost>,
}

/// Why a sandbox stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldPurpose {
    /// A copy that a client or an operator requested.
    Copy,
    /// A scheduled copy, which is no use of the sandbox: its idle time goes on.
    Scheduled,
    /// A copy before the sandbox is deleted.
    Delete,
    /// A copy before the sandbox is deleted because its lifetime has passed. Refused if it was
    /// extended since.
    Expiry,
    /// A copy before the sandbox leaves this node.
    Depart {
        /// Refused unless the sandbox sleeps.
        only_asleep: bool,
    },
}

impl HoldPurpose {
    /// Whether the sandbox is deleted after the copy.
    pub(crate) fn deletes(self) -> bool {
        matches!(self, Self::Delete | Self::Expiry)
    }

    /// Whether the sandbox stands until something is done about it after the copy.
    pub(crate) fn stands(self) -> bool {
        self.deletes() || self.departs()
    }

    /// Whether the sandbox leaves this node after the copy.
    pub(crate) fn departs(self) -> bool {
        matches!(self, Self::Depart { .. })
    }
}

/// What becomes of a sandbox that stood still.
#[derive(Debug)]
pub(crate) enum HoldEnd {
    /// It is deleted.
    Delete(DeleteAnswer),
    /// It leaves this node.
    Depart(Departure, DeleteAnswer),
}

/// A moment at which a sandbox stood still, before the first pass of a copy.
#[derive(Debug)]
pub(crate) struct BriefStop {
    pub(crate) moment: StillMoment,
    /// How long it stood still.
    pub(crate) stood: Duration,
}

/// Where the result of a deletion goes.
pub(crate) type DeleteAnswer = oneshot::Sender<Result<EndedSandbox, Error>>;

/// A [`HeldSandbox`] after its copy. Dropping it lets the sandbox continue.
pub(crate) struct CopiedSandbox {
    release: oneshot::Sender<HoldEnd>,
}

impl CopiedSandbox {
    /// Deletes the sandbox before any of its processes has continued. Without an answer, it
    /// continues, because it stood still for too long.
    pub(crate) async fn delete(self) -> Option<Result<EndedSandbox, Error>> {
        self.end(HoldEnd::Delete).await
    }

    /// Removes the sandbox from this node before any of its processes has continued, without deleting
    /// it. Without an answer, it continues, because it stood still for too long.
    pub(crate) async fn depart(self, why: Departure) -> Option<Result<EndedSandbox, Error>> {
        self.end(|answer| HoldEnd::Depart(why, answer)).await
    }

    async fn end(
        self,
        make: impl FnOnce(DeleteAnswer) -> HoldEnd,
    ) -> Option<Result<EndedSandbox, Error>> {
        let (answer, answered) = oneshot::channel();
        self.release.send(make(answer)).ok()?;
        answered.await.ok()
    }
}

/// The driver's end of a [`HeldSandbox`].
pub(crate) struct Holder {
    expired: CancelToken,
    released: oneshot::Receiver<HoldEnd>,
    layers: mpsc::Receiver<TakeLayer>,
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
    let (layers, wanted) = mpsc::channel(1);
    let expired = CancelToken::default();
    let own = expired.clone();
    (
        HeldSandbox {
            state,
            frozen,
            unsaved_shells,
            contents,
            since,
            expired: own,
            release,
            layers,
        },
        Holder { expired, released, layers: wanted },
    )
}

impl HeldSandbox {
    /// Lets the sandbox continue. Returns how long it stood still; `None` if it continued before,
    /// because that took too long.
    #[must_use]
    pub fn release(self) -> Option<Duration> {
        let stood = self.since.elapsed();
        let expired = self.expired.is_cancelled();
        drop(self.release);
        (!expired).then_some(stood)
    }
}

impl HeldSandbox {
    /// Cancelled when the sandbox continues because it stood still for too long.
    pub(crate) fn expired(&self) -> CancelToken {
        self.expired.clone()
    }

    /// What is recorded about the sandbox, how long it stood still, as
    /// [`HeldSandbox::release`] returns it, but 0 if no process ran, and the sandbox, which still
    /// stands.
    pub(crate) fn copied(self) -> (HeldContents, Option<Duration>, CopiedSandbox) {
        let stood = if self.frozen { self.since.elapsed() } else { Duration::ZERO };
        let expired = self.expired.is_cancelled();
        let copied = CopiedSandbox { release: self.release };
        (self.contents, (!expired).then_some(stood), copied)
    }
}

impl HeldSandbox {
    /// Lets the sandbox, in which nothing runs, give its directories to a layer, and records that.
    pub(crate) async fn take_layer(&mut self, layer: RecordedLayer) -> Result<(), Error> {
        let late = || Error::TooLate("copying the files");
        let (answer, answered) = oneshot::channel();
        self.layers.send(TakeLayer { layer, answer }).await.map_err(|_| late())?;
        let layers = answered.await.map_err(|_| late())??;
        self.contents.record.body.layers = layers;
        Ok(())
    }
}

impl Holder {
    /// Waits for a layer that wants the directories of the sandbox. `None` if the other end is
    /// released or dropped, or `until` has passed.
    pub(crate) async fn layer_wanted(&mut self, until: Instant) -> Option<TakeLayer> {
        tokio::time::timeout_at(until.into(), self.layers.recv()).await.ok()?
    }

    /// Waits until the other end is released or dropped, or `limit` has passed. Returns what becomes of
    /// the sandbox, unless it continues.
    pub(crate) async fn wait(self, limit: Duration) -> Option<HoldEnd> {
        let released = tokio::time::timeout(limit, self.released).await;
        if released.is_err() {
            self.expired.cancel();
        }
        released.ok()?.ok()
    }
}
