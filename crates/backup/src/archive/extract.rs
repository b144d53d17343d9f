//! Writes the entries of an archive below a directory, and nowhere else: each part of a path is
//! opened alone, without following symbolic links, and nothing that exists is replaced.

use super::entry::{Attribute, Attributes, Entry, Kind};
use super::read::Sink;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const NEW_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const NEW_MODE: Mode = Mode::RWXU;

/// Writes an archive below a directory.
pub(crate) struct Extractor {
    root: OwnedFd,
    /// The directory that the next entry probably belongs to, and the path that leads there.
    current: OwnedFd,
    /// Directories from the root to the current one, whose attributes are set when they are left.
    levels: Vec<Level>,
    /// The attributes of the root.
    top: Option<Attributes>,
    /// The permission bits that the root may get.
    top_mode_max: u32,
    file: Option<NewFile>,
}

struct Level {
    name: Vec<u8>,
    /// `None` if an earlier entry has set them already.
    attributes: Option<Attributes>,
}

struct NewFile {
    file: OwnedFd,
    attributes: Attributes,
    length: u64,
    sparse: bool,
}

fn refused(path: &[u8], error: impl std::fmt::Display) -> io::Error {
    let path = String::from_utf8_lossy(path);
    io::Error::new(io::ErrorKind::InvalidData, format!("{path:?}: {error}"))
}

impl Extractor {
    /// Writes below an existing directory, which gets at most these permission bits and keeps its
    /// owner.
    pub(crate) fn new(root: &Path, top_mode_max: u32) -> io::Result<Self> {
        let root = rustix::fs::open(root, DIRECTORY, Mode::empty())?;
        let current = root.try_clone()?;
        Ok(Self { root, current, levels: Vec::new(), top: None, top_mode_max, file: None })
    }

    /// Sets the attributes of the directories that are still open.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.ascend(0)?;
        if let Some(attributes) = self.top.take() {
            let owner = rustix::fs::fstat(&self.root)?;
            let mode = attributes.mode & self.top_mode_max;
            let attributes =
                Attributes { mode, uid: owner.st_uid, gid: owner.st_gid, ..attributes };
            set(self.root.as_fd(), &attributes)?;
        }
        Ok(())
    }

    /// Leaves directories until `count` are left.
    fn ascend(&mut self, count: usize) -> io::Result<()> {
        while self.levels.len() > count {
            let Some(level) = self.levels.pop() else { break };
            let above = rustix::fs::openat(&self.current, "..", DIRECTORY, Mode::empty())?;
            if let Some(attributes) = level.attributes {
                set(self.current.as_fd(), &attributes)?;
            }
            self.current = above;
        }
        Ok(())
    }

    /// Makes the directory of a path the current one. Returns the last part of the path.
    fn enter<'p>(&mut self, path: &'p [u8]) -> io::Result<&'p [u8]> {
        let mut parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let name = parts.pop().unwrap_or_default();
        let same = self.levels.iter().zip(&parts).take_while(|(level, part)| level.name == **part);
        let same = same.count();
        self.ascend(same)?;
        for part in &parts[same..] {
            let entered = rustix::fs::openat(&self.current, *part, DIRECTORY, Mode::empty());
            self.current = entered.map_err(|errno| refused(path, errno))?;
            self.levels.push(Level { name: part.to_vec(), attributes: None });
        }
        Ok(name)
    }

    /// Opens the directory of another path. Returns it with the last part of the path.
    fn find<'p>(&self, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        let mut parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let name = parts.pop().unwrap_or_default();
        let mut directory = self.root.try_clone()?;
        for part in parts {
            let entered = rustix::fs::openat(&directory, part, DIRECTORY, Mode::empty());
            directory = entered.map_err(|errno| refused(path, errno))?;
        }
        Ok((directory, name))
    }

    fn node(&self, name: &[u8], kind: FileType, entry: &Entry) -> io::Result<()> {
        rustix::fs::mknodat(&self.current, name, kind, NEW_MODE, 0)?;
        self.set_path(name, entry)
    }

    /// Sets the attributes of a file that cannot be opened.
    fn set_path(&self, name: &[u8], entry: &Entry) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.current, name, flags, Mode::empty())?;
        let attributes = &entry.attributes;
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let uid = Some(Uid::from_raw(attributes.uid));
        let gid = Some(Gid::from_raw(attributes.gid));
        rustix::fs::chownat(&self.current, name, uid, gid, nofollow)?;
        let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
        // A symbolic link has no mode of its own.
        if !matches!(entry.kind, Kind::Symlink { .. }) {
            rustix::fs::chmod(&path, Mode::from_raw_mode(attributes.mode))?;
        }
        for Attribute { name, value } in &attributes.extended {
            rustix::fs::setxattr(&path, name.as_slice(), value, XattrFlags::empty())?;
        }
        rustix::fs::utimensat(&self.current, name, &times(attributes), nofollow)?;
        Ok(())
    }
}

