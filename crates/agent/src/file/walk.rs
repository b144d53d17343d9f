//! What lies in a directory, sorted and page by page, in memory that does not grow with it.
//!
//! Paths are in the order of their parts, so that a page can begin after any path, also one
//! that is gone.

use super::disk::{self, Failure};
use super::names;
use isolet_wire::request::Walk;
use isolet_wire::response::{Found, Kind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::BinaryHeap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Names of one directory that are held at a time.
const NAMES_MAX: usize = 4096;
/// What is longer cannot be named in a call.
const PATH_BYTES_MAX: usize = 4095;
/// Bytes of a path that an error repeats.
const SHOWN_BYTES_MAX: usize = 256;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// One directory, on the way down.
struct Level {
    dir: OwnedFd,
    /// Its path below the root, with a slash at its end; empty for the root.
    path: Vec<u8>,
    /// Its next names, the last one first.
    names: Vec<Vec<u8>>,
    /// All names up to this one are done.
    done: Option<Vec<u8>>,
    /// There are more than `names`.
    more: bool,
}

/// Walks below `root` and hands out what is asked for, at most `wish.max` entries. A directory that
/// cannot be walked comes with the reason, also where the pattern is not for it.
pub(crate) fn walk<E: From<Failure>>(
    root: &Path,
    wish: &Walk,
    mut take: impl FnMut(Found, Option<Failure>) -> Result<(), E>,
) -> Result<(), E> {
    let root = rustix::fs::open(root, DIRECTORY, Mode::empty()).map_err(Failure::from)?;
    let mut left = wish.max;
    let mut levels = vec![level(&root, Vec::new(), wish).map_err(Failure::from)?];
    while left > 0
        && let Some(last) = levels.last_mut()
    {
        let Some(name) = last.next(wish).map_err(Failure::from)? else {
            levels.pop();
            continue;
        };
        let path = [last.path.as_slice(), &name].concat();
        let at = (&last.dir, name.as_slice());
        let stat = match rustix::fs::statat(at.0, at.1, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => disk::stat(&stat),
            Err(errno) if gone(errno) => continue,
            Err(errno) => return Err(failed(&path, errno).into()),
        };
        if names::is_temporary(&name, stat.inode) {
            names::sweep(&last.dir, &name);
            continue;
        }
        let target = disk::target(last.dir.as_fd(), &name, &stat);
        let (below, unread) = if wish.recursive && stat.kind == Kind::Directory {
            below(&root, &path, wish)
        } else {
            (None, None)
        };
        if wish.after.as_ref().is_none_or(|after| parts(&path).gt(parts(after)))
            && (unread.is_some()
                || wish.glob.as_ref().is_none_or(|glob| matches(glob, &path, &name)))
        {
            take(Found { path, stat, target }, unread)?;
            left -= 1;
        }
        levels.extend(below);
    }
    Ok(())
}

/// Whether something is not there any more, or has become something else: no part of the tree then.
pub(super) fn gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::SRCH)
}

/// Why what lies at a path below the root could not be read.
pub(super) fn failed(path: &[u8], errno: Errno) -> Failure {
    let Failure(why, message) = errno.into();
    let (shown, cut) = match path.len() {
        0..=SHOWN_BYTES_MAX => (path, ""),
        _ => (&path[..SHOWN_BYTES_MAX], "…"),
    };
    Failure(why, format!("{}{cut}: {message}", String::from_utf8_lossy(shown).escape_debug()))
}

/// A directory of the tree, opened, or why it is not; neither where it is gone.
fn below(root: &OwnedFd, path: &[u8], wish: &Walk) -> (Option<Level>, Option<Failure>) {
    if path.len() >= PATH_BYTES_MAX {
        return (None, Some(failed(path, Errno::NAMETOOLONG)));
    }
    match level(root, [path, b"/"].concat(), wish) {
        Ok(level) => (Some(level), None),
        Err(errno) if gone(errno) => (None, None),
        Err(errno) => (None, Some(failed(path, errno))),
    }
}

/// Opens a directory below the root, through no link.
fn level(root: &OwnedFd, path: Vec<u8>, wish: &Walk) -> Result<Level, Errno> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let name = if path.is_empty() { b"." } else { path.as_slice() };
    let dir = rustix::fs::openat2(root, name, DIRECTORY, Mode::empty(), stay)?;
    // Of one that tells its names and no more nothing is known.
    rustix::fs::statat(&dir, c".", AtFlags::empty())?;
    // Where the page begins within this directory: what is before is not even looked at.
    let done = wish.after.as_ref().and_then(|after| after.strip_prefix(path.as_slice()));
    let done = done.map(|rest| rest.split(|b| *b == b'/').next().unwrap_or_default().to_vec());
    let mut level = Level { dir, path, names: Vec::new(), done: None, more: true };
    level.fill(wish, |name| done.as_deref().is_none_or(|done| name >= done))?;
    Ok(level)
}

impl Level {
    fn next(&mut self, wish: &Walk) -> Result<Option<Vec<u8>>, Errno> {
        if self.names.is_empty() && self.more {
            let done = self.done.take().unwrap_or_default();
            match self.fill(wish, |name| name > done.as_slice()) {
                Err(errno) if !gone(errno) => return Err(errno),
                _ => {}
            }
        }
        Ok(self.names.pop())
    }

    /// The first names that are wanted; directories always, where they are to be walked.
    fn fill(&mut self, wish: &Walk, wanted: impl Fn(&[u8]) -> bool) -> Result<(), Errno> {
        let mut first = BinaryHeap::new();
        self.more = false;
        rustix::fs::seek(&self.dir, rustix::fs::SeekFrom::Start(0))?;
        disk::each(&self.dir, |name, kind| {
            let folder = wish.recursive && matches!(kind, FileType::Directory | FileType::Unknown);
            let shown = wish.hidden || !name.starts_with(b".");
            let asked = |glob: &Vec<u8>| matches(glob, &[&self.path, name].concat(), name);
            if wanted(name) && shown && (folder || wish.glob.as_ref().is_none_or(asked)) {
                first.push(name.to_vec());
                if first.len() > NAMES_MAX {
                    first.pop();
                    self.more = true;
                }
            }
            true
        })?;
        self.names = first.into_sorted_vec();
        self.done = self.names.last().cloned();
        self.names.reverse();
        Ok(())
    }
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}

/// A pattern with a slash is for the whole path, another one for the name.
pub(super) fn matches(glob: &[u8], path: &[u8], name: &[u8]) -> bool {
    let over = if glob.contains(&b'/') { path } else { name };
    fast_glob::glob_match(glob, over)
}
