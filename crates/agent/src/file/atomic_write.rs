//! Writes a file atomically, without a name until it is complete, or appends to an existing file.
//!
//! A new file is an `O_TMPFILE` that is linked to its name, so that a watch of the directory sees
//! only the creation of that name. To replace a file, the kernel needs a second name for the moment
//! of the rename ([`super::names`]).
//!
//! A conditional write looks at the file once more right before the rename. It holds a lock on the
//! directory from that look to the rename: otherwise two writers that expect the same version could
//! both succeed. A program of the sandbox does not take that lock, so a write of its own in that moment
//! is replaced.

use super::disk::{self, Failure};
use super::names;
use super::owned::Owner;
use isolet_wire::request::{ExpectedFile, WriteOptions};
use isolet_wire::response::{FileStat, RefusalReason};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of attempts to find a free name, or to link a name that other writers create and remove.
const TRIES_MAX: usize = 16;
/// Maximum number of symbolic links to follow, as in the kernel.
const LINKS_MAX: usize = 40;
/// How long a conditional write waits for the lock of the directory. Programs of the sandbox can take that
/// lock, too, and hold it.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How often it tries.
const LOCK_POLL: Duration = Duration::from_millis(1);
/// Default permission bits of a new file.
const MODE: u32 = 0o644;

/// The file that receives the bytes until the commit.
#[derive(Debug, PartialEq, Eq)]
enum WriteTarget {
    /// A file without a name.
    Nameless,
    /// A file with a name of [`names`], on file systems without nameless files.
    Named(PathBuf),
    /// The file itself, which is appended to.
    Own,
}

/// A write that has no effect unless it is committed.
#[derive(Debug)]
pub(crate) struct AtomicWrite {
    /// The file to write to.
    pub(crate) file: File,
    path: PathBuf,
    place: WriteTarget,
    /// The file did not exist when an append began.
    created: bool,
    mode: Option<u32>,
    fresh: u32,
    owner: Owner,
    sync: bool,
    expected: Option<ExpectedFile>,
}

