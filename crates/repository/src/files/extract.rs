//! Writes a stream as files below a staging directory.
//!
//! Every name is one component and every call is relative to an open directory, without following
//! links: a directory is created before it is entered, and nothing is written over. So a stream
//! cannot reach outside, whatever it contains.

#[cfg(test)]
mod tests;

use crate::error::Error;
use crate::files::extended;
use crate::files::hard_links::LinkDirectory;
use crate::files::read::ascend;
use crate::files::source::{Root, RootKind};
use crate::format::record::{Attributes, Record, read_all};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const NEW_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Bytes of one write to a file.
const PIECE_BYTES: usize = 256 * 1024;
/// Bytes between two checks of the free space.
const CHECK_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum length of a name, by the kernel.
const NAME_BYTES_MAX: usize = 255;
/// Maximum length of a link's target, by the kernel.
const TARGET_BYTES_MAX: usize = 4095;
/// The largest id; the next one means "no change" to the kernel.
const ID_MAX: u32 = u32::MAX - 1;
/// Maximum depth of a tree: each level takes 16 bytes.
const LEVELS_MAX: usize = 4_000_000;

/// What is expected, and how it is checked.
pub(crate) struct Extraction<'a> {
    pub(crate) roots: &'a [Root],
    /// The data of all files, in bytes.
    pub(crate) bytes: u64,
    /// All entries.
    pub(crate) entries: u64,
    /// Called before that many bytes are written.
    pub(crate) check: &'a mut dyn FnMut(u64) -> Result<(), Error>,
}

/// Writes the files of a stream. Blocks. A part may be there after an error.
pub(crate) fn extract(
    input: &mut dyn Read,
    staging: OwnedFd,
    extraction: Extraction<'_>,
) -> Result<(), Error> {
    let mut writer = Writer {
        input,
        staging,
        roots: extraction.roots,
        bytes_left: extraction.bytes,
        entries_left: extraction.entries,
        check: extraction.check,
        unchecked: CHECK_BYTES,
        piece: vec![0; PIECE_BYTES],
        buffer: Vec::new(),
    };
    let mut next = writer.next()?;
    loop {
        match next {
            Record::Root(root) => next = writer.root(&root)?,
            Record::End if writer.roots.is_empty() => return Ok(()),
            _ => return Err(damaged("a record is not where it belongs")),
        }
    }
}

fn damaged(reason: &str) -> Error {
    Error::damaged("the stream", reason)
}

struct Writer<'a> {
    input: &'a mut dyn Read,
    staging: OwnedFd,
    /// The roots that are still expected.
    roots: &'a [Root],
    bytes_left: u64,
    entries_left: u64,
    check: &'a mut dyn FnMut(u64) -> Result<(), Error>,
    unchecked: u64,
    piece: Vec<u8>,
    buffer: Vec<u8>,
}

/// A file that is being written.
struct NewFile {
    file: OwnedFd,
    bytes: u64,
    attributes: Attributes,
    /// Where the data ends that was written.
    end: u64,
}

