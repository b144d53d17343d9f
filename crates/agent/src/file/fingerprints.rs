//! Reads what tells two versions of every file in a directory apart, so that a later call finds
//! every change.
//!
//! The time of the last change (`ctime`) proves a change because no program can set it. But it
//! comes from a clock that advances every few milliseconds, so that a file which changes twice
//! between two ticks has the same time twice. A file that changed a moment ago is therefore read
//! again after the next tick. One that never rests is marked as `unsettled`, and the reader then
//! counts it as changed.

use super::connection::{ConnectionEnded, FileConnection};
use super::disk::{self, Failure};
use super::names;
use super::walk::{failed, gone};
use isolet_wire::request::FINGERPRINTS_MAX;
use isolet_wire::response::{AgentResponse, FileFingerprint, FileKind, RefusalReason};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Maximum length of a path, in bytes, as in requests.
const PATH_BYTES_MAX: usize = 4095;
/// Maximum size of the paths in one message, in bytes.
const PART_BYTES: usize = 32 * 1024;
/// Maximum number of files in one message.
const PART_ENTRIES: usize = 256;
/// Longer than a tick of the slowest kernel clock, which has 100 ticks per second.
const TICK: Duration = Duration::from_millis(12);
/// A time that lies further in the future, in nanoseconds, is from before the clock was set back. No
/// later change gets the same.
const AHEAD_MAX: u128 = 1_000_000_000;
/// How often a file that keeps changing is read again.
const ROUNDS_MAX: usize = 3;
/// File system types without files of their own: proc, sysfs and cgroup2, as in `statfs`.
const OF_THE_KERNEL: [rustix::fs::FsWord; 3] = [0x9fa0, 0x6265_6572, 0x6367_7270];
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A directory that is still to be read.
struct Waiting {
    /// Its path below the root with a trailing slash; empty for the root.
    path: Vec<u8>,
    /// The device of the directory above.
    above: u64,
}

struct Fingerprints<'a> {
    connection: &'a mut FileConnection,
    root: OwnedFd,
    recursive: bool,
    count: usize,
    part: Vec<FileFingerprint>,
    part_bytes: usize,
    /// Files to read again after the next tick.
    recent: Vec<FileFingerprint>,
    waiting: Vec<Waiting>,
}

/// Sends the fingerprints of all files below `root`.
pub(super) fn send(
    connection: &mut FileConnection,
    root: &Path,
    recursive: bool,
) -> Result<(), ConnectionEnded> {
    let root = rustix::fs::open(root, DIRECTORY, Mode::empty())?;
    let above = rustix::fs::fstat(&root)?.st_dev;
    let mut all = Fingerprints {
        connection,
        root,
        recursive,
        count: 0,
        part: Vec::new(),
        part_bytes: 0,
        recent: Vec::new(),
        waiting: vec![Waiting { path: Vec::new(), above }],
    };
    while let Some(next) = all.waiting.pop() {
        all.directory(&next)?;
    }
    all.settle()?;
    all.flush()
}

