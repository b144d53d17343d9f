//! Packs a directory tree of any depth, without recursion and with one descriptor per tree. Tenants
//! decide what is in it: no symbolic link is followed, only regular files are opened, and a file that
//! a program blocks or that no archive can contain is left out alone.

mod attributes;
mod memory;
#[cfg(test)]
mod tests;

use super::Totals;
use super::entry::{Entry, FilePart, Kind, LINK_BYTES_MAX, PARTS_MAX, PATH_BYTES_MAX};
use super::error::PackError;
use super::pax::TOO_MANY_PARTS;
use super::write::ArchiveWriter;
use crate::files::BUFFER_BYTES;
use crate::manifest::SkippedFile;
use crate::progress::Progress;
use attributes::{attributes, extended, extended_of_path};
use memory::{DirectoryNames, MEMORY_BYTES_MAX, Memory};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Times of a reader are not recorded. A named pipe or a file with a lease does not block: the
/// program that holds a lease may be frozen.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOATIME)
    .union(OFlags::CLOEXEC);
/// Space that an entry needs on the disk besides its contents, in bytes.
pub(super) const ENTRY_BYTES: u64 = 512;
/// Size of the unit in which the kernel counts the blocks of a file.
const SECTOR_BYTES: u64 = 512;
/// Maximum number of skipped files of a tree that are named. Further ones are counted.
const SKIPPED_NAMED_MAX: usize = 10;
/// Maximum length of a path in a message, in bytes. The end of a longer one is shown.
const SHOWN_BYTES_MAX: usize = 100;

/// A tree to pack.
pub(crate) struct Tree<'a> {
    pub(crate) root: &'a Path,
    /// Whether a path is left out with everything below.
    pub(crate) without: &'a dyn Fn(&[u8]) -> bool,
    /// Whether only the directory itself is packed, and nothing in it.
    pub(crate) empty: &'a dyn Fn(&[u8]) -> bool,
    /// Whether files may disappear, because the tree is in use.
    pub(crate) live: bool,
}

/// The identity of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// A directory whose entries are being packed.
struct Level {
    names: DirectoryNames,
    id: FileId,
    path_bytes: usize,
}

/// A directory that was just packed, and whose entries follow.
struct Entered {
    directory: OwnedFd,
    id: FileId,
}

