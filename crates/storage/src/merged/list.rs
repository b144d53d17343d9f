//! Lists directories, sorted and page by page, in bounded memory.

use super::lookup::Place;
use super::{
    DirectoryRef, FileKind, FileStat, Found, MergedTree, OpenDirectory, PATH_BYTES_MAX, parts,
};
use rustix::fs::RawDir;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Maximum number of names of one directory in memory, near the top of a walk and in the directory
/// that the walk is in.
const NAMES_MAX: usize = 4096;
/// Maximum number of names of one directory in memory further down, while the walk is below it, so
/// that a tree of 2,000 levels takes at most 32 MiB.
const DEEP_NAMES_MAX: usize = 64;
/// From this level on, a walk that goes below a directory forgets most of its names.
const DEEP: usize = 8;
/// Maximum size of all paths and link targets of one page, in bytes.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Buffer for the entries of a directory, in bytes.
const ENTRIES_BYTES: usize = 32 * 1024;

/// What a list contains.
#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    /// Also list directories below. Links are not followed.
    pub recursive: bool,
    /// Also list names that begin with a dot.
    pub hidden: bool,
    /// Only list files that match: by name, or by path if the pattern contains a slash.
    pub glob: Option<Vec<u8>>,
    /// Only list paths after this one.
    pub after: Option<Vec<u8>>,
    /// Maximum number of entries.
    pub max: usize,
}

/// A file in a list.
#[derive(Debug)]
pub struct ListedFile {
    /// The path below the listed directory.
    pub path: Vec<u8>,
    /// The metadata.
    pub stat: FileStat,
    /// The target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Why the directories below it are left out.
    pub unread: Option<Errno>,
}

/// One page of a list.
#[derive(Debug, Default)]
pub struct ListPage {
    /// Sorted by the components of their paths.
    pub found: Vec<ListedFile>,
    /// There are more entries.
    pub more: bool,
}

/// The names of a directory in their order, some at a time.
pub(super) struct Names {
    /// The next ones, in reverse order.
    next: Vec<Vec<u8>>,
    /// All names up to this one were returned or are in `next`.
    done: Option<Vec<u8>>,
    more: bool,
    /// How many names the next reading takes.
    max: usize,
    deep: bool,
}

impl Names {
    /// The names from `from` on, in a directory at this depth.
    pub(super) fn from(from: Option<Vec<u8>>, depth: usize) -> Self {
        // The name itself is returned again, because there may be more below it.
        let done = from.map(|mut name| {
            if let Some(last) = name.last_mut().filter(|last| **last > 0) {
                *last -= 1;
                name.push(0xff);
            } else {
                name.pop();
            }
            name
        });
        Self { next: Vec::new(), done, more: true, max: NAMES_MAX, deep: depth >= DEEP }
    }

    /// Must be called before the walk goes below the directory. Forgets most of its names if it is
    /// deep. They are read again later, so the next reading takes few: a directory of directories is
    /// left again soon. A directory of files is read in portions that grow, because each portion
    /// costs a reading of the whole directory.
    pub(super) fn leave(&mut self) {
        if !self.deep {
            return;
        }
        self.max = DEEP_NAMES_MAX;
        let dropped = self.next.len().saturating_sub(DEEP_NAMES_MAX);
        if dropped > 0 {
            self.next.drain(..dropped);
            self.next.shrink_to_fit();
            self.done = self.next.first().cloned();
            self.more = true;
        }
    }

    /// The next name. `read` calls its argument with every name of the directory.
    pub(super) fn next(
        &mut self,
        read: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), Errno>,
    ) -> Result<Option<Vec<u8>>, Errno> {
        if self.next.is_empty() && self.more {
            let mut first: BTreeSet<Vec<u8>> = BTreeSet::new();
            let mut more = false;
            let done = self.done.take();
            let max = self.max;
            self.max = (max * 2).min(NAMES_MAX);
            read(&mut |name| {
                let after = done.as_deref().is_none_or(|done| name > done);
                let within =
                    first.len() < max || first.last().is_some_and(|last| name < last.as_slice());
                if !after || first.contains(name) {
                    return;
                }
                if !within {
                    more = true;
                    return;
                }
                first.insert(name.to_vec());
                if first.len() > max {
                    first.pop_last();
                    more = true;
                }
            })?;
            self.more = more;
            self.done = first.last().cloned();
            self.next = first.into_iter().rev().collect();
        }
        Ok(self.next.pop())
    }
}

/// Calls `take` with every name of a directory in one layer.
pub(super) fn each_name(
    directory: impl std::os::fd::AsFd,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), Errno> {
    rustix::fs::seek(&directory, rustix::fs::SeekFrom::Start(0))?;
    let mut buffer = [MaybeUninit::uninit(); ENTRIES_BYTES];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            take(name);
        }
    }
    Ok(())
}

/// A directory on the way of a walk.
struct Level {
    at: DirectoryRef,
    /// The path below the listed directory, with a slash behind it; empty for itself.
    path: Vec<u8>,
    names: Names,
}

