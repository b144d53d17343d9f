//! Compares two merged trees, sorted and page by page, in bounded memory. What both trees show from
//! the same directories on the disk is not read.

use super::list::{Names, each_name};
use super::lookup::Place;
use super::{
    DirectoryRef, FileKind, FileStat, Found, MergedTree, OpenDirectory, PATH_BYTES_MAX, parts,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Bytes of content that are compared at a time.
const CONTENT_BYTES: usize = 256 * 1024;
/// Maximum size of the names of a file's extended attributes, in bytes, and of one value; as in the
/// kernel.
const ATTRIBUTES_BYTES_MAX: usize = 64 * 1024;
/// Size of the names of a file's extended attributes that fit into the first buffer, in bytes.
const FEW_NAMES_BYTES: usize = 512;
/// Maximum size of all paths of one page, in bytes.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Attributes of overlays, which no sandbox sees.
const OVERLAY: &[u8] = b"user.overlay.";

/// How two trees are compared.
#[derive(Debug)]
pub struct DiffRequest<'a> {
    /// Only report paths after this one.
    pub after: Option<Vec<u8>>,
    /// Maximum number of changes.
    pub max: usize,
    /// When the page ends, even if it is not full. Files whose content is being compared are
    /// finished.
    pub until: Instant,
    /// Set when nobody waits for the result any more.
    pub cancelled: &'a AtomicBool,
}

/// How a path differs in the second tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the second tree has it.
    Added,
    /// Type, mode, owner, size, content or extended attributes differ.
    Changed,
    /// Only the first tree has it.
    Removed,
}

/// A path that differs.
#[derive(Debug)]
pub struct Change {
    /// The path, without a slash in front.
    pub path: Vec<u8>,
    /// How it differs.
    pub kind: ChangeKind,
    /// The metadata in the second tree, or in the first one if it was removed.
    pub stat: FileStat,
    /// The target of a symbolic link.
    pub target: Option<Vec<u8>>,
}

/// One page of changes.
#[derive(Debug, Default)]
pub struct DiffPage {
    /// Sorted by the components of their paths.
    pub changes: Vec<Change>,
    /// Where the next page continues; `None` on the last page.
    pub next: Option<Vec<u8>>,
}

/// The directories of both trees at one path; one of them if the other tree has none there.
struct Level {
    sides: [Option<DirectoryRef>; 2],
    /// The path, with a slash behind it; empty for the root.
    path: Vec<u8>,
    names: Names,
}

/// Both sides of a level, open.
struct OpenLevel {
    sides: [Option<OpenDirectory>; 2],
    /// How many of the lowest layers both sides share.
    shared: usize,
}

impl MergedTree {
    /// Compares this tree with `to`.
    ///
    /// # Errors
    /// `ECANCELED` if the request was cancelled, and errors of the kernel.
    pub fn diff(&self, to: &Self, request: &DiffRequest<'_>) -> Result<DiffPage, Errno> {
        Diff { trees: [self, to], request }.run()
    }
}

struct Diff<'a> {
    trees: [&'a MergedTree; 2],
    request: &'a DiffRequest<'a>,
}

