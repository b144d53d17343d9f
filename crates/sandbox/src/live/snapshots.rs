//! All snapshots of this server: their records in memory, and their files below `DATA/snapshots/`.
//!
//! A snapshot is complete when its directory has its name and its record is written, in this
//! order. Until then, the directory is marked as `unclaimed`. Deleting it removes the directory
//! first: a record without a directory is a deleted snapshot, also where the disk was too full to
//! delete the record. Every start removes the marked directories without a record, and the records
//! without a directory. A directory that is not marked and has no record was recorded in records
//! that are lost: it is moved to `DATA/orphaned/`.

mod comparisons;
mod files;
mod into_sandbox;
mod layers;
mod opened;
mod permits;
mod portable;
pub(crate) mod push_watch;
mod reader;
pub(crate) mod restores;
mod space;
mod stage;
mod subvolumes;
mod trees;

use crate::live::inner::Inner;
use crate::model::blocking::blocking;
use crate::model::config::Config;
use crate::model::error::Error;
use crate::model::ids::{SessionId, SnapshotId, TenantId};
use crate::model::info::SandboxSpec;
use crate::model::record::snapshot::{SNAPSHOTS_MAX, SnapshotRecord};
use crate::model::record::snapshot_layers::{LayerHold, RecordedLayer};
use crate::model::record::{Record, RecordBody, UNREAD};
pub(crate) use comparisons::ComparedPage;
use comparisons::Comparisons;
pub(crate) use files::{SnapshotFiles, Staged};
use isolet_store::Store;
pub(crate) use layers::{PARTS, list as list_layers};
use permits::FairPermits;
pub(crate) use space::{CopyGuard, SpaceFloor};
pub(crate) use stage::LiveStage;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::{info, warn};

/// Maximum number of copies of all tenants, so that threads for other files are left.
const COPIES_MAX: usize = 32;
/// Maximum number of copies of one tenant.
const TENANT_COPIES_MAX: usize = 8;
/// Maximum number of comparisons and recursive lists at the same time, which read whole trees. Further
/// ones wait.
const WALKS_MAX: usize = 16;
/// Maximum number of those of one tenant, where there are as many processors: half of the processors,
/// so that one tenant's walks leave the other half to everybody else.
const TENANT_WALKS_MAX: usize = 4;

/// How long a node keeps its copies of a sandbox that is moved, in milliseconds, if it does not learn the end of
/// the move: longer than the other node may take.
pub(crate) const COPY_KEPT_MS: i64 = 3_600_000;

/// How many comparisons and recursive lists of one tenant run at the same time.
fn tenant_walks() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (processors / 2).clamp(1, TENANT_WALKS_MAX)
}

/// The snapshots of all tenants.
pub(crate) struct Snapshots {
    pub(crate) files: SnapshotFiles,
    /// A permit for each sandbox that may be copied, before it is frozen.
    pub(crate) copies: FairPermits,
    /// A permit for each snapshot that may be copied into a sandbox. Apart, because a copy of a
    /// sandbox may wait until that sandbox is restored.
    pub(crate) restores: FairPermits,
    /// A permit for each comparison of two snapshots and each recursive list of one.
    pub(crate) walks: FairPermits,
    /// Comparisons that are in progress.
    pub(crate) comparisons: Comparisons,
    /// Disk images of snapshots that are mounted for reading.
    pub(crate) disks: reader::DiskMounts,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tenants: HashMap<TenantId, BTreeMap<SnapshotId, Arc<SnapshotRecord>>>,
    /// Snapshots that are being taken, by tenant and by the name of the directory.
    begun: HashMap<TenantId, BTreeMap<String, BegunSnapshot>>,
    /// How many sandboxes are being created from a snapshot, by the name of its directory.
    in_use: HashMap<String, usize>,
}

/// A snapshot that is being taken.
struct BegunSnapshot {
    name: Option<SnapshotId>,
    /// Whether it counts for the limit of its tenant.
    counts: bool,
}

