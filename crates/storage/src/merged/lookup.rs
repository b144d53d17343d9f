//! Finds files by name and by path.

use super::{DirectoryRef, LINKS_MAX, MergedTree, OpenDirectory, PATH, PATH_BYTES_MAX, STAY};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const OPAQUE: &str = "user.overlay.opaque";
/// Opens content. A named pipe that replaced a file cannot block, because only a regular file is
/// opened again.
const CONTENT: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, named pipe or socket, which is never opened.
    Other,
}

/// The metadata of a file, with owners as in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// The type.
    pub kind: FileKind,
    /// The size in bytes.
    pub size: u64,
    /// The permission bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device and type bits of a special file; 0 for others.
    pub device: u64,
    /// Time of the last modification, in ns since 1970.
    pub modified_ns: i128,
    /// Time of the last change of the inode, in ns since 1970.
    pub changed_ns: i128,
    /// The device that holds the file, and its inode number.
    pub inode: (u64, u64),
}

/// A file of the merged tree.
#[derive(Debug)]
pub struct Found {
    /// The metadata of the top layer.
    pub stat: FileStat,
    /// The target of a symbolic link.
    pub target: Option<Vec<u8>>,
    pub(super) place: Place,
}

/// What is open of a file.
#[derive(Debug)]
pub(super) enum Place {
    Directory(DirectoryRef),
    /// The file, as a path.
    File {
        parent: OwnedFd,
        name: Vec<u8>,
    },
}

impl Found {
    /// Opens the content of a regular file for reading.
    ///
    /// # Errors
    /// `EINVAL` for anything else, and errors of the kernel.
    pub fn open(&self) -> Result<File, Errno> {
        let Place::File { parent, name } = &self.place else { return Err(Errno::INVAL) };
        if self.stat.kind != FileKind::File {
            return Err(Errno::INVAL);
        }
        let file = rustix::fs::openat2(parent, name.as_slice(), CONTENT, Mode::empty(), STAY)?;
        let now = rustix::fs::fstat(&file)?;
        // Nobody writes to a snapshot; a file that changed anyhow is not read.
        if FileType::from_raw_mode(now.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        Ok(File::from(file))
    }
}

impl FileStat {
    pub(super) fn of(stat: &Stat, id_base: u32) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Other,
        };
        let ns = |seconds: i64, ns: u64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        let other = kind == FileKind::Other;
        Self {
            kind,
            size: if kind == FileKind::Directory {
                0
            } else {
                u64::try_from(stat.st_size).unwrap_or(0)
            },
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid.saturating_sub(id_base),
            gid: stat.st_gid.saturating_sub(id_base),
            device: if other { stat.st_rdev << 4 | u64::from(stat.st_mode >> 12) } else { 0 },
            modified_ns: ns(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: ns(stat.st_ctime, stat.st_ctime_nsec),
            inode: (stat.st_dev, stat.st_ino),
        }
    }

    /// Time of the last modification, in ms since 1970.
    #[must_use]
    pub fn modified_ms(&self) -> i64 {
        i64::try_from(self.modified_ns.div_euclid(1_000_000)).unwrap_or(0)
    }
}

/// The names of a path, from the root on.
pub(super) type Names = Vec<Vec<u8>>;

impl MergedTree {
    /// Finds a path, which starts at the root with or without a slash. Links are followed, the last
    /// one only with `follow`. `None` if there is nothing.
    ///
    /// # Errors
    /// `ELOOP`, `ENOTDIR`, `ENAMETOOLONG`, and errors of the kernel.
    pub fn find(&self, path: &[u8], follow: bool) -> Result<Option<Found>, Errno> {
        Ok(self.locate(path, follow)?.map(|(found, _)| found))
    }

