//! Unpacks a layer into a directory tree, and never writes outside of it.
//!
//! Files that hide those of layers below become what overlay file systems understand: a character
//! device 0/0 for one name, and `user.overlay.opaque` on a directory for all of it. Sandboxes mount
//! with `userxattr`, so it is the `user.` form that counts.
//!
//! A layer's bytes come through a channel of 16 pieces to a thread that hashes, decompresses,
//! hashes again and unpacks. The thread gives its slot back while it waits for a registry
//! (`slots`), so that a slow registry delays only the tenant that asked it. Names are resolved with
//! `openat2` within the layer's own tree, as a program with that root would resolve them.
//! Everything happens in `staging`; a complete layer is synced and renamed.

pub(crate) mod byte_stream;
pub(crate) mod slots;
pub(crate) mod tar_split;
pub(crate) mod tar_stream;

use crate::disk::free_space::{ENTRY_BYTES, FreeSpace};
use crate::disk::rooted::{self, Tree, kind, owner, parts};
use crate::error::Error;
use crate::manifest::Blob;
use crate::reference::Digest;
use crate::unpack::byte_stream::{Bounded, Decompressed, Hashing, from_io_error};
use crate::unpack::tar_split::TarSplitWriter;
use crate::unpack::tar_stream::{Mtime, TarEntry, TarStream};
use isolet_sys::tree;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tar::EntryType;

/// The highest user or group id in a sandbox. Files with higher ids belong to `nobody`.
const ID_MAX: u64 = 65_533;
const NOBODY: u32 = 65_534;
const OPAQUE: &str = "user.overlay.opaque";

/// Limits of one layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) compressed_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

/// Statistics of an unpacked layer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerStats {
    /// Size of the uncompressed files, in bytes.
    pub bytes: u64,
    /// Entries of the archive.
    pub entries: u64,
    /// Device nodes and entries of unknown kinds that were not unpacked.
    pub skipped: u64,
    /// Entries whose owner or group is above the highest id of a sandbox; they belong to `nobody`.
    pub unmapped_owners: u64,
}

/// Digests of a layer that was read to its end.
pub(crate) struct Digests {
    /// Of the layer as the registry stores it.
    pub(crate) blob: Digest,
    pub(crate) blob_bytes: u64,
    /// Of the uncompressed layer.
    pub(crate) diff_id: Digest,
    /// Whether the archive was recorded, so that it can be made again.
    pub(crate) is_recorded: bool,
}

impl Digests {
    /// Compares the digests with those of the manifest, if there is one, and of the configuration.
    pub(crate) fn verify_layer(
        &self,
        expected: Option<&Blob>,
        diff_id: &Digest,
    ) -> Result<(), Error> {
        let other = |found: &Digest, expected: &Digest| {
            Err(Error::bad(format!("a layer has the digest {found} instead of {expected}")))
        };
        match expected {
            Some(blob) if blob.digest != self.blob || blob.bytes != self.blob_bytes => {
                other(&self.blob, &blob.digest)
            }
            _ if *diff_id != self.diff_id => other(&self.diff_id, diff_id),
            _ => Ok(()),
        }
    }
}

/// Unpacks a layer into `tree`. Without a tree, the layer is only read, so that its digests can be
/// checked. `split` records the archive.
///
/// # Errors
/// [`Error::Bad`], [`Error::TooLarge`], [`Error::Full`], [`Error::Disk`]. The caller must then remove
/// the tree.
pub(crate) fn layer(
    from: impl Read,
    tree: Option<BorrowedFd<'_>>,
    budget: Budget,
    free_space: &FreeSpace,
    split: Option<TarSplitWriter>,
) -> Result<(LayerStats, Digests), Error> {
    let compressed = Bounded::new(from, budget.compressed_bytes, "a compressed layer");
    let compressed_bytes = compressed.counter();
    let plain = Decompressed::of(Hashing::new(compressed)).map_err(from_io_error)?;
    // Headers and padding come on top of the contents.
    let most = budget.bytes.saturating_add(budget.entries.saturating_mul(1024));
    let plain = Bounded::new(plain, most, "the unpacked layer").unpacked_from(compressed_bytes);
    let mut tar = TarStream::recorded(Hashing::new(plain), split);
    let mut unpacking = tree.map(|root| Unpacking::new(root, free_space));
    free_space.check()?;
    let mut stats = LayerStats::default();
    while let Some(entry) = tar.next_entry()? {
        stats.entries += 1;
        stats.bytes = stats.bytes.saturating_add(entry.size);
        if stats.entries > budget.entries {
            return Err(Error::large("entries of a layer", budget.entries.to_string()));
        }
        if stats.bytes > budget.bytes {
            return Err(Error::large("files of a layer", format!("{} bytes", budget.bytes)));
        }
        if let Some(unpacking) = &mut unpacking {
            unpacking.entry(&entry, &mut tar, &mut stats)?;
            if std::mem::take(&mut unpacking.has_replaced) {
                tar.replaced();
            }
            // A path of 127 directories is one entry and takes 128 inodes.
            let implied = unpacking.tree.take_implied();
            stats.entries += implied;
            free_space.reserve(implied.saturating_mul(ENTRY_BYTES))?;
        }
    }
    if let Some(mut unpacking) = unpacking {
        unpacking.tree.restore_times()?;
    }
    let (hashing, is_recorded) = tar.finish()?;
    let (plain, diff_id) = hashing.into_inner().map_err(from_io_error)?;
    let (blob, blob_bytes) = plain.into_inner().finish().map_err(from_io_error)?;
    Ok((stats, Digests { blob, blob_bytes, diff_id, is_recorded }))
}

