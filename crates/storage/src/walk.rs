//! Walks through a directory tree of any width, without recursion and with the descriptors of one
//! directory. A level needs its position in the directory and the identity of the directory; names
//! are read in batches, and those of the levels above are read again when they take too much memory.

use crate::error::CopyError;
use rustix::fs::{RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// Memory for one batch of names as the kernel returns them, in bytes.
const BATCH_BYTES: usize = 32 * 1024;
/// Memory for the names of all levels, in bytes, from which on those of the levels above are
/// dropped. With one more batch, this is the most that they take.
const NAMES_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Memory that a name needs besides its bytes, in bytes.
const NAME_OVERHEAD_BYTES: usize = 64;
/// Maximum depth. A level takes about 100 bytes, so all of them take at most 3 MiB.
pub(crate) const LEVELS_MAX: usize = 32 * 1024;
/// The maximum length of the path in an error, in bytes. A longer path is not recorded further.
const PATH_BYTES_MAX: usize = 64 * 1024;

/// What is done with each entry of a tree.
pub(crate) trait Visitor {
    /// An open directory.
    type Place;

    /// The directory whose entries are read.
    fn source<'a>(&self, at: &'a Self::Place) -> BorrowedFd<'a>;

    /// Handles one entry. Returns a directory whose entries follow.
    fn entry(
        &mut self,
        at: &Self::Place,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<Self::Place>, CopyError>;

    /// Called for a directory after its entries.
    fn leave(&mut self, at: &Self::Place, path: &[u8]) -> Result<(), CopyError>;

    /// The directory above.
    fn parent(&self, at: &Self::Place) -> Result<Self::Place, Errno>;

    /// The inodes of the directory and of its copy.
    fn inodes(&self, at: &Self::Place) -> Result<[u64; 2], Errno>;
}

/// Visits everything below a directory, and the directory itself last.
pub(crate) fn walk<V: Visitor>(visitor: &mut V, root: V::Place) -> Result<(), CopyError> {
    let mut at = root;
    let mut path = Vec::new();
    let mut held_bytes = 0;
    let mut levels = vec![Level::new(visitor, &at, &path)?];
    while let Some(level) = levels.last_mut() {
        path.truncate(level.path_bytes);
        let next = level.next(visitor.source(&at), &mut held_bytes);
        let Some(name) = next.map_err(|errno| CopyError::at(&path, errno))? else {
            visitor.leave(&at, &path)?;
            levels.pop();
            let Some(above) = levels.last() else { break };
            at = ascend(visitor, &at, above).map_err(|errno| CopyError::at(&path, errno))?;
            continue;
        };
        append(&mut path, &name);
        let Some(below) = visitor.entry(&at, &name, &path)? else { continue };
        if held_bytes > NAMES_BYTES_MAX {
            level.forget(&mut held_bytes);
        }
        if levels.len() >= LEVELS_MAX {
            return Err(CopyError::too_deep(&path, LEVELS_MAX));
        }
        levels.push(Level::new(visitor, &below, &path)?);
        at = below;
    }
    Ok(())
}

/// A name, and the position behind it.
struct Name {
    bytes: Vec<u8>,
    behind: u64,
}

impl Name {
    fn held_bytes(&self) -> usize {
        self.bytes.len() + NAME_OVERHEAD_BYTES
    }
}

/// A directory whose entries are being visited.
struct Level {
    names: VecDeque<Name>,
    /// Where the next batch begins.
    position: u64,
    /// The position behind the last name that was visited.
    visited: u64,
    at_end: bool,
    inodes: [u64; 2],
    path_bytes: usize,
}

impl Level {
    fn new<V: Visitor>(visitor: &V, at: &V::Place, path: &[u8]) -> Result<Self, CopyError> {
        let inodes = visitor.inodes(at).map_err(|errno| CopyError::at(path, errno))?;
        Ok(Self {
            names: VecDeque::new(),
            position: 0,
            visited: 0,
            at_end: false,
            inodes,
            path_bytes: path.len(),
        })
    }

    fn next(
        &mut self,
        directory: BorrowedFd<'_>,
        held_bytes: &mut usize,
    ) -> Result<Option<Vec<u8>>, Errno> {
        while self.names.is_empty() && !self.at_end {
            self.read(directory)?;
            *held_bytes += self.names.iter().map(Name::held_bytes).sum::<usize>();
        }
        let Some(name) = self.names.pop_front() else { return Ok(None) };
        *held_bytes -= name.held_bytes();
        self.visited = name.behind;
        Ok(Some(name.bytes))
    }

    fn read(&mut self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        rustix::fs::seek(directory, SeekFrom::Start(self.position))?;
        let mut buffer = Vec::with_capacity(BATCH_BYTES);
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        loop {
            let Some(entry) = entries.next() else {
                self.at_end = true;
                return Ok(());
            };
            let entry = entry?;
            self.position = entry.next_entry_cookie();
            let bytes = entry.file_name().to_bytes();
            if bytes != b"." && bytes != b".." {
                self.names.push_back(Name { bytes: bytes.to_vec(), behind: self.position });
            }
            if entries.is_buffer_empty() {
                return Ok(());
            }
        }
    }

    /// Drops the names that were not visited yet, to read them again later.
    fn forget(&mut self, held_bytes: &mut usize) {
        *held_bytes -= self.names.iter().map(Name::held_bytes).sum::<usize>();
        self.names = VecDeque::new();
        self.position = self.visited;
        self.at_end = false;
    }
}

/// Goes back to the parent. Fails if a directory was moved during the walk.
fn ascend<V: Visitor>(visitor: &V, at: &V::Place, above: &Level) -> Result<V::Place, Errno> {
    let parent = visitor.parent(at)?;
    if visitor.inodes(&parent)? == above.inodes { Ok(parent) } else { Err(Errno::STALE) }
}

pub(crate) fn append(path: &mut Vec<u8>, name: &[u8]) {
    if path.len() + name.len() >= PATH_BYTES_MAX {
        return;
    }
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