impl Diff<'_> {
    fn run(&self) -> Result<DiffPage, Errno> {
        let mut page = DiffPage::default();
        let mut bytes = 0;
        let sides = self.trees.map(|tree| Some(tree.root()));
        let mut levels = vec![self.level(sides, Vec::new(), 0)];
        let mut open: Option<OpenLevel> = None;
        let mut seen = None;
        while let Some(last) = levels.last_mut() {
            let directories = match open.take() {
                Some(directories) => directories,
                None => self.open(last)?,
            };
            let Some(name) = last.names.next(|take| self.names(&directories, take))? else {
                levels.pop();
                continue;
            };
            if self.request.cancelled.load(Ordering::Relaxed) {
                return Err(Errno::CANCELED);
            }
            let path = [last.path.as_slice(), &name].concat();
            // At least one path, so that every page gets further.
            if seen.is_some() && Instant::now() >= self.request.until {
                page.next = seen;
                return Ok(page);
            }
            let found = self.both(&directories, &name)?;
            let new = self.request.after.as_ref().is_none_or(|after| parts(&path).gt(parts(after)));
            let change = if new { self.compare(&found)? } else { None };
            let [one, other] = &found;
            if let (Some(kind), Some(shown)) = (change, other.as_ref().or(one.as_ref())) {
                bytes += path.len();
                let full = page.changes.len() >= self.request.max || bytes > PAGE_BYTES_MAX;
                if full && !page.changes.is_empty() {
                    page.next = page.changes.last().map(|change| change.path.clone());
                    return Ok(page);
                }
                let target = shown.target.clone();
                page.changes.push(Change { path: path.clone(), kind, stat: shown.stat, target });
            }
            if new {
                seen = Some(path.clone());
            }
            let sides = found.map(|found| match found.map(|found| found.place) {
                Some(Place::Directory(at)) => Some(at),
                _ => None,
            });
            // A path that no call could name is not looked into; neither are equal directories.
            let deep = path.len() >= PATH_BYTES_MAX;
            if sides.iter().all(Option::is_none) || deep || self.same(&sides)? {
                open = Some(directories);
                continue;
            }
            last.names.leave();
            let depth = levels.len();
            levels.push(self.level(sides, [path.as_slice(), b"/"].concat(), depth));
        }
        Ok(page)
    }

    fn level(&self, sides: [Option<DirectoryRef>; 2], path: Vec<u8>, depth: usize) -> Level {
        let after = self.request.after.as_ref();
        let after = after.and_then(|after| after.strip_prefix(path.as_slice()));
        let from = after.and_then(|rest| parts(rest).next()).map(<[u8]>::to_vec);
        let names = Names::from(from.filter(|name| !name.is_empty()), depth);
        Level { sides, path, names }
    }

    fn open(&self, level: &Level) -> Result<OpenLevel, Errno> {
        let [from, to] = &level.sides;
        let open = |tree: &MergedTree, at: &Option<DirectoryRef>| {
            at.as_ref().map(|at| tree.open(at)).transpose()
        };
        let sides = [open(self.trees[0], from)?, open(self.trees[1], to)?];
        let shared = match &sides {
            [Some(from), Some(to)] => shared(from, to)?,
            _ => 0,
        };
        Ok(OpenLevel { sides, shared })
    }

    /// Whether both sides show the same directories.
    fn same(&self, sides: &[Option<DirectoryRef>; 2]) -> Result<bool, Errno> {
        let [Some(from), Some(to)] = sides else { return Ok(false) };
        if from.layers.len() != to.layers.len() {
            return Ok(false);
        }
        let from = self.trees[0].open(from)?;
        let to = self.trees[1].open(to)?;
        Ok(shared(&from, &to)? == from.open.len())
    }

    /// The names that may differ: those of layers that only one side has.
    fn names(&self, level: &OpenLevel, take: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
        for (tree, side) in self.trees.iter().zip(&level.sides) {
            let Some(side) = side else { continue };
            if side.at == tree.root() {
                tree.places.keys().for_each(|name| take(name));
            }
            for layer in &side.open[..side.open.len() - level.shared] {
                each_name(layer, take)?;
            }
        }
        Ok(())
    }

    fn both(&self, level: &OpenLevel, name: &[u8]) -> Result<[Option<Found>; 2], Errno> {
        let find = |tree: &MergedTree, side: &Option<OpenDirectory>| match side {
            Some(side) => tree.child(side, name),
            None => Ok(None),
        };
        Ok([find(self.trees[0], &level.sides[0])?, find(self.trees[1], &level.sides[1])?])
    }

    fn compare(&self, found: &[Option<Found>; 2]) -> Result<Option<ChangeKind>, Errno> {
        Ok(match found {
            [None, None] => None,
            [None, Some(_)] => Some(ChangeKind::Added),
            [Some(_), None] => Some(ChangeKind::Removed),
            [Some(from), Some(to)] => (!self.equal(from, to)?).then_some(ChangeKind::Changed),
        })
    }

    fn equal(&self, from: &Found, to: &Found) -> Result<bool, Errno> {
        let one = &from.stat;
        let other = &to.stat;
        let fields =
            |stat: &FileStat| (stat.kind, stat.mode, stat.uid, stat.gid, stat.size, stat.device);
        if fields(one) != fields(other) || from.target != to.target {
            return Ok(false);
        }
        if one.inode == other.inode {
            return Ok(true);
        }
        let exact = self.trees.iter().all(|tree| tree.exact_times);
        let untouched = exact
            && (one.inode.1, one.modified_ns, one.changed_ns)
                == (other.inode.1, other.modified_ns, other.changed_ns);
        if untouched {
            return Ok(true);
        }
        match one.kind {
            FileKind::Symlink | FileKind::Other => Ok(true),
            FileKind::Directory => self.equal_directories(from, to),
            FileKind::File => {
                let files = [from.open()?, to.open()?];
                if !equal_attributes(files[0].as_fd(), files[1].as_fd())? {
                    return Ok(false);
                }
                // A copy of a tree has new times of change, so there the time of modification decides.
                if !exact && one.modified_ns == other.modified_ns {
                    return Ok(true);
                }
                self.equal_content(&files, one.size)
            }
        }
    }

    fn equal_directories(&self, from: &Found, to: &Found) -> Result<bool, Errno> {
        let (Place::Directory(one), Place::Directory(other)) = (&from.place, &to.place) else {
            return Ok(false);
        };
        let one = self.trees[0].open(one)?;
        let other = self.trees[1].open(other)?;
        let (Some(one), Some(other)) = (one.open.first(), other.open.first()) else {
            return Ok(false);
        };
        equal_attributes(one.as_fd(), other.as_fd())
    }

    fn equal_content(&self, files: &[std::fs::File; 2], size: u64) -> Result<bool, Errno> {
        let mut one = vec![0; CONTENT_BYTES];
        let mut other = vec![0; CONTENT_BYTES];
        let mut offset = 0;
        while offset < size {
            if self.request.cancelled.load(Ordering::Relaxed) {
                return Err(Errno::CANCELED);
            }
            let count = CONTENT_BYTES.min(usize::try_from(size - offset).unwrap_or(CONTENT_BYTES));
            let read = |file: &std::fs::File, into: &mut [u8]| {
                let read = file.read_exact_at(into, offset);
                read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            };
            read(&files[0], &mut one[..count])?;
            read(&files[1], &mut other[..count])?;
            if one[..count] != other[..count] {
                return Ok(false);
            }
            offset += count as u64;
        }
        Ok(true)
    }
}

