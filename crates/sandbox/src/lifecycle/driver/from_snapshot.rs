//! Creating a sandbox from a snapshot: its files before it is launched, and its sessions with its
//! record.

use crate::agent_client::agent_version::AgentAddress;
use crate::agent_client::machine_id;
use crate::lifecycle::driver::Driver;
use crate::live::failpoint::pass;
use crate::live::snapshots::{PinnedSnapshot, SnapshotFiles, SpaceFloor, list_layers};
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::ids::SessionId;
use isolet_storage::CopyError;
use tracing::warn;

/// The error of a copy, for clients.
pub(crate) fn copy_failed(of: &str, error: CopyError) -> Error {
    match error {
        CopyError::Full => Error::CopyFull { of: of.to_owned() },
        CopyError::Cancelled => Error::Stopping,
        other => Error::Copy { of: of.to_owned(), reason: other.to_string() },
    }
}

impl Driver {
    /// Copies or moves the files of the snapshot into the new directory of the sandbox. A failed creation
    /// removes the directory.
    pub(super) async fn restore_files(&self, from: &PinnedSnapshot) -> Result<(), Error> {
        pass("restore.begun").await?;
        let _copy = self.inner.snapshots.restores.acquire(&self.entry.tenant).await;
        let files = self.inner.snapshots.files.clone();
        let name = from.record.name.clone();
        let directory = self.entry.directory.clone();
        let floor = SpaceFloor { floor_mib: self.inner.config.free_space_floor_mib };
        let settings = self.record.body.clone();
        let gives_files = from.gives_files;
        let disk_mib = from.record.body.settings.limits.disk_mib;
        let restored = blocking(move || {
            files.check_disk(&files.directory(&name), disk_mib)?;
            match gives_files {
                true => files.give(&name, &settings, &directory, floor)?,
                false => files.restore(&name, &settings, &directory, floor).map(|_| ())?,
            }
            let _ = list_layers(&directory, &settings);
            // The answer to the create says that they are there.
            SnapshotFiles::write_to_disk(&directory).map_err(|error| CopyError::io("", &error))
        });
        let restored = restored.await?;
        restored.map_err(|error| copy_failed(&format!("snapshot {}", from.record.id), error))?;
        pass("restore.copied").await
    }

    /// Gives the sandbox a machine id of its own. One that keeps the id of the original still works.
    pub(super) async fn renew_identity(&self) {
        let agent =
            AgentAddress { directory: &self.entry.directory, version: &self.entry.pool.version };
        if let Err(error) = machine_id::renew(agent).await {
            warn!(sandbox = %self.entry.id, %error, "machine id is that of the original");
        }
    }

    /// Records the sessions that the sandbox starts with.
    pub(super) async fn record_sessions(
        &self,
        sessions: Vec<(SessionId, String)>,
    ) -> Result<(), Error> {
        for (id, body) in sessions {
            let sandbox = self.record.name.clone();
            let row = isolet_store::SessionRow { sandbox, id: id.to_string(), body };
            self.inner.store.insert_session(row, None).await?;
        }
        Ok(())
    }
}
