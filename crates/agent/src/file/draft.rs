//! A file that is being written: under a temporary name beside its own, or at the end of what
//! is there.

use crate::disk::{self, Failure};
use isolet_wire::ask::Save;
use isolet_wire::tell::{Stat, Why};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Tries for a name that is not taken.
const NAMES_MAX: usize = 16;
/// As many links are followed as the kernel would.
const LINKS_MAX: usize = 40;
/// Permission bits of a new file unless told.
const MODE: u32 = 0o644;

/// Gone unless it is kept.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Where the bytes go.
    pub(crate) file: File,
    path: PathBuf,
    /// The name to be taken away; none of what is appended to.
    draft: Option<PathBuf>,
    created: bool,
    sync: bool,
}

impl Draft {
    /// Begins one for `path`, or for what `path` links to; its parents are made. A new file gets
    /// `fresh` where `how` names no mode.
    pub(crate) fn new(path: &Path, fresh: Option<u32>, how: Save) -> Result<Self, Failure> {
        let path = followed(path)?;
        let wrong = |what: &str| Failure(Why::WrongKind, what.to_owned());
        let old = rustix::fs::statat(CWD, &path, AtFlags::empty()).ok();
        if old.is_some_and(|old| !is_file(&old)) {
            return Err(wrong("not a regular file"));
        }
        if path.file_name().is_none() || path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(wrong("a directory"));
        }
        let dir = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(dir)?;
        let (file, draft) = if how.append {
            (end(&path)?, None)
        } else {
            let (file, draft) = temporary(dir)?;
            (file, Some(draft))
        };
        let draft = Self { file, path, draft, created: old.is_none(), sync: how.sync };
        let kept = old.map(|old| old.st_mode).or(fresh).unwrap_or(MODE);
        // Not by the open, whose mode the mask would cut.
        let mode = Mode::from_raw_mode(how.mode.unwrap_or(kept) & 0o7777);
        rustix::fs::fchmod(&draft.file, mode)?;
        Ok(draft)
    }

    /// Gives it its name; says whether there was none of that name.
    pub(crate) fn keep(mut self) -> Result<(Stat, bool), Failure> {
        if self.sync {
            self.file.sync_all()?;
        }
        if let Some(draft) = self.draft.take()
            && let Err(errno) = rustix::fs::renameat(CWD, &draft, CWD, &self.path)
        {
            self.draft = Some(draft);
            return Err(errno.into());
        }
        if self.sync {
            // The name is kept by the directory, not by the file.
            File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        }
        Ok((disk::stat(&rustix::fs::fstat(&self.file)?), self.created))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(draft) = &self.draft {
            let _ = rustix::fs::unlinkat(CWD, draft, AtFlags::empty());
        }
    }
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
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    Err(Errno::LOOP.into())
}

/// A regular file, to be written at its end; made where it is not there.
fn end(path: &Path) -> Result<File, Failure> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let calm = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags | calm, Mode::from_raw_mode(0o600))?;
    if !is_file(&rustix::fs::fstat(&fd)?) {
        return Err(Failure(Why::WrongKind, "not a regular file".to_owned()));
    }
    Ok(File::from(fd))
}

/// A new file under a name of its own.
fn temporary(dir: &Path) -> Result<(File, PathBuf), Failure> {
    for _ in 0..NAMES_MAX {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let draft = dir.join(format!(".isolet-{:016x}", u64::from_ne_bytes(random)));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::open(&draft, flags, Mode::from_raw_mode(0o600)) {
            Ok(fd) => return Ok((File::from(fd), draft)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Failure(Why::Failed, "no free name for a temporary file".to_owned()))
}
