//! The error of a step, and the socket pair by which a child reports it to the launcher.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {errno}")]
pub struct StepError {
    /// The name of the step, for people.
    pub step: Cow<'static, str>,
    /// The error of the system call that failed.
    #[serde(with = "errno_number")]
    pub errno: Errno,
}

impl StepError {
    pub(crate) fn new(step: impl Into<Cow<'static, str>>, errno: Errno) -> Self {
        Self { step: step.into(), errno }
    }

    /// For an error that may lack the kernel's number.
    pub(crate) fn from_io(
        step: impl Into<Cow<'static, str>>,
        error: &std::io::Error,
        other: Errno,
    ) -> Self {
        Self::new(step, Errno::from_io_error(error).unwrap_or(other))
    }
}

/// An error number is written as an `i32`.
mod errno_number {
    use rustix::io::Errno;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(errno: &Errno, to: S) -> Result<S::Ok, S::Error> {
        errno.raw_os_error().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Errno, D::Error> {
        i32::deserialize(from).map(Errno::from_raw_os_error)
    }
}

/// Names the step of an error.
pub(crate) fn at_step(step: &'static str) -> impl Fn(Errno) -> StepError {
    move |errno| StepError::new(step, errno)
}

/// The two ends of a connection between launcher and child.
pub(crate) struct SocketPair {
    pub(crate) launcher: OwnedFd,
    pub(crate) child: OwnedFd,
}

pub(crate) fn socket_pair() -> Result<SocketPair, StepError> {
    let kind = SocketType::SEQPACKET;
    let (launcher, child) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .map_err(at_step("socket pair"))?;
    Ok(SocketPair { launcher, child })
}

/// Reports a failed step to the launcher. Returns the child's exit code.
pub(crate) fn report(launcher: &OwnedFd, error: &StepError) -> i32 {
    let _ = send(launcher, &isolet_wire::launcher::encode(error), SendFlags::NOSIGNAL);
    1
}

/// Waits until the child has become the agent (end of file) or reports a failed step.
pub(crate) fn wait_until_started(child: OwnedFd) -> Result<(), StepError> {
    let mut packet = Vec::new();
    File::from(child)
        .read_to_end(&mut packet)
        .map_err(|error| StepError::from_io("child", &error, Errno::IO))?;
    if packet.is_empty() {
        return Ok(());
    }
    let reported = isolet_wire::frame::decode(&packet);
    Err(reported.unwrap_or_else(|_| StepError::new("child", Errno::IO)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_learns_of_the_failed_step_and_of_a_start() {
        let sockets = socket_pair().expect("a socket pair");
        let error = StepError::new("mask proc", Errno::PERM);
        assert_eq!(report(&sockets.child, &error), 1);
        drop(sockets.child);
        assert_eq!(wait_until_started(sockets.launcher), Err(error));

        let sockets = socket_pair().expect("a socket pair");
        drop(sockets.child);
        assert_eq!(wait_until_started(sockets.launcher), Ok(()));
    }
}