impl MergedTree {
    /// Lists a directory that was found. Stops at `until` with `ETIMEDOUT`, and with `ECANCELED` once
    /// `cancelled` is set because nobody waits for the result any more.
    ///
    /// # Errors
    /// `ENOTDIR` for anything else, `ETIMEDOUT`, `ECANCELED`, and errors of the kernel.
    pub fn list(
        &self,
        of: &Found,
        request: &ListRequest,
        until: Instant,
        cancelled: &AtomicBool,
    ) -> Result<ListPage, Errno> {
        let Place::Directory(top) = &of.place else { return Err(Errno::NOTDIR) };
        let mut page = ListPage::default();
        let mut bytes = 0;
        let mut levels = vec![level(top.clone(), Vec::new(), request, 0)];
        let mut open: Option<OpenDirectory> = None;
        loop {
            let depth = levels.len();
            let Some(last) = levels.last_mut() else { return Ok(page) };
            let directory = match open.take() {
                Some(directory) if directory.at == last.at => directory,
                _ => self.open(&last.at)?,
            };
            let places = self.places.keys().filter(|_| last.at == self.root());
            let name = last.names.next(|take| {
                places.for_each(|name| take(name));
                directory.open.iter().try_for_each(|layer| each_name(layer, take))
            })?;
            let Some(name) = name else {
                levels.pop();
                continue;
            };
            if cancelled.load(Ordering::Relaxed) {
                return Err(Errno::CANCELED);
            }
            if Instant::now() >= until {
                return Err(Errno::TIMEDOUT);
            }
            if name.starts_with(b".") && !request.hidden {
                open = Some(directory);
                continue;
            }
            let Some(found) = self.child(&directory, &name)? else {
                open = Some(directory);
                continue;
            };
            let path = [last.path.as_slice(), &name].concat();
            let mut unread = None;
            let mut below = None;
            if request.recursive
                && let Place::Directory(at) = &found.place
            {
                if path.len() >= PATH_BYTES_MAX || at.path.len() >= PATH_BYTES_MAX {
                    unread = Some(Errno::NAMETOOLONG);
                } else {
                    let path = [path.as_slice(), b"/"].concat();
                    below = Some(level(at.clone(), path, request, depth));
                }
            }
            let new = request.after.as_ref().is_none_or(|after| parts(&path).gt(parts(after)));
            let wanted = || request.glob.as_ref().is_none_or(|glob| matches(glob, &path, &name));
            if new && (unread.is_some() || wanted()) {
                bytes += path.len() + found.target.as_ref().map_or(0, Vec::len);
                if page.found.len() >= request.max
                    || (bytes > PAGE_BYTES_MAX && !page.found.is_empty())
                {
                    page.more = true;
                    return Ok(page);
                }
                page.found.push(ListedFile {
                    path,
                    stat: found.stat,
                    target: found.target,
                    unread,
                });
            }
            if below.is_none() {
                open = Some(directory);
            }
            if let Some(below) = below {
                last.names.leave();
                levels.push(below);
            }
        }
    }
}

fn level(at: DirectoryRef, path: Vec<u8>, request: &ListRequest, depth: usize) -> Level {
    let after = request.after.as_ref().and_then(|after| after.strip_prefix(path.as_slice()));
    let from = after.and_then(|rest| parts(rest).next()).map(<[u8]>::to_vec);
    Level { at, path, names: Names::from(from.filter(|name| !name.is_empty()), depth) }
}

fn matches(glob: &[u8], path: &[u8], name: &[u8]) -> bool {
    let over = if glob.contains(&b'/') { path } else { name };
    fast_glob::glob_match(glob, over)
}

impl ListedFile {
    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.stat.kind == FileKind::Directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: usize = 5000;

    /// Whether a walk goes below the name with this number.
    type Below = fn(usize) -> bool;

    /// All names of a directory at this depth, and how often the directory was read. Goes below each name
    /// for which `below` returns true.
    fn walk(depth: usize, below: Below) -> (Vec<Vec<u8>>, usize) {
        let name = |n: usize| format!("{n:05}").into_bytes();
        let mut names = Names::from(None, depth);
        let mut found = Vec::new();
        let mut readings = 0;
        loop {
            let next = names.next(|take| {
                readings += 1;
                // As a directory lists them: in no order.
                (0..FILES).for_each(|n| take(&name(n * 7 % FILES)));
                Ok(())
            });
            let Some(next) = next.unwrap() else { return (found, readings) };
            if below(found.len()) {
                names.leave();
                assert!(depth < DEEP || names.next.len() <= DEEP_NAMES_MAX);
            }
            found.push(next);
        }
    }

    /// A directory of 5,000 files at level 14 was read 79 times.
    ///
    /// Promises: T29.
    #[test]
    fn t21_a_deep_directory_is_read_in_portions_that_grow() {
        let all: Vec<_> = (0..FILES).map(|n| format!("{n:05}").into_bytes()).collect();
        let cases: [(usize, Below, usize); 4] = [
            (0, |_| true, 2),
            (DEEP, |_| false, 2),
            (DEEP, |n| n == FILES / 2, 8),
            // The names that are forgotten are read again.
            (DEEP, |_| true, FILES.div_ceil(DEEP_NAMES_MAX)),
        ];
        for (depth, below, readings_max) in cases {
            let (found, readings) = walk(depth, below);
            assert_eq!(found, all, "depth {depth}");
            assert!(readings <= readings_max, "depth {depth}: {readings} readings");
        }
    }
}
