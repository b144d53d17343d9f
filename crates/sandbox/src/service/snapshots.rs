//! Snapshots: taking, listing and deleting them.

pub(super) mod depart;
mod destroy;
pub(super) mod durable;
mod files;
mod first_pass;
pub(super) mod layers;
mod restore_stored;
pub(super) mod schedule;
mod store_clock;
mod transfers;

pub use files::{SnapshotChange, SnapshotDiff};

use crate::lifecycle::driver::from_snapshot::copy_failed;
use crate::live::entry::SandboxEntry;
use crate::live::failpoint::pass;
use crate::live::idempotency;
use crate::live::inner::Inner;
use crate::live::snapshots::{SpaceFloor, Staged};
use crate::model::blocking::blocking;
use crate::model::clock::now_ms;
use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::held::cancel::CancelToken;
use crate::model::held::{CopiedSandbox, HeldContents, HeldSandbox, HoldPurpose};
use crate::model::ids::{SandboxId, SnapshotId, TenantId, random};
use crate::model::info::class::SandboxClass;
use crate::model::info::{AutoSnapshots, IdempotencyKey, TTL_S_MAX, Trigger};
use crate::model::record::RecordBody;
use crate::model::record::snapshot::{
    SnapshotBody, SnapshotInfo, SnapshotRecord, SnapshotSession, SnapshotSpec, VERSION,
};
use crate::model::record::snapshot_layers::{LAYERS_MAX, RecordedLayer};
use crate::model::state::State;
use crate::service::{Service, request};
use first_pass::FirstPass;
use isolet_storage::{Copied, CopyError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

/// The time between two looks for expired snapshots.
const INTERVAL: Duration = Duration::from_secs(1);
/// Lifetime of the snapshot of a fork in seconds, if the fork cannot delete it.
const TEMPORARY_S: u64 = 3600;

impl Service {
    /// Takes a snapshot of a running or sleeping sandbox. Continues if the caller is dropped.
    /// Returns `true` if an earlier request with the same idempotency key took it.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::Failed`], [`Error::Unreachable`], [`Error::SnapshotExists`],
    /// [`Error::TooManySnapshots`], and errors of the disk. Nothing of the snapshot is left.
    pub async fn create_snapshot(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        spec: SnapshotSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<(SnapshotInfo, bool), Error> {
        self.inner.running()?;
        let inner = Arc::clone(&self.inner);
        let owner = tenant.clone();
        let sandbox = id.clone();
        let Some(once) = once else {
            let taking =
                async move { inner.take_snapshot(&owner, &sandbox, spec, None, false).await };
            let taken = tokio::spawn(taking).await;
            let record = taken.map_err(|error| Error::Fault(error.to_string()))??;
            return Ok((record.info(), false));
        };
        let key = once.clone();
        let work = async move {
            let record = inner.take_snapshot(&owner, &sandbox, spec, Some(key), false).await?;
            serde_json::to_string(&record.info()).map_err(|error| Error::Fault(error.to_string()))
        };
        let run = self.inner.idempotency.run(&self.inner.store, tenant, &once, work);
        let (text, replayed) = run.await?;
        let info = serde_json::from_str(&text).map_err(|_| Error::OtherBody)?;
        Ok((info, replayed))
    }

    /// The snapshots of a tenant, sorted by id.
    #[must_use]
    pub fn snapshots(&self, tenant: &TenantId) -> Vec<SnapshotInfo> {
        self.inner.snapshots.of(tenant).iter().map(|record| record.info()).collect()
    }

    /// One snapshot, by its id or name.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`].
    pub fn snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<SnapshotInfo, Error> {
        Ok(self.inner.snapshots.find(tenant, id)?.info())
    }

    /// The variables, the working directory and the user that the image of a snapshot's sandbox sets;
    /// `None` for the programs of the host.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`].
    pub fn snapshot_root(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<Option<isolet_image::Root>, Error> {
        Ok(self.inner.snapshots.find(tenant, id)?.body.settings.root.clone())
    }

    /// Deletes a snapshot. Sandboxes that were created from it keep their files. Continues if the
    /// caller is dropped.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`]; [`Error::SnapshotInUse`] while sandboxes are created from it.
    pub async fn delete_snapshot(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<SnapshotInfo, Error> {
        self.inner.snapshots.find(tenant, id)?;
        let inner = Arc::clone(&self.inner);
        let tenant = tenant.clone();
        let id = id.clone();
        let removing = async move { inner.remove_snapshot(&tenant, &id).await };
        let removed = tokio::spawn(removing).await;
        Ok(removed.map_err(|error| Error::Fault(error.to_string()))??.info())
    }
}

impl Inner {
    /// Takes a snapshot. A temporary one serves a fork, and clients do not see it.
    pub(super) async fn take_snapshot(
        self: &Arc<Self>,
        tenant: &TenantId,
        id: &SandboxId,
        spec: SnapshotSpec,
        once: Option<IdempotencyKey>,
        temporary: bool,
    ) -> Result<SnapshotRecord, Error> {
        check_spec(&spec)?;
        let found = self.registry.find(tenant, id).filter(|entry| entry.state().visible());
        let entry = found.ok_or_else(|| Error::NoSandbox(id.clone()))?;
        let order = SnapshotOrder { once, temporary, ..SnapshotOrder::requested(spec) };
        Ok(self.take_ordered(&entry, order).await?.0)
    }

    /// Takes a snapshot. The sandbox still stands if it is to be deleted then.
    async fn take_ordered(
        self: &Arc<Self>,
        entry: &Arc<SandboxEntry>,
        order: SnapshotOrder,
    ) -> Result<(SnapshotRecord, Option<CopiedSandbox>), Error> {
        let tenant = &entry.tenant;
        let id = &entry.id;
        self.space.check()?;
        self.quotas.check(tenant)?;
        let name = random();
        let is_automatic =
            order.trigger == Trigger::Schedule && entry.local().class == SandboxClass::Store;
        let name_of = order.spec.name.as_ref();
        let _place = self.snapshots.reserve(tenant, &name, name_of, !is_automatic)?;
        // What was copied before an error is in the trash.
        let taken = self.copy_held(entry, &name, &order).await;
        let taken = taken.inspect_err(|_| self.trash.notify_one())?;
        let once = order.once.clone();
        let (record, standing) = taken.record(entry, name, order);
        let written = self.record_snapshot(&record, once).await;
        if let Err(error) = written {
            self.discard_files(&record.name).await;
            return Err(error);
        }
        info!(sandbox = %id, %tenant, snapshot = %record.id, bytes = record.body.size_bytes, frozen_ms = record.body.frozen_ms, "snapshot taken");
        self.snapshots.insert(record.clone());
        if record.body.settings.layers.to_fold().is_some() {
            self.snapshots.files.layers.more.notify_one();
        }
        Ok((record, standing))
    }

    /// The time of the latest snapshot of a sandbox that this server has.
    fn latest_snapshot_ms(&self, entry: &SandboxEntry) -> Option<i64> {
        let all = self.snapshots.of(&entry.tenant).into_iter();
        let own = all.filter(|one| one.body.incarnation.as_ref() == Some(&entry.name));
        own.map(|one| one.body.created_at_ms).max()
    }

    /// Copies the files of a sandbox at one moment. Nothing is left if that fails.
    async fn copy_held(
        self: &Arc<Self>,
        entry: &SandboxEntry,
        name: &str,
        order: &SnapshotOrder,
    ) -> Result<TakenFiles, Error> {
        let running = entry.copies.begin();
        // Copies of the same sandbox come one after the other, so they need one permit.
        let _turn = entry.copies.turn.lock().await;
        let _copy = self.snapshots.copies.acquire(&entry.tenant).await;
        // On the disk before the snapshot can be pushed, so that a server with an earlier disk is known.
        let number = match order.has_identity(entry) {
            true => self.store.next_snapshot_number(&entry.name).await?,
            false => 0,
        };
        let taken = match self.first_pass(entry, name, &running.cancel).await {
            Ok(live) => self.copy_standing(entry, name, order, live, &running.cancel).await,
            Err(error) => Err(error),
        };
        if taken.is_err() {
            self.discard_files(&format!("staging/{name}")).await;
        }
        taken.map(|taken| TakenFiles { number, ..taken })
    }

    /// Copies the files of a sandbox while it stands still, or what changed since a first pass.
    async fn copy_standing(
        self: &Arc<Self>,
        entry: &SandboxEntry,
        name: &str,
        order: &SnapshotOrder,
        first: Option<FirstPass>,
        running: &CancelToken,
    ) -> Result<TakenFiles, Error> {
        let purpose = order.purpose;
        let mut held = request(entry, |answer| DriverCommand::Hold(purpose, answer)).await?;
        // In the order of the snapshots, also if the clock has stepped back.
        let earliest = self.latest_snapshot_ms(entry).map_or(0, |at_ms| at_ms.saturating_add(1));
        let at_ms = now_ms().max(earliest);
        match held.state {
            // Its files are all that is left, so they are copied before they are removed.
            State::Failed | State::Unreachable if purpose.deletes() => {}
            State::Failed => return Err(crate::model::record::failed(&held.contents.record)),
            State::Unreachable => return Err(Error::Unreachable(entry.id.clone())),
            _ => {}
        }
        pass("snapshot.held").await?;
        let files = self.snapshots.files.clone();
        let directory = entry.directory.clone();
        let floor = SpaceFloor { floor_mib: self.config.free_space_floor_mib };
        let staged = name.to_owned();
        let disk_mib = held.contents.record.body.limits.disk_mib;
        let settings = held.contents.record.body.clone();
        let tokens = vec![running.clone(), held.expired()];
        let stood_before = first.as_ref().map_or(Duration::ZERO, |first| first.stood);
        // It may have fallen asleep or woken since.
        let body = &held.contents.record.body;
        let live = first.filter(|first| held.frozen && first.fits(body)).map(|first| first.stage);
        let has_layer = live.is_some();
        let mut links = Vec::new();
        let copied = match live {
            Some(live) => {
                if let Some(layer) = &live.layer {
                    let stack = settings.layers.with_top(layer.clone());
                    held.contents.record.body.layers = stack;
                }
                let rest =
                    blocking(move || files.stage_rest(&staged, &directory, live, floor, tokens));
                rest.await?.map(|rest| {
                    links = rest.links;
                    (Staged::measured(rest.copied), rest.layer_bytes)
                })
            }
            None => {
                self.discard_files(&format!("staging/{name}")).await;
                let staged = blocking(move || {
                    files.check_disk(&directory, disk_mib)?;
                    files.stage(&staged, &directory, &settings, floor, tokens)
                });
                staged.await?.map(|copied| (copied, 0))
            }
        };
        let copied = copied.map_err(|error| self.not_copied(entry, running, error));
        let (copy, mut layer_bytes) = copied?;
        let mut added = Copied::default();
        if !has_layer {
            added = self.add_layer(entry, &mut held, running).await?;
            layer_bytes = added.size_bytes();
        }
        pass("snapshot.copied").await?;
        let (contents, frozen, standing) = held.copied();
        let standing = purpose.stands().then_some(standing);
        let frozen = stood_before + frozen.ok_or(Error::TooLate("copying the files"))?;
        let removed = blocking(move || {
            let mut all = links.iter();
            all.try_for_each(|links| isolet_sys::tree::remove(links))
        });
        let removed = removed.await?.map_err(|errno| CopyError::at(b"", errno));
        removed.map_err(|error| self.not_copied(entry, running, error))?;
        let mut copied = self.measured(name, copy, order.temporary).await?;
        copied += added;
        // The caller has drawn the number.
        Ok(TakenFiles { at_ms, number: 0, contents, copied, layer_bytes, frozen, standing })
    }

    /// Makes the changes of a held sandbox its next layer, where layers are used and the first pass
    /// has made none. Returns what was copied into it.
    async fn add_layer(
        &self,
        entry: &SandboxEntry,
        held: &mut HeldSandbox,
        running: &CancelToken,
    ) -> Result<Copied, Error> {
        let body = &held.contents.record.body;
        let files = self.snapshots.files.clone();
        if !files.uses_layers(body) {
            return Ok(Copied::default());
        }
        let layer = self.new_layer(entry, body).await?;
        if !held.frozen && held.state == State::Sleeping {
            held.take_layer(layer).await?;
            return Ok(Copied::default());
        }
        let directory = entry.directory.clone();
        let floor = SpaceFloor { floor_mib: self.config.free_space_floor_mib };
        let tokens = vec![running.clone(), held.expired()];
        let stack = body.layers.with_top(layer.clone());
        let added = blocking(move || files.copy_layer(&layer, &directory, floor, tokens)).await?;
        let added = added.map_err(|error| self.not_copied(entry, running, error))?;
        held.contents.record.body.layers = stack;
        Ok(added)
    }

    /// The error of a copy of a sandbox, for clients.
    fn not_copied(&self, entry: &SandboxEntry, running: &CancelToken, error: CopyError) -> Error {
        match error {
            CopyError::Cancelled if running.is_cancelled() => Error::NoSandbox(entry.id.clone()),
            CopyError::Cancelled if self.running().is_ok() => Error::TooLate("copying the files"),
            error => copy_failed(&format!("sandbox {}", entry.id), error),
        }
    }

    async fn new_layer(
        &self,
        entry: &SandboxEntry,
        body: &RecordBody,
    ) -> Result<RecordedLayer, Error> {
        let of = || format!("sandbox {}", entry.id);
        if body.layers.len() >= LAYERS_MAX {
            let reason = format!("it has {LAYERS_MAX} layers, which are being folded; try again");
            return Err(Error::Copy { of: of(), reason });
        }
        let id_base = body.id_base.unwrap_or(isolet_jail::FILES_ID_BASE);
        let layers = self.snapshots.files.layers.clone();
        let created = blocking(move || layers.create(id_base)).await?;
        let failed = |error: std::io::Error| Error::Copy { of: of(), reason: error.to_string() };
        let layer = created.map_err(failed)?;
        pass("layers.created").await?;
        Ok(layer)
    }

    /// What a staged copy contains. Nobody sees it of a temporary one.
    async fn measured(&self, name: &str, copy: Staged, temporary: bool) -> Result<Copied, Error> {
        if temporary {
            return Ok(Copied::default());
        }
        let files = self.snapshots.files.clone();
        let owned = name.to_owned();
        let measured = blocking(move || files.measure(&owned, copy)).await?;
        measured.map_err(|error| copy_failed(&format!("snapshot {name}"), error))
    }

    pub(super) async fn record_snapshot(
        &self,
        record: &SnapshotRecord,
        once: Option<IdempotencyKey>,
    ) -> Result<(), Error> {
        let files = self.snapshots.files.clone();
        let name = record.name.clone();
        let settings = record.body.settings.clone();
        let temporary = record.body.temporary;
        let completed = blocking(move || files.complete(&name, &settings, temporary)).await?;
        let of = format!("sandbox {}", record.body.sandbox);
        completed.map_err(|error| copy_failed(&of, CopyError::io("", &error)))?;
        pass("snapshot.completed").await?;
        let answer = match once {
            Some(once) => {
                let text = serde_json::to_string(&record.info());
                let text = text.map_err(|error| Error::Fault(error.to_string()))?;
                Some(idempotency::row(&record.tenant, &once, text))
            }
            None => None,
        };
        self.store.insert_snapshot(record.row()?, answer).await?;
        let files = self.snapshots.files.clone();
        let name = record.name.clone();
        if let Ok(Err(error)) = blocking(move || files.claim(&name)).await {
            // The next start removes the mark.
            warn!(snapshot = %record.id, %error, "a recorded snapshot is still marked");
        }
        pass("snapshot.recorded").await
    }

    pub(super) async fn discard_files(&self, name: &str) {
        let files = self.snapshots.files.clone();
        let owned = name.to_owned();
        match blocking(move || files.discard(&owned)).await {
            Ok(Ok(())) => self.trash.notify_one(),
            done => warn!(snapshot = %name, ?done, "files are removed at the next start"),
        }
    }

    pub(super) async fn remove_snapshot(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<Arc<SnapshotRecord>, Error> {
        let record = self.snapshots.take(tenant, id)?;
        let files = self.snapshots.files.clone();
        let name = record.name.clone();
        let discarded = blocking(move || files.discard(&name)).await;
        if let Err(error) = discarded.and_then(|done| done.map_err(|e| Error::Fault(e.to_string())))
        {
            self.snapshots.insert((*record).clone());
            return Err(error);
        }
        self.snapshots.disks.forget(&record.name);
        self.trash.notify_one();
        pass("snapshot.discarded").await?;
        // Without its files it is deleted. The next start removes a record that is left.
        if let Err(error) = self.store.remove_snapshot(&record.name).await {
            warn!(snapshot = %record.id, %tenant, %error, "record of a deleted snapshot is removed at the next start");
        }
        info!(snapshot = %record.id, %tenant, "snapshot deleted");
        Ok(record)
    }
}

/// How a snapshot is to be taken.
struct SnapshotOrder {
    spec: SnapshotSpec,
    once: Option<IdempotencyKey>,
    /// Whether it serves a fork, and clients do not see it.
    temporary: bool,
    trigger: Trigger,
    purpose: HoldPurpose,
}

impl SnapshotOrder {
    fn requested(spec: SnapshotSpec) -> Self {
        let trigger = Trigger::Request;
        Self { spec, once: None, temporary: false, trigger, purpose: HoldPurpose::Copy }
    }

    /// Whether the snapshot has the whole record of the sandbox, so that another node can restore it.
    fn has_identity(&self, entry: &SandboxEntry) -> bool {
        let is_stored = entry.local().class == SandboxClass::Store && !self.temporary;
        self.purpose.departs() || is_stored
    }
}

/// What was copied of a sandbox.
struct TakenFiles {
    /// When the sandbox stood still: what was written later is not part of the copy.
    at_ms: i64,
    /// Its number among the snapshots of the sandbox; 0: none is needed.
    number: u64,
    contents: HeldContents,
    copied: Copied,
    /// The part of `copied` that lies in a new layer, in bytes.
    layer_bytes: u64,
    frozen: Duration,
    /// The sandbox, if it is to be deleted.
    standing: Option<CopiedSandbox>,
}

impl TakenFiles {
    fn record(
        self,
        entry: &SandboxEntry,
        name: String,
        order: SnapshotOrder,
    ) -> (SnapshotRecord, Option<CopiedSandbox>) {
        let has_identity = order.has_identity(entry);
        let SnapshotOrder { spec, temporary, trigger, purpose, .. } = order;
        let departs = purpose.departs();
        let created_at_ms = self.at_ms;
        let ttl_s = if temporary { Some(TEMPORARY_S) } else { spec.ttl_s };
        let ttl_s = ttl_s.filter(|seconds| *seconds > 0);
        let ttl_ms = ttl_s.map(|seconds| i64::try_from(seconds * 1000).unwrap_or(i64::MAX));
        let session = |(id, record)| SnapshotSession { id, record };
        let sessions = self.contents.sessions.into_iter().map(session).collect();
        let own_sessions = self.contents.own_sessions.into_iter().map(session).collect();
        let mut record = self.contents.record;
        if departs && record.state.has_processes() {
            // It continues elsewhere, where another clock counts.
            record.rest();
        }
        let identity = has_identity.then(|| {
            let mut body = record.body.clone();
            body.signs_as.get_or_insert_with(|| record.name.clone());
            Box::new(body)
        });
        let mut settings = record.body.for_snapshot();
        if temporary {
            // Many forks would take many snapshots.
            settings.snapshots = AutoSnapshots::default();
        }
        let record = SnapshotRecord {
            name,
            tenant: entry.tenant.clone(),
            id: SnapshotId::random(),
            body: SnapshotBody {
                v: VERSION,
                name: spec.name,
                sandbox: entry.id.clone(),
                metadata: spec.metadata.into_inner(),
                created_at_ms,
                expires_at_ms: ttl_ms.map(|ms| created_at_ms.saturating_add(ms)),
                size_bytes: self.copied.size_bytes(),
                layer_bytes: self.layer_bytes,
                frozen_ms: self.frozen.as_micros() as f64 / 1000.0,
                lost: self.contents.lost,
                credentials: record.body.credentials.clone(),
                settings,
                sessions,
                temporary,
                trigger,
                number: self.number,
                incarnation: Some(record.name.clone()),
                asleep_after_ms: (record.state == State::Sleeping).then(|| record.awake_ms()),
                identity,
                own_sessions: if has_identity { own_sessions } else { Vec::new() },
            },
        };
        (record, self.standing)
    }
}

fn check_spec(spec: &SnapshotSpec) -> Result<(), Error> {
    match spec.ttl_s {
        Some(seconds) if seconds > TTL_S_MAX => {
            let reason = format!("{seconds} is more than {TTL_S_MAX} (a year)");
            Err(Error::BadField { field: "ttl_s", reason })
        }
        _ => Ok(()),
    }
}

/// Deletes snapshots whose lifetime has passed, and those that a sandbox has left here. Runs until the server
/// stops.
pub(super) async fn keep(inner: Arc<Inner>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let kept = inner.config.fleet.unwrap_or_default().superseded_keep;
    let kept_ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    loop {
        ticks.tick().await;
        inner.snapshots.disks.expire();
        let now = now_ms();
        let has_sandbox = |name: &str| inner.registry.named(name).is_some();
        let mut over = inner.snapshots.forsaken(now.saturating_sub(kept_ms), has_sandbox);
        let expired =
            |record: &Arc<SnapshotRecord>| record.body.expires_at_ms.is_some_and(|at| at <= now);
        over.extend(inner.snapshots.all().into_iter().filter(expired));
        for record in over {
            match inner.remove_snapshot(&record.tenant, &record.id).await {
                // Retried at the next look.
                Ok(_) | Err(Error::SnapshotInUse(_) | Error::NoSnapshot(_)) => {}
                Err(error) => warn!(snapshot = %record.id, %error, "expired, and not deleted yet"),
            }
        }
    }
}
