//! A file that is being written: without a name until it is whole, or at the end of what is there.
//!
//! A new file is an `O_TMPFILE` that is linked to its name, so that a watcher of the directory
//! sees that name created and nothing else. To replace a file, the kernel needs a second name for
//! the moment of the rename ([`super::names`]).

use super::disk::{self, Failure};
use super::names;
use super::owned::Owner;
use isolet_wire::request::Save;
use isolet_wire::response::{RefusalReason, Stat};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Attempts to find a name that is not taken, or to give a name that others give and take.
const TRIES_MAX: usize = 16;
/// As many links are followed as the kernel would.
const LINKS_MAX: usize = 40;
/// Permission bits of a new file unless told.
const MODE: u32 = 0o644;

/// Where the bytes are until the file is kept.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// In a file without a name.
    Nameless,
    /// Under a name of [`names`], where the file system has no files without names.
    Named(PathBuf),
    /// In the file itself: they are appended to it.
    Own,
}

/// Gone unless it is kept.
#[derive(Debug)]
pub(crate) struct AtomicWrite {
    /// Where the bytes go.
    pub(crate) file: File,
    path: PathBuf,
    place: Place,
    /// There was none of this name when an append began.
    created: bool,
    mode: Option<u32>,
    fresh: u32,
    owner: Owner,
    sync: bool,
}

impl AtomicWrite {
    /// Begins one for `path`, or for what `path` links to; its parents are made. A new file gets
    /// `fresh` where `how` names no mode; an old one keeps its mode, and its owner as `owner` says.
    pub(crate) fn new(
        path: &Path,
        fresh: Option<u32>,
        how: Save,
        owner: Owner,
    ) -> Result<Self, Failure> {
        let path = followed(path)?;
        let wrong = |what: &str| Failure(RefusalReason::WrongKind, what.to_owned());
        let old = rustix::fs::statat(CWD, &path, AtFlags::empty()).ok();
        if old.is_some_and(|old| !is_file(&old)) {
            return Err(wrong("not a regular file"));
        }
        if path.file_name().is_none() || path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(wrong("a directory"));
        }
        let dir = parent(&path);
        std::fs::create_dir_all(dir)?;
        let fresh = fresh.unwrap_or(MODE);
        let (file, place) = if how.append { (end(&path)?, Place::Own) } else { begin(dir)? };
        let Save { mode, sync, .. } = how;
        let created = old.is_none();
        let write = Self { file, path, place, created, mode, fresh, owner, sync };
        if write.place == Place::Own && (created || mode.is_some()) {
            write.set_mode(mode.unwrap_or(fresh))?;
        }
        Ok(write)
    }

    /// Gives it its name; says whether there was none of that name.
    pub(crate) fn commit(mut self) -> Result<(Stat, bool), Failure> {
        let created = self.publish()?;
        if self.sync {
            // The name is kept by the directory, not by the file.
            File::open(parent(&self.path))?.sync_all()?;
        }
        Ok((disk::stat(&rustix::fs::fstat(&self.file)?), created))
    }

    fn publish(&mut self) -> Result<bool, Failure> {
        if self.place == Place::Own {
            if self.sync {
                self.file.sync_all()?;
            }
            return Ok(self.created);
        }
        for _ in 0..TRIES_MAX {
            let old = rustix::fs::statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW).ok();
            let old = old.filter(is_file);
            self.set_metadata(old.as_ref())?;
            if self.sync {
                self.file.sync_all()?;
            }
            let new = old.is_none();
            match if new { self.name_new() } else { self.replace() } {
                // Another writer was faster: its file is there now, and is replaced.
                Err(Errno::EXIST) if new => {}
                result => return Ok(result.map(|()| new)?),
            }
        }
        Err(Failure(
            RefusalReason::Failed,
            "the name is taken and given up again and again".to_owned(),
        ))
    }

    /// Owner, attributes and mode, as the file that it replaces has them.
    fn set_metadata(&self, old: Option<&rustix::fs::Stat>) -> Result<(), Failure> {
        let kept = self.owner.give(&self.file, old, &self.path)?;
        let mode = old.map_or(self.fresh, |old| old.st_mode);
        // A program that was to run as its owner does not run as another one.
        let mode = if kept { mode } else { mode & 0o1777 };
        self.set_mode(self.mode.unwrap_or(mode))
    }

    fn set_mode(&self, mode: u32) -> Result<(), Failure> {
        // Not by the open, whose mode the mask would cut; and not without need, as it is an event.
        let mode = mode & 0o7777;
        if rustix::fs::fstat(&self.file)?.st_mode & 0o7777 != mode {
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }

    /// Gives it a name that nobody has.
    fn name_new(&mut self) -> Result<(), Errno> {
        let Place::Named(temporary) = &self.place else { return link(&self.file, &self.path) };
        match rustix::fs::linkat(CWD, temporary, CWD, &self.path, AtFlags::empty()) {
            Ok(()) => {
                let _ = rustix::fs::unlinkat(CWD, temporary, AtFlags::empty());
                self.place = Place::Own;
                Ok(())
            }
            Err(Errno::EXIST) => Err(Errno::EXIST),
            // A file system without second names.
            Err(_) => self.replace(),
        }
    }

    /// Takes the place of what has the name.
    fn replace(&mut self) -> Result<(), Errno> {
        if self.place == Place::Nameless {
            // Whoever cleans up sees by the lock that this one is not left over.
            let _ = rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive);
            let inode = rustix::fs::fstat(&self.file)?.st_ino;
            let temporary = free(|| {
                let temporary = parent(&self.path).join(names::temporary_name(inode)?);
                link(&self.file, &temporary).map(|()| temporary)
            })?;
            self.place = Place::Named(temporary);
        }
        let Place::Named(temporary) = &self.place else { return Ok(()) };
        rustix::fs::renameat(CWD, temporary, CWD, &self.path)?;
        self.place = Place::Own;
        Ok(())
    }
}