impl AtomicWrite {
    /// Starts to write `path`, or the target of a symbolic link there. Missing parents are created.
    /// A new file gets the mode `fresh` if `options` contain none. An existing file keeps its mode,
    /// and its owner according to `owner`. If a file is expected, only that one is replaced: what is
    /// refused has changed nothing. An append cannot be conditional.
    pub(crate) fn new(
        path: &Path,
        fresh: Option<u32>,
        options: WriteOptions,
        owner: Owner,
        expected: Option<ExpectedFile>,
    ) -> Result<Self, Failure> {
        if expected.is_some() && options.append {
            return Err(Failure::request("an append cannot be conditional"));
        }
        let path = followed(path)?;
        let wrong = |message: &str| Failure(RefusalReason::WrongKind, message.to_owned());
        let old = rustix::fs::statat(CWD, &path, AtFlags::empty()).ok();
        if old.is_some_and(|old| !is_file(&old)) {
            return Err(wrong("not a regular file"));
        }
        if path.file_name().is_none() || path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(wrong("a directory"));
        }
        let found = rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).ok();
        check_expected(expected, found.as_ref())?;
        let dir = parent(&path);
        std::fs::create_dir_all(dir)?;
        let fresh = fresh.unwrap_or(MODE);
        let (file, place) =
            if options.append { (end(&path)?, WriteTarget::Own) } else { begin(dir)? };
        let WriteOptions { mode, sync, .. } = options;
        let created = old.is_none();
        let write = Self { file, path, place, created, mode, fresh, owner, sync, expected };
        if write.place == WriteTarget::Own && (created || mode.is_some()) {
            write.set_mode(mode.unwrap_or(fresh))?;
        }
        Ok(write)
    }

    /// Gives the file its name. Returns true if there was no file of that name.
    pub(crate) fn commit(mut self) -> Result<(FileStat, bool), Failure> {
        let created = self.publish()?;
        if self.sync {
            // The name is part of the directory, so that is flushed too.
            File::open(parent(&self.path))?.sync_all()?;
        }
        Ok((disk::stat(&rustix::fs::fstat(&self.file)?), created))
    }

    fn publish(&mut self) -> Result<bool, Failure> {
        if self.place == WriteTarget::Own {
            if self.sync {
                self.file.sync_all()?;
            }
            return Ok(self.created);
        }
        for _ in 0..TRIES_MAX {
            let old = rustix::fs::statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW).ok();
            let old = old.filter(is_file);
            check_expected(self.expected, old.as_ref())?;
            self.set_metadata(old.as_ref())?;
            if self.sync {
                self.file.sync_all()?;
            }
            let new = old.is_none();
            if self.expected.is_some() {
                self.replace_expected()?;
                return Ok(false);
            }
            match if new { self.name_new() } else { self.replace() } {
                // Another writer was faster, and its file is now replaced.
                Err(Errno::EXIST) if new => {}
                result => return Ok(result.map(|()| new)?),
            }
        }
        Err(Failure(
            RefusalReason::Failed,
            "the name is taken and given up again and again".to_owned(),
        ))
    }

    /// Copies owner, attributes and mode from the replaced file.
    fn set_metadata(&self, old: Option<&rustix::fs::Stat>) -> Result<(), Failure> {
        let kept = self.owner.give(&self.file, old, &self.path)?;
        let mode = old.map_or(self.fresh, |old| old.st_mode);
        // A set-user-id program must not run as another owner.
        let mode = if kept { mode } else { mode & 0o1777 };
        self.set_mode(self.mode.unwrap_or(mode))
    }

    fn set_mode(&self, mode: u32) -> Result<(), Failure> {
        // Set separately, because the umask would reduce the mode of the open, and only if
        // necessary, because it is an event for watchers.
        let mode = mode & 0o7777;
        if rustix::fs::fstat(&self.file)?.st_mode & 0o7777 != mode {
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }

    /// Links the file to a free name.
    fn name_new(&mut self) -> Result<(), Errno> {
        let WriteTarget::Named(temporary) = &self.place else {
            return link(&self.file, &self.path);
        };
        match rustix::fs::linkat(CWD, temporary, CWD, &self.path, AtFlags::empty()) {
            Ok(()) => {
                let _ = rustix::fs::unlinkat(CWD, temporary, AtFlags::empty());
                self.place = WriteTarget::Own;
                Ok(())
            }
            Err(Errno::EXIST) => Err(Errno::EXIST),
            // A file system without hard links.
            Err(_) => self.replace(),
        }
    }

    /// Replaces an existing file.
    fn replace(&mut self) -> Result<(), Errno> {
        self.name_temporarily()?;
        let WriteTarget::Named(temporary) = &self.place else { return Ok(()) };
        rustix::fs::renameat(CWD, temporary, CWD, &self.path)?;
        self.place = WriteTarget::Own;
        Ok(())
    }

    /// Replaces the expected file, and no other: the lock keeps other conditional writers away from the
    /// moment between the check and the rename.
    fn replace_expected(&mut self) -> Result<(), Failure> {
        self.name_temporarily()?;
        let _lock = lock_directory(parent(&self.path))?;
        let old = rustix::fs::statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW).ok();
        check_expected(self.expected, old.as_ref())?;
        Ok(self.replace()?)
    }

    /// Gives a nameless file a name of [`names`].
    fn name_temporarily(&mut self) -> Result<(), Errno> {
        if self.place == WriteTarget::Nameless {
            // The lock tells a cleanup that this file is still in use.
            let _ = rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive);
            let inode = rustix::fs::fstat(&self.file)?.st_ino;
            let temporary = free(|| {
                let temporary = parent(&self.path).join(names::temporary_name(inode)?);
                link(&self.file, &temporary).map(|()| temporary)
            })?;
            self.place = WriteTarget::Named(temporary);
        }
        Ok(())
    }
}

