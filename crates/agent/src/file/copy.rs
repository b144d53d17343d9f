//! Copies and new names, of files and of whole directories.

use super::atomic_write::AtomicWrite;
use super::disk::{self, Failure};
use super::names;
use super::owned::{Ids, Owner};
use isolet_wire::request::Save;
use isolet_wire::response::{Kind, RefusalReason};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Gives `from` the name `to`, also across file systems; the parents of `to` are made.
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

/// Copies a file, a link, or a directory with all it holds; what is half-made goes again. What is
/// new belongs to who copies; a file that is replaced keeps its owner and its mode.
pub(crate) fn copy(from: &Path, to: &Path, replace: bool) -> Result<(), Failure> {
    transfer(from, to, replace, Owners::New)
}

/// Whose copies are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owners {
    /// Of who copies.
    New,
    /// Of the owners of what is copied: it moves.
    Moved,
}

impl Owners {
    /// Gives a copy its owner.
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
    if there && (!replace || kind == Kind::Directory) {
        return Err(Errno::EXIST.into());
    }
    if kind != Kind::Directory {
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

fn kind(path: &Path) -> Result<Kind, Failure> {
    Ok(disk::stat(&about(path)?).kind)
}

fn parents(path: &Path) -> Result<(), Failure> {
    path.parent().map_or(Ok(()), disk::make_dirs)
}

/// Whether `to` would lie in the directory `from`.
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

/// One that is no directory.
fn one(from: &Path, to: &Path, kind: Kind, owners: Owners) -> Result<(), Failure> {
    match kind {
        Kind::File => {
            let (mut file, stat) = disk::open(from)?;
            let (how, owner) = match owners {
                Owners::New => (Save::default(), Owner::Kept),
                Owners::Moved => {
                    let how = Save { mode: Some(stat.mode), ..Save::default() };
                    (how, Owner::Moved((&rustix::fs::fstat(&file)?).into()))
                }
            };
            let mut write = AtomicWrite::new(to, Some(stat.mode), how, owner)?;
            std::io::copy(&mut file, &mut write.file)?;
            write.commit().map(drop)
        }
        Kind::Symlink => {
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

/// A directory with all it holds, level by level; modes are set at the end, so that a directory
/// that may not be written in is filled first.
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
                Ok(Kind::Directory) => {
                    waiting.push(below.join(name));
                    Ok(())
                }
                Ok(kind) => one(&source.join(name), &target.join(name), kind, owners),
                // What has gone meanwhile is no part of it.
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

/// Without the slash that an empty name would put behind.
fn join(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_owned() } else { path.join(below) }
}
