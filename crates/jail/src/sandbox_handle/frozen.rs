//! A sandbox that stands still: all its processes are frozen. For a copy of its files, what they
//! wrote to a disk of their own is in its image too.

use crate::disk;
use crate::orphan::AgentProcess;
use crate::sandbox_handle::SandboxHandle;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, io};

/// The shortest and the longest time between two questions to the kernel whether all processes are
/// frozen. Each interval is twice as long as the one before.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];

/// How long writing the disk of a sandbox may take while its processes are frozen.
const SYNC_WAIT: Duration = Duration::from_secs(60);

/// Frozen processes of a sandbox. Dropping it lets them continue, unless the sandbox is paused.
#[derive(Debug)]
pub struct FrozenSandbox {
    handle: SandboxHandle,
    paused: bool,
    /// Lets the processes continue, also when no descriptor is left. `None` without a control group.
    switch: Option<fs::File>,
}

/// Freezes every process of a sandbox, within `limit`, until [`SandboxHandle::freeze`] lets them
/// continue. Blocks.
///
/// # Errors
/// `TimedOut` if a process cannot be frozen now, otherwise the kernel's error. Nothing is frozen
/// then.
pub fn freeze_processes(handle: &SandboxHandle, limit: Duration) -> io::Result<()> {
    let frozen = freeze_within(handle, limit);
    if frozen.is_err() {
        // Without its control group, nothing is frozen.
        let _ = handle.freeze(false);
    }
    frozen
}

fn freeze_within(handle: &SandboxHandle, limit: Duration) -> io::Result<()> {
    handle.freeze(true)?;
    let until = Instant::now() + limit;
    let [mut interval, longest] = POLL_INTERVALS;
    while !handle.is_frozen()? {
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(interval);
        interval = longest.min(interval * 2);
    }
    Ok(())
}

impl FrozenSandbox {
    /// Freezes every process of a sandbox, within `limit`, and writes its disk. `None` if none
    /// runs. The processes of a `paused` sandbox are frozen already, and stay so afterwards. Blocks.
    ///
    /// # Errors
    /// `TimedOut` if a process cannot be frozen now or the disk is not written within 60 s, otherwise
    /// the kernel's error. Nothing is frozen then.
    pub fn freeze(
        handle: SandboxHandle,
        limit: Duration,
        paused: bool,
    ) -> io::Result<Option<Self>> {
        if !handle.populated() {
            return Ok(None);
        }
        // Also thaws when a later step fails.
        let switch = handle.freeze_file()?;
        let frozen = Self { handle, paused, switch };
        freeze_within(&frozen.handle, limit)?;
        let directory = frozen.handle.directory().to_owned();
        within(SYNC_WAIT, move || sync_disk(&directory, true))?;
        Ok(Some(frozen))
    }

    /// Leaves the processes frozen when this is dropped.
    pub fn stay_frozen(&mut self) {
        self.paused = true;
    }
}

impl Drop for FrozenSandbox {
    fn drop(&mut self) {
        if let Some(switch) = self.switch.as_mut().filter(|_| !self.paused) {
            // Without its control group, nothing is frozen.
            let _ = switch.write_all(b"0");
        }
    }
}

/// Writes what the file system of a sandbox with a disk of its own holds in memory to its image. Its
/// processes continue, so some may be left. Does nothing if none runs or it has no disk. Blocks.
///
/// # Errors
/// `TimedOut` if the disk is not written within 60 s, otherwise the kernel's error.
pub fn write_disk(handle: &SandboxHandle) -> io::Result<()> {
    if !handle.populated() {
        return Ok(());
    }
    let directory = handle.directory().to_owned();
    within(SYNC_WAIT, move || sync_disk(&directory, false))
}

/// Runs what may wait for a disk. After `limit`, it continues in the background.
fn within(
    limit: Duration,
    run: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let (send, receive) = mpsc::channel();
    std::thread::Builder::new().name("sync-disk".to_owned()).spawn(move || {
        let _ = send.send(run());
    })?;
    match receive.recv_timeout(limit) {
        Ok(done) => done,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Writes everything that the file system of a sandbox holds in memory to its image. With an
/// empty journal and while no process writes, the image does not change any more.
fn sync_disk(directory: &Path, empty_journal: bool) -> io::Result<()> {
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
    if empty_journal {
        isolet_sys::ext4::checkpoint(&files)?;
    }
    // The loop device writes through the page cache of the image.
    fs::File::open(directory.join(disk::IMAGE))?.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_does_not_answer_is_given_up() {
        let slow = || {
            std::thread::sleep(Duration::from_secs(5));
            Ok(())
        };
        let begun = Instant::now();
        let error = within(Duration::from_millis(20), slow).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < Duration::from_secs(4));
        assert!(within(Duration::from_secs(60), || Ok(())).is_ok());
    }
}