/// A tree that is being unpacked.
struct Unpacking<'a> {
    tree: Tree<'a>,
    free_space: &'a FreeSpace,
    buffer: Vec<u8>,
    /// Whether an entry has replaced one of the same layer.
    has_replaced: bool,
}

impl<'a> Unpacking<'a> {
    fn new(root: BorrowedFd<'a>, free_space: &'a FreeSpace) -> Self {
        let buffer = vec![0; 65_536];
        Self { tree: Tree::new(root), free_space, buffer, has_replaced: false }
    }

    fn entry<R: Read>(
        &mut self,
        entry: &TarEntry,
        tar: &mut TarStream<R>,
        stats: &mut LayerStats,
    ) -> Result<(), Error> {
        self.free_space.reserve(ENTRY_BYTES)?;
        let parts = parts(&entry.path)?;
        let Some((name, above)) = parts.split_last() else {
            // The entry `./` sets the metadata of the root directory.
            if entry.kind == EntryType::Directory {
                self.tree.restore_times()?;
                self.set_metadata(self.tree.root(), entry, stats)?;
            }
            return Ok(());
        };
        if let Some(hidden) = name.strip_prefix(b".wh.") {
            return self.whiteout(above, hidden, stats);
        }
        let parent = self.tree.directory(above)?;
        let shown = || String::from_utf8_lossy(&entry.path).into_owned();
        let made = match entry.kind {
            EntryType::Directory => self.directory(&parent, name, entry, stats),
            EntryType::Regular | EntryType::Continuous => {
                self.file(&parent, name, entry, tar, stats)
            }
            EntryType::Symlink => self.symlink(&parent, name, entry, stats),
            EntryType::Link => self.hard_link(&parent, name, entry),
            EntryType::Fifo => self.fifo(&parent, name, entry, stats),
            _ => {
                stats.skipped += 1;
                Ok(())
            }
        };
        made.map_err(|error| match error {
            Error::Disk(said) => {
                Error::bad(format!("cannot unpack {:?} of a layer: {said}", shown()))
            }
            error => error,
        })
    }

