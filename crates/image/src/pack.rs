//! Packs directory trees into a layer in the tar format of the OCI image specification.
//!
//! The trees are upper directories of overlays, workspaces, and unpacked layers. Tenants decide what
//! is in them: no link is followed, only regular files are opened, and the numbers of entries and of
//! nested directories are limited. An overlay's marks become the names that the specification has
//! for them: a whiteout `.wh.NAME`, an opaque directory `.wh..wh..opq`.
//!
//! Left out and counted are devices, sockets, and names that begin with `.wh.`, which would be read
//! as whiteouts. Of the extended attributes only `user.*` without `user.overlay.*` is packed, as
//! layers have no others. Modes stay as they are; every mount of a sandbox is `nosuid`.

mod private_files;
mod tar_writer;

use crate::disk::rooted::{DEPTH_MAX, PATH_BYTES_MAX};
use crate::error::Error;
use private_files::PrivateFiles;
pub use private_files::{PrivateFile, PrivateFileKind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tar_writer::{Entry, EntryKind, TarWriter};

/// The highest user or group id in a sandbox. Files of others belong to `nobody`.
const ID_MAX: u32 = 65_533;
const NOBODY: u32 = 65_534;
/// Maximum number of files with several names that are packed as hard links; further ones are packed
/// as files of their own. Each needs its inode number and its first path in memory.
const LINKS_MAX: usize = 100_000;
/// Maximum size of the extended attributes of one file together, in bytes. Unpacking accepts 1 MiB
/// with headers.
const ATTRIBUTES_BYTES_MAX: usize = 512 * 1024;
/// Maximum size of one attribute or of the list of names, in bytes, by the kernel.
const VALUE_BYTES_MAX: usize = 64 * 1024;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Opening a named pipe does not block.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const OPAQUE: &str = "user.overlay.opaque";
/// The name of the mark of an opaque directory in a layer.
const OPAQUE_MARK: &[u8] = b".wh..wh..opq";
/// What the name of a whiteout begins with in a layer.
const WHITEOUT_PREFIX: &[u8] = b".wh.";

/// A tree to pack.
pub(crate) struct SourceTree<'a> {
    /// The directories of which it consists, the top one first, as an overlay would show them.
    pub(crate) directories: &'a [OwnedFd],
    /// The path of the tree in the layer: empty, or one name.
    pub(crate) prefix: &'static str,
    /// Whether it is an overlay's upper directory or a layer, with whiteouts and opaque directories.
    pub(crate) is_layer: bool,
    /// Paths in the layer that are left out, with everything below them.
    pub(crate) without: &'static [&'static str],
    /// Whether the tree replaces what lower layers have at its path.
    pub(crate) replaces: bool,
}

/// What was packed.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    /// Devices, sockets, and names that a layer cannot have.
    pub(crate) skipped: u64,
    /// Files whose names say that they hold secrets.
    pub(crate) private_files: PrivateFiles,
}

/// Packs trees into one layer.
pub(crate) struct Packer<W: Write> {
    tar: TarWriter<W>,
    /// The id on disk of the user 0.
    id_base: u32,
    entries_left: u64,
    entries_max: u64,
    /// The first names of files with several names in the current tree, by inode number.
    links: HashMap<u64, Vec<u8>>,
    packed: Packed,
}

/// One directory, as the trees that have it together show it: the top one first.
struct Stack {
    directories: Vec<OwnedFd>,
    /// Whether it hides what lower layers have at its path.
    is_opaque: bool,
}

/// A directory whose entries are being packed.
struct Level {
    directories: Vec<OwnedFd>,
    names: std::vec::IntoIter<Vec<u8>>,
    path_bytes: usize,
}

impl<W: Write> Packer<W> {
    /// Files on the disk have the ids from `id_base` up.
    pub(crate) fn new(to: W, id_base: u32, entries_max: u64) -> Self {
        Self {
            tar: TarWriter::new(to),
            id_base,
            entries_left: entries_max,
            entries_max,
            links: HashMap::new(),
            packed: Packed::default(),
        }
    }

    /// Writes the end of the layer.
    pub(crate) fn finish(self) -> Result<(W, Packed), Error> {
        Ok((self.tar.finish()?, self.packed))
    }

