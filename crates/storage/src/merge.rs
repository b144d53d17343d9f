//! Merges directories that an overlay shows on top of each other into one that shows the same.
//!
//! The rules are those of overlays with the option `userxattr`: the topmost entry of a name counts; a
//! directory also shows what lies below it, down to the first directory that is opaque or the first
//! entry that is no directory. Whiteouts and opaque directories are kept, because other layers may lie
//! below the merged ones. A directory that covered an entry of another kind, or a whiteout, becomes
//! opaque. Redirects do not exist with this option.

#[cfg(test)]
mod tests;

use crate::attributes::{copy_extended, set};
use crate::copied::{Copied, ENTRY_BYTES, SpaceCheck};
use crate::error::CopyError;
use crate::method::CopyMethod;
use crate::names::{bytes_of_one, check_names};
use crate::tree::hard_links::HardLinks;
use crate::tree::{Copying, DIRECTORY, Directories};
use crate::walk::append;
use rustix::fs::{AtFlags, FileType, Mode, Stat, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The attribute that hides what lies below a directory.
const OPAQUE: &str = "user.overlay.opaque";

/// Merges directories, the top one first, into one at a path that does not exist yet. `links` is as in
/// [`crate::copy_tree`]. Blocks.
///
/// # Errors
/// [`CopyError`]; a part of the tree may be there.
pub fn merge_layers(
    method: CopyMethod,
    layers: &[&Path],
    to: &Path,
    links: &Path,
    check: SpaceCheck<'_>,
) -> Result<Copied, CopyError> {
    let at = |errno| CopyError::at(b"", errno);
    let mut sources = Vec::with_capacity(layers.len());
    for layer in layers {
        sources.push(rustix::fs::open(*layer, DIRECTORY, Mode::empty()).map_err(at)?);
    }
    rustix::fs::mkdir(to, Mode::from_raw_mode(0o700)).map_err(at)?;
    let copy = rustix::fs::open(to, DIRECTORY, Mode::empty()).map_err(at)?;
    let links = HardLinks::open(links).map_err(at)?;
    let mut merge = Merge { copying: Copying::new(method, links, check), names_bytes: 0 };
    merge.walk(Place { sources, copy, is_opaque: false })?;
    Ok(merge.copying.copied)
}

/// Directories of several layers that are shown as one, the top one first, and their copy.
struct Place {
    sources: Vec<OwnedFd>,
    copy: OwnedFd,
    /// Whether the copy must hide what lies below the merged layers.
    is_opaque: bool,
}

/// A directory whose entries are being merged.
struct Level {
    names: std::collections::btree_set::IntoIter<Vec<u8>>,
    names_bytes: usize,
    /// The directories of layers that do not take part below. Each layer is at most once in all
    /// levels, so their number is limited.
    waiting: Vec<(usize, OwnedFd)>,
    /// Which of the directories take part in the one below.
    taking_part: Vec<usize>,
    inodes: Vec<u64>,
    is_opaque: bool,
    path_bytes: usize,
}

struct Merge<'a> {
    copying: Copying<'a>,
    /// The memory of the names of all levels.
    names_bytes: usize,
}