impl Drop for AtomicWrite {
    fn drop(&mut self) {
        if let WriteTarget::Named(temporary) = &self.place {
            let _ = rustix::fs::unlinkat(CWD, temporary, AtFlags::empty());
        }
    }
}

/// Refuses with `Changed` if `old` is not the expected file.
fn check_expected(
    expected: Option<ExpectedFile>,
    old: Option<&rustix::fs::Stat>,
) -> Result<(), Failure> {
    let changed = |message: &str| Err(Failure(RefusalReason::Changed, message.to_owned()));
    match (expected, old) {
        (None, _) | (Some(ExpectedFile::Any), Some(_)) => Ok(()),
        (Some(_), None) => changed("the file does not exist"),
        (Some(ExpectedFile::Version(version)), Some(old)) => {
            if disk::stat(old).version() == version {
                return Ok(());
            }
            changed("the file has changed since it was read")
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Locks a directory against other conditional writers. The lock ends with the descriptor.
fn lock_directory(dir: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty())?;
    let end = Instant::now() + LOCK_WAIT;
    loop {
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(fd),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(LOCK_POLL),
            Err(Errno::WOULDBLOCK) => {
                let message = "a program holds a lock on the directory".to_owned();
                return Err(Failure(RefusalReason::ResourcesExhausted, message));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn is_file(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// The target of a symbolic link, which may not exist yet.
fn followed(path: &Path) -> Result<PathBuf, Failure> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = rustix::fs::readlinkat(CWD, &path, Vec::new()) else { return Ok(path) };
        let target = OsString::from_vec(target.into_bytes());
        path = parent(&path).join(target);
    }
    Err(Errno::LOOP.into())
}

/// Opens a regular file to append to it, or creates it.
fn end(path: &Path) -> Result<File, Failure> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let calm = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags | calm, Mode::from_raw_mode(0o600))?;
    if !is_file(&rustix::fs::fstat(&fd)?) {
        return Err(Failure(RefusalReason::WrongKind, "not a regular file".to_owned()));
    }
    Ok(File::from(fd))
}

/// Creates a file in a directory, without a name if the file system supports that.
fn begin(dir: &Path) -> Result<(File, WriteTarget), Failure> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags, Mode::from_raw_mode(MODE)) {
        Ok(fd) => Ok((File::from(fd), WriteTarget::Nameless)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let (fd, temporary) = named(dir)?;
            Ok((File::from(fd), WriteTarget::Named(temporary)))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Creates a file whose name contains its inode. It is locked before it has that name: see
/// [`names`].
fn named(dir: &Path) -> Result<(OwnedFd, PathBuf), Failure> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let (fd, first) = free(|| {
        let first = dir.join(names::temporary_name(0)?);
        rustix::fs::open(&first, flags, Mode::from_raw_mode(0o600)).map(|fd| (fd, first))
    })?;
    let _ = rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive);
    let temporary = dir.join(names::temporary_name(rustix::fs::fstat(&fd)?.st_ino)?);
    match rustix::fs::renameat(CWD, &first, CWD, &temporary) {
        Ok(()) => Ok((fd, temporary)),
        Err(errno) => {
            let _ = rustix::fs::unlinkat(CWD, &first, AtFlags::empty());
            Err(errno.into())
        }
    }
}

/// Tries names until one is free.
fn free<T>(attempt: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut tries = 0;
    loop {
        match attempt() {
            Err(Errno::EXIST) if tries < TRIES_MAX => tries += 1,
            result => return result,
        }
    }
}

/// Links a nameless file to a free name.
fn link(file: &File, to: &Path) -> Result<(), Errno> {
    match rustix::fs::linkat(file, c"", CWD, to, AtFlags::EMPTY_PATH) {
        // Before 6.10, only a privileged process could link a file by its descriptor.
        Err(Errno::NOENT | Errno::PERM) => {
            let own = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(CWD, own, CWD, to, AtFlags::SYMLINK_FOLLOW)
        }
        result => result,
    }
}
