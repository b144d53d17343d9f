//! Where the files of a snapshot lie on the disk.

use crate::live::snapshots::SnapshotFiles;
use crate::model::record::snapshot::SnapshotRecord;
use isolet_wire::launcher::HOST_LAYER;
use std::path::PathBuf;

/// The directories that hold the files of a snapshot, as the overlays of a sandbox from it combine
/// them: a file of an earlier directory covers that of a later one, and whiteouts and opaque
/// directories (`user.overlay.opaque`) hide what lies below. Tenants decided what is in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotTrees {
    /// The disk image with all files, if the sandbox had a disk of its own. The other directories
    /// are then empty.
    pub(crate) disk: Option<PathBuf>,
    /// Directories of the root file system, the top one first, above the image's layers.
    pub(crate) root: Vec<PathBuf>,
    /// Directories of `/usr`, the top one first, above that of the host. Empty with an image, whose
    /// `/usr` is part of the root.
    pub(crate) usr: Vec<PathBuf>,
    /// As `usr`, but also with an image, where it is empty but for attributes.
    pub(crate) layered_usr: Vec<PathBuf>,
    /// The workspace.
    pub(crate) workspace: Option<PathBuf>,
    /// Paths of the image's layers below the image directory, the top one first; without the programs of
    /// the host. With these below, each layer has changes of the host's `/usr` in its directory `usr`.
    pub(crate) image: Vec<String>,
    /// The first id that all these files have on disk, except those of the image.
    pub(crate) id_base: Option<u32>,
}

impl SnapshotFiles {
    /// The directories of a snapshot.
    pub(crate) fn trees(&self, record: &SnapshotRecord) -> SnapshotTrees {
        let own = self.directory(&record.name);
        let settings = &record.body.settings;
        let layers = settings.root.iter().flat_map(|root| &root.layers);
        let layers = layers.filter(|layer| *layer != HOST_LAYER);
        let image = layers.cloned().collect();
        let id_base = settings.id_base;
        let is_on_host = settings.root.as_ref().is_none_or(isolet_image::Root::is_on_host);
        if settings.limits.disk_mib > 0 {
            let disk = Some(own.join(super::files::DISK));
            return SnapshotTrees {
                disk,
                root: Vec::new(),
                usr: Vec::new(),
                layered_usr: Vec::new(),
                workspace: None,
                image,
                id_base,
            };
        }
        SnapshotTrees {
            disk: None,
            root: self.part(record, "root"),
            usr: if is_on_host { self.part(record, "usr") } else { Vec::new() },
            layered_usr: self.part(record, "usr"),
            workspace: Some(own.join("workspace")),
            image,
            id_base,
        }
    }

    /// The directories of a part: that of the snapshot itself, unless it is a layer, and those of its
    /// layers.
    fn part(&self, record: &SnapshotRecord, part: &str) -> Vec<PathBuf> {
        let own = self.directory(&record.name).join(part).join("upper");
        let own = Some(own).filter(|own| own.is_dir());
        let layers = record.body.settings.layers.iter();
        own.into_iter().chain(layers.map(|layer| self.layers.part(layer, part))).collect()
    }
}
