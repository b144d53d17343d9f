//! Deleting a sandbox, with a snapshot before if its `snapshot_on_destroy` is set.

use super::SnapshotOrder;
use crate::live::entry::SandboxEntry;
use crate::live::failpoint::pass;
use crate::live::inner::Inner;
use crate::model::error::Error;
use crate::model::events::EventKind;
use crate::model::held::HoldPurpose;
use crate::model::ids::{SandboxId, TenantId};
use crate::model::info::{EndedSandbox, Trigger};
use crate::model::record::snapshot::SnapshotSpec;
use crate::model::state::State;
use crate::service::Service;
use std::sync::Arc;
use tracing::warn;

impl Service {
    /// Deletes a sandbox and returns when nothing of it runs. A delete never waits for commands. If
    /// the sandbox asks for it, a snapshot is taken first, and nothing runs between both. Continues
    /// if the caller is dropped.
    ///
    /// # Errors
    /// [`Error::NoSandbox`]; [`Error::NotSnapshotted`], after which the sandbox continues; or
    /// [`Error::TooLate`] if a process did not end in time, in which case the driver keeps trying.
    pub async fn delete(&self, tenant: &TenantId, id: &SandboxId) -> Result<EndedSandbox, Error> {
        let entry = self.entry(tenant, id)?;
        let record = Arc::clone(&entry.view().record);
        // An ephemeral sandbox has no files while it sleeps.
        let has_files = record.state != State::Sleeping || record.body.persistent;
        if !(record.body.snapshots.on_destroy && has_files) {
            return self.delete_without_snapshot(tenant, id).await;
        }
        self.inner.running()?;
        let inner = Arc::clone(&self.inner);
        let deleting = async move { inner.snapshot_and_delete(&entry, HoldPurpose::Delete).await };
        tokio::spawn(deleting).await.map_err(|error| Error::Fault(error.to_string()))?
    }
}

impl Inner {
    /// Takes the last snapshot of a sandbox and deletes the sandbox, without any of its processes
    /// running in between.
    pub(crate) async fn snapshot_and_delete(
        self: &Arc<Self>,
        entry: &Arc<SandboxEntry>,
        purpose: HoldPurpose,
    ) -> Result<EndedSandbox, Error> {
        let spec = SnapshotSpec::default();
        let trigger = Trigger::Destroy;
        let order = SnapshotOrder { trigger, purpose, ..SnapshotOrder::requested(spec) };
        let (snapshot, standing) = match self.take_ordered(entry, order).await {
            Ok(taken) => taken,
            Err(error @ (Error::NoSandbox(_) | Error::NotOver(_))) => return Err(error),
            Err(error) => {
                let cause = Box::new(error);
                return Err(Error::NotSnapshotted { id: entry.id.clone(), cause });
            }
        };
        pass("destroy.snapshotted").await?;
        let taken = EventKind::SnapshotTaken { snapshot: snapshot.id.clone(), trigger };
        self.events.emit(entry, taken);
        let ended = match standing {
            Some(standing) => standing.delete().await,
            None => None,
        };
        match ended.unwrap_or(Err(Error::TooLate("the snapshot before the delete"))) {
            Ok(ended) => Ok(EndedSandbox { snapshot: Some(snapshot.id), ..ended }),
            // Only the deletion failed, and continues.
            Err(error) if !entry.state().visible() => Err(error),
            Err(error) => {
                // The next attempt takes another one.
                if let Err(error) = self.remove_snapshot(&entry.tenant, &snapshot.id).await {
                    warn!(snapshot = %snapshot.id, %error, "snapshot of a failed delete remains");
                }
                Err(error)
            }
        }
    }
}
