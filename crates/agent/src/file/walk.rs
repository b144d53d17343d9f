//! Lists a directory tree, sorted and page by page, in constant memory.
//!
//! Paths are sorted by their components, so that a page can start after any path, even one that no
//! longer exists.

use super::disk::{self, Failure};
use super::names;
use isolet_wire::request::WalkOptions;
use isolet_wire::response::{FileKind, FoundFile};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::BinaryHeap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Maximum number of names of one directory in memory.
const NAMES_MAX: usize = 4096;
/// Maximum length of a path, in bytes, as in requests.
const PATH_BYTES_MAX: usize = 4095;
/// Maximum length of a path in an error message, in bytes.
const SHOWN_BYTES_MAX: usize = 256;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// One directory on the current path.
struct WalkLevel {
    dir: OwnedFd,
    /// Its path below the root with a trailing slash; empty for the root.
    path: Vec<u8>,
    /// Its next names in reverse order.
    names: Vec<Vec<u8>>,
    /// All names up to this one have been handled.
    done: Option<Vec<u8>>,
    /// There are more names than `names`.
    more: bool,
}

/// Walks below `root` and reports at most `options.max` entries. A directory that cannot be read is
/// reported with the reason, even if it does not match the pattern.
pub(crate) fn walk<E: From<Failure>>(
    root: &Path,
    options: &WalkOptions,
    mut take: impl FnMut(FoundFile, Option<Failure>) -> Result<(), E>,
) -> Result<(), E> {
    let root = rustix::fs::open(root, DIRECTORY, Mode::empty()).map_err(Failure::from)?;
    let mut left = options.max;
    let mut levels = vec![level(&root, Vec::new(), options).map_err(Failure::from)?];
    while left > 0
        && let Some(last) = levels.last_mut()
    {
        let Some(name) = last.next(options).map_err(Failure::from)? else {
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
        let (below, unread) = if options.recursive && stat.kind == FileKind::Directory {
            below(&root, &path, options)
        } else {
            (None, None)
        };
        if options.after.as_ref().is_none_or(|after| parts(&path).gt(parts(after)))
            && (unread.is_some()
                || options.glob.as_ref().is_none_or(|glob| matches(glob, &path, &name)))
        {
            take(FoundFile { path, stat, target }, unread)?;
            left -= 1;
        }
        levels.extend(below);
    }
    Ok(())
}

/// Whether a file has disappeared or changed its type, and is therefore left out.
pub(super) fn gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::SRCH)
}

/// The error for a path below the root that could not be read.
pub(super) fn failed(path: &[u8], errno: Errno) -> Failure {
    let Failure(reason, message) = errno.into();
    let (shown, cut) = match path.len() {
        0..=SHOWN_BYTES_MAX => (path, ""),
        _ => (&path[..SHOWN_BYTES_MAX], "…"),
    };
    Failure(reason, format!("{}{cut}: {message}", String::from_utf8_lossy(shown).escape_debug()))
}

/// Opens a directory of the tree, or returns why it cannot be opened; neither if it is gone.
fn below(
    root: &OwnedFd,
    path: &[u8],
    options: &WalkOptions,
) -> (Option<WalkLevel>, Option<Failure>) {
    if path.len() >= PATH_BYTES_MAX {
        return (None, Some(failed(path, Errno::NAMETOOLONG)));
    }
    match level(root, [path, b"/"].concat(), options) {
        Ok(level) => (Some(level), None),
        Err(errno) if gone(errno) => (None, None),
        Err(errno) => (None, Some(failed(path, errno))),
    }
}

/// Opens a directory below the root without following symbolic links.
fn level(root: &OwnedFd, path: Vec<u8>, options: &WalkOptions) -> Result<WalkLevel, Errno> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let name = if path.is_empty() { b"." } else { path.as_slice() };
    let dir = rustix::fs::openat2(root, name, DIRECTORY, Mode::empty(), stay)?;
    // The metadata of a directory without search permission is unknown.
    rustix::fs::statat(&dir, c".", AtFlags::empty())?;
    // The start of the page within this directory. Earlier names are skipped.
    let done = options.after.as_ref().and_then(|after| after.strip_prefix(path.as_slice()));
    let done = done.map(|rest| rest.split(|b| *b == b'/').next().unwrap_or_default().to_vec());
    let mut level = WalkLevel { dir, path, names: Vec::new(), done: None, more: true };
    level.fill(options, |name| done.as_deref().is_none_or(|done| name >= done))?;
    Ok(level)
}

impl WalkLevel {
    fn next(&mut self, options: &WalkOptions) -> Result<Option<Vec<u8>>, Errno> {
        if self.names.is_empty() && self.more {
            let done = self.done.take().unwrap_or_default();
            match self.fill(options, |name| name > done.as_slice()) {
                Err(errno) if !gone(errno) => return Err(errno),
                _ => {}
            }
        }
        Ok(self.names.pop())
    }

    /// Reads the first matching names. Directories always match if they are to be walked.
    fn fill(&mut self, options: &WalkOptions, wanted: impl Fn(&[u8]) -> bool) -> Result<(), Errno> {
        let mut first = BinaryHeap::new();
        self.more = false;
        rustix::fs::seek(&self.dir, rustix::fs::SeekFrom::Start(0))?;
        disk::each(&self.dir, |name, kind| {
            let folder =
                options.recursive && matches!(kind, FileType::Directory | FileType::Unknown);
            let shown = options.hidden || !name.starts_with(b".");
            let asked = |glob: &Vec<u8>| matches(glob, &[&self.path, name].concat(), name);
            if wanted(name) && shown && (folder || options.glob.as_ref().is_none_or(asked)) {
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

/// Matches a pattern with a slash against the whole path, and any other pattern against the name.
pub(super) fn matches(glob: &[u8], path: &[u8], name: &[u8]) -> bool {
    let over = if glob.contains(&b'/') { path } else { name };
    fast_glob::glob_match(glob, over)
}
