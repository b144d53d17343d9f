//! The ids of a sandbox's files on disk, and the mount that shows them under the ids of its slot.
//!
//! The sandbox's record keeps the first id on disk. Nothing is ever given to another owner: a
//! sandbox that starts in another slot gets a mount with another map. Overlays, their upper
//! directories and the workspace are mounted from that mount inside, and copies of it for a
//! session's scope keep its map.

use crate::child::{StepError, at_step};
use crate::config::{Config, UIDS};
use crate::kernel::id_map::mount_ids;
use crate::kernel::mount::attributes;
use isolet_wire::launcher::{SnapshotLayer, Spec};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// The ids of a sandbox's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIds {
    /// The first id on disk.
    on_disk: u32,
    /// The first id of the sandbox's slot.
    shown: u32,
}

impl FileIds {
    /// # Errors
    /// `ERANGE` for a slot or a base that does not exist.
    pub(super) fn of(config: &Config, spec: &Spec) -> Result<Self, Errno> {
        let on_disk = config.id_base(spec.slot, spec.id_base)?;
        Ok(Self { on_disk, shown: config.first_id(spec.slot)? })
    }

    /// The ids of a layer of a snapshot, which may come from another sandbox.
    ///
    /// # Errors
    /// As [`FileIds::of`].
    pub(super) fn of_layer(
        config: &Config,
        spec: &Spec,
        layer: &SnapshotLayer,
    ) -> Result<Self, Errno> {
        let on_disk = config.id_base(spec.slot, Some(layer.id_base))?;
        Ok(Self { on_disk, shown: config.first_id(spec.slot)? })
    }

    /// The id on disk of a user or group of the sandbox.
    pub(super) fn on_disk(&self, id: u32) -> u32 {
        self.on_disk + id
    }

    /// Shows the files of a detached mount under the ids of the slot.
    pub(super) fn map(&self, files: BorrowedFd<'_>) -> Result<(), StepError> {
        if self.on_disk == self.shown {
            return Ok(());
        }
        self.map_with(files, attributes::NOSUID | attributes::NODEV)
    }

    /// As [`FileIds::map`], and read-only.
    pub(super) fn map_read_only(&self, files: BorrowedFd<'_>) -> Result<(), StepError> {
        let flags = attributes::RDONLY | attributes::NOSUID | attributes::NODEV;
        if self.on_disk == self.shown {
            return attributes::set_attributes(files, flags, false)
                .map_err(at_step("attributes of a layer"));
        }
        self.map_with(files, flags)
    }

    fn map_with(&self, files: BorrowedFd<'_>, flags: u64) -> Result<(), StepError> {
        let ids = mount_ids(&format!("{} {} {UIDS}", self.on_disk, self.shown))
            .map_err(at_step("user namespace of the files"))?;
        attributes::map_ids(files, ids.as_fd(), flags).map_err(at_step("map ids of the files"))
    }
}
