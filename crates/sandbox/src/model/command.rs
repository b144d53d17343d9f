//! Commands to the task that owns a sandbox.

use crate::model::{
    activity::ActivityGuard,
    error::Error,
    exposed::{Change, Exposed},
    info::{Ended, Info, Patch},
    network::change::NetworkChange,
};
use tokio::sync::oneshot;

/// What a driver is told to do.
pub(crate) enum DriverCommand {
    Patch(Box<Patch>, oneshot::Sender<Result<Info, Error>>),
    Delete(oneshot::Sender<Result<Ended, Error>>),
    Sleep(oneshot::Sender<Result<Info, Error>>),
    /// A port that links lead to, as it is or was.
    Expose(Change, oneshot::Sender<Result<Exposed, Error>>),
    /// Where it may connect to.
    Network(Box<NetworkChange>, oneshot::Sender<Result<Info, Error>>),
    /// Answered with a hold on it: no sleep comes between the waking and the work.
    Wake(oneshot::Sender<Result<ActivityGuard, Error>>),
    /// Its files are to be read though it has failed; answered with a hold on who reads them.
    Read(oneshot::Sender<Result<ActivityGuard, Error>>),
    /// It has failed, and is to be worked in again.
    Recover(oneshot::Sender<Result<Info, Error>>),
    /// It is to have a link, as its record says.
    Link(oneshot::Sender<Result<(), Error>>),
    /// It is to trust whom its link has said.
    Trust,
    /// Somebody was told what a sleep has lost.
    LossReported,
    /// Something went wrong that would if its groups were gone.
    Check,
    /// Let go of the agent and end; the sandbox lives on.
    Detach(oneshot::Sender<()>),
}
