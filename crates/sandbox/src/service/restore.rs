//! Restoring a snapshot in place of the files of a sandbox.

use crate::lifecycle::driver::from_snapshot::copy_failed;
use crate::live::failpoint::pass;
use crate::live::inner::Inner;
use crate::live::snapshots::restores::Restores;
use crate::live::snapshots::{PinnedSnapshot, SpaceFloor, list_layers};
use crate::model::blocking::blocking;
use crate::model::command::{DriverCommand, RestoreRequest};
use crate::model::error::Error;
use crate::model::ids::{SandboxId, SnapshotId, TenantId, random};
use crate::model::info::{IdempotencyKey, RestoredSandbox};
use crate::model::record::{Record, failed};
use crate::model::state::State;
use crate::service::{Service, request};
use isolet_storage::CopyError;
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;

impl Service {
    /// Replaces the files, sessions, shell state and environment of a running, paused or sleeping
    /// sandbox by those of a snapshot. The id, links, network, limits and metadata stay. What runs is
    /// ended. Continues if the caller is dropped. Returns `true` if an earlier request with the same
    /// idempotency key did it.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::NoSnapshot`], [`Error::SnapshotIncompatible`],
    /// [`Error::Failed`], [`Error::Unreachable`], and errors of the disk. Nothing is changed then.
    pub async fn restore_snapshot(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        snapshot: &SnapshotId,
        once: Option<IdempotencyKey>,
    ) -> Result<(RestoredSandbox, bool), Error> {
        self.inner.running()?;
        let incarnation = self.entry(tenant, id)?.name.clone();
        let inner = Arc::clone(&self.inner);
        let owner = tenant.clone();
        let sandbox = id.clone();
        let snapshot = snapshot.clone();
        let Some(once) = once else {
            let restoring =
                async move { inner.restore_snapshot(&owner, &sandbox, &snapshot, None).await };
            let restored = tokio::spawn(restoring).await;
            let restored = restored.map_err(|error| Error::Fault(error.to_string()))??;
            return Ok((restored, false));
        };
        let key = once.clone();
        let work = async move {
            let restored = inner.restore_snapshot(&owner, &sandbox, &snapshot, Some(key)).await?;
            serde_json::to_string(&restored).map_err(|error| Error::Fault(error.to_string()))
        };
        let own = move |answer: &str| {
            let restored = serde_json::from_str::<RestoredSandbox>(answer);
            restored.is_ok_and(|restored| restored.incarnation == incarnation)
        };
        let idempotency = &self.inner.idempotency;
        let run = idempotency.run_in(&self.inner.store, tenant, &once, own, work);
        let (text, replayed) = run.await?;
        let restored = serde_json::from_str(&text).map_err(|_| Error::OtherBody)?;
        Ok((restored, replayed))
    }
}

impl Inner {
    async fn restore_snapshot(
        self: &Arc<Self>,
        tenant: &TenantId,
        id: &SandboxId,
        snapshot: &SnapshotId,
        once: Option<IdempotencyKey>,
    ) -> Result<RestoredSandbox, Error> {
        let found = self.registry.find(tenant, id).filter(|entry| entry.state().visible());
        let entry = found.ok_or_else(|| Error::NoSandbox(id.clone()))?;
        let record = entry.settled().await.record;
        self.snapshots.find(tenant, snapshot)?;
        let from = self.pin_snapshot(tenant, snapshot)?;
        self.check_restore(&record, &from)?;
        self.space.check()?;
        self.quotas.check(tenant)?;
        let _copy = self.snapshots.restores.acquire(tenant).await;
        let restores = Restores::new(&self.jail.data_dir);
        let token = random();
        let recorded = Arc::new(AtomicBool::new(false));
        let done = async {
            self.copy_for_restore(&restores, &token, &from).await?;
            pass("in_place.copied").await?;
            let body = &from.record.body;
            let restore = RestoreRequest {
                token: token.clone(),
                recorded: Arc::clone(&recorded),
                snapshot: from.record.id.clone(),
                settings: body.settings.clone(),
                sessions: from.sessions(),
                lost: body.lost_with(&record.body.credentials),
                once,
            };
            let command = |answer| DriverCommand::Restore(Box::new(restore), answer);
            request(&entry, command).await
        };
        let done = done.await;
        if !recorded.load(Ordering::Acquire) {
            let discarded = blocking(move || restores.discard(&token)).await;
            if !matches!(discarded, Ok(Ok(()))) {
                warn!(sandbox = %id, ?discarded, "copied files are removed at the next start");
            }
            self.trash.notify_one();
        }
        done
    }

    /// Refuses what cannot be restored, before anything is copied.
    fn check_restore(&self, record: &Record, from: &PinnedSnapshot) -> Result<(), Error> {
        match record.state {
            State::Failed => return Err(failed(record)),
            State::Unreachable => return Err(Error::Unreachable(record.id.clone())),
            State::Running | State::Paused | State::Sleeping => {}
            _ => return Err(Error::NoSandbox(record.id.clone())),
        }
        let settings = &from.record.body.settings;
        let incompatible = |reason: String| Error::SnapshotIncompatible {
            snapshot: from.record.id.clone(),
            id: record.id.clone(),
            reason,
        };
        let own = record.body.limits.disk_mib;
        let its = settings.limits.disk_mib;
        if own != its {
            let reason = format!("the sandbox has disk_mib {own}, the snapshot {its}");
            return Err(incompatible(reason));
        }
        let first_id = isolet_jail::first_id(self.jail.uid_base, record.slot);
        if self.launch.files_id_base().is_none() && settings.id_base != first_id {
            let reason = "its files belong to another range of ids, and the file system of the \
                          data directory cannot map ids";
            return Err(incompatible(reason.to_owned()));
        }
        self.layers_there(settings)
    }

    async fn copy_for_restore(
        &self,
        restores: &Restores,
        token: &str,
        from: &PinnedSnapshot,
    ) -> Result<(), Error> {
        let files = self.snapshots.files.clone();
        let name = from.record.name.clone();
        let floor = SpaceFloor { floor_mib: self.config.free_space_floor_mib };
        let copy = restores.clone();
        let own = token.to_owned();
        let disk_mib = from.record.body.settings.limits.disk_mib;
        let settings = from.record.body.settings.clone();
        let copied = blocking(move || {
            files.check_disk(&files.directory(&name), disk_mib)?;
            copy.prepare().map_err(whole)?;
            files.restore(&name, &settings, &copy.path(&own), floor)?;
            list_layers(&copy.path(&own), &settings).map_err(whole)?;
            copy.complete(&own).map_err(whole)
        });
        copied.await?.map_err(|error| copy_failed(&format!("snapshot {}", from.record.id), error))
    }
}

/// An error that is about all files of a copy.
fn whole(error: io::Error) -> CopyError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => CopyError::Full,
        _ => CopyError::File {
            path: ".".to_owned(),
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        },
    }
}
