//! Orphaned sandboxes: another program removed their control groups. Their processes go on in other
//! groups, without limits and out of reach of `cgroup.kill`. The agent is process 1 of their
//! process namespace, so killing it kills all. It is identified by its process id and its start
//! time.

use crate::kernel::absent::absent_as_none;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// The file in a sandbox's directory that records its agent.
pub(crate) const FILE: &str = "agent";
/// The longest record, in bytes: two numbers.
const RECORD_BYTES_MAX: u64 = 64;

/// Records an agent that was just started.
pub(crate) fn record(directory: BorrowedFd<'_>, pid: i32) -> Result<(), Errno> {
    let started = start_time(pid).ok().flatten().ok_or(Errno::SRCH)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, FILE, flags, Mode::from_raw_mode(0o600))?;
    rustix::io::write(file, format!("{pid} {started}").as_bytes()).map(drop)
}

/// The running agent of a sandbox.
pub(crate) struct AgentProcess {
    pid: i32,
    started: u64,
    pidfd: OwnedFd,
}

impl AgentProcess {
    /// Finds the agent of the sandbox in this directory; `None` when none was recorded, or it has
    /// ended.
    ///
    /// # Errors
    /// Those of [`absent_as_none`].
    pub(crate) fn find(directory: &Path) -> io::Result<Option<Self>> {
        let mut text = String::new();
        let record = fs::File::open(directory.join(FILE))
            .and_then(|file| file.take(RECORD_BYTES_MAX).read_to_string(&mut text));
        if absent_as_none(record)?.is_none() {
            return Ok(None);
        }
        let number = |text: &str| Pid::from_raw(text.parse().ok()?);
        let record = text.split_once(' ').map(|(pid, started)| (number(pid), started.parse()));
        let Some((Some(pid), Ok(started))) = record else { return Ok(None) };
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from);
        let Some(pidfd) = absent_as_none(pidfd)? else { return Ok(None) };
        let agent = Self { pid: pid.as_raw_nonzero().get(), started, pidfd };
        // Checked while the descriptor is open: another process may have reused the id before that.
        Ok(agent.is_running()?.then_some(agent))
    }

    /// The process id of the agent, as the server sees it.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Opens its network namespace.
    ///
    /// # Errors
    /// `NotFound` when it has ended, otherwise the kernel's.
    pub(crate) fn netns(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let netns = rustix::fs::open(format!("/proc/{}/ns/net", self.pid), flags, Mode::empty())?;
        // Checked while it is open: another process may have reused the id before that.
        if self.is_running()? { Ok(netns) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn is_running(&self) -> io::Result<bool> {
        Ok(start_time(self.pid)? == Some(self.started))
    }

    /// Kills it, and with it everything in its process namespace. One that has ended is no error.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The start time of a process, in clock ticks since the host booted; `None` for one that has
/// ended.
fn start_time(pid: i32) -> io::Result<Option<u64>> {
    let Some(text) = absent_as_none(fs::read_to_string(format!("/proc/{pid}/stat")))? else {
        return Ok(None);
    };
    Ok(text.rsplit_once(") ").and_then(|(_, rest)| {
        let mut fields = rest.split(' ');
        // A zombie has no resources any more.
        (!matches!(fields.next()?, "Z" | "X")).then_some(())?;
        fields.nth(18)?.parse().ok()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::process::Command;

    #[test]
    fn only_the_process_that_was_recorded_is_killed() {
        let folder = std::env::temp_dir().join(format!("isolet-orphan-{}", std::process::id()));
        fs::create_dir(&folder).expect("makes");
        let opened = fs::File::open(&folder).expect("opens");
        let mut child = Command::new("sleep").arg("1000").spawn().expect("starts");
        let pid = i32::try_from(child.id()).expect("small");
        record(opened.as_fd(), pid).expect("notes");
        let note = fs::read_to_string(folder.join(FILE)).expect("reads");
        // The same id, as if another process reused it.
        fs::write(folder.join(FILE), format!("{note}1")).expect("writes");
        assert!(AgentProcess::find(&folder).expect("known").is_none());
        fs::write(folder.join(FILE), "no note").expect("writes");
        assert!(AgentProcess::find(&folder).expect("known").is_none());
        fs::write(folder.join(FILE), note).expect("writes");
        AgentProcess::find(&folder).expect("known").expect("it lives").kill().expect("is ended");
        assert!(!child.wait().expect("our child").success());
        assert!(AgentProcess::find(&folder).expect("known").is_none());
        fs::remove_dir_all(&folder).expect("removes");
    }
}