/// A place within a tenant's limit, and a name, for a snapshot that is being taken.
pub(crate) struct Place<'a> {
    snapshots: &'a Snapshots,
    tenant: TenantId,
    directory: String,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.snapshots.lock();
        if let Some(begun) = state.begun.get_mut(&self.tenant) {
            begun.remove(&self.directory);
            if begun.is_empty() {
                state.begun.remove(&self.tenant);
            }
        }
    }
}

/// A snapshot that cannot be deleted while sandboxes are created from it.
pub(crate) struct PinnedSnapshot {
    inner: Arc<Inner>,
    pub(crate) record: Arc<SnapshotRecord>,
    /// Whether the next sandbox from it gets its files themselves instead of a copy, because the
    /// snapshot is deleted afterwards.
    pub(crate) gives_files: bool,
}

impl PinnedSnapshot {
    /// The settings of a new sandbox from the snapshot.
    pub(crate) fn settings(&self, config: &Config, spec: SandboxSpec) -> Result<RecordBody, Error> {
        let body = &self.record.body;
        let given: Vec<_> = spec.credentials.iter().map(|one| one.credential.clone()).collect();
        body.settings.restored(config, spec, &body.lost_with(&given))
    }

    /// Ids and records of the sessions of a new sandbox from the snapshot.
    pub(crate) fn sessions(&self) -> Vec<(SessionId, String)> {
        let all = self.record.body.sessions.iter();
        all.map(|session| (session.id.clone(), session.record.clone())).collect()
    }
}

impl Drop for PinnedSnapshot {
    fn drop(&mut self) {
        let mut state = self.inner.snapshots.lock();
        if let Some(count) = state.in_use.get_mut(&self.record.name) {
            *count -= 1;
            if *count == 0 {
                state.in_use.remove(&self.record.name);
            }
        }
    }
}

impl Snapshots {
    /// Reads the records and makes them agree with the files. Holds the layers of all `sandboxes`,
    /// which are all that are recorded, unless `all_known` is false. Also returns the names of
    /// temporary snapshots: those of forks that are not complete. The caller removes their records.
    ///
    /// # Errors
    /// An error of the disk or of the records.
    pub(crate) async fn open(
        config: &Config,
        store: &Store,
        sandboxes: &mut [Record],
        mut all_known: bool,
    ) -> Result<(Self, Vec<String>), Error> {
        let data = config.data_dir.clone();
        let opened = move || SnapshotFiles::open(&data);
        let files = blocking(opened).await??;
        info!(backend = %files.backend(), "storage of snapshots");
        let snapshots = Self {
            files,
            copies: FairPermits::new(COPIES_MAX, TENANT_COPIES_MAX),
            restores: FairPermits::new(COPIES_MAX, TENANT_COPIES_MAX),
            walks: FairPermits::new(WALKS_MAX, tenant_walks()),
            comparisons: Comparisons::default(),
            disks: reader::DiskMounts::default(),
            state: Mutex::default(),
        };
        let mut known = Vec::new();
        let unused = Arc::clone(&snapshots.files.layers.unused);
        let mut layers = HashMap::new();
        let mut hold = |name: &str| {
            let new = || LayerHold::new(name.to_owned(), &unused);
            Arc::clone(layers.entry(name.to_owned()).or_insert_with(new))
        };
        let mut readable = HashSet::new();
        for sandbox in sandboxes {
            if sandbox.body.cause.as_deref() != Some(UNREAD) {
                readable.insert(sandbox.name.clone());
            }
            all_known &= sandbox.body.cause.as_deref() != Some(UNREAD);
            sandbox.body.layers.hold(&mut hold);
            for name in snapshots.newer_layers(sandbox).await.into_iter().rev() {
                warn!(sandbox = %sandbox.name, layer = %name, "layer is newer than the record, which gets it");
                let id_base = sandbox.body.id_base.unwrap_or(isolet_jail::FILES_ID_BASE);
                let top = RecordedLayer::new(name.clone(), id_base, hold(&name));
                let stack = sandbox.body.layers.with_top(top);
                sandbox.body.layers = stack;
            }
        }
        let mut forks = Vec::new();
        for row in store.all_snapshots().await? {
            let name = row.name.clone();
            match SnapshotRecord::read(row, config.uid_base) {
                Ok(record) if record.body.temporary => {
                    // Otherwise its files would count as those of a snapshot whose record is lost.
                    if let Err(error) = snapshots.files.abandon(&name) {
                        warn!(snapshot = %name, %error, "files of a fork are not marked");
                    }
                    forks.push(name);
                }
                Ok(_) if !snapshots.files.exist(&name) => {
                    // On a full disk, a later start removes it.
                    if let Err(error) = store.remove_snapshot(&name).await {
                        warn!(snapshot = %name, %error, "record of a deleted snapshot remains");
                    }
                }
                Ok(mut record) => {
                    known.push(name);
                    record.body.settings.layers.hold(&mut hold);
                    snapshots.insert(record);
                }
                Err(error) => {
                    warn!(snapshot = %name, error, "record of a snapshot does not read; it stays as it is");
                    known.push(name);
                    all_known = false;
                }
            }
        }
        snapshots.files.retain(known).await?;
        let own = snapshots.files.layers.clone();
        let settled = blocking(move || own.settle_all(&layers, &readable, all_known)).await?;
        settled.map_err(|error| Error::Fault(format!("layers of snapshots: {error}")))?;
        Ok((snapshots, forks))
    }