    /// Packs one tree.
    pub(crate) fn tree(&mut self, tree: &SourceTree<'_>) -> Result<(), Error> {
        self.links.clear();
        let mut path = tree.prefix.as_bytes().to_vec();
        let mut root = Stack { directories: Vec::new(), is_opaque: tree.replaces };
        for directory in tree.directories {
            let open = rustix::fs::openat(directory, c".", DIRECTORY, Mode::empty())?;
            root.directories.push(open);
        }
        self.directory(&root, &path)?;
        let mut levels = vec![self.enter(root, &path)?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                levels.pop();
                continue;
            };
            path.truncate(level.path_bytes);
            append(&mut path, &name)?;
            if let Some(below) = self.one(&level.directories, &name, &path, tree)? {
                if levels.len() + usize::from(!tree.prefix.is_empty()) >= DEPTH_MAX {
                    return Err(Error::large("nested directories", DEPTH_MAX.to_string()));
                }
                levels.push(self.enter(below, &path)?);
            }
        }
        Ok(())
    }

    /// Reads the names of a directory. They are sorted, so that equal trees become equal layers.
    fn enter(&mut self, stack: Stack, path: &[u8]) -> Result<Level, Error> {
        let Stack { directories, .. } = stack;
        let mut names = Vec::new();
        for directory in &directories {
            for entry in rustix::fs::Dir::read_from(directory)? {
                let name = entry?.file_name().to_bytes().to_vec();
                if name != b"." && name != b".." {
                    self.entries_left = self.entries_left.checked_sub(1).ok_or_else(|| {
                        Error::large("files and directories", self.entries_max.to_string())
                    })?;
                    names.push(name);
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(Level { directories, names: names.into_iter(), path_bytes: path.len() })
    }

    /// Packs one entry. Returns a directory, whose entries follow.
    fn one(
        &mut self,
        parents: &[OwnedFd],
        name: &[u8],
        path: &[u8],
        tree: &SourceTree<'_>,
    ) -> Result<Option<Stack>, Error> {
        if tree.without.iter().any(|left_out| left_out.as_bytes() == path) {
            return Ok(None);
        }
        if name.starts_with(WHITEOUT_PREFIX) {
            self.packed.skipped += 1;
            return Ok(None);
        }
        let mut parents = parents.iter();
        let (parent, stat) = loop {
            // Nothing changes the trees, so one of them has the name.
            let parent = parents.next().ok_or(Errno::NOENT)?;
            match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                stat => break (parent.as_fd(), stat?),
            }
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let stack = stack(parent, parents.as_slice(), name, tree.is_layer)?;
                self.directory(&stack, path)?;
                return Ok(Some(stack));
            }
            FileType::RegularFile => self.file(parent, name, path)?,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(parent, name, Vec::new())?;
                let entry = self.entry(EntryKind::Symlink(target.as_bytes()), path, &stat);
                self.tar.entry(&entry, &[])?;
            }
            FileType::Fifo => {
                let entry = self.entry(EntryKind::Fifo, path, &stat);
                self.tar.entry(&entry, &[])?;
            }
            FileType::CharacterDevice if tree.is_layer && stat.st_rdev == 0 => {
                let above = &path[..path.len() - name.len()];
                self.mark(above, &[WHITEOUT_PREFIX, name].concat())?;
            }
            _ => self.packed.skipped += 1,
        }
        Ok(None)
    }

    fn directory(&mut self, stack: &Stack, path: &[u8]) -> Result<(), Error> {
        let directory = stack.directories.first().ok_or(Errno::NOENT)?;
        let stat = rustix::fs::fstat(directory)?;
        let attributes = self.attributes(directory.as_fd())?;
        let shown = if path.is_empty() { b"." } else { path };
        let entry = self.entry(EntryKind::Directory, shown, &stat);
        self.tar.entry(&entry, &attributes)?;
        if stack.is_opaque {
            self.mark(path, OPAQUE_MARK)?;
        }
        Ok(())
    }

    fn file(&mut self, parent: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> Result<(), Error> {
        let file = rustix::fs::openat(parent, name, FILE, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::STALE.into());
        }
        self.packed.private_files.look(path);
        if stat.st_nlink > 1 {
            if let Some(first) = self.links.get(&stat.st_ino) {
                let entry = self.entry(EntryKind::HardLink(first), path, &stat);
                return self.tar.entry(&entry, &[]);
            }
            if self.links.len() < LINKS_MAX {
                self.links.insert(stat.st_ino, path.to_vec());
            }
        }
        let attributes = self.attributes(file.as_fd())?;
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        let entry = self.entry(EntryKind::File { size }, path, &stat);
        self.tar.file(&entry, &attributes, size, File::from(file))
    }

    /// Writes an empty file that is a mark in a layer.
    fn mark(&mut self, above: &[u8], name: &[u8]) -> Result<(), Error> {
        let above = above.strip_suffix(b"/").unwrap_or(above);
        let mut path = above.to_vec();
        append(&mut path, name)?;
        let kind = EntryKind::File { size: 0 };
        let entry = Entry { kind, path: &path, mode: 0o600, uid: 0, gid: 0, mtime: 0 };
        self.tar.entry(&entry, &[])
    }

    fn entry<'a>(&self, kind: EntryKind<'a>, path: &'a [u8], stat: &Stat) -> Entry<'a> {
        let within = |id: u32| {
            let id = id.checked_sub(self.id_base).filter(|id| *id <= ID_MAX);
            id.unwrap_or(NOBODY)
        };
        Entry {
            kind,
            path,
            mode: stat.st_mode & 0o7777,
            uid: within(stat.st_uid),
            gid: within(stat.st_gid),
            mtime: u64::try_from(stat.st_mtime).unwrap_or_default(),
        }
    }

    /// The extended attributes of an open file that a layer can have.
    fn attributes(&mut self, file: BorrowedFd<'_>) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let mut list = vec![0; VALUE_BYTES_MAX];
        let length = match rustix::fs::flistxattr(file, list.as_mut_slice()) {
            Err(Errno::OPNOTSUPP) => 0,
            length => length?,
        };
        let mut all = Vec::new();
        let mut bytes = 0;
        for name in list[..length].split(|byte| *byte == 0) {
            if !name.starts_with(b"user.") || name.starts_with(b"user.overlay.") {
                continue;
            }
            // A record of the archive ends its name with the first equals sign.
            let Some(name) = std::str::from_utf8(name).ok().filter(|name| !name.contains('='))
            else {
                self.packed.skipped += 1;
                continue;
            };
            let mut value = vec![0; VALUE_BYTES_MAX];
            let length = rustix::fs::fgetxattr(file, name, value.as_mut_slice())?;
            value.truncate(length);
            value.shrink_to_fit();
            bytes += name.len() + length;
            if bytes > ATTRIBUTES_BYTES_MAX {
                let limit = format!("{ATTRIBUTES_BYTES_MAX} bytes");
                return Err(Error::large("extended attributes of one file", limit));
            }
            all.push((name.to_owned(), value));
        }
        Ok(all)
    }
}