    /// `.wh.NAME` hides a name of the layers below, `.wh..wh..opq` all names of its directory.
    fn whiteout(
        &mut self,
        above: &[&[u8]],
        hidden: &[u8],
        stats: &mut LayerStats,
    ) -> Result<(), Error> {
        if hidden == b".wh..opq" {
            let directory = self.tree.directory(above)?;
            rustix::fs::fsetxattr(&*directory, OPAQUE, b"y", XattrFlags::empty())?;
            return Ok(());
        }
        if hidden.starts_with(b".wh.") {
            // Metadata of AUFS.
            stats.skipped += 1;
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(Error::bad("a whiteout has no name to hide"));
        }
        let parent = self.tree.directory(above)?;
        let mode = Mode::empty();
        match rustix::fs::mknodat(&*parent, hidden, FileType::CharacterDevice, mode, 0) {
            // The layer also has a file of this name, which wins.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates a file, and removes an earlier one of the same layer at this name.
    fn replace<T>(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        make: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Error> {
        match make() {
            Err(Errno::EXIST) => {
                tree::remove_at(parent.as_fd(), name)?;
                self.tree.invalidate();
                self.has_replaced = true;
                Ok(make()?)
            }
            made => Ok(made?),
        }
    }

    fn directory(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        entry: &TarEntry,
        stats: &mut LayerStats,
    ) -> Result<(), Error> {
        let mode = Mode::from_raw_mode(0o700);
        let there = matches!(kind(parent.as_fd(), name), Ok((FileType::Directory, _)));
        if !there {
            self.replace(parent, name, || rustix::fs::mkdirat(parent, name, mode))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        self.set_metadata(made.as_fd(), entry, stats)
    }

    fn file<R: Read>(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        entry: &TarEntry,
        tar: &mut TarStream<R>,
        stats: &mut LayerStats,
    ) -> Result<(), Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file = self.replace(parent, name, || rustix::fs::openat(parent, name, flags, mode))?;
        loop {
            let count = tar.read(&mut self.buffer)?;
            if count == 0 {
                break;
            }
            let mut rest = &self.buffer[..count];
            while !rest.is_empty() {
                rest = &rest[rustix::io::write(&file, rest)?..];
            }
            self.free_space.reserve(count as u64)?;
        }
        tar.kept(&parts(&entry.path)?.join(&b'/'), entry.size)?;
        self.set_metadata(file.as_fd(), entry, stats)
    }

    fn symlink(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        entry: &TarEntry,
        stats: &mut LayerStats,
    ) -> Result<(), Error> {
        let target = entry.link.as_slice();
        self.replace(parent, name, || rustix::fs::symlinkat(target, parent, name))?;
        let (uid, gid) = owner_ids(entry, stats);
        let (uid, gid) = owner(uid, gid);
        rustix::fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        let times = timestamps(entry.mtime);
        rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    /// Creates a hard link to a file of the same layer. Files of other layers cannot be linked to:
    /// builders copy such a file into the layer that links to it.
    fn hard_link(&mut self, parent: &OwnedFd, name: &[u8], entry: &TarEntry) -> Result<(), Error> {
        let to = parts(&entry.link)?;
        let (last, above) =
            to.split_last().ok_or_else(|| Error::bad("a hard link leads to the root"))?;
        let missing = |errno: Errno| {
            let link = String::from_utf8_lossy(&entry.link);
            let said = std::io::Error::from(errno);
            Error::bad(format!("a hard link leads to {link:?}, which is not in its layer ({said})"))
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let from = rooted::open(self.tree.root(), &above.join(&b'/'), flags).map_err(missing)?;
        match kind(from.as_fd(), last).map_err(missing)? {
            (FileType::Directory, _) => return Err(missing(Errno::ISDIR)),
            (FileType::CharacterDevice, _) => return Err(missing(Errno::NOENT)),
            _ => {}
        }
        let link = || rustix::fs::linkat(&from, *last, parent, name, AtFlags::empty());
        match link() {
            Err(Errno::EXIST) => {
                let one = |at: BorrowedFd<'_>, name: &[u8]| {
                    rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
                };
                let a = one(from.as_fd(), last)?;
                let b = one(parent.as_fd(), name)?;
                if a.st_ino == b.st_ino {
                    return Ok(());
                }
                tree::remove_at(parent.as_fd(), name)?;
                self.tree.invalidate();
                self.has_replaced = true;
                link().map_err(missing)
            }
            made => made.map_err(Error::from),
        }
    }

    fn fifo(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        entry: &TarEntry,
        stats: &mut LayerStats,
    ) -> Result<(), Error> {
        let mode = Mode::from_raw_mode(entry.mode);
        self.replace(parent, name, || rustix::fs::mknodat(parent, name, FileType::Fifo, mode, 0))?;
        let (uid, gid) = owner_ids(entry, stats);
        let (uid, gid) = owner(uid, gid);
        Ok(rustix::fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets owner, mode, extended attributes and times of a file or directory. The owner comes first,
    /// because the kernel clears set-user-id bits when it changes. These bits are preserved, although they
    /// have no effect: every mount of a sandbox is `nosuid`.
    fn set_metadata(
        &self,
        file: BorrowedFd<'_>,
        entry: &TarEntry,
        stats: &mut LayerStats,
    ) -> Result<(), Error> {
        let (uid, gid) = owner_ids(entry, stats);
        let (uid, gid) = owner(uid, gid);
        rustix::fs::fchown(file, uid, gid)?;
        rustix::fs::fchmod(file, Mode::from_raw_mode(entry.mode))?;
        for (name, value) in &entry.xattrs {
            // Only the host may grant capabilities, and attributes of overlays would hide lower layers.
            if name.starts_with("user.") && !name.starts_with("user.overlay.") {
                let _ = rustix::fs::fsetxattr(file, name.as_str(), value, XattrFlags::empty());
            }
        }
        Ok(rustix::fs::futimens(file, &timestamps(entry.mtime))?)
    }
}

fn owner_ids(entry: &TarEntry, stats: &mut LayerStats) -> (u32, u32) {
    let within = |id: u64| u32::try_from(id).ok().filter(|_| id <= ID_MAX);
    let uid = within(entry.uid);
    let gid = within(entry.gid);
    if uid.is_none() || gid.is_none() {
        stats.unmapped_owners += 1;
    }
    (uid.unwrap_or(NOBODY), gid.unwrap_or(NOBODY))
}

fn timestamps(mtime: Mtime) -> Timestamps {
    // Times that some file system cannot store become 1970.
    let storable = (0..=i64::from(u32::MAX)).contains(&mtime.seconds);
    let tv_sec = if storable { mtime.seconds } else { 0 };
    let time = Timespec { tv_sec, tv_nsec: i64::from(mtime.nanos.min(999_999_999)) };
    Timestamps { last_access: time, last_modification: time }
}
