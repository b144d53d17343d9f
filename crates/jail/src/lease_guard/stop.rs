//! Stopping sandboxes: their processes and their packets.

use super::FREEZE_WAIT;
use super::guarded::Entry;
use crate::config::Config;
use crate::kernel::netns;
use crate::sandbox_handle::SandboxHandle;
use crate::veth::nft;
use isolet_wire::lease_guard::GuardedState;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often the kernel is asked whether all processes are frozen.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The table of the packet filter in the network namespace of a stopped sandbox.
const TABLE: &str = "inet isolet_lease";

/// Stops sandboxes and lets them continue. The process must have one thread.
pub(super) struct Stopper {
    config: Config,
    /// The network namespace of this process.
    home: OwnedFd,
    /// The program `nft`. Without it, no sandbox has a network.
    nft: Option<PathBuf>,
}

impl Stopper {
    /// # Errors
    /// The kernel's.
    pub(super) fn new(config: Config) -> Result<Self, Errno> {
        Ok(Self { config, home: netns::current()?, nft: nft::find() })
    }

    /// Stops sandboxes. Returns what they are then.
    pub(super) fn stop(&self, names: &[String]) -> Vec<(String, Entry)> {
        let opened: Vec<_> = names
            .iter()
            .map(|name| {
                let handle = SandboxHandle::open(&self.config, name);
                let was_paused = handle.is_freezing().unwrap_or(false);
                let frozen = handle.freeze(true);
                (name, handle, was_paused, frozen)
            })
            .collect();
        let until = Instant::now() + FREEZE_WAIT;
        let mut stopped = Vec::with_capacity(names.len());
        for (name, handle, was_paused, frozen) in opened {
            let done = frozen.or_else(unless_gone).and_then(|()| wait_frozen(&handle, until));
            let done = done.and_then(|()| self.cut_off(&handle));
            let state = match done {
                Ok(()) => GuardedState::Stopped,
                Err(_) => kill(&handle),
            };
            stopped.push((name.clone(), Entry::stopped(state, was_paused)));
        }
        stopped
    }

    /// Whether a process of a stopped sandbox may run, because a server thawed or started it.
    pub(super) fn runs(&self, name: &str) -> bool {
        let handle = SandboxHandle::open(&self.config, name);
        handle.populated() && !handle.is_frozen().unwrap_or(false)
    }

    /// Whether a process of the sandbox is left.
    pub(super) fn is_populated(&self, name: &str) -> bool {
        SandboxHandle::open(&self.config, name).populated()
    }

    /// Lets a stopped sandbox continue. One that was paused stays so.
    ///
    /// # Errors
    /// The kernel's. It is still stopped then.
    pub(super) fn resume(&self, name: &str, was_paused: bool) -> io::Result<()> {
        let handle = SandboxHandle::open(&self.config, name);
        if let Some(nft) = &self.nft {
            self.in_netns(&handle, || {
                // Adding it first makes the removal of a table that does not exist no error.
                nft::apply(nft, &format!("add table {TABLE}\ndelete table {TABLE}\n"))
            })?;
        }
        if was_paused {
            return Ok(());
        }
        handle.freeze(false).or_else(unless_gone)
    }

    /// Drops every packet that leaves the sandbox.
    fn cut_off(&self, handle: &SandboxHandle) -> io::Result<()> {
        let Some(nft) = &self.nft else { return Ok(()) };
        let rules = format!(
            "add table {TABLE}\n\
             add chain {TABLE} output {{ type filter hook output priority -400 ; policy drop ; }}\n"
        );
        self.in_netns(handle, || nft::apply(nft, &rules))
    }

    /// Runs a change of the packet filter in the network namespace of a sandbox, if it has one.
    fn in_netns(
        &self,
        handle: &SandboxHandle,
        change: impl FnOnce() -> Result<(), String>,
    ) -> io::Result<()> {
        let netns = match handle.netns() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            netns => netns?,
        };
        let mut changed = Ok(());
        netns::within(self.home.as_fd(), netns.as_fd(), || {
            changed = change();
            Ok(())
        })?;
        changed.map_err(io::Error::other)
    }
}

fn kill(handle: &SandboxHandle) -> GuardedState {
    // It is tried again at the next check, as long as a process is left.
    let _ = handle.kill();
    GuardedState::Killed
}

fn wait_frozen(handle: &SandboxHandle, until: Instant) -> io::Result<()> {
    while handle.populated()
        && !handle.is_frozen().or_else(|error| unless_gone(error).map(|()| true))?
    {
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// A sandbox without control groups has no processes.
fn unless_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