fn append(path: &mut Vec<u8>, name: &[u8]) -> Result<(), Error> {
    if path.len() + name.len() >= PATH_BYTES_MAX {
        return Err(Error::large("a path", format!("{PATH_BYTES_MAX} bytes")));
    }
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Ok(())
}

/// Opens a directory of the top tree, and those of the trees below that it is merged with.
fn stack(
    top: BorrowedFd<'_>,
    below: &[OwnedFd],
    name: &[u8],
    is_layer: bool,
) -> Result<Stack, Errno> {
    let first = rustix::fs::openat(top, name, DIRECTORY, Mode::empty())?;
    let mut stack =
        Stack { is_opaque: is_layer && is_opaque(first.as_fd()), directories: vec![first] };
    for parent in below {
        if stack.is_opaque {
            break;
        }
        match rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => {}
            // Another file ends the directory: it hides those further below.
            Err(Errno::NOTDIR | Errno::LOOP) => stack.is_opaque = true,
            directory => {
                let directory = directory?;
                stack.is_opaque = is_opaque(directory.as_fd());
                stack.directories.push(directory);
            }
        }
    }
    Ok(stack)
}

fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    let mut value = [0; 4];
    matches!(rustix::fs::fgetxattr(directory, OPAQUE, &mut value[..]), Ok(1)) && value[0] == b'y'
}

#[cfg(test)]
mod tests;