impl Merge<'_> {
    fn walk(&mut self, root: Place) -> Result<(), CopyError> {
        let mut at = root;
        let mut path = Vec::new();
        let mut levels = vec![self.enter(&at, &path)?];
        while let Some(level) = levels.last_mut() {
            path.truncate(level.path_bytes);
            let failed = |errno| CopyError::at(&path, errno);
            let Some(name) = level.names.next() else {
                let top = at.sources.first().ok_or_else(|| failed(Errno::BADF))?;
                let check = &mut *self.copying.check;
                copy_extended(&path, top.as_fd(), at.copy.as_fd(), check)?;
                leave(top, &at.copy, level.is_opaque).map_err(failed)?;
                self.copying.copied.entries += 1;
                self.names_bytes -= level.names_bytes;
                levels.pop();
                let Some(above) = levels.last_mut() else { break };
                at = ascend(at, above).map_err(failed)?;
                continue;
            };
            append(&mut path, &name);
            if let Some(below) = self.one(&mut at, level, &name, &path)? {
                levels.push(self.enter(&below, &path)?);
                at = below;
            }
        }
        Ok(())
    }

    fn enter(&mut self, at: &Place, path: &[u8]) -> Result<Level, CopyError> {
        let level = enter(at, path, self.names_bytes)?;
        self.names_bytes += level.names_bytes;
        Ok(level)
    }

    /// Merges the entries of one name. Returns a directory, whose entries follow.
    fn one(
        &mut self,
        at: &mut Place,
        level: &mut Level,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<Place>, CopyError> {
        let failed = |errno| CopyError::at(path, errno);
        (self.copying.check)(ENTRY_BYTES)?;
        let mut found = Vec::new();
        let mut is_opaque = false;
        for (index, source) in at.sources.iter().enumerate() {
            let stat = match rustix::fs::statat(source, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                stat => stat.map_err(failed)?,
            };
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                if found.is_empty() {
                    return self.other(at, index, name, path, &stat);
                }
                // A directory above covers it, and with it everything that lies below.
                is_opaque = true;
                break;
            }
            let directory =
                rustix::fs::openat(source, name, DIRECTORY, Mode::empty()).map_err(failed)?;
            is_opaque = has_opaque(directory.as_fd()).map_err(failed)?;
            found.push((index, directory));
            if is_opaque {
                break;
            }
        }
        if found.is_empty() {
            return Err(failed(Errno::STALE));
        }
        rustix::fs::mkdirat(&at.copy, name, Mode::from_raw_mode(0o700)).map_err(failed)?;
        let copy = rustix::fs::openat(&at.copy, name, DIRECTORY, Mode::empty()).map_err(failed)?;
        level.taking_part = found.iter().map(|(index, _)| *index).collect();
        let all = std::mem::take(&mut at.sources).into_iter().enumerate();
        level.waiting = all.filter(|(index, _)| !level.taking_part.contains(index)).collect();
        let sources = found.into_iter().map(|(_, directory)| directory).collect();
        Ok(Some(Place { sources, copy, is_opaque }))
    }

    fn other(
        &mut self,
        at: &Place,
        index: usize,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
    ) -> Result<Option<Place>, CopyError> {
        let failed = |errno| CopyError::at(path, errno);
        let pair = Directories {
            source: at.sources[index].try_clone().map_err(|_| failed(Errno::MFILE))?,
            copy: at.copy.try_clone().map_err(|_| failed(Errno::MFILE))?,
        };
        self.copying.other(&pair, name, path, stat)?;
        Ok(None)
    }
}

/// Reads the names of all merged directories. `held` is the memory of names of those above.
fn enter(at: &Place, path: &[u8], held: usize) -> Result<Level, CopyError> {
    let failed = |errno| CopyError::at(path, errno);
    let mut names = BTreeSet::new();
    let mut names_bytes = 0;
    let mut inodes = Vec::with_capacity(at.sources.len());
    for source in &at.sources {
        inodes.push(rustix::fs::fstat(source).map_err(failed)?.st_ino);
        for entry in rustix::fs::Dir::read_from(source).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && names.insert(name.to_vec()) {
                names_bytes += bytes_of_one(name);
                check_names(held + names_bytes, path)?;
            }
        }
    }
    Ok(Level {
        names: names.into_iter(),
        names_bytes,
        waiting: Vec::new(),
        taking_part: Vec::new(),
        inodes,
        is_opaque: at.is_opaque,
        path_bytes: path.len(),
    })
}

/// Gives a merged directory the attributes of the topmost one.
fn leave(top: &OwnedFd, copy: &OwnedFd, is_opaque: bool) -> Result<(), Errno> {
    if is_opaque {
        rustix::fs::fsetxattr(copy, OPAQUE, b"y", XattrFlags::empty())?;
    }
    set(copy.as_fd(), &rustix::fs::fstat(top)?)
}

/// Goes back to the parents.
fn ascend(at: Place, above: &mut Level) -> Result<Place, Errno> {
    let mut sources: Vec<Option<OwnedFd>> = above.inodes.iter().map(|_| None).collect();
    for (index, below) in above.taking_part.iter().zip(&at.sources) {
        let parent = rustix::fs::openat(below, "..", DIRECTORY, Mode::empty())?;
        if rustix::fs::fstat(&parent)?.st_ino != above.inodes[*index] {
            return Err(Errno::STALE);
        }
        sources[*index] = Some(parent);
    }
    for (index, source) in above.waiting.drain(..) {
        sources[index] = Some(source);
    }
    let copy = rustix::fs::openat(&at.copy, "..", DIRECTORY, Mode::empty())?;
    let sources = sources.into_iter().collect::<Option<Vec<_>>>().ok_or(Errno::STALE)?;
    Ok(Place { sources, copy, is_opaque: above.is_opaque })
}

fn has_opaque(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut value = [0; 1];
    match rustix::fs::fgetxattr(directory, OPAQUE, value.as_mut_slice()) {
        Ok(1) => Ok(value[0] == b'y'),
        Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(errno) => Err(errno),
    }
}