impl Writer<'_> {
    fn next(&mut self) -> Result<Record, Error> {
        Record::decode(&mut self.input, &mut self.buffer)
    }

    fn entry(&mut self) -> Result<(), Error> {
        let left = self.entries_left.checked_sub(1);
        self.entries_left = left.ok_or_else(|| damaged("it has too many entries"))?;
        Ok(())
    }

    /// Writes a root. Returns the record after it.
    fn root(&mut self, root: &Root) -> Result<Record, Error> {
        let (expected, rest) = self.roots.split_first().ok_or_else(|| damaged("it goes on"))?;
        if expected != root || !root.is_valid() {
            return Err(damaged("another root was expected"));
        }
        self.roots = rest;
        let at = |errno| Error::at(root.name.as_bytes(), errno);
        let mut parent = self.staging.try_clone().map_err(Error::fault)?;
        let mut components: Vec<&str> = root.name.split('/').collect();
        let name = components.pop().unwrap_or_default();
        for component in components {
            make_directory(&parent, component.as_bytes(), 0o755).map_err(at)?;
            parent =
                rustix::fs::openat(&parent, component, DIRECTORY, Mode::empty()).map_err(at)?;
        }
        match root.kind {
            RootKind::File => self.single(&parent, name, root),
            RootKind::Tree => {
                make_directory(&parent, name.as_bytes(), 0o700).map_err(at)?;
                let tree = rustix::fs::openat(&parent, name, DIRECTORY, Mode::empty());
                self.tree(tree.map_err(at)?)?;
                self.next()
            }
        }
    }

    fn single(&mut self, parent: &OwnedFd, name: &str, root: &Root) -> Result<Record, Error> {
        let at = |errno| Error::at(root.name.as_bytes(), errno);
        let Record::File { name: own, bytes, link: None, attributes } = self.next()? else {
            return Err(damaged("a file was expected"));
        };
        if !own.is_empty() {
            return Err(damaged("the name of a file is not valid"));
        }
        self.entry()?;
        let mode = Mode::from_raw_mode(0o600);
        let file = rustix::fs::openat(parent, name, NEW_FILE, mode).map_err(at)?;
        let mut new = NewFile { file, bytes, attributes, end: 0 };
        let next = self.data(&mut new, root.name.as_bytes())?;
        // The server's own file: its owner and mode stay those of a new one.
        rustix::fs::ftruncate(&new.file, new.bytes).map_err(at)?;
        rustix::fs::fsync(&new.file).map_err(at)?;
        Ok(next)
    }

    fn tree(&mut self, root: OwnedFd) -> Result<(), Error> {
        let links = LinkDirectory::create(self.staging.as_fd());
        let links = links.map_err(|errno| Error::at(b"links", errno))?;
        self.entry()?;
        // The inodes of the directories above.
        let mut above: Vec<u64> = Vec::new();
        let mut here = root;
        let mut next = self.next()?;
        loop {
            match next {
                Record::Directory { name } => {
                    self.entry()?;
                    let at = |errno| Error::at(&name, errno);
                    check_name(&name)?;
                    if above.len() >= LEVELS_MAX {
                        return Err(damaged("a tree is too deep"));
                    }
                    above.push(rustix::fs::fstat(&here).map_err(at)?.st_ino);
                    let mode = Mode::from_raw_mode(0o700);
                    rustix::fs::mkdirat(&here, name.as_slice(), mode).map_err(at)?;
                    here = rustix::fs::openat(&here, name.as_slice(), DIRECTORY, Mode::empty())
                        .map_err(at)?;
                }
                Record::Leave { attributes } => {
                    // Not before its entries are there: they would inherit a default ACL.
                    set(&here, &attributes).map_err(|errno| Error::at(b"", errno))?;
                    let Some(inode) = above.pop() else { break };
                    here = ascend(&here, inode).map_err(|errno| Error::at(b"..", errno))?;
                }
                Record::File { name, bytes, link, attributes } => {
                    self.entry()?;
                    next = self.file(&here, &links, &name, bytes, link, attributes)?;
                    continue;
                }
                other => self.other(&here, &links, other)?,
            }
            next = self.next()?;
        }
        links.remove(self.staging.as_fd()).map_err(|errno| Error::at(b"links", errno))
    }

    /// Writes a file. Returns the record after it.
    fn file(
        &mut self,
        here: &OwnedFd,
        links: &LinkDirectory,
        name: &[u8],
        bytes: u64,
        link: Option<u64>,
        attributes: Attributes,
    ) -> Result<Record, Error> {
        let at = |errno| Error::at(name, errno);
        check_name(name)?;
        let mode = Mode::from_raw_mode(0o600);
        let file = rustix::fs::openat(here, name, NEW_FILE, mode).map_err(at)?;
        let mut new = NewFile { file, bytes, attributes, end: 0 };
        let next = self.data(&mut new, name)?;
        rustix::fs::ftruncate(&new.file, new.bytes).map_err(at)?;
        set(&new.file, &new.attributes).map_err(at)?;
        if let Some(link) = link {
            links.remember(link, here.as_fd(), name).map_err(at)?;
        }
        Ok(next)
    }

    /// Writes the data of a file. Returns the first record that is none.
    fn data(&mut self, new: &mut NewFile, name: &[u8]) -> Result<Record, Error> {
        loop {
            let (offset, bytes) = match self.next()? {
                Record::Data { offset, bytes } => (offset, bytes),
                other => return Ok(other),
            };
            let end = offset.checked_add(bytes).filter(|end| *end <= new.bytes);
            let end = end.filter(|_| offset >= new.end);
            let end = end.ok_or_else(|| damaged("data lies outside of its file"))?;
            let left = self.bytes_left.checked_sub(bytes);
            self.bytes_left = left.ok_or_else(|| damaged("it has too much data"))?;
            let mut position = offset;
            while position < end {
                let count = usize::try_from(end - position).unwrap_or(PIECE_BYTES);
                let piece = &mut self.piece[..count.min(PIECE_BYTES)];
                read_all(&mut self.input, piece)?;
                let count = piece.len() as u64;
                self.unchecked += count;
                if self.unchecked >= CHECK_BYTES {
                    (self.check)(CHECK_BYTES)?;
                    self.unchecked = 0;
                }
                write_at(&new.file, &self.piece[..count as usize], position)
                    .map_err(|errno| Error::at(name, errno))?;
                position += count;
            }
            new.end = end;
        }
    }

    fn other(
        &mut self,
        here: &OwnedFd,
        links: &LinkDirectory,
        record: Record,
    ) -> Result<(), Error> {
        self.entry()?;
        match record {
            Record::HardLink { name, link } => {
                check_name(&name)?;
                links.reuse(link, here.as_fd(), &name).map_err(|errno| Error::at(&name, errno))
            }
            Record::Symlink { name, target, attributes } => {
                check_name(&name)?;
                if target.is_empty() || target.len() > TARGET_BYTES_MAX || target.contains(&0) {
                    return Err(damaged("the target of a link is not valid"));
                }
                rustix::fs::symlinkat(target.as_slice(), here, name.as_slice())
                    .and_then(|()| set_at(here, &name, &attributes, true))
                    .map_err(|errno| Error::at(&name, errno))
            }
            Record::Pipe { name, attributes } => node(here, &name, &attributes, FileType::Fifo),
            Record::Whiteout { name, attributes } => {
                node(here, &name, &attributes, FileType::CharacterDevice)
            }
            _ => Err(damaged("a record is not where it belongs")),
        }
    }
}