impl Drop for AtomicWrite {
    fn drop(&mut self) {
        if let Place::Named(temporary) = &self.place {
            let _ = rustix::fs::unlinkat(CWD, temporary, AtFlags::empty());
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn is_file(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Where a link leads, also one whose target is not there yet.
fn followed(path: &Path) -> Result<PathBuf, Failure> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = rustix::fs::readlinkat(CWD, &path, Vec::new()) else { return Ok(path) };
        let target = OsString::from_vec(target.into_bytes());
        path = parent(&path).join(target);
    }
    Err(Errno::LOOP.into())
}

/// A regular file, to be written at its end; made where it is not there.
fn end(path: &Path) -> Result<File, Failure> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let calm = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags | calm, Mode::from_raw_mode(0o600))?;
    if !is_file(&rustix::fs::fstat(&fd)?) {
        return Err(Failure(RefusalReason::WrongKind, "not a regular file".to_owned()));
    }
    Ok(File::from(fd))
}

/// A new file in a directory, without a name where the file system has such.
fn begin(dir: &Path) -> Result<(File, Place), Failure> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags, Mode::from_raw_mode(MODE)) {
        Ok(fd) => Ok((File::from(fd), Place::Nameless)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let (fd, temporary) = named(dir)?;
            Ok((File::from(fd), Place::Named(temporary)))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// A new file under a name that says its inode. It is locked before it says so: see [`names`].
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

/// Gives a file without a name one that nobody has.
fn link(file: &File, to: &Path) -> Result<(), Errno> {
    match rustix::fs::linkat(file, c"", CWD, to, AtFlags::EMPTY_PATH) {
        // Kernels before 6.10 let only a privileged process name a file by its descriptor.
        Err(Errno::NOENT | Errno::PERM) => {
            let own = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(CWD, own, CWD, to, AtFlags::SYMLINK_FOLLOW)
        }
        result => result,
    }
}
