//! Reads the roots of a snapshot into a stream.

use crate::error::Error;
use crate::files::extended::ExtendedReader;
use crate::files::hard_links::LinkNumbers;
use crate::files::owner_ids::OwnerIds;
use crate::files::source::{RootKind, Source};
use crate::format::record::{Attributes, Record};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOATIME)
    .union(OFlags::CLOEXEC);
/// Bytes of one read of a file.
const PIECE_BYTES: usize = 256 * 1024;
/// Maximum memory for the names of the directories that are being read, in bytes.
const NAMES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Memory that a name needs besides its bytes, in bytes.
const NAME_OVERHEAD_BYTES: usize = 64;
/// The maximum length of the path in an error, in bytes. A longer path is not recorded further.
const PATH_BYTES_MAX: usize = 64 * 1024;

/// What a stream contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Files, directories and other entries.
    pub(crate) entries: u64,
    /// Data in files without their holes, in bytes.
    pub(crate) bytes: u64,
    /// Sockets and devices, which are left out.
    pub(crate) left_out: u64,
}

/// Receives the stream in parts. The second value is the part's share of the data of files.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&[u8], u64) -> Result<(), Error>;

/// Reads all roots. Blocks.
pub(crate) fn read(sources: &[Source], sink: Sink<'_>) -> Result<Counts, Error> {
    let mut reader = Reader {
        sink,
        ids: OwnerIds::Server,
        extended: ExtendedReader::new(),
        links: LinkNumbers::default(),
        counts: Counts::default(),
        names_bytes: 0,
        piece: vec![0; PIECE_BYTES],
    };
    for source in sources {
        // A file cannot have names in two roots, which a sandbox mounts apart.
        reader.links = LinkNumbers::default();
        reader.ids = source.ids;
        reader.record(&Record::Root(source.root.clone()))?;
        match source.root.kind {
            RootKind::Tree => reader.tree(source)?,
            RootKind::File => reader.single(source)?,
        }
    }
    reader.record(&Record::End)?;
    Ok(reader.counts)
}

/// A directory whose entries are being read.
struct Level {
    names: std::vec::IntoIter<Vec<u8>>,
    names_bytes: usize,
    stat: Stat,
    path_bytes: usize,
}

struct Reader<'a> {
    sink: Sink<'a>,
    ids: OwnerIds,
    extended: ExtendedReader,
    links: LinkNumbers,
    counts: Counts,
    /// Memory of all names of all levels.
    names_bytes: usize,
    piece: Vec<u8>,
}