    /// The layers of a sandbox that its record does not name yet, the top one first.
    async fn newer_layers(&self, sandbox: &Record) -> Vec<String> {
        if sandbox.body.cause.as_deref() == Some(UNREAD) {
            return Vec::new();
        }
        let layers = self.files.layers.clone();
        let name = sandbox.name.clone();
        let body = sandbox.body.clone();
        match blocking(move || layers.newer(&name, &body)).await {
            Ok(Ok(newer)) => newer,
            failed => {
                warn!(sandbox = %sandbox.name, ?failed, "list of its layers does not read");
                Vec::new()
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a place and a name for a new snapshot. One that does not count is never refused for their
    /// number: without it, its sandbox could be lost.
    ///
    /// # Errors
    /// [`Error::TooManySnapshots`], [`Error::SnapshotExists`].
    pub(crate) fn reserve(
        &self,
        tenant: &TenantId,
        directory: &str,
        name: Option<&SnapshotId>,
        counts: bool,
    ) -> Result<Place<'_>, Error> {
        let mut state = self.lock();
        let complete = state.tenants.get(tenant).into_iter().flat_map(BTreeMap::values);
        let complete = complete.filter(|record| !record.body.is_automatic()).count();
        let taken = name.filter(|name| state.find(tenant, name).is_some());
        let begun = state.begun.entry(tenant.clone()).or_default();
        let begun_too =
            name.filter(|name| begun.values().any(|one| one.name.as_ref() == Some(*name)));
        if let Some(name) = taken.or(begun_too) {
            return Err(Error::SnapshotExists(name.clone()));
        }
        let begun_counted = begun.values().filter(|one| one.counts).count();
        if counts && complete + begun_counted >= SNAPSHOTS_MAX {
            return Err(Error::TooManySnapshots { max: SNAPSHOTS_MAX });
        }
        begun.insert(directory.to_owned(), BegunSnapshot { name: name.cloned(), counts });
        let directory = directory.to_owned();
        Ok(Place { snapshots: self, tenant: tenant.clone(), directory })
    }

    pub(crate) fn insert(&self, record: SnapshotRecord) {
        let mut state = self.lock();
        let own = state.tenants.entry(record.tenant.clone()).or_default();
        own.insert(record.id.clone(), Arc::new(record));
    }

    /// Replaces a record, unless its snapshot was deleted or replaced in the meantime.
    pub(crate) fn replace(&self, old: &Arc<SnapshotRecord>, new: SnapshotRecord) {
        let mut state = self.lock();
        let own = state.tenants.get_mut(&old.tenant);
        let found = own.and_then(|own| own.get_mut(&old.id));
        if let Some(found) = found.filter(|found| Arc::ptr_eq(found, old)) {
            *found = Arc::new(new);
        }
    }

    /// Makes the automatic snapshots of a sandbox that is gone expire at `at_ms`, so that they are deleted once
    /// nothing uses them. Without the record of the expiry, [`Self::forsaken`] finds them after a restart.
    pub(crate) fn expire_automatic(&self, tenant: &TenantId, incarnation: &str, at_ms: i64) {
        let mut state = self.lock();
        let own = state.tenants.get_mut(tenant).into_iter().flat_map(BTreeMap::values_mut);
        for record in own {
            let body = &record.body;
            if body.is_automatic() && body.incarnation.as_deref() == Some(incarnation) {
                Arc::make_mut(record).body.expires_at_ms = Some(at_ms);
            }
        }
    }

    /// Makes a snapshot expire, so that it is deleted once nothing uses it.
    pub(crate) fn expire(&self, tenant: &TenantId, id: &SnapshotId) {
        let mut state = self.lock();
        if let Some(record) = state.tenants.get_mut(tenant).and_then(|own| own.get_mut(id)) {
            Arc::make_mut(record).body.expires_at_ms = Some(0);
        }
    }

    /// The automatic snapshots of before `before_ms` whose sandbox this server does not have. It was
    /// superseded, and the files that are kept of it may be those of a snapshot; or the last server was killed
    /// before it had deleted them.
    pub(crate) fn forsaken(
        &self,
        before_ms: i64,
        has_sandbox: impl Fn(&str) -> bool,
    ) -> Vec<Arc<SnapshotRecord>> {
        let mut all = self.all();
        all.retain(|record| {
            let body = &record.body;
            let is_gone = |of: &String| !has_sandbox(of);
            body.is_automatic()
                && body.created_at_ms < before_ms
                && body.incarnation.as_ref().is_some_and(is_gone)
        });
        all
    }

    /// Takes a snapshot out, so that no call finds it any more.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`], [`Error::SnapshotInUse`].
    pub(crate) fn take(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<Arc<SnapshotRecord>, Error> {
        let mut state = self.lock();
        let found = state.find(tenant, id).ok_or_else(|| Error::NoSnapshot(id.clone()))?;
        if state.in_use.contains_key(&found.name) {
            return Err(Error::SnapshotInUse(found.id.clone()));
        }
        if let Some(own) = state.tenants.get_mut(tenant) {
            own.remove(&found.id);
            if own.is_empty() {
                state.tenants.remove(tenant);
            }
        }
        Ok(found)
    }

    /// Finds a snapshot by its id or name.
    pub(crate) fn find(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<Arc<SnapshotRecord>, Error> {
        let found = self.lock().find(tenant, id).filter(|record| !record.body.temporary);
        found.ok_or_else(|| Error::NoSnapshot(id.clone()))
    }

    /// The snapshots of a tenant, sorted by id.
    pub(crate) fn of(&self, tenant: &TenantId) -> Vec<Arc<SnapshotRecord>> {
        let state = self.lock();
        let own = state.tenants.get(tenant).into_iter().flat_map(BTreeMap::values);
        own.filter(|record| !record.body.temporary).cloned().collect()
    }

    /// The snapshots of all tenants.
    pub(crate) fn all(&self) -> Vec<Arc<SnapshotRecord>> {
        let state = self.lock();
        state.tenants.values().flat_map(BTreeMap::values).cloned().collect()
    }
}

impl State {
    fn find(&self, tenant: &TenantId, id: &SnapshotId) -> Option<Arc<SnapshotRecord>> {
        let own = self.tenants.get(tenant)?;
        own.get(id).or_else(|| own.values().find(|record| record.is(id))).cloned()
    }
}

impl Inner {
    /// Finds a snapshot and prevents that it is deleted.
    pub(crate) fn pin_snapshot(
        self: &Arc<Self>,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<PinnedSnapshot, Error> {
        let mut state = self.snapshots.lock();
        let record = state.find(tenant, id).ok_or_else(|| Error::NoSnapshot(id.clone()))?;
        *state.in_use.entry(record.name.clone()).or_default() += 1;
        drop(state);
        Ok(PinnedSnapshot { inner: Arc::clone(self), record, gives_files: false })
    }
}
