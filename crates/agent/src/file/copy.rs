//! Copies and renames files and directories.

use super::atomic_write::AtomicWrite;
use super::disk::{self, Failure};
use super::names;
use super::owned::{Ids, Owner};
use isolet_wire::request::WriteOptions;
use isolet_wire::response::{FileKind, RefusalReason};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Renames `from` to `to`, also across file systems. Missing parents of `to` are created.
pub(crate) fn rename(from: &Path, to: &Path, replace: bool) -> Result<(), Failure> {
    rustix::fs::statat(CWD, from, AtFlags::SYMLINK_NOFOLLOW)?;
    parents(to)?;
    let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    match rustix::fs::renameat_with(CWD, from, CWD, to, flags) {
        Err(Errno::XDEV) => {
            transfer(from, to, replace, Owners::Moved)?;
            disk::remove(from, true)
        }
        Err(Errno::INVAL) => Err(inside()),
        result => Ok(result?),
    }
}

/// Copies a file, a symbolic link, or a directory with its contents. An incomplete copy is removed.
/// New files belong to the sandbox's user, and a replaced file keeps its owner and its mode.
pub(crate) fn copy(from: &Path, to: &Path, replace: bool) -> Result<(), Failure> {
    transfer(from, to, replace, Owners::New)
}

/// The owner of copied files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owners {
    New,
    /// The owner of the original, because the file is moved.
    Moved,
}

impl Owners {
    /// Sets the owner of a copy.
    fn give(self, of: &rustix::fs::Stat, to: &Path) -> Result<(), Errno> {
        match self {
            Self::New => Ok(()),
            Self::Moved => Ids::from(of).own(to),
        }
    }
}

fn transfer(from: &Path, to: &Path, replace: bool, owners: Owners) -> Result<(), Failure> {
    let kind = kind(from)?;
    parents(to)?;
    let there = rustix::fs::statat(CWD, to, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    if there && (!replace || kind == FileKind::Directory) {
        return Err(Errno::EXIST.into());
    }
    if kind != FileKind::Directory {
        return one(from, to, kind, owners);
    }
    if contains(from, to)? {
        return Err(inside());
    }
    tree(from, to, owners).inspect_err(|_| {
        let _ = disk::remove(to, true);
    })
}

fn inside() -> Failure {
    Failure(RefusalReason::WrongKind, "a directory cannot go into itself".to_owned())
}

fn about(path: &Path) -> Result<rustix::fs::Stat, Errno> {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
}

fn kind(path: &Path) -> Result<FileKind, Failure> {
    Ok(disk::stat(&about(path)?).kind)
}

fn parents(path: &Path) -> Result<(), Failure> {
    path.parent().map_or(Ok(()), disk::make_dirs)
}

/// Whether `to` is inside the directory `from`.
fn contains(from: &Path, to: &Path) -> Result<bool, Failure> {
    let which = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let own = which(rustix::fs::statat(CWD, from, AtFlags::empty())?);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut above = rustix::fs::open(to.parent().unwrap_or(Path::new("/")), flags, Mode::empty())?;
    loop {
        let here = which(rustix::fs::fstat(&above)?);
        if here == own {
            return Ok(true);
        }
        above = rustix::fs::openat(&above, c"..", flags, Mode::empty())?;
        if which(rustix::fs::fstat(&above)?) == here {
            return Ok(false);
        }
    }
}

/// Copies anything but a directory.
fn one(from: &Path, to: &Path, kind: FileKind, owners: Owners) -> Result<(), Failure> {
    match kind {
        FileKind::File => {
            let (mut file, stat) = disk::open(from)?;
            let (options, owner) = match owners {
                Owners::New => (WriteOptions::default(), Owner::Kept),
                Owners::Moved => {
                    let options = WriteOptions { mode: Some(stat.mode), ..WriteOptions::default() };
                    (options, Owner::Moved((&rustix::fs::fstat(&file)?).into()))
                }
            };
            let mut write = AtomicWrite::new(to, Some(stat.mode), options, owner, None)?;
            std::io::copy(&mut file, &mut write.file)?;
            write.commit().map(drop)
        }
        FileKind::Symlink => {
            let target = rustix::fs::readlinkat(CWD, from, Vec::new())?;
            match rustix::fs::symlinkat(&target, CWD, to) {
                Err(Errno::EXIST) => {
                    rustix::fs::unlinkat(CWD, to, AtFlags::empty())?;
                    rustix::fs::symlinkat(&target, CWD, to)?;
                }
                result => result?,
            }
            Ok(owners.give(&about(from)?, to)?)
        }
        _ if pipe(from) => {
            let mode = Mode::from_raw_mode(0o644);
            rustix::fs::mknodat(CWD, to, FileType::Fifo, mode, 0)?;
            Ok(owners.give(&about(from)?, to)?)
        }
        _ => {
            let name = from.to_string_lossy();
            Err(Failure(RefusalReason::WrongKind, format!("{name} is a socket or a device")))
        }
    }
}

fn pipe(path: &Path) -> bool {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// Copies a directory level by level. Modes are set at the end, so that a read-only directory can
/// be filled first.
fn tree(from: &Path, to: &Path, owners: Owners) -> Result<(), Failure> {
    let mut waiting = vec![PathBuf::new()];
    let mut modes = Vec::new();
    while let Some(below) = waiting.pop() {
        let source = join(from, &below);
        let target = join(to, &below);
        let stat = about(&source)?;
        rustix::fs::mkdirat(CWD, &target, Mode::from_raw_mode(0o700))?;
        owners.give(&stat, &target)?;
        modes.push((target.clone(), Mode::from_raw_mode(stat.st_mode & 0o7777)));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&source, flags, Mode::empty())?;
        let mut failed = Ok(());
        disk::each(&dir, |name, _| {
            let is_temporary = |path: &Path| {
                about(path).is_ok_and(|about| names::is_temporary(name, about.st_ino))
            };
            let name = OsStr::from_bytes(name);
            if is_temporary(&source.join(name)) {
                return true;
            }
            failed = match kind(&source.join(name)) {
                Ok(FileKind::Directory) => {
                    waiting.push(below.join(name));
                    Ok(())
                }
                Ok(kind) => one(&source.join(name), &target.join(name), kind, owners),
                // A file that disappeared in the meantime is not copied.
                Err(Failure(RefusalReason::NotFound, _)) => Ok(()),
                Err(failure) => Err(failure),
            };
            failed.is_ok()
        })?;
        failed?;
    }
    for (path, mode) in modes.into_iter().rev() {
        rustix::fs::chmodat(CWD, &path, mode, AtFlags::empty())?;
    }
    Ok(())
}

/// Without the slash that an empty name would append.
fn join(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_owned() } else { path.join(below) }
}
