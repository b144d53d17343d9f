//! A sandbox that stands still: all its processes are frozen, and what they wrote to a disk of
//! their own is in its image.

use crate::disk;
use crate::orphan::AgentProcess;
use crate::sandbox_handle::SandboxHandle;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

/// How often the kernel is asked whether all processes are frozen.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Frozen processes of a sandbox. Dropping it lets them continue.
#[derive(Debug)]
pub struct FrozenSandbox {
    handle: SandboxHandle,
}

impl FrozenSandbox {
    /// Freezes every process of a sandbox, within `limit`, and writes its disk. `None` if none
    /// runs. Blocks.
    ///
    /// # Errors
    /// `TimedOut` if a process cannot be frozen now, otherwise the kernel's error. Nothing is
    /// frozen then.
    pub fn freeze(handle: SandboxHandle, limit: Duration) -> io::Result<Option<Self>> {
        if !handle.populated() {
            return Ok(None);
        }
        // Also thaws when a later step fails.
        let frozen = Self { handle };
        frozen.handle.freeze(true)?;
        let until = Instant::now() + limit;
        while !frozen.handle.is_frozen()? {
            if Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        sync_disk(frozen.handle.directory())?;
        Ok(Some(frozen))
    }
}

impl Drop for FrozenSandbox {
    fn drop(&mut self) {
        // Without its control group, nothing is frozen.
        let _ = self.handle.freeze(false);
    }
}

/// Writes everything that the file system of a sandbox holds in memory to its image, whose journal
/// is empty afterwards. While no process writes, the image does not change any more.
fn sync_disk(directory: &Path) -> io::Result<()> {
    if !directory.join(disk::IMAGE).try_exists()? {
        return Ok(());
    }
    let agent = AgentProcess::find(directory)?.ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{}/root", agent.pid()), flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let files = rustix::fs::openat2(root, "workspace", flags, Mode::empty(), how)?;
    rustix::fs::syncfs(&files)?;
    isolet_sys::ext4::checkpoint(&files)?;
    // The loop device writes through the page cache of the image.
    fs::File::open(directory.join(disk::IMAGE))?.sync_data()
}
