//! A process's own control group, a child of the tenant's. Everything that it starts is born in
//! there and cannot leave, whatever session, parent or name it takes: only the agent may move
//! processes between groups. One write ends all of it, also processes that fork.
//!
//! The alternative was a supervisor that adopts orphans. It costs one process each, and a walk over
//! its descendants loses the race against processes that fork. The end of the program comes from
//! the kernel, the end of everything else from the group's `cgroup.events`; an empty group is
//! removed.

use crate::reactor::Reactor;
use crate::reactor::poll::EventSource;
use isolet_sys::signal;
use rustix::event::epoll::EventFlags;
use rustix::fs::{AtFlags, Mode, OFlags, openat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Number of attempts to create a cgroup that the server removes before its first process.
const TRIES: u32 = 3;
/// Maximum size of the list of a cgroup's processes, in bytes, far above what its limit allows.
const LIST_BYTES_MAX: usize = 256 * 1024;

/// The cgroup of one process.
#[derive(Debug)]
pub(crate) struct Group {
    name: String,
    events: OwnedFd,
    /// A process was in the cgroup at the last check.
    populated: bool,
}

impl Group {
    /// Creates a cgroup and opens it for the first process; `None` if there are no cgroups, as in
    /// tests.
    ///
    /// # Errors
    /// `EMFILE`, `EAGAIN` (too many cgroups), and any other error of the kernel.
    pub(crate) fn make(reactor: &Reactor, id: u64) -> Result<Option<(Self, OwnedFd)>, Errno> {
        let Some(parent) = &reactor.config.cgroup else { return Ok(None) };
        let mut tries = 0;
        loop {
            let mut random = [0_u8; 8];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
            let name = format!("p-{:016x}", u64::from_ne_bytes(random));
            rustix::fs::mkdirat(parent, name.as_str(), Mode::from_raw_mode(0o755))?;
            match Self::open(reactor, parent.as_fd(), name.clone(), id) {
                // The server removes the empty cgroups of a session that has ended.
                Err(Errno::NOENT | Errno::NODEV) if tries < TRIES => tries += 1,
                Err(errno) => {
                    let _ = rustix::fs::unlinkat(parent, name.as_str(), AtFlags::REMOVEDIR);
                    return Err(errno);
                }
                Ok(made) => return Ok(Some(made)),
            }
        }
    }

    fn open(
        reactor: &Reactor,
        parent: std::os::fd::BorrowedFd<'_>,
        name: String,
        id: u64,
    ) -> Result<(Self, OwnedFd), Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = openat(parent, name.as_str(), flags | OFlags::DIRECTORY, Mode::empty())?;
        let events = openat(&dir, "cgroup.events", flags, Mode::empty())?;
        reactor.poll.add(&events, EventSource::ProcessGroup, id, EventFlags::PRI)?;
        Ok((Self { name, events, populated: true }, dir))
    }

    /// Opens the cgroup for one more process to be created in it.
    ///
    /// # Errors
    /// `EMFILE`.
    pub(crate) fn dir(&self, reactor: &Reactor) -> Result<OwnedFd, Errno> {
        let parent = reactor.config.cgroup.as_ref().ok_or(Errno::NOENT)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(parent, self.name.as_str(), flags, Mode::empty())
    }

    /// Checks whether a process is in the cgroup.
    pub(crate) fn look(&mut self) -> bool {
        let mut text = [0; 256];
        let count = rustix::io::pread(&self.events, &mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..count]);
        self.populated = text.lines().any(|line| line == "populated 1");
        self.populated
    }

    /// Whether a process was in the cgroup at the last check.
    #[must_use]
    pub(crate) fn populated(&self) -> bool {
        self.populated
    }

    /// Kills every process in the cgroup at once.
    ///
    /// # Errors
    /// `EMFILE`, in which case nothing was killed.
    pub(crate) fn kill(&self, reactor: &Reactor) -> Result<(), Errno> {
        let file = self.file(reactor, "cgroup.kill", OFlags::WRONLY)?;
        rustix::io::write(file, b"1").map(drop)
    }

    /// Sends a signal to every process in the cgroup.
    pub(crate) fn signal(&self, reactor: &Reactor, number: i32) {
        self.pids(reactor).into_iter().for_each(|pid| drop(signal::send(pid, number)));
    }

    fn pids(&self, reactor: &Reactor) -> Vec<i32> {
        let Ok(file) = self.file(reactor, "cgroup.procs", OFlags::RDONLY) else {
            return Vec::new();
        };
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = rustix::io::read(&file, &mut piece) {
            text.extend_from_slice(&piece[..count]);
            if text.len() > LIST_BYTES_MAX {
                break;
            }
        }
        let text = String::from_utf8_lossy(&text);
        // 0 stands for a process in another process namespace.
        text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 1).collect()
    }

    fn file(&self, reactor: &Reactor, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let parent = reactor.config.cgroup.as_ref().ok_or(Errno::NOENT)?;
        openat(parent, format!("{}/{name}", self.name), flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// Removes the empty cgroup. Returns `false` if it is still in use.
    pub(crate) fn remove(&self, reactor: &Reactor) -> bool {
        let Some(parent) = &reactor.config.cgroup else { return true };
        let removed = rustix::fs::unlinkat(parent, self.name.as_str(), AtFlags::REMOVEDIR);
        matches!(removed, Ok(()) | Err(Errno::NOENT))
    }
}