impl Sink for Extractor {
    fn entry(&mut self, entry: Entry) -> io::Result<()> {
        if entry.path.is_empty() {
            self.top = Some(entry.attributes);
            return Ok(());
        }
        let path = entry.path.clone();
        let name = self.enter(&path)?;
        let done = match &entry.kind {
            Kind::Directory => {
                let made = rustix::fs::mkdirat(&self.current, name, NEW_MODE);
                let entered = made.and_then(|()| {
                    rustix::fs::openat(&self.current, name, DIRECTORY, Mode::empty())
                });
                self.current = entered.map_err(|errno| refused(&path, errno))?;
                let attributes = Some(entry.attributes);
                self.levels.push(Level { name: name.to_vec(), attributes });
                return Ok(());
            }
            Kind::File { length, parts } => {
                let mode = Mode::RUSR | Mode::WUSR;
                let file = rustix::fs::openat(&self.current, name, NEW_FILE, mode);
                let file = file.map_err(|errno| refused(&path, errno))?;
                let sparse = parts.is_some();
                let attributes = entry.attributes;
                self.file = Some(NewFile { file, attributes, length: *length, sparse });
                return Ok(());
            }
            Kind::Symlink { target } => {
                rustix::fs::symlinkat(target.as_slice(), &self.current, name)
                    .map_err(io::Error::from)
                    .and_then(|()| self.set_path(name, &entry))
            }
            Kind::HardLink { to } => {
                let (directory, from) = self.find(to)?;
                let flags = AtFlags::empty();
                let linked = rustix::fs::linkat(&directory, from, &self.current, name, flags);
                linked.map_err(io::Error::from)
            }
            Kind::Fifo => self.node(name, FileType::Fifo, &entry),
            Kind::Whiteout => self.node(name, FileType::CharacterDevice, &entry),
        };
        done.map_err(|error| refused(&path, error))
    }

    fn data(&mut self, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        let Some(new) = &self.file else { return Err(io::ErrorKind::InvalidInput.into()) };
        while !bytes.is_empty() {
            let count = rustix::io::pwrite(&new.file, bytes, offset)?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            offset += count as u64;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    fn end_of_file(&mut self) -> io::Result<()> {
        let Some(new) = self.file.take() else { return Ok(()) };
        if new.sparse {
            rustix::fs::ftruncate(&new.file, new.length)?;
        }
        set(new.file.as_fd(), &new.attributes)
    }
}

fn times(attributes: &Attributes) -> Timestamps {
    let time =
        Timespec { tv_sec: attributes.modified_s, tv_nsec: i64::from(attributes.modified_ns) };
    Timestamps { last_access: time, last_modification: time }
}

/// Sets the attributes of an open file. The owner comes first, because the kernel then removes
/// set-user-id bits and capabilities.
fn set(file: BorrowedFd<'_>, attributes: &Attributes) -> io::Result<()> {
    let uid = Some(Uid::from_raw(attributes.uid));
    let gid = Some(Gid::from_raw(attributes.gid));
    rustix::fs::fchown(file, uid, gid)?;
    remove_inherited(file)?;
    rustix::fs::fchmod(file, Mode::from_raw_mode(attributes.mode))?;
    for Attribute { name, value } in &attributes.extended {
        rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())?;
    }
    rustix::fs::futimens(file, &times(attributes))?;
    Ok(())
}

/// Removes an access list that the directory of the target gave to everything in it.
fn remove_inherited(file: BorrowedFd<'_>) -> io::Result<()> {
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        match rustix::fs::fremovexattr(file, name) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
