//! Copies a tree while programs change it, and then the difference while they stand still.
//!
//! The first pass copies everything, and leaves out what vanishes. The second one visits everything
//! again, but copies only what changed since the first began: the kernel moves the change time
//! (`ctime`) of a file with each change of its contents, attributes and names, and programs cannot set
//! it. A directory that was moved keeps the times of the files below it, so the second pass uses a
//! copied directory only if the first made it from the same directory. Where that is not so, a file
//! that did not change gets another name of the copy that the first pass made of it, if it has several.
//!
//! Six things would hide a change. On some file systems, two files exchange their names without a
//! new time, so there all files of a changed directory are copied again. Times have the granularity of a clock tick, so the limit is not
//! after the time that the file system gave to a new file before the first pass; what has this time or a
//! later one is copied again. A system call sets the time before it changes the contents, and may wait
//! for the disk in between, so the limit is read while no program is in a system call
//! ([`StillMoment`]). The kernel can carry out a write for a program that does not wait for it
//! (asynchronous direct I/O), so the limit is earlier by [`IN_PROGRESS`]. Pages that a program has
//! mapped and written to before change without moving the time until they are written to the disk,
//! so the file system is synchronized after the limit was read. If the wall clock is set back
//! between the passes, everything is copied again.

#[cfg(test)]
mod tests;
mod visit;

use crate::change_time::{Time, changed};
use crate::copied::{Copied, SpaceCheck};
use crate::error::CopyError;
use crate::method::CopyMethod;
use crate::tree::hard_links::HardLinks;
use rustix::fs::{FsWord, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};
use visit::{SecondPass, Visit};

const EXT4: FsWord = 0xef53;
const XFS: FsWord = 0x5846_5342;
const BTRFS: FsWord = 0x9123_683e;
const F2FS: FsWord = 0xf2f5_2010;
/// The magic numbers of file systems whose change times are as described.
const WITH_CHANGE_TIMES: [FsWord; 4] = [EXT4, XFS, BTRFS, F2FS];
/// File systems that do not move the change times of two files that exchange their names
/// (`RENAME_EXCHANGE`), only those of their directories.
const EXCHANGE_WITHOUT_CHANGE_TIMES: [FsWord; 2] = [XFS, F2FS];
/// By how much times of a file system may lag behind the clock: two ticks of the slowest kernels.
const TICKS: Duration = Duration::from_millis(20);
/// How long an asynchronous write may take from the moment at which the kernel sets the change time
/// of a file until the change is made.
const IN_PROGRESS: Duration = Duration::from_secs(2);
/// The most directories of a tree that the first pass remembers, with 16 bytes of data each. The
/// second pass copies what lies in others again.
const DIRECTORIES_MAX: usize = 1 << 20;

/// A moment at which no program changed the files of a tree: all were frozen, so none was in the
/// middle of a system call. They may continue afterwards.
#[derive(Debug, Clone, Copy)]
pub struct StillMoment {
    time: Time,
    at: Instant,
}

impl StillMoment {
    /// The present. `directory` is any directory of the file system that the server may write to.
    ///
    /// # Errors
    /// [`CopyError`], if no file can be created there.
    pub fn now(directory: &Path) -> Result<Self, CopyError> {
        let at = Instant::now();
        let time = file_time(directory).map_err(|errno| CopyError::at(b"", errno))?;
        Ok(Self { time, at })
    }
}

/// The first pass of a copy.
#[derive(Debug)]
pub struct LiveCopy {
    /// What did not change at this time or later is copied.
    limit: Time,
    /// From when on programs may have changed something.
    since: StillMoment,
    /// Whether all files of a changed directory are copied again.
    with_directories: bool,
    /// The inodes of copies by those of their directories.
    directories: HashMap<u64, u64>,
}

