//! Opens the files of snapshots for reading, without a sandbox. The disk image of a snapshot is
//! mounted detached, so that no namespace shows it, and stays so for a while.

use crate::live::snapshots::Snapshots;
use crate::live::snapshots::opened::OpenedTrees;
use crate::model::record::snapshot::SnapshotRecord;
use isolet_storage::merged::{Layer, Layers, MergedTree};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a disk image stays mounted after its last use.
const IDLE: Duration = Duration::from_secs(10);
/// Maximum number of disk images that stay mounted without being used.
const MOUNTS_MAX: usize = 16;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The disk images that are mounted. The kernel removes the mounts when the server ends.
#[derive(Debug, Default)]
pub(crate) struct DiskMounts {
    /// The least recently used one first.
    mounted: Mutex<Vec<MountedDisk>>,
}

#[derive(Debug)]
struct MountedDisk {
    /// The name of the snapshot's directory.
    name: String,
    root: Arc<OwnedFd>,
    used: Instant,
}

impl DiskMounts {
    fn lock(&self) -> MutexGuard<'_, Vec<MountedDisk>> {
        self.mounted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The root of an image, which is mounted if it is not yet. Blocks.
    fn open(&self, name: &str, image: &Path) -> Result<Arc<OwnedFd>, Errno> {
        let known =
            self.lock().iter().find(|one| one.name == name).map(|one| Arc::clone(&one.root));
        // Two callers may mount it at once; the second mount then ends with its call.
        let root = match known {
            Some(root) => root,
            None => Arc::new(isolet_jail::mount_read_only(image)?),
        };
        let mut mounted = self.lock();
        mounted.retain(|one| one.name != name);
        if mounted.len() >= MOUNTS_MAX {
            mounted.remove(0);
        }
        let used = Instant::now();
        mounted.push(MountedDisk { name: name.to_owned(), root: Arc::clone(&root), used });
        Ok(root)
    }

    /// Unmounts the images that were not used for a while.
    pub(crate) fn expire(&self) {
        self.lock().retain(|one| one.used.elapsed() < IDLE);
    }

    /// Unmounts the image of a deleted snapshot as soon as nothing reads it.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().retain(|one| one.name != name);
    }
}

impl Snapshots {
    /// Opens the trees of a snapshot. Blocks.
    pub(crate) fn open_trees(&self, record: &SnapshotRecord) -> Result<OpenedTrees, Errno> {
        let disk = match &self.files.trees(record).disk {
            Some(image) => Some(self.disks.open(&record.name, image)?),
            None => None,
        };
        self.files.open_trees(record, disk.as_deref())
    }

    /// Opens the files of a snapshot as a sandbox from it would show them. What is deleted
    /// afterwards can still be read by those who have it open. Blocks.
    pub(crate) fn open_tree(&self, record: &SnapshotRecord) -> Result<MergedTree, Errno> {
        let trees = self.files.trees(record);
        let id_base = trees.id_base.unwrap_or(0);
        let opened = self.open_trees(record)?;
        let of_host = record.body.settings.root.as_ref().is_none_or(isolet_image::Root::is_on_host);
        let own = |directory: OwnedFd| Layer { directory, id_base };
        let shared = |path: &Path| Ok::<_, Errno>(Layer { directory: open(path)?, id_base: 0 });
        let mut root: Vec<Layer> = opened.root.into_iter().map(own).collect();
        let mut mounted = Vec::new();
        let of_image = |path: &str| {
            let directory = open_below(&self.files.images(), path)?;
            Ok::<_, Errno>(Layer { directory, id_base: 0 })
        };
        for layer in &trees.image {
            root.push(of_image(layer)?);
        }
        if of_host {
            let data = self.files.data();
            root.push(shared(&isolet_jail::host_skeleton(data).ok_or(Errno::NOENT)?)?);
            let mut usr: Vec<Layer> = opened.usr.into_iter().map(own).collect();
            // Images on the host's programs have changes of `/usr` in this directory.
            for layer in &trees.image {
                usr.push(of_image(&format!("{layer}/usr"))?);
            }
            usr.push(shared(Path::new("/usr"))?);
            mounted.push(("usr", Layers::overlay(usr)));
        }
        mounted.extend(opened.workspace.map(|files| ("workspace", Layers::plain(own(files)))));
        Ok(MergedTree::new(Layers::overlay(root), mounted, trees.disk.is_some()))
    }
}

/// Opens a directory below one of the server, without following links.
fn open_below(directory: &Path, path: &str) -> Result<OwnedFd, Errno> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(open(directory)?, path, DIRECTORY, Mode::empty(), stay)
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, DIRECTORY, Mode::empty())
}
