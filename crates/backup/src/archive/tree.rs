//! Packs a directory tree of any depth, without recursion and with one descriptor per tree. Tenants
//! decide what is in it: no symbolic link is followed, and only regular files are opened.

use super::Totals;
use super::entry::{Attribute, Attributes, Entry, Kind, LINK_BYTES_MAX, PATH_BYTES_MAX, Part};
use super::write::ArchiveWriter;
use crate::files::BUFFER_BYTES;
use crate::progress::Progress;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Times of a reader are not recorded, and a named pipe does not block.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOATIME)
    .union(OFlags::CLOEXEC);
/// Space that an entry needs on the disk besides its contents, in bytes.
const ENTRY_BYTES: u64 = 512;
/// Size of the unit in which the kernel counts the blocks of a file.
const SECTOR_BYTES: u64 = 512;
/// Maximum size of the list of names and of each value of extended attributes, by the kernel.
const ATTRIBUTE_BYTES_MAX: usize = 64 * 1024;

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
    names: std::vec::IntoIter<Vec<u8>>,
    id: FileId,
    path_bytes: usize,
}

/// Packs the tree, its root included.
pub(crate) fn pack<W: Write>(
    tree: &Tree<'_>,
    archive: &mut ArchiveWriter<W>,
    progress: &dyn Progress,
) -> io::Result<Totals> {
    let root = rustix::fs::open(tree.root, DIRECTORY, Mode::empty())?;
    let mut packing = Packing {
        tree,
        archive,
        progress,
        totals: Totals::default(),
        known: HashMap::new(),
        buffer: vec![0; BUFFER_BYTES],
    };
    let stat = rustix::fs::fstat(&root)?;
    packing.directory(&[], &root, &stat)?;
    packing.walk(root, &stat)?;
    Ok(packing.totals)
}

struct Packing<'a, 't, W> {
    tree: &'a Tree<'t>,
    archive: &'a mut ArchiveWriter<W>,
    progress: &'a dyn Progress,
    totals: Totals,
    /// The first path of files with several names.
    known: HashMap<FileId, Vec<u8>>,
    buffer: Vec<u8>,
}

impl<W: Write> Packing<'_, '_, W> {
    fn walk(&mut self, root: OwnedFd, stat: &Stat) -> io::Result<()> {
        let mut directory = root;
        let mut path = Vec::new();
        let id = FileId::of(stat);
        let mut levels = vec![Level { names: names(&directory)?, id, path_bytes: 0 }];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                levels.pop();
                let Some(above) = levels.last() else { break };
                directory = rustix::fs::openat(&directory, "..", DIRECTORY, Mode::empty())?;
                if FileId::of(&rustix::fs::fstat(&directory)?) != above.id {
                    return Err(io::Error::other("a directory was moved while it was read"));
                }
                continue;
            };
            path.truncate(level.path_bytes);
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let entered = match self.one(&directory, &name, &path) {
                Err(Errno::NOENT) if self.tree.live => None,
                Err(errno) => return Err(with_path(&path, errno)),
                Ok(Step::Failed(error)) => return Err(error),
                Ok(Step::Done) => None,
                Ok(Step::Enter(entered, id)) => Some((entered, id)),
            };
            if let Some((entered, id)) = entered {
                directory = entered;
                levels.push(Level { names: names(&directory)?, id, path_bytes: path.len() });
            }
        }
        Ok(())
    }

    fn one(&mut self, parent: &OwnedFd, name: &[u8], path: &[u8]) -> Result<Step, Errno> {
        if (self.tree.without)(path) {
            return Ok(Step::Done);
        }
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let whiteout = kind == FileType::CharacterDevice && stat.st_rdev == 0;
        let device = matches!(kind, FileType::BlockDevice | FileType::CharacterDevice);
        if path.len() > PATH_BYTES_MAX || kind == FileType::Socket || device && !whiteout {
            self.totals.left_out += 1;
            return Ok(Step::Done);
        }
        if kind == FileType::Directory {
            let entered = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?;
            let stat = rustix::fs::fstat(&entered)?;
            if let Err(error) = self.directory(path, &entered, &stat) {
                return Ok(Step::Failed(error));
            }
            return Ok(match (self.tree.empty)(path) {
                true => Step::Done,
                false => Step::Enter(entered, FileId::of(&stat)),
            });
        }
        if stat.st_nlink > 1 {
            let id = FileId::of(&stat);
            if let Some(first) = self.known.get(&id) {
                let kind = Kind::HardLink { to: first.clone() };
                let entry =
                    Entry { path: path.to_vec(), kind, attributes: attributes(&stat, Vec::new()) };
                return Ok(self.write(&entry));
            }
            self.known.insert(id, path.to_vec());
        }
        if kind == FileType::RegularFile {
            let file = rustix::fs::openat(parent, name, FILE, Mode::empty())?;
            return Ok(self.file(path, &file).map_or_else(Step::Failed, |()| Step::Done));
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        let kind = match kind {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&opened, "", Vec::new())?.into_bytes();
                if target.len() > LINK_BYTES_MAX {
                    return Err(Errno::NAMETOOLONG);
                }
                Kind::Symlink { target }
            }
            FileType::Fifo => Kind::Fifo,
            _ => Kind::Whiteout,
        };
        let extended = extended_of_path(opened.as_fd())?;
        let entry = Entry { path: path.to_vec(), kind, attributes: attributes(&stat, extended) };
        Ok(self.write(&entry))
    }

    fn write(&mut self, entry: &Entry) -> Step {
        self.totals.entries += 1;
        self.totals.restored_bytes += ENTRY_BYTES;
        self.archive.entry(entry).map_or_else(Step::Failed, |()| Step::Done)
    }

    fn directory(&mut self, path: &[u8], opened: &OwnedFd, stat: &Stat) -> io::Result<()> {
        let attributes = attributes(stat, extended(opened.as_fd())?);
        self.totals.entries += 1;
        self.totals.restored_bytes += allocated_of(stat).max(ENTRY_BYTES);
        self.archive.entry(&Entry { path: path.to_vec(), kind: Kind::Directory, attributes })
    }

    fn file(&mut self, path: &[u8], file: &OwnedFd) -> io::Result<()> {
        let before = rustix::fs::fstat(file)?;
        if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
            return Err(with_path(path, Errno::STALE));
        }
        let length = u64::try_from(before.st_size).unwrap_or(0);
        let has_holes = allocated_of(&before) < length;
        let parts = if has_holes { Some(parts(file, length)?) } else { None };
        let attributes = attributes(&before, extended(file.as_fd())?);
        let kind = Kind::File { length, parts: parts.clone() };
        self.archive.entry(&Entry { path: path.to_vec(), kind, attributes })?;
        for part in parts.unwrap_or_else(|| vec![Part { offset: 0, length }]) {
            self.part(path, file, part)?;
        }
        self.totals.entries += 1;
        self.totals.restored_bytes += allocated_of(&before) + ENTRY_BYTES;
        let after = rustix::fs::fstat(file)?;
        let changed = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        if changed(&before) != changed(&after) {
            return Err(with_path(path, Errno::BUSY));
        }
        Ok(())
    }

    fn part(&mut self, path: &[u8], file: &OwnedFd, part: Part) -> io::Result<()> {
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

enum Step {
    Done,
    Enter(OwnedFd, FileId),
    Failed(io::Error),
}

fn with_path(path: &[u8], errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("{}: {error}", String::from_utf8_lossy(path)))
}

