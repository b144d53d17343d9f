//! Commands to the driver task that owns a sandbox.

use crate::model::activity::ActivityGuard;
use crate::model::error::Error;
use crate::model::exposed_ports::{ExposeChange, ExposedPort};
use crate::model::held::{BriefStop, HeldSandbox, HoldPurpose};
use crate::model::ids::{SessionId, SnapshotId};
use crate::model::info::ownership::PushedSnapshot;
use crate::model::info::{EndedSandbox, Patch, RecoveredSandbox, SandboxInfo};
use crate::model::info::{IdempotencyKey, Lost, RestoredSandbox};
use crate::model::network::change::NetworkChange;
use crate::model::record::RecordBody;
use crate::model::record::snapshot_layers::FoldedLayers;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::oneshot;

/// What a restore in place needs. The files of the snapshot are copied already.
pub(crate) struct RestoreRequest {
    /// The name of the copied files.
    pub(crate) token: String,
    /// Set when the record may name the copied files, so that the caller leaves them.
    pub(crate) recorded: Arc<AtomicBool>,
    /// The id of the snapshot.
    pub(crate) snapshot: SnapshotId,
    /// The settings that the snapshot holds.
    pub(crate) settings: RecordBody,
    /// Ids and records of the sessions.
    pub(crate) sessions: Vec<(SessionId, String)>,
    /// What the snapshot does not contain.
    pub(crate) lost: Vec<Lost>,
    pub(crate) once: Option<IdempotencyKey>,
}

/// Whether a sandbox sleeps while it is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleepMode {
    /// Refuse while a command runs or a client is attached.
    Unused,
    /// End what runs, and disconnect clients.
    Forced,
}

/// For what a paused sandbox is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResumedFor {
    /// A client uses it: a lifetime that was stopped begins again.
    Client,
    /// The server needs its agents for a moment, for example to save its shells. A lifetime that was
    /// stopped stays so: nobody uses the sandbox, and its end would destroy it.
    Server,
}

/// A command to a driver.
pub(crate) enum DriverCommand {
    Patch(Box<Patch>, oneshot::Sender<Result<SandboxInfo, Error>>),
    Delete(oneshot::Sender<Result<EndedSandbox, Error>>),
    Sleep(SleepMode, oneshot::Sender<Result<SandboxInfo, Error>>),
    /// Freeze all processes of the sandbox.
    Pause(oneshot::Sender<Result<SandboxInfo, Error>>),
    /// Let the processes of a paused sandbox continue.
    Resume(ResumedFor, oneshot::Sender<Result<SandboxInfo, Error>>),
    /// Expose or hide a port. Answered with the port's new or last state.
    Expose(ExposeChange, oneshot::Sender<Result<ExposedPort, Error>>),
    /// Change the egress rules or the injected credentials.
    Network(Box<NetworkChange>, oneshot::Sender<Result<SandboxInfo, Error>>),
    /// Wake the sandbox, or resume it if its `auto_resume` says so. The answer holds a guard so that the sandbox cannot fall asleep before the
    /// caller uses it.
    Wake(oneshot::Sender<Result<ActivityGuard, Error>>),
    /// Start an agent that reads the files of a failed sandbox. The agent runs while the guard in
    /// the answer is held.
    Read(oneshot::Sender<Result<ActivityGuard, Error>>),
    /// Replace the files by those of a snapshot.
    Restore(Box<RestoreRequest>, oneshot::Sender<Result<RestoredSandbox, Error>>),
    /// Turn a failed sandbox into a sleeping one.
    Recover(oneshot::Sender<Result<RecoveredSandbox, Error>>),
    /// Give all exposed ports other secrets. Answered with their number.
    RotateLinks(oneshot::Sender<Result<usize, Error>>),
    /// Stand still for the moment at which the first pass of a copy begins. The directory is one to
    /// which the server may write. `None` if no process runs.
    StopBriefly(PathBuf, oneshot::Sender<Result<Option<BriefStop>, Error>>),
    /// Stand still until the answer is dropped, or be deleted if the holder says so.
    Hold(HoldPurpose, oneshot::Sender<Result<HeldSandbox, Error>>),
    /// Name a merged layer in place of others, now or at the next sleep.
    Fold(FoldedLayers),
    /// Create the veth pair that the record asks for.
    Link(oneshot::Sender<Result<(), Error>>),
    /// Install the CA certificate that the egress proxy announced.
    Trust,
    /// A snapshot of the sandbox is in the object store, and recorded in the fleet.
    Pushed(PushedSnapshot),
    /// A client has received the list of what the last sleep lost.
    LossReported,
    /// Another node has taken the sandbox over: end it, and keep its files aside.
    Supersede(oneshot::Sender<Result<EndedSandbox, Error>>),
    /// The lease guard lets the suspended sandbox continue.
    Continue,
    /// Check whether the sandbox's cgroups still exist, after an error that their loss would
    /// explain.
    Check,
    /// Disconnect from the agent and stop the driver. The sandbox continues to run.
    Detach(oneshot::Sender<()>),
}