/// Copies a directory that programs change since a moment to a path that does not exist yet, as
/// [`crate::copy_tree`] does. [`LiveCopy::complete`] must follow, with the same `links`: a file with
/// several names can be in a directory that was moved, and in another one that is not visited again.
/// Blocks.
///
/// # Errors
/// [`CopyError`], if the copy cannot be written.
pub fn copy_live(
    method: CopyMethod,
    since: StillMoment,
    from: &Path,
    to: &Path,
    links: &Path,
    check: SpaceCheck<'_>,
) -> Result<LiveCopy, CopyError> {
    let at = |errno| CopyError::at(b"", errno);
    let kind = rustix::fs::statfs(from).map_err(at)?.f_type;
    let limit = earlier(since.time, IN_PROGRESS);
    let with_directories = EXCHANGE_WITHOUT_CHANGE_TIMES.contains(&kind);
    let mut live = LiveCopy { limit, since, with_directories, directories: HashMap::new() };
    rustix::fs::mkdir(to, Mode::from_raw_mode(0o700)).map_err(at)?;
    if !WITH_CHANGE_TIMES.contains(&kind) {
        // The second pass copies everything.
        return Ok(live);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let source = rustix::fs::open(from, flags, Mode::empty()).map_err(at)?;
    rustix::fs::syncfs(&source).map_err(at)?;
    let links = HardLinks::open(links).map_err(at)?;
    let mut visit = Visit::live(method, links, check);
    match visit.walk(from, to) {
        Ok(()) => live.directories = visit.into_directories(),
        // A directory on the way was moved.
        Err(CopyError::File { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(live)
}

impl LiveCopy {
    /// Makes the copy equal to the directory, which nobody changes any more. `links` is that of the
    /// first pass; the caller removes it. Returns what the copy contains. Blocks.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn complete(
        mut self,
        method: CopyMethod,
        from: &Path,
        to: &Path,
        links: &Path,
        check: SpaceCheck<'_>,
    ) -> Result<Copied, CopyError> {
        let now = file_time(links).map_err(|errno| CopyError::at(b"", errno))?;
        if is_set_back(self.since.time, now, self.since.at.elapsed()) {
            self.directories.clear();
            self.limit = (i64::MIN, 0);
        }
        let links = HardLinks::after_first_pass(links, self.limit)
            .map_err(|errno| CopyError::at(b"", errno))?;
        let second = SecondPass { limit: self.limit, with_directories: self.with_directories };
        let mut visit = Visit::second(method, links, check, second, self.directories);
        visit.walk(from, to)?;
        Ok(visit.copied())
    }
}

/// The time that the file system gives to a change now.
fn file_time(directory: &Path) -> Result<Time, Errno> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = match rustix::fs::open(directory, flags, Mode::from_raw_mode(0o600)) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let path = directory.join("time");
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?;
            rustix::fs::unlink(&path)?;
            file
        }
        file => file?,
    };
    Ok(changed(&rustix::fs::fstat(&file)?))
}

/// The time that was `by` before another.
fn earlier(time: Time, by: Duration) -> Time {
    let by = (i64::try_from(by.as_secs()).unwrap_or(i64::MAX), i64::from(by.subsec_nanos()));
    match time.1 >= by.1 {
        true => (time.0.saturating_sub(by.0), time.1 - by.1),
        false => (time.0.saturating_sub(by.0).saturating_sub(1), time.1 + 1_000_000_000 - by.1),
    }
}

/// Whether less time passed by the clock of files than in fact.
fn is_set_back(before: Time, now: Time, elapsed: Duration) -> bool {
    let nanoseconds = |time: Time| i128::from(time.0) * 1_000_000_000 + i128::from(time.1);
    let passed = nanoseconds(now) - nanoseconds(before);
    // A time service may slow the clock down by a part in 2,000.
    let least = elapsed.saturating_sub(TICKS + elapsed / 1000);
    passed < i128::try_from(least.as_nanos()).unwrap_or(i128::MAX)
}
