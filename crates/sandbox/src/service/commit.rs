//! Makes images from snapshots.

use crate::live::failpoint::pass;
use crate::live::idempotency;
use crate::live::inner::Inner;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::ids::{SnapshotId, TenantId};
use crate::model::info::IdempotencyKey;
use crate::model::record::image_sessions::ImageSessions;
use crate::model::record::snapshot::SnapshotRecord;
use crate::service::Service;
use bytes::Bytes;
use isolet_image::{CommitSource, Image, ImageChanges, PrivateFile, Reference, SESSIONS_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tracing::info;

/// The parameters of an image from a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitSpec {
    /// The id or the name of the snapshot.
    pub snapshot: SnapshotId,
    /// The name of the image.
    pub name: String,
    /// Whether the files of the workspace become the first content of workspaces.
    pub workspace: bool,
    /// Whether the variables of the sandbox become those of the image.
    pub env: bool,
    /// Whether sandboxes from the image start with the sessions of the snapshot and the states of
    /// their shells.
    pub shells: bool,
    /// What the image has instead of the configuration of the sandbox's image.
    pub changes: ImageChanges,
    /// More names of the image.
    pub more_names: Vec<String>,
}

/// An image that was made from a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommitInfo {
    /// The image, with the names of its tenant only.
    pub image: Image,
    /// The reference under which it was recorded.
    pub name: String,
    /// The id of the snapshot.
    pub snapshot: SnapshotId,
    /// Files in the image that usually hold secrets; the first 100.
    pub private_files: Vec<PrivateFile>,
    /// How many there are.
    pub private_files_count: u64,
}

impl Service {
    /// Makes an image from a snapshot. Continues if the caller is dropped. Returns `true` if an
    /// earlier request with the same idempotency key made it.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`], [`Error::Image`], and errors of the disk. Nothing of the image is left.
    pub async fn commit_image(
        &self,
        tenant: &TenantId,
        spec: CommitSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<(CommitInfo, bool), Error> {
        self.inner.running()?;
        let mut names = Vec::new();
        for name in std::iter::once(&spec.name).chain(&spec.more_names) {
            names.push(self.new_name(name)?);
        }
        let inner = Arc::clone(&self.inner);
        let owner = tenant.clone();
        let Some(once) = once else {
            let committing = async move { inner.commit(&owner, &spec, &names).await };
            let committed = tokio::spawn(committing).await;
            return Ok((committed.map_err(|error| Error::Fault(error.to_string()))??, false));
        };
        let key = once.clone();
        let work = async move {
            let info = inner.commit(&owner, &spec, &names).await?;
            let text = serde_json::to_string(&info);
            let text = text.map_err(|error| Error::Fault(error.to_string()))?;
            // If the server is killed in between, the next attempt makes the same image again.
            let row = idempotency::row(&owner, &key, text.clone());
            inner.store.insert_answer(row).await?;
            Ok(text)
        };
        let run = self.inner.idempotency.run(&self.inner.store, tenant, &once, work);
        let (text, replayed) = run.await?;
        let info = serde_json::from_str(&text).map_err(|_| Error::OtherBody)?;
        Ok((info, replayed))
    }
}

impl Inner {
    /// The sessions of a snapshot, for an image.
    async fn sessions_of(self: &Arc<Self>, snapshot: &Arc<SnapshotRecord>) -> Result<Bytes, Error> {
        let inner = Arc::clone(self);
        let record = Arc::clone(snapshot);
        let read = move || {
            let failed = |reason: String| Error::Copy {
                of: format!("sessions of snapshot {}", record.id),
                reason,
            };
            let mut sessions = Vec::new();
            let mut bytes = 0;
            for session in &record.body.sessions {
                let state = inner.snapshots.files.shell_state(&record.name, &session.id);
                let state = state.map_err(|error| failed(format!("{}: {error}", session.id)))?;
                bytes += session.record.len() + state.as_ref().map_or(0, Vec::len);
                if bytes > SESSIONS_BYTES_MAX {
                    return Err(isolet_image::sessions_too_large().into());
                }
                sessions.push((session.id.clone(), session.record.as_str(), state));
            }
            ImageSessions::write(sessions).map(Bytes::from).map_err(failed)
        };
        blocking(read).await?
    }

    async fn commit(
        self: &Arc<Self>,
        tenant: &TenantId,
        spec: &CommitSpec,
        names: &[Reference],
    ) -> Result<CommitInfo, Error> {
        let name = names.first().map(Reference::to_string).unwrap_or_default();
        self.space.check()?;
        self.quotas.check(tenant)?;
        self.snapshots.find(tenant, &spec.snapshot)?;
        // Its record keeps the layers of its image, too.
        let pinned = self.pin_snapshot(tenant, &spec.snapshot)?;
        let snapshot = Arc::clone(&pinned.record);
        let settings = &snapshot.body.settings;
        self.layers_there(settings)?;
        pass("commit.begun").await?;
        let inner = Arc::clone(self);
        let record = Arc::clone(&snapshot);
        let trees = blocking(move || inner.snapshots.open_trees(&record)).await?;
        let trees = trees.map_err(|error| Error::Copy {
            of: format!("snapshot {}", snapshot.id),
            reason: error.to_string(),
        })?;
        let sessions = if spec.shells { Some(self.sessions_of(&snapshot).await?) } else { None };
        let mut changes = spec.changes.clone();
        if spec.env {
            let own = settings.env.iter().map(|(name, value)| (name.clone(), value.clone()));
            changes.env = own.chain(changes.env).collect();
        }
        let source = CommitSource {
            root: trees.root,
            usr: trees.usr,
            workspace: trees.workspace.filter(|_| spec.workspace),
            base: settings.root.clone(),
            id_base: settings.id_base.unwrap_or(isolet_jail::FILES_ID_BASE),
            changes,
            sessions,
        };
        let mut layer = self.images.commit(tenant.as_str(), source).await?;
        pass("commit.packed").await?;
        let private_files = std::mem::take(&mut layer.private_files);
        let private_files_count = layer.private_files_count;
        let (image, _pin) = self.images.record_commit(tenant.as_str(), names, layer).await?;
        pass("commit.recorded").await?;
        drop(pinned);
        info!(image = %name, %tenant, snapshot = %snapshot.id, digest = image.digest, bytes = image.stats.bytes, "image made from a snapshot");
        Ok(CommitInfo {
            image: image.for_tenant(tenant.as_str()),
            name,
            snapshot: snapshot.id.clone(),
            private_files,
            private_files_count,
        })
    }
}