/// How many of the lowest layers of two directories are the same on the disk.
fn shared(from: &OpenDirectory, to: &OpenDirectory) -> Result<usize, Errno> {
    let mut count = 0;
    for (one, other) in from.open.iter().rev().zip(to.open.iter().rev()) {
        let one = rustix::fs::fstat(one)?;
        let other = rustix::fs::fstat(other)?;
        if (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino) {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// Whether two files have the same extended attributes, as a sandbox sees them. One value of each file
/// is in memory at a time: all values of one file can be hundreds of MiB.
fn equal_attributes(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<bool, Errno> {
    let names = attribute_names(one)?;
    if names != attribute_names(other)? {
        return Ok(false);
    }
    if names.is_empty() {
        return Ok(true);
    }
    let mut values = [vec![0_u8; ATTRIBUTES_BYTES_MAX], vec![0_u8; ATTRIBUTES_BYTES_MAX]];
    let [value, other_value] = &mut values;
    for name in &names {
        let bytes = attribute(one, name, value)?;
        let other_bytes = attribute(other, name, other_value)?;
        let same = bytes == other_bytes
            && value[..bytes.unwrap_or(0)] == other_value[..bytes.unwrap_or(0)];
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads the value of an attribute, and returns its length; `None` if it was removed.
fn attribute(file: BorrowedFd<'_>, name: &[u8], into: &mut [u8]) -> Result<Option<usize>, Errno> {
    match rustix::fs::fgetxattr(file, name, into) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The names of the extended attributes that a sandbox sees. Files that have none, or whose file
/// system knows none, have an empty set.
fn attribute_names(file: BorrowedFd<'_>) -> Result<BTreeSet<Vec<u8>>, Errno> {
    // Most files have few or none, and a comparison asks for those of every file.
    let mut few = [0_u8; FEW_NAMES_BYTES];
    let mut many = Vec::new();
    let names = match rustix::fs::flistxattr(file, &mut few[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(BTreeSet::new()),
        Err(Errno::RANGE) => {
            many.resize(ATTRIBUTES_BYTES_MAX, 0);
            let count = rustix::fs::flistxattr(file, &mut many[..])?;
            &many[..count]
        }
        count => &few[..count?],
    };
    let all = names.split(|byte| *byte == 0);
    let shown = all.filter(|name| !name.is_empty() && !name.starts_with(OVERLAY));
    Ok(shown.map(<[u8]>::to_vec).collect())
}
