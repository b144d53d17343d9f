//! Copies of snapshots in the object store: push, pull, list and delete.

use crate::lifecycle::driver::from_snapshot::copy_failed;
use crate::live::failpoint::pass;
use crate::live::inner::Inner;
use crate::live::snapshot_store::{Direction, Transfer, TransferEnd};
use crate::live::snapshots::{PinnedSnapshot, SnapshotFiles, SpaceFloor};
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::ids::{SnapshotId, TenantId, random};
use crate::model::info::ownership::NotRecorded;
use crate::model::record::snapshot::{SnapshotInfo, SnapshotRecord, StoredSnapshot};
use crate::model::record::snapshot_layers::LayerStack;
use crate::service::Service;
use isolet_image::Reference;
use isolet_repository::{
    Checkpoint, Manifest, OwnerIds, Progress, PullTarget, PushRequest, RootKind,
};
use std::sync::Arc;
use tokio::sync::watch;
use tracing::{info, warn};

impl Service {
    /// Whether the operator has configured an object store.
    #[must_use]
    pub fn has_snapshot_store(&self) -> bool {
        self.inner.snapshot_store.check().is_ok()
    }

    /// Starts to copy a snapshot into the object store, or joins a push of it that runs. The
    /// snapshot cannot be deleted before the end.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::NoSnapshot`], [`Error::TooManyTransfers`], [`Error::Stopping`].
    /// The end has [`Error::Transfer`].
    pub fn push_snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<Transfer, Error> {
        self.inner.start_push(tenant, id)
    }

    /// Starts to copy a snapshot from the object store to this server, or joins a pull of it that
    /// runs. `name` replaces its name.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::TooManyTransfers`], [`Error::Stopping`]. The end has
    /// [`Error::NotInStore`], [`Error::ImageMissing`], [`Error::SnapshotExists`],
    /// [`Error::TooManySnapshots`], [`Error::Transfer`], and errors of the disk; nothing of the
    /// snapshot is left then.
    pub fn pull_snapshot(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
        name: Option<SnapshotId>,
    ) -> Result<Transfer, Error> {
        self.inner.running()?;
        self.inner.snapshot_store.check()?;
        let inner = Arc::clone(&self.inner);
        let tenant = tenant.clone();
        let id = id.clone();
        let key = (tenant.clone(), id.clone(), Direction::Pull);
        self.inner.snapshot_store.start(key, |progress| async move {
            let pulled = inner.pull(&tenant, &id, name, progress).await;
            report("pull", &tenant, &id, &pulled);
            pulled
        })
    }

    /// The push or pull of a snapshot that runs, if there is one.
    #[must_use]
    pub fn transfer(&self, tenant: &TenantId, id: &SnapshotId, pull: bool) -> Option<Transfer> {
        let direction = if pull { Direction::Pull } else { Direction::Push };
        self.inner.snapshot_store.find(&(tenant.clone(), id.clone(), direction))
    }

    /// The snapshots of a tenant in the object store, sorted by id.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::Transfer`].
    pub async fn stored_snapshots(&self, tenant: &TenantId) -> Result<Vec<StoredSnapshot>, Error> {
        self.inner.snapshot_store.check()?;
        let failed = |reason| Error::Transfer { id: "*".to_owned(), what: "listed", reason };
        let repository = self.inner.snapshot_store.repository().await.map_err(failed)?;
        let all = repository.tenant(tenant.as_str()).snapshots().await.map_err(failed)?;
        let mut stored = Vec::with_capacity(all.len());
        for manifest in all {
            match self.stored(tenant, &manifest) {
                Ok(snapshot) => stored.push(snapshot),
                // A later release has pushed it.
                Err(reason) => {
                    warn!(snapshot = manifest.id, reason, "a snapshot of the store is not listed");
                }
            }
        }
        Ok(stored)
    }

