//! A child in new namespaces that tries something and reports the step that failed.

use crate::child::step_error::{StepError, at_step, report, socket_pair, wait_until_started};
use isolet_sys::namespaces::{ForkedChild, fork_in_namespaces};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, getegid, geteuid, pidfd_send_signal, waitid};
use std::os::fd::AsFd;

/// How long one probe may take.
const LIMIT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Runs `work` in a child in new namespaces of the kinds in `namespaces`. Without root the child
/// also gets a user namespace in which it is root.
///
/// # Errors
/// The failed step of `work`, or `ETIMEDOUT`.
pub(super) fn in_child(
    namespaces: u64,
    work: impl FnOnce() -> Result<(), StepError>,
) -> Result<(), StepError> {
    let uid = geteuid();
    let gid = getegid();
    let own_userns = !uid.is_root() && namespaces != 0;
    let flags = if own_userns { namespaces | libc::CLONE_NEWUSER as u64 } else { namespaces };
    let sockets = socket_pair()?;
    let forked = fork_in_namespaces(flags, None, || {
        let ready = if own_userns { become_root(uid.as_raw(), gid.as_raw()) } else { Ok(()) };
        match ready.map_err(at_step("map ids")).and_then(|()| work()) {
            Ok(()) => 0,
            Err(error) => report(&sockets.child, &error),
        }
    });
    let child = forked.map_err(|error| StepError::from_io("clone", &error, Errno::IO))?;
    drop(sockets.child);
    let succeeded = wait(&child)?;
    wait_until_started(sockets.launcher)?;
    if succeeded { Ok(()) } else { Err(StepError::new("child", Errno::IO)) }
}

/// Waits for the child's end; returns whether its exit code is 0. A child that takes too long is
/// killed.
pub(super) fn wait(child: &ForkedChild) -> Result<bool, StepError> {
    let ended = poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], Some(&LIMIT));
    let in_time = ended.map_err(at_step("wait for the child"))? > 0;
    if !in_time {
        pidfd_send_signal(&child.pidfd, Signal::KILL).map_err(at_step("end the child"))?;
    }
    let status = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED)
        .map_err(at_step("wait for the child"))?;
    if !in_time {
        return Err(StepError::new("time limit", Errno::TIMEDOUT));
    }
    Ok(status.is_some_and(|status| status.exit_status() == Some(0)))
}

/// Maps root of the new user namespace to the user who called.
fn become_root(uid: u32, gid: u32) -> Result<(), Errno> {
    let write = |path: &str, text: String| {
        std::fs::write(path, text)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))
}
