//! Creating a sandbox from an image whose workspace is not empty, or that has sessions.

use crate::lifecycle::driver::Driver;
use crate::lifecycle::driver::from_snapshot::copy_failed;
use crate::live::failpoint::pass;
use crate::live::images::workspace::WorkspaceCopy;
use crate::live::snapshots::SpaceFloor;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::record::image_sessions::ImageSessions;
use isolet_storage::CopyError;
use isolet_wire::launcher::Spec;
use rustix::io::Errno;

impl Driver {
    /// The workspace that the image has for the sandbox, below the image directory.
    pub(super) fn image_workspace(&self) -> Option<String> {
        self.record.body.root.as_ref().and_then(|root| root.workspace.clone())
    }

    /// Launches a sandbox that was never started, with the workspace of its image if it has one.
    pub(super) async fn launch_new(&self, spec: Spec) -> Result<(), Error> {
        let Some(workspace) = self.image_workspace() else { return self.launch(spec).await };
        self.fill_workspace(&spec, &workspace).await?;
        self.launch(Spec { directory_exists: true, ..spec }).await
    }

    /// Launches a sandbox with the shell states that its image has. The next shells of its sessions
    /// restore them.
    pub(super) async fn launch_with_states(
        &self,
        spec: Spec,
        from: &ImageSessions,
    ) -> Result<(), Error> {
        self.launch_new(spec).await?;
        for (id, state) in &from.states {
            self.entry.shell_states.keep(id, state.clone(), || true).await?;
        }
        pass("create.states_written").await
    }

    /// Creates the directory of the sandbox and copies the workspace of its image into it. A failed
    /// creation removes the directory.
    async fn fill_workspace(&self, spec: &Spec, workspace: &str) -> Result<(), Error> {
        let image = &self.record.body.image;
        let copy_error = |reason: String| Error::Copy { of: format!("image {image}"), reason };
        // Files of an image have the ids from 0 up.
        if spec.id_base != Some(isolet_jail::FILES_ID_BASE) {
            let reason = "the file system of the data directory cannot map ids".to_owned();
            return Err(copy_error(reason));
        }
        pass("workspace.begun").await?;
        self.inner.launch.create_files(spec.clone()).await?;
        let _copy = self.inner.snapshots.restores.acquire(&self.entry.tenant).await;
        let copy = WorkspaceCopy {
            images: self.inner.config.images.root.clone(),
            workspace: workspace.to_owned(),
            sandbox: self.entry.directory.clone(),
            has_disk: spec.limits.disk_mib > 0,
            method: self.inner.snapshots.files.backend().copies(),
            floor: SpaceFloor { floor_mib: self.inner.config.free_space_floor_mib },
        };
        let has_disk = copy.has_disk;
        let copied = blocking(move || copy.run()).await?;
        copied.map_err(|error| match error {
            CopyError::Full | CopyError::File { errno: Errno::NOSPC, .. } if has_disk => {
                let mib = spec.limits.disk_mib;
                copy_error(format!(
                    "its workspace does not fit into a disk of {mib} MiB, or the server's disk is full: set a larger disk_mib"
                ))
            }
            other => copy_failed(&format!("image {image}"), other),
        })?;
        pass("workspace.copied").await
    }
}