impl Reader<'_> {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        (self.sink)(&record.encode()?, 0)
    }

    fn single(&mut self, source: &Source) -> Result<(), Error> {
        let name = source.root.name.as_bytes();
        let at = |errno| Error::at(name, errno);
        let file = rustix::fs::open(&source.path, FILE, Mode::empty()).map_err(at)?;
        let stat = rustix::fs::fstat(&file).map_err(at)?;
        self.content(file.as_fd(), &stat, Vec::new(), None, name)
    }

    fn tree(&mut self, source: &Source) -> Result<(), Error> {
        let name = source.root.name.as_bytes();
        let at = |errno| Error::at(name, errno);
        let mut here = rustix::fs::open(&source.path, DIRECTORY, Mode::empty()).map_err(at)?;
        let mut path = Vec::new();
        let mut levels = vec![self.enter(&here, &path)?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                let failed = |errno| Error::at(&path, errno);
                let stat = level.stat;
                self.names_bytes -= level.names_bytes;
                levels.pop();
                let attributes = self.attributes(here.as_fd(), &stat).map_err(failed)?;
                self.record(&Record::Leave { attributes })?;
                let Some(above) = levels.last() else { break };
                here = ascend(&here, above.stat.st_ino).map_err(failed)?;
                path.truncate(above.path_bytes);
                continue;
            };
            path.truncate(level.path_bytes);
            append(&mut path, &name);
            if let Some(below) = self.entry(&here, name, &path)? {
                here = below;
                levels.push(self.enter(&here, &path)?);
            }
        }
        Ok(())
    }

    /// Reads the names of a directory. Sorted, so that copies of a tree make the same stream.
    fn enter(&mut self, here: &OwnedFd, path: &[u8]) -> Result<Level, Error> {
        let failed = |errno| Error::at(path, errno);
        let stat = rustix::fs::fstat(here).map_err(failed)?;
        let mut names = Vec::new();
        let mut names_bytes = 0;
        for entry in rustix::fs::Dir::read_from(here).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            names_bytes += name.len() + NAME_OVERHEAD_BYTES;
            if self.names_bytes + names_bytes > NAMES_BYTES_MAX {
                let limit = format!("{} MiB of memory", NAMES_BYTES_MAX >> 20);
                return Err(Error::TooLarge { what: "the names of its directories", limit });
            }
            names.push(name);
        }
        names.sort_unstable();
        self.names_bytes += names_bytes;
        self.counts.entries += 1;
        Ok(Level { names: names.into_iter(), names_bytes, stat, path_bytes: path.len() })
    }

    /// Reads one entry. Returns a directory, whose entries follow.
    fn entry(
        &mut self,
        here: &OwnedFd,
        name: Vec<u8>,
        path: &[u8],
    ) -> Result<Option<OwnedFd>, Error> {
        let failed = |errno| Error::at(path, errno);
        let stat = rustix::fs::statat(here, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(failed)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let record = match kind {
            FileType::Directory => {
                let below = rustix::fs::openat(here, name.as_slice(), DIRECTORY, Mode::empty());
                let below = below.map_err(failed)?;
                self.record(&Record::Directory { name })?;
                return Ok(Some(below));
            }
            FileType::RegularFile => {
                self.file(here, name, path)?;
                return Ok(None);
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(here, name.as_slice(), Vec::new());
                let target = target.map_err(failed)?.into_bytes();
                Record::Symlink { name, target, attributes: self.plain(&stat) }
            }
            FileType::Fifo => Record::Pipe { name, attributes: self.plain(&stat) },
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                Record::Whiteout { name, attributes: self.plain(&stat) }
            }
            _ => {
                self.counts.left_out += 1;
                return Ok(None);
            }
        };
        self.counts.entries += 1;
        self.record(&record)?;
        Ok(None)
    }

    fn file(&mut self, here: &OwnedFd, name: Vec<u8>, path: &[u8]) -> Result<(), Error> {
        let failed = |errno| Error::at(path, errno);
        let file =
            rustix::fs::openat(here, name.as_slice(), FILE, Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(failed(Errno::STALE));
        }
        let link = match stat.st_nlink > 1 {
            false => None,
            true => match self.links.number(stat.st_ino)? {
                (link, true) => Some(link),
                (link, false) => {
                    self.counts.entries += 1;
                    return self.record(&Record::HardLink { name, link });
                }
            },
        };
        self.content(file.as_fd(), &stat, name, link, path)
    }

    /// Writes the record of a file, and its data without the holes.
    fn content(
        &mut self,
        file: BorrowedFd<'_>,
        stat: &Stat,
        name: Vec<u8>,
        link: Option<u64>,
        path: &[u8],
    ) -> Result<(), Error> {
        let failed = |errno| Error::at(path, errno);
        let bytes = u64::try_from(stat.st_size).unwrap_or(0);
        let attributes = self.attributes(file, stat).map_err(failed)?;
        self.record(&Record::File { name, bytes, link, attributes })?;
        self.counts.entries += 1;
        let mut position = 0;
        while let Some((start, end)) = next_data(file, position, bytes).map_err(failed)? {
            self.record(&Record::Data { offset: start, bytes: end - start })?;
            self.data(file, start, end).map_err(|error| match error {
                DataError::Kernel(errno) => failed(errno),
                DataError::Sink(error) => error,
            })?;
            self.counts.bytes += end - start;
            position = end;
        }
        Ok(())
    }

    fn data(&mut self, file: BorrowedFd<'_>, start: u64, end: u64) -> Result<(), DataError> {
        let mut position = start;
        while position < end {
            let count = usize::try_from(end - position).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            match rustix::io::pread(file, &mut self.piece[..count], position) {
                Err(Errno::INTR) => {}
                // The file became shorter.
                Ok(0) => return Err(DataError::Kernel(Errno::STALE)),
                Ok(read) => {
                    (self.sink)(&self.piece[..read], read as u64).map_err(DataError::Sink)?;
                    position += read as u64;
                }
                Err(errno) => return Err(DataError::Kernel(errno)),
            }
        }
        Ok(())
    }

    fn attributes(&mut self, file: BorrowedFd<'_>, stat: &Stat) -> Result<Attributes, Errno> {
        let extended = self.extended.read(file, self.ids)?;
        Ok(Attributes { extended, ..self.plain(stat) })
    }

    fn plain(&self, stat: &Stat) -> Attributes {
        Attributes {
            uid: self.ids.portable(stat.st_uid),
            gid: self.ids.portable(stat.st_gid),
            mode: stat.st_mode & 0o7777,
            modified: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            extended: Vec::new(),
        }
    }
}

enum DataError {
    Kernel(Errno),
    Sink(Error),
}

fn append(path: &mut Vec<u8>, name: &[u8]) {
    if path.len() + name.len() >= PATH_BYTES_MAX {
        return;
    }
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Goes back to the parent.
pub(super) fn ascend(here: &OwnedFd, inode: u64) -> Result<OwnedFd, Errno> {
    let above = rustix::fs::openat(here, "..", DIRECTORY, Mode::empty())?;
    match rustix::fs::fstat(&above)?.st_ino == inode {
        true => Ok(above),
        false => Err(Errno::STALE),
    }
}

/// The next range of data from an offset on; `None` if only a hole follows.
fn next_data(file: BorrowedFd<'_>, from: u64, length: u64) -> Result<Option<(u64, u64)>, Errno> {
    if from >= length {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        // No data after this offset.
        Err(Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(length);
    Ok((start < end).then_some((start, end)))
}