    /// One snapshot of the object store.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::NotInStore`], [`Error::Transfer`].
    pub async fn stored_snapshot(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<StoredSnapshot, Error> {
        self.inner.snapshot_store.check()?;
        let failed = |reason| failed(id, "read", reason);
        let repository = self.inner.snapshot_store.repository().await.map_err(failed)?;
        let manifest = repository.tenant(tenant.as_str()).snapshot(id.as_str()).await;
        let stored = self.stored(tenant, &manifest.map_err(failed)?);
        stored.map_err(|reason| failed(isolet_repository::Error::Refused(reason)))
    }

    /// Deletes a snapshot from the object store for a client. In a fleet, that is recorded first, so that no
    /// node restores from it. Chunks that no other snapshot has are deleted by `isolet store prune`.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::NotInStore`], [`Error::NotRecorded`], [`Error::Transfer`].
    pub async fn delete_stored_snapshot(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<(), Error> {
        self.inner.snapshot_store.check()?;
        if let Some(records) = self.inner.ownership.records.get() {
            let sandbox = self.stored_snapshot(tenant, id).await?.info.sandbox;
            records.forgets(tenant, &sandbox, id).await.map_err(|failure| {
                let (NotRecorded::Superseded(reason) | NotRecorded::Unavailable(reason)) = failure;
                Error::NotRecorded { id: sandbox.clone(), reason }
            })?;
        }
        self.inner.delete_stored(tenant, id).await
    }

    /// Deletes a snapshot from the object store from which nothing is restored any more: its sandbox was given
    /// up, or the records of the fleet do not name it. No error if there is none.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::Transfer`].
    pub async fn discard_stored_snapshot(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<(), Error> {
        self.inner.snapshot_store.check()?;
        let failed = |reason| failed(id, "deleted", reason);
        let repository = self.inner.snapshot_store.repository().await.map_err(failed)?;
        repository.tenant(tenant.as_str()).discard(id.as_str()).await.map_err(failed)?;
        info!(snapshot = %id, %tenant, "snapshot deleted from the store");
        Ok(())
    }

    fn stored(&self, tenant: &TenantId, manifest: &Manifest) -> Result<StoredSnapshot, String> {
        let record = read_record(tenant, manifest, None)?;
        Ok(StoredSnapshot {
            is_here: self.inner.snapshots.find(tenant, &record.id).is_ok(),
            info: record.info(),
            pushed_at_ms: manifest.pushed_at_ms,
        })
    }
}

fn failed(id: &SnapshotId, what: &'static str, reason: isolet_repository::Error) -> Error {
    match reason {
        isolet_repository::Error::NoSnapshot(_) => Error::NotInStore(id.clone()),
        isolet_repository::Error::Full => Error::CopyFull { of: format!("snapshot {id}") },
        reason => Error::Transfer { id: id.to_string(), what, reason },
    }
}

fn report(
    what: &'static str,
    tenant: &TenantId,
    id: &SnapshotId,
    end: &Result<TransferEnd, Error>,
) {
    match end {
        Ok(end) => {
            let bytes = end.transferred_bytes;
            info!(snapshot = %id, %tenant, bytes, existed = end.existed, "{what} of a snapshot ended");
        }
        Err(error) => warn!(snapshot = %id, %tenant, %error, "{what} of a snapshot failed"),
    }
}

/// Lets failpoints act within a transfer.
fn checkpoint() -> Checkpoint {
    Checkpoint::new(|name| async move { pass(name).await.map_err(|error| error.to_string()) })
}

/// The record of a snapshot in the store. `directory` is the name of its directory here, if it gets one.
fn read_record(
    tenant: &TenantId,
    manifest: &Manifest,
    directory: Option<String>,
) -> Result<SnapshotRecord, String> {
    let row = isolet_store::SnapshotRow {
        name: directory.clone().unwrap_or_default(),
        tenant: tenant.to_string(),
        id: manifest.id.clone(),
        body: manifest.record.to_string(),
    };
    // A pushed snapshot has no layers, which are those of one server and the only thing of a record whose
    // ids are checked against the base.
    let read = match directory {
        Some(_) => SnapshotRecord::read,
        None => SnapshotRecord::read_elsewhere,
    };
    let record = read(row, isolet_jail::UID_BASE)?;
    match record.body.settings.layers.is_empty() {
        true => Ok(record),
        false => Err("it names layers".to_owned()),
    }
}

impl Inner {
    /// As [`Service::push_snapshot`].
    pub(super) fn start_push(
        self: &Arc<Self>,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<Transfer, Error> {
        self.running()?;
        self.snapshot_store.check()?;
        self.snapshots.find(tenant, id)?;
        let pinned = self.pin_snapshot(tenant, id)?;
        let inner = Arc::clone(self);
        let key = (tenant.clone(), pinned.record.id.clone(), Direction::Push);
        self.snapshot_store.start(key, |progress| async move {
            let record = Arc::clone(&pinned.record);
            let pushed = inner.push(pinned, progress).await;
            report("push", &record.tenant, &record.id, &pushed);
            pushed
        })
    }

    /// Deletes a snapshot from the object store.
    ///
    /// # Errors
    /// [`Error::NotInStore`], [`Error::Transfer`].
    pub(super) async fn delete_stored(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<(), Error> {
        let failed = |reason| failed(id, "deleted", reason);
        let repository = self.snapshot_store.repository().await.map_err(failed)?;
        repository.tenant(tenant.as_str()).delete(id.as_str()).await.map_err(failed)?;
        info!(snapshot = %id, %tenant, "snapshot deleted from the store");
        Ok(())
    }

    async fn push(
        self: &Arc<Self>,
        pinned: PinnedSnapshot,
        progress: watch::Sender<Progress>,
    ) -> Result<TransferEnd, Error> {
        let record = &pinned.record;
        let failed = |reason| failed(&record.id, "pushed", reason);
        let base = record.body.settings.id_base;
        let ids = base.map_or(OwnerIds::Server, OwnerIds::From);
        let mut sources = self.snapshots.files.sources(&record.name, ids);
        let has_disk = sources.iter().any(|source| source.root.kind == RootKind::File);
        if base.is_none() || has_disk && base != Some(isolet_jail::FILES_ID_BASE) {
            let reason = "its disk has the ids of this server's uid range; create a sandbox from it, \
                          copy the files into a new sandbox, and push a snapshot of that";
            return Err(failed(isolet_repository::Error::Refused(reason.to_owned())));
        }
        let merged = random();
        let mut portable = SnapshotRecord::clone(record);
        if !record.body.settings.layers.is_empty() {
            portable.body.settings.layers = LayerStack::default();
            let files = self.snapshots.files.clone();
            let floor = SpaceFloor { floor_mib: self.config.free_space_floor_mib };
            let own = merged.clone();
            let layered = Arc::clone(record);
            let done = blocking(move || {
                files.merge_for_push(&layered, &own, floor, &mut sources).map(|()| sources)
            });
            match done.await? {
                Ok(all) => sources = all,
                Err(error) => {
                    self.discard_files(&format!("staging/{merged}")).await;
                    return Err(copy_failed(&format!("snapshot {}", record.id), error));
                }
            }
        }
        let request = PushRequest {
            id: record.id.to_string(),
            record: portable.portable()?,
            sources,
            bytes: record.body.size_bytes,
        };
        let repository = match self.snapshot_store.repository().await {
            Ok(repository) => repository,
            Err(error) => {
                self.discard_files(&format!("staging/{merged}")).await;
                return Err(failed(error));
            }
        };
        let tenant = repository.tenant(record.tenant.as_str());
        let pushed = tenant.push(request, &progress, &checkpoint()).await;
        if !record.body.settings.layers.is_empty() {
            self.discard_files(&format!("staging/{merged}")).await;
        }
        let pushed = pushed.map_err(failed)?;
        self.record_push(record).await?;
        Ok(TransferEnd {
            snapshot: record.info(),
            transferred_bytes: pushed.sent_bytes,
            existed: pushed.existed,
            left_out: pushed.left_out,
        })
    }

    async fn pull(
        self: &Arc<Self>,
        tenant: &TenantId,
        id: &SnapshotId,
        new_name: Option<SnapshotId>,
        progress: watch::Sender<Progress>,
    ) -> Result<TransferEnd, Error> {
        // The files of a snapshot never change, so one with this id is the same.
        if let Ok(here) = self.snapshots.find(tenant, id).map(|record| record.info())
            && here.id == *id
        {
            return Ok(TransferEnd {
                snapshot: here,
                transferred_bytes: 0,
                existed: true,
                left_out: 0,
            });
        }
        let named = |record: &mut SnapshotRecord| {
            record.body.name = new_name.or(record.body.name.take());
        };
        let (snapshot, received) = self.fetch(tenant, id, named, progress).await?;
        Ok(TransferEnd { snapshot, transferred_bytes: received, existed: false, left_out: 0 })
    }

    /// Copies a snapshot from the object store. `named` changes its record before that is recorded.
    /// Returns the number of received bytes.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        tenant: &TenantId,
        id: &SnapshotId,
        named: impl FnOnce(&mut SnapshotRecord),
        progress: watch::Sender<Progress>,
    ) -> Result<(SnapshotInfo, u64), Error> {
        let failed = |reason| failed(id, "pulled", reason);
        let refused = |reason: &str| failed(isolet_repository::Error::Refused(reason.to_owned()));
        let repository = self.snapshot_store.repository().await.map_err(failed)?;
        let stored = repository.tenant(tenant.as_str());
        let manifest = stored.snapshot(id.as_str()).await.map_err(failed)?;
        let directory = random();
        let record = read_record(tenant, &manifest, Some(directory.clone()));
        let mut record = record.map_err(|reason| refused(&reason))?;
        if !SnapshotFiles::accepts(&manifest.roots) {
            return Err(refused(
                "its files have a form that this server does not know; upgrade it",
            ));
        }
        self.copy_image(&record).await;
        self.adapt(&mut record)?;
        named(&mut record);
        self.space.check()?;
        self.quotas.check_disk_mib(tenant, record.body.settings.limits.disk_mib)?;
        self.quotas.check(tenant)?;
        let name = record.body.name.as_ref();
        // A temporary one is that of a sandbox which is restored here.
        let counts = !record.body.temporary;
        let _place = self.snapshots.reserve(tenant, &directory, name, counts)?;
        let pulled = self.pull_files(&directory, id, &stored, &manifest, &progress).await;
        let pulled = match pulled {
            Ok(pulled) => pulled,
            Err(error) => {
                self.discard_files(&format!("staging/{directory}")).await;
                return Err(error);
            }
        };
        if let Err(error) = self.record_snapshot(&record, None).await {
            self.discard_files(&directory).await;
            return Err(error);
        }
        let info = record.info();
        self.snapshots.insert(record);
        Ok((info, pulled.received_bytes))
    }

    /// In a fleet, copies the image of a snapshot from another node, or pulls it, if this server lacks it.
    /// What fails is reported as a missing image.
    async fn copy_image(&self, record: &SnapshotRecord) {
        let image = &record.body.settings.image_resolved;
        if image == "host" || !self.images.has_peers() {
            return;
        }
        if let Err(error) = self.images.resolve(record.tenant.as_str(), image).await {
            tracing::warn!(%image, snapshot = %record.id, %error, "the image of a snapshot cannot be copied");
        }
    }

    /// Makes the record one of this server: its image is that of this server, and it has no end.
    fn adapt(&self, record: &mut SnapshotRecord) -> Result<(), Error> {
        let body = &mut record.body;
        body.expires_at_ms = None;
        body.temporary = false;
        body.settings.id_base = Some(isolet_jail::FILES_ID_BASE);
        if let Some(lack) =
            self.config.no_disk.as_ref().filter(|_| body.settings.limits.disk_mib > 0)
        {
            return Err(Error::Lacks { field: "disk_mib", reason: lack.clone() });
        }
        let image = &body.settings.image_resolved;
        if image == "host" {
            body.settings.root = None;
            return Ok(());
        }
        let reference = Reference::parse(image).map_err(isolet_image::Error::from)?;
        let found = self.images.find(record.tenant.as_str(), &reference);
        let found = found.filter(|image| self.images.missing_layer(&image.root).is_none());
        let missing = || Error::ImageMissing {
            id: record.id.clone(),
            image: format!("{} ({image})", body.settings.image),
        };
        body.settings.root = Some(found.ok_or_else(missing)?.root.clone());
        Ok(())
    }

    async fn pull_files(
        &self,
        directory: &str,
        id: &SnapshotId,
        stored: &isolet_repository::TenantRepository,
        manifest: &Manifest,
        progress: &watch::Sender<Progress>,
    ) -> Result<isolet_repository::Pulled, Error> {
        let floor = SpaceFloor { floor_mib: self.config.free_space_floor_mib };
        let files = self.snapshots.files.clone();
        let name = directory.to_owned();
        let bytes = manifest.bytes;
        let begun = blocking(move || files.begin(&name, bytes, floor)).await?;
        let (staged, mut guard) =
            begun.map_err(|error| copy_failed(&format!("snapshot {id}"), error))?;
        let check =
            Box::new(move |bytes| guard.check(bytes).map_err(|_| isolet_repository::Error::Full));
        let target = PullTarget { directory: staged, check };
        let pulled = stored.pull(manifest, target, progress, &checkpoint()).await;
        pulled.map_err(|reason| failed(id, "pulled", reason))
    }
}