/// Why a file is not packed.
enum FileError {
    /// The kernel refused before anything of the entry was written.
    Kernel(Errno),
    /// The file is left out, with everything below it. Nothing of the entry was written.
    LeftOut(&'static str),
    /// The archive ends here.
    Pack(PackError),
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

impl From<PackError> for FileError {
    fn from(error: PackError) -> Self {
        match error {
            PackError::Unfit(reason) => Self::LeftOut(reason),
            error => Self::Pack(error),
        }
    }
}

impl FileError {
    /// The error of a file without which the archive is useless.
    fn fatal(self, path: &[u8]) -> PackError {
        match self {
            Self::Kernel(errno) => with_path(path, errno),
            Self::LeftOut(reason) => PackError::source(format!("{}: {reason}", shown(path))),
            Self::Pack(error) => error,
        }
    }
}

/// What an archive contains, and what not.
pub(crate) struct Packed {
    pub(crate) totals: Totals,
    /// Files that could not be read or packed.
    pub(crate) skipped: Vec<SkippedFile>,
}

/// Packs the tree, its root included.
pub(crate) fn pack<W: Write>(
    tree: &Tree<'_>,
    archive: &mut ArchiveWriter<W>,
    progress: &dyn Progress,
) -> Result<Packed, PackError> {
    pack_within(MEMORY_BYTES_MAX, tree, archive, progress)
}

fn pack_within<W: Write>(
    memory_bytes: usize,
    tree: &Tree<'_>,
    archive: &mut ArchiveWriter<W>,
    progress: &dyn Progress,
) -> Result<Packed, PackError> {
    let fatal = |errno: Errno| PackError::Source(errno.into());
    let root = rustix::fs::open(tree.root, DIRECTORY, Mode::empty()).map_err(fatal)?;
    let stat = rustix::fs::fstat(&root).map_err(fatal)?;
    let mut packing = Packing {
        tree,
        archive,
        progress,
        totals: Totals::default(),
        skipped: Vec::new(),
        unnamed: 0,
        known: HashMap::new(),
        memory: Memory::new(memory_bytes),
        buffer: vec![0; BUFFER_BYTES],
    };
    packing.directory(&[], &root, &stat).map_err(|error| error.fatal(b"."))?;
    packing.walk(root, &stat)?;
    if packing.unnamed > 0 {
        packing.skipped.push(SkippedFile::unnamed(packing.unnamed));
    }
    Ok(Packed { totals: packing.totals, skipped: packing.skipped })
}

struct Packing<'a, 't, W> {
    tree: &'a Tree<'t>,
    archive: &'a mut ArchiveWriter<W>,
    progress: &'a dyn Progress,
    totals: Totals,
    skipped: Vec<SkippedFile>,
    /// Number of skipped files that are not in the list.
    unnamed: u64,
    /// The first path of files with several names.
    known: HashMap<FileId, Vec<u8>>,
    memory: Memory,
    buffer: Vec<u8>,
}

impl<W: Write> Packing<'_, '_, W> {
    fn walk(&mut self, root: OwnedFd, stat: &Stat) -> Result<(), PackError> {
        let mut directory = root;
        let mut path = Vec::new();
        let id = FileId::of(stat);
        let names = self.memory.names(&directory).map_err(|error| error.fatal(b"."))?;
        let mut levels = vec![Level { names, id, path_bytes: 0 }];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.names.next() else {
                self.memory.release(&level.names);
                levels.pop();
                let Some(above) = levels.last() else { break };
                directory = ascend(&directory, above.id).map_err(|error| error.fatal(&path))?;
                continue;
            };
            path.truncate(level.path_bytes);
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let entered = match self.one(&directory, &name, &path) {
                Ok(entered) => entered,
                Err(FileError::Kernel(Errno::NOENT)) if self.tree.live => None,
                Err(FileError::Kernel(Errno::AGAIN)) => {
                    self.skip(&path, "a program holds a lease on it");
                    None
                }
                Err(FileError::LeftOut(reason)) => {
                    self.skip(&path, reason);
                    None
                }
                Err(error) => return Err(error.fatal(&path)),
            };
            if let Some(Entered { directory: entered, id }) = entered {
                directory = entered;
                let names = self.memory.names(&directory).map_err(|error| error.fatal(&path))?;
                levels.push(Level { names, id, path_bytes: path.len() });
            }
        }
        Ok(())
    }

    fn skip(&mut self, path: &[u8], reason: &str) {
        self.totals.left_out += 1;
        if self.skipped.len() >= SKIPPED_NAMED_MAX {
            self.unnamed += 1;
            return;
        }
        self.skipped.push(SkippedFile { path: shown(path), reason: reason.to_owned() });
    }

    fn one(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<Entered>, FileError> {
        if (self.tree.without)(path) {
            return Ok(None);
        }
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let whiteout = kind == FileType::CharacterDevice && stat.st_rdev == 0;
        let device = matches!(kind, FileType::BlockDevice | FileType::CharacterDevice);
        // The name of a directory ends with a slash in the archive.
        let path_bytes = path.len() + usize::from(kind == FileType::Directory);
        if path_bytes > PATH_BYTES_MAX || kind == FileType::Socket || device && !whiteout {
            self.totals.left_out += 1;
            return Ok(None);
        }
        if kind == FileType::Directory {
            let directory = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?;
            let stat = rustix::fs::fstat(&directory)?;
            self.directory(path, &directory, &stat)?;
            let id = FileId::of(&stat);
            return Ok((!(self.tree.empty)(path)).then_some(Entered { directory, id }));
        }
        let several = stat.st_nlink > 1;
        let id = FileId::of(&stat);
        if let Some(first) = self.known.get(&id).filter(|_| several) {
            let kind = Kind::HardLink { to: first.clone() };
            let attributes = attributes(&stat, Vec::new());
            self.write(&Entry { path: path.to_vec(), kind, attributes })?;
            return Ok(None);
        }
        match kind {
            FileType::RegularFile => {
                let file = rustix::fs::openat(parent, name, FILE, Mode::empty())?;
                self.file(path, &file)?;
            }
            kind => self.special(parent, name, path, kind, &stat)?,
        }
        // Only now: the archive has no file that was left out or disappeared.
        if several {
            self.memory.take(path.len())?;
            self.known.insert(id, path.to_vec());
        }
        Ok(None)
    }

    fn special(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &[u8],
        kind: FileType,
        stat: &Stat,
    ) -> Result<(), FileError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        let kind = match kind {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&opened, "", Vec::new())?.into_bytes();
                if target.len() > LINK_BYTES_MAX {
                    return Err(FileError::LeftOut("its target is too long"));
                }
                Kind::Symlink { target }
            }
            FileType::Fifo => Kind::Fifo,
            _ => Kind::Whiteout,
        };
        let attributes = attributes(stat, extended_of_path(opened.as_fd())?);
        self.write(&Entry { path: path.to_vec(), kind, attributes })
    }

    fn write(&mut self, entry: &Entry) -> Result<(), FileError> {
        self.archive.entry(entry)?;
        self.totals.entries += 1;
        self.totals.restored_bytes += ENTRY_BYTES;
        Ok(())
    }

    fn directory(&mut self, path: &[u8], opened: &OwnedFd, stat: &Stat) -> Result<(), FileError> {
        let attributes = attributes(stat, extended(opened.as_fd())?);
        self.archive.entry(&Entry { path: path.to_vec(), kind: Kind::Directory, attributes })?;
        self.totals.entries += 1;
        self.totals.restored_bytes += allocated_of(stat).max(ENTRY_BYTES);
        Ok(())
    }

    fn file(&mut self, path: &[u8], file: &OwnedFd) -> Result<(), FileError> {
        let before = rustix::fs::fstat(file)?;
        if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
            return Err(FileError::Kernel(Errno::STALE));
        }
        let length = u64::try_from(before.st_size).unwrap_or(0);
        let has_holes = allocated_of(&before) < length;
        let parts = if has_holes { Some(parts(file, length)?) } else { None };
        let attributes = attributes(&before, extended(file.as_fd())?);
        let kind = Kind::File { length, parts: parts.clone() };
        self.archive.entry(&Entry { path: path.to_vec(), kind, attributes })?;
        let parts = parts.unwrap_or_else(|| vec![FilePart { offset: 0, length }]);
        let data_bytes = parts.iter().map(|part| part.length).sum();
        for part in parts {
            self.part(path, file, part)?;
        }
        self.totals.entries += 1;
        // A file system that compresses allocates less than the restored file may need.
        self.totals.restored_bytes += allocated_of(&before).max(data_bytes) + ENTRY_BYTES;
        let after = rustix::fs::fstat(file).map_err(|errno| with_path(path, errno))?;
        let changed = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        if changed(&before) != changed(&after) {
            return Err(with_path(path, Errno::BUSY).into());
        }
        Ok(())
    }

    fn part(&mut self, path: &[u8], file: &OwnedFd, part: FilePart) -> Result<(), PackError> {
        let mut offset = part.offset;
        let end = part.offset + part.length;
        while offset < end {
            let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX).min(BUFFER_BYTES);
            let count = rustix::io::pread(file, &mut self.buffer[..wanted], offset)
                .map_err(|errno| with_path(path, errno))?;
            if count == 0 {
                return Err(with_path(path, Errno::BUSY));
            }
            self.archive.data(&self.buffer[..count])?;
            self.progress.bytes(count as u64);
            self.totals.data_bytes += count as u64;
            offset += count as u64;
        }
        Ok(())
    }
}