/// The names in a directory, sorted.
fn names(directory: &OwnedFd) -> io::Result<std::vec::IntoIter<Vec<u8>>> {
    let mut all = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            all.push(name);
        }
    }
    all.sort_unstable();
    Ok(all.into_iter())
}

fn allocated_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * SECTOR_BYTES
}

/// The parts of a file that are not holes.
fn parts(file: &OwnedFd, length: u64) -> io::Result<Vec<Part>> {
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
        parts.push(Part { offset: begin, length: end - begin });
        offset = end;
    }
    if offset < length {
        // Other programs take the length of the file from its last part.
        parts.push(Part { offset: length, length: 0 });
    }
    Ok(parts)
}

fn attributes(stat: &Stat, extended: Vec<Attribute>) -> Attributes {
    Attributes {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_s: stat.st_mtime,
        modified_ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        extended,
    }
}

fn split(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}

/// The extended attributes of an open file or directory.
fn extended(file: BorrowedFd<'_>) -> io::Result<Vec<Attribute>> {
    let mut list = vec![0; ATTRIBUTE_BYTES_MAX];
    let count = match rustix::fs::flistxattr(file, list.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        count => count?,
    };
    let mut value = vec![0; if count == 0 { 0 } else { ATTRIBUTE_BYTES_MAX }];
    let mut all = Vec::new();
    for name in split(&list[..count]) {
        let count = rustix::fs::fgetxattr(file, name, value.as_mut_slice())?;
        all.push(Attribute { name: name.to_vec(), value: value[..count].to_vec() });
    }
    Ok(all)
}

/// The extended attributes of a file that was opened only as a path.
fn extended_of_path(file: BorrowedFd<'_>) -> Result<Vec<Attribute>, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut list = vec![0; ATTRIBUTE_BYTES_MAX];
    let count = match rustix::fs::listxattr(&path, list.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        count => count?,
    };
    let mut value = vec![0; if count == 0 { 0 } else { ATTRIBUTE_BYTES_MAX }];
    let mut all = Vec::new();
    for name in split(&list[..count]) {
        let count = rustix::fs::getxattr(&path, name, value.as_mut_slice())?;
        all.push(Attribute { name: name.to_vec(), value: value[..count].to_vec() });
    }
    Ok(all)
}

/// Space that a tree takes on the disk, in bytes. This is an estimate, because files may change.
pub(crate) fn allocated(root: &Path) -> u64 {
    let Ok(top) = rustix::fs::open(root, DIRECTORY, Mode::empty()) else { return 0 };
    let mut sum = 0;
    let mut directory = top;
    let Ok(first) = names(&directory) else { return 0 };
    let mut levels = vec![first];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.next() else {
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
            && let Ok(list) = names(&entered)
        {
            directory = entered;
            levels.push(list);
        }
    }
    sum
}