    /// Like [`MergedTree::find`]. Also returns the path without links.
    pub(super) fn locate(
        &self,
        path: &[u8],
        follow: bool,
    ) -> Result<Option<(Found, Names)>, Errno> {
        let mut left = split(path)?;
        let mut through: Vec<(Vec<u8>, DirectoryRef)> = Vec::new();
        let mut links = 0;
        let mut at = self.root();
        loop {
            let names = |through: &[(Vec<u8>, DirectoryRef)]| {
                through.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
            };
            let Some(name) = left.pop_front() else {
                let Some(found) = self.directory(&at)? else { return Ok(None) };
                return Ok(Some((found, names(&through))));
            };
            if name == b".." {
                if let Some((_, above)) = through.pop() {
                    at = above;
                }
                continue;
            }
            let Some(found) = self.child(&self.open(&at)?, &name)? else { return Ok(None) };
            match &found.place {
                Place::Directory(next) => {
                    let next = next.clone();
                    if next.path.len() > PATH_BYTES_MAX {
                        return Err(Errno::NAMETOOLONG);
                    }
                    through.push((name, std::mem::replace(&mut at, next)));
                }
                Place::File { .. } if left.is_empty() && !(follow && found.target.is_some()) => {
                    let mut names = names(&through);
                    names.push(name);
                    return Ok(Some((found, names)));
                }
                Place::File { .. } => {
                    let Some(target) = &found.target else { return Err(Errno::NOTDIR) };
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::LOOP);
                    }
                    if target.first() == Some(&b'/') {
                        through.clear();
                        at = self.root();
                    }
                    let mut more = split(target)?;
                    more.append(&mut left);
                    left = more;
                }
            }
        }
    }

    /// The directory itself.
    fn directory(&self, at: &DirectoryRef) -> Result<Option<Found>, Errno> {
        let open = self.open(at)?;
        let Some((layer, top)) = at.layers.first().zip(open.open.first()) else { return Ok(None) };
        let id_base = self.layer(at.mount, *layer).id_base;
        let stat = FileStat::of(&rustix::fs::fstat(top)?, id_base);
        Ok(Some(Found { stat, target: None, place: Place::Directory(at.clone()) }))
    }

    /// Finds a name in a directory.
    pub(super) fn child(&self, at: &OpenDirectory, name: &[u8]) -> Result<Option<Found>, Errno> {
        if at.at.mount == 0
            && at.at.path.is_empty()
            && let Some(mount) = self.places.get(name)
        {
            return self.directory(&self.top(*mount));
        }
        let overlay = self.mounts[at.at.mount].overlay;
        let mut merged: Option<(FileStat, Vec<usize>)> = None;
        for (layer, directory) in at.at.layers.iter().zip(&at.open) {
            let file = match rustix::fs::openat2(directory, name, PATH, Mode::empty(), STAY) {
                // A mount of the host is not part of the layer.
                Err(Errno::NOENT | Errno::XDEV) => continue,
                file => file?,
            };
            let raw = rustix::fs::fstat(&file)?;
            let stat = FileStat::of(&raw, self.layer(at.at.mount, *layer).id_base);
            let kind = FileType::from_raw_mode(raw.st_mode);
            if kind == FileType::Directory {
                let (_, layers) = merged.get_or_insert((stat, Vec::new()));
                layers.push(*layer);
                if overlay && is_opaque(file.as_fd())? {
                    break;
                }
                continue;
            }
            // Below a directory, anything else ends what is merged.
            if merged.is_some() {
                break;
            }
            if overlay && kind == FileType::CharacterDevice && raw.st_rdev == 0 {
                return Ok(None);
            }
            let target = match kind {
                FileType::Symlink => {
                    Some(rustix::fs::readlinkat(&file, c"", Vec::new())?.into_bytes())
                }
                _ => None,
            };
            let parent = rustix::io::fcntl_dupfd_cloexec(directory, 0)?;
            let place = Place::File { parent, name: name.to_vec() };
            return Ok(Some(Found { stat, target, place }));
        }
        Ok(merged.map(|(stat, layers)| {
            let at = DirectoryRef { mount: at.at.mount, layers, path: at.at.below(name) };
            Found { stat, target: None, place: Place::Directory(at) }
        }))
    }
}

/// Whether a directory of an overlay hides those below it.
fn is_opaque(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    // An attribute cannot be read by a descriptor that only stands for a path.
    let directory = rustix::fs::openat(directory, c".", super::DIRECTORY, Mode::empty())?;
    let mut value = [0; 4];
    let read = rustix::fs::fgetxattr(&directory, OPAQUE, &mut value[..]);
    Ok(matches!(read, Ok(1)) && value[0] == b'y')
}

/// The components of a path.
fn split(path: &[u8]) -> Result<VecDeque<Vec<u8>>, Errno> {
    if path.len() > PATH_BYTES_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let part = |part: &&[u8]| !part.is_empty() && *part != b".";
    Ok(super::parts(path).filter(part).map(<[u8]>::to_vec).collect())
}