/// Opens the directory above, which must be the one that was left.
fn ascend(directory: &OwnedFd, expected: FileId) -> Result<OwnedFd, FileError> {
    let above = rustix::fs::openat(directory, "..", DIRECTORY, Mode::empty())?;
    if FileId::of(&rustix::fs::fstat(&above)?) == expected {
        return Ok(above);
    }
    Err(FileError::Pack(PackError::source("a directory was moved while it was read")))
}

/// A path for messages: without control characters, which tenants could send to a terminal.
fn shown(path: &[u8]) -> String {
    let begin = path.len().saturating_sub(SHOWN_BYTES_MAX);
    let cut = if begin > 0 { "…" } else { "" };
    format!("{cut}{:?}", String::from_utf8_lossy(&path[begin..]))
}

fn with_path(path: &[u8], errno: Errno) -> PackError {
    let error = io::Error::from(errno);
    PackError::Source(io::Error::new(error.kind(), format!("{}: {error}", shown(path))))
}

fn allocated_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * SECTOR_BYTES
}

/// The parts of a file that are not holes.
fn parts(file: &OwnedFd, length: u64) -> Result<Vec<FilePart>, FileError> {
    let mut parts = Vec::new();
    let mut offset = 0;
    while offset < length {
        let begin = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            // Only a hole follows.
            Err(Errno::NXIO) => break,
            begin => begin?,
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(begin))?.min(length);
        if end <= begin {
            break;
        }
        // The last part may be followed by an empty one.
        if parts.len() + 2 > PARTS_MAX {
            return Err(FileError::LeftOut(TOO_MANY_PARTS));
        }
        parts.push(FilePart { offset: begin, length: end - begin });
        offset = end;
    }
    if offset < length {
        // Other programs take the length of the file from its last part.
        parts.push(FilePart { offset: length, length: 0 });
    }
    Ok(parts)
}

/// Space that a tree takes on the disk, in bytes. This is an estimate, because files may change.
pub(crate) fn allocated(root: &Path) -> u64 {
    let Ok(top) = rustix::fs::open(root, DIRECTORY, Mode::empty()) else { return 0 };
    let mut sum = 0;
    let mut directory = top;
    let mut memory = Memory::new(MEMORY_BYTES_MAX);
    let Ok(first) = memory.names(&directory) else { return 0 };
    let mut levels = vec![first];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.next() else {
            memory.release(level);
            levels.pop();
            if levels.is_empty() {
                break;
            }
            match rustix::fs::openat(&directory, "..", DIRECTORY, Mode::empty()) {
                Ok(above) => directory = above,
                Err(_) => break,
            }
            continue;
        };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let Ok(stat) = rustix::fs::statat(&directory, name.as_slice(), flags) else { continue };
        sum += allocated_of(&stat) + ENTRY_BYTES;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            && let Ok(entered) =
                rustix::fs::openat(&directory, name.as_slice(), DIRECTORY, Mode::empty())
            && let Ok(list) = memory.names(&entered)
        {
            directory = entered;
            levels.push(list);
        }
    }
    sum
}