fn check_name(name: &[u8]) -> Result<(), Error> {
    let is_plain = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| *byte == b'/' || *byte == 0);
    if is_plain { Ok(()) } else { Err(damaged("the name of a file is not valid")) }
}

/// Creates a directory of the server, which may exist.
fn make_directory(parent: &OwnedFd, name: &[u8], mode: u32) -> Result<(), Errno> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => Ok(()),
        done => done,
    }
}

fn node(here: &OwnedFd, name: &[u8], attributes: &Attributes, kind: FileType) -> Result<(), Error> {
    check_name(name)?;
    // The only device is a whiteout, with the number 0.
    rustix::fs::mknodat(here, name, kind, Mode::from_raw_mode(0o600), 0)
        .and_then(|()| set_at(here, name, attributes, false))
        .map_err(|errno| Error::at(name, errno))
}

fn write_at(file: &OwnedFd, mut data: &[u8], mut position: u64) -> Result<(), Errno> {
    while !data.is_empty() {
        match rustix::io::pwrite(file, data, position) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                data = &data[count..];
                position += count as u64;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Sets owner, mode, time and extended attributes of an open file or directory. The owner first,
/// because the kernel removes setuid bits and capabilities with a change of the owner.
fn set(file: &OwnedFd, attributes: &Attributes) -> Result<(), Errno> {
    let uid = Uid::from_raw(attributes.uid.min(ID_MAX));
    let gid = Gid::from_raw(attributes.gid.min(ID_MAX));
    rustix::fs::fchown(file, Some(uid), Some(gid))?;
    rustix::fs::fchmod(file, Mode::from_raw_mode(attributes.mode & 0o7777))?;
    extended::write(file.as_fd(), &attributes.extended)?;
    rustix::fs::futimens(file, &times(attributes))
}

fn set_at(
    here: &OwnedFd,
    name: &[u8],
    attributes: &Attributes,
    is_link: bool,
) -> Result<(), Errno> {
    let uid = Uid::from_raw(attributes.uid.min(ID_MAX));
    let gid = Gid::from_raw(attributes.gid.min(ID_MAX));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::chownat(here, name, Some(uid), Some(gid), flags)?;
    if !is_link {
        let mode = Mode::from_raw_mode(attributes.mode & 0o7777);
        rustix::fs::chmodat(here, name, mode, AtFlags::empty())?;
    }
    rustix::fs::utimensat(here, name, &times(attributes), flags)
}

/// The time of the last access is not stored, because reading a file would change its chunks.
fn times(attributes: &Attributes) -> Timestamps {
    let (seconds, nanoseconds) = attributes.modified;
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds.min(999_999_999)) };
    Timestamps { last_access: time, last_modification: time }
}