impl Fingerprints<'_> {
    fn directory(&mut self, next: &Waiting) -> Result<(), ConnectionEnded> {
        let dir = match open(&self.root, &next.path) {
            Ok(dir) => dir,
            // The call after this one compares, and finds out what became of it.
            Err(errno) if gone(errno) && !next.path.is_empty() => return Ok(()),
            Err(errno) => return Err(failed(&next.path, errno).into()),
        };
        let device = rustix::fs::fstat(&dir)?.st_dev;
        let mounted = device != next.above;
        if mounted && OF_THE_KERNEL.contains(&rustix::fs::fstatfs(&dir)?.f_type) {
            return Ok(());
        }
        let mut outcome = Ok(());
        let read = disk::each(&dir, |name, _| {
            outcome = self.entry(&dir, next, device, name);
            outcome.is_ok()
        });
        match read {
            // It was removed while it was read.
            Err(errno) if gone(errno) && !next.path.is_empty() => outcome,
            Err(errno) => Err(failed(&next.path, errno).into()),
            Ok(()) => outcome,
        }
    }

    fn entry(
        &mut self,
        dir: &OwnedFd,
        of: &Waiting,
        device: u64,
        name: &[u8],
    ) -> Result<(), ConnectionEnded> {
        let path = [of.path.as_slice(), name].concat();
        // Read before the file, so that a change after the file was read has a later time.
        let now = coarse_time();
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) if gone(errno) => return Ok(()),
            Err(errno) => return Err(failed(&path, errno).into()),
        };
        if names::is_temporary(name, stat.st_ino) || names::is_lifted(name) {
            return Ok(());
        }
        self.count += 1;
        if self.count > FINGERPRINTS_MAX {
            let message =
                format!("more than {FINGERPRINTS_MAX} files; ask for a directory below it");
            return Err(Failure(RefusalReason::TooLarge, message).into());
        }
        let one = fingerprint(path, &stat, now);
        if self.recursive && one.kind == FileKind::Directory {
            if one.path.len() >= PATH_BYTES_MAX {
                return Err(failed(&one.path, Errno::NAMETOOLONG).into());
            }
            let path = [one.path.as_slice(), b"/"].concat();
            self.waiting.push(Waiting { path, above: device });
        }
        if one.unsettled {
            self.recent.push(one);
            return Ok(());
        }
        self.put(one)
    }

    /// Reads files that changed a moment ago again, until the clock is past their last change.
    fn settle(&mut self) -> Result<(), ConnectionEnded> {
        for _ in 0..ROUNDS_MAX {
            if self.recent.is_empty() {
                return Ok(());
            }
            std::thread::sleep(TICK);
            for one in std::mem::take(&mut self.recent) {
                let now = coarse_time();
                match stat(&self.root, &one.path) {
                    Ok(stat) => {
                        let one = fingerprint(one.path, &stat, now);
                        if one.unsettled { self.recent.push(one) } else { self.put(one)? }
                    }
                    Err(errno) if gone(errno) => {}
                    Err(errno) => return Err(failed(&one.path, errno).into()),
                }
            }
        }
        std::mem::take(&mut self.recent).into_iter().try_for_each(|one| self.put(one))
    }

    fn put(&mut self, one: FileFingerprint) -> Result<(), ConnectionEnded> {
        self.part_bytes += one.path.len();
        self.part.push(one);
        if self.part_bytes >= PART_BYTES || self.part.len() >= PART_ENTRIES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ConnectionEnded> {
        self.part_bytes = 0;
        let part = std::mem::take(&mut self.part);
        if !part.is_empty() {
            self.connection.send_message(&AgentResponse::FileFingerprints(part))?;
        }
        Ok(())
    }
}

fn open(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let name = if path.is_empty() { b"." } else { path };
    let dir = rustix::fs::openat2(root, name, DIRECTORY, Mode::empty(), stay)?;
    // The metadata of a directory without search permission is unknown.
    rustix::fs::statat(&dir, c".", AtFlags::empty())?;
    Ok(dir)
}

/// The metadata of a file below the root, reached through no symbolic link.
fn stat(root: &OwnedFd, path: &[u8]) -> Result<Stat, Errno> {
    let cut = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (above, name) = path.split_at(cut);
    let dir = open(root, above)?;
    rustix::fs::statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)
}

/// The kernel's coarse clock, from which it takes the times of files, in nanoseconds.
fn coarse_time() -> u128 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    nanoseconds(now.tv_sec, now.tv_nsec as u64)
}

/// Times before 1970 count as 1970.
fn nanoseconds(seconds: i64, rest: u64) -> u128 {
    u128::from(u64::try_from(seconds).unwrap_or(0)) * 1_000_000_000 + u128::from(rest)
}

fn fingerprint(path: Vec<u8>, stat: &Stat, now: u128) -> FileFingerprint {
    let kind = disk::stat(stat).kind;
    if kind == FileKind::Directory {
        let mode = u128::from(stat.st_mode & 0o7777);
        let stamp = u128::from(stat.st_uid) << 64 | u128::from(stat.st_gid) << 32 | mode;
        return FileFingerprint { path, kind, inode: 0, stamp, unsettled: false };
    }
    let stamp = nanoseconds(stat.st_ctime, stat.st_ctime_nsec);
    let unsettled = (now..now + AHEAD_MAX).contains(&stamp);
    FileFingerprint { path, kind, inode: stat.st_ino, stamp, unsettled }
}
