//! Reads trees as the overlays of a sandbox show them, without a sandbox and without a mount.
//!
//! A [`MergedTree`] consists of layers, given as directories, and of trees that are mounted at names
//! of its root. Every call resolves paths one component at a time inside this tree: symbolic links
//! never lead the host anywhere, whiteouts (character device 0/0) and opaque directories hide what
//! lies below them, and nothing but directories and regular files is ever opened. Overlays here use
//! `userxattr`, so there are no redirected directories and no files without their data.
//!
//! An open directory costs one descriptor for each layer that has it. Nothing below it stays open:
//! a directory is found again by its path.

mod diff;
mod list;
mod lookup;
#[cfg(test)]
mod tests;

pub use diff::{Change, ChangeKind, DiffPage, DiffRequest};
pub use list::{ListPage, ListRequest, ListedFile};
pub use lookup::{FileKind, FileStat, Found};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// Maximum number of symbolic links in one lookup, as in the kernel.
const LINKS_MAX: usize = 40;
/// Maximum length of a path, in bytes, as in a call of the kernel.
pub const PATH_BYTES_MAX: usize = 4095;

pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
pub(crate) const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A lookup stays below its directory and in its mount, and follows no link of any kind.
pub(crate) const STAY: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// One layer: a directory, and the first id that its files have on the disk.
#[derive(Debug)]
pub struct Layer {
    /// The directory.
    pub directory: OwnedFd,
    /// Owners on the disk minus this are those in the sandbox.
    pub id_base: u32,
}

/// Trees that lie on top of each other, or one tree.
#[derive(Debug)]
pub struct Layers {
    /// The top one first.
    layers: Vec<Layer>,
    /// Whether whiteouts and opaque directories count. Without an overlay they are ordinary files.
    overlay: bool,
}

impl Layers {
    /// The layers of an overlay, the top one first.
    #[must_use]
    pub fn overlay(layers: Vec<Layer>) -> Self {
        Self { layers, overlay: true }
    }

    /// A tree that is no part of an overlay.
    #[must_use]
    pub fn plain(layer: Layer) -> Self {
        Self { layers: vec![layer], overlay: false }
    }
}

/// The files of a snapshot.
#[derive(Debug)]
pub struct MergedTree {
    /// The root, then what is mounted.
    mounts: Vec<Layers>,
    /// Names in the root at which something is mounted.
    places: BTreeMap<Vec<u8>, usize>,
    /// Whether inode numbers and times of change are those that the files had in the sandbox. This
    /// holds for copies of whole disks, not for copies of trees.
    exact_times: bool,
}

impl MergedTree {
    /// A tree with other trees mounted at names of its root.
    #[must_use]
    pub fn new(root: Layers, mounted: Vec<(&str, Layers)>, exact_times: bool) -> Self {
        let mut mounts = vec![root];
        let mut places = BTreeMap::new();
        for (name, layers) in mounted {
            places.insert(name.as_bytes().to_vec(), mounts.len());
            mounts.push(layers);
        }
        Self { mounts, places, exact_times }
    }

    fn layer(&self, mount: usize, layer: usize) -> &Layer {
        &self.mounts[mount].layers[layer]
    }

    /// The root directory.
    fn root(&self) -> DirectoryRef {
        self.top(0)
    }

    fn top(&self, mount: usize) -> DirectoryRef {
        let layers = (0..self.mounts[mount].layers.len()).collect();
        DirectoryRef { mount, layers, path: Vec::new() }
    }

    /// Opens a directory in all its layers.
    fn open(&self, at: &DirectoryRef) -> Result<OpenDirectory, Errno> {
        let open = |layer: &usize| {
            let top = &self.layer(at.mount, *layer).directory;
            let path = if at.path.is_empty() { b".".as_slice() } else { at.path.as_slice() };
            rustix::fs::openat2(top, path, DIRECTORY, Mode::empty(), STAY)
        };
        let open = at.layers.iter().map(open).collect::<Result<_, _>>()?;
        Ok(OpenDirectory { at: at.clone(), open })
    }
}

/// A directory of the merged tree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DirectoryRef {
    mount: usize,
    /// The layers that show it together, the top one first.
    layers: Vec<usize>,
    /// The path below the top of the mount.
    path: Vec<u8>,
}

impl DirectoryRef {
    /// The path of an entry below the top of the mount.
    fn below(&self, name: &[u8]) -> Vec<u8> {
        if self.path.is_empty() { name.to_vec() } else { [&self.path, name].join(&b'/') }
    }
}

/// A directory that is open in all its layers.
#[derive(Debug)]
struct OpenDirectory {
    at: DirectoryRef,
    open: Vec<OwnedFd>,
}

/// Whether one path comes before another: by their components.
fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}
