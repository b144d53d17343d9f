//! Sandboxes that leave this node without being deleted: evicted, or on their way to another node.
//!
//! 1. A snapshot of the sandbox, as it is, is pushed to the object store and recorded in the fleet.
//!    While that takes long, the sandbox runs on; what it has changed in between is pushed while it stands
//!    still, for [`STANDING_MAX`] at most: then it runs on, and stays.
//! 2. While it stands still, its removal is recorded on this server, then in the fleet that the
//!    snapshot has everything. From then on it cannot run here again.
//! 3. Its processes, files and record are removed. The local copy of the snapshot is too, but of one that is
//!    moved only after the other node has restored it: if that one cannot, this node goes on with its copy.
//! 4. The driver of the fleet's protocol lets other nodes take it over.
//!
//! A server that is killed before step 2 has changed nothing. Afterwards the next server continues with
//! step 3, or restores the sandbox if a request for it comes first.

use super::SnapshotOrder;
use super::schedule::newest;
use crate::live::entry::SandboxEntry;
use crate::live::failpoint::{self, pass};
use crate::live::inner::Inner;
use crate::live::registry::Absence;
use crate::live::snapshots::COPY_KEPT_MS;
use crate::model::clock::now_ms;
use crate::model::command::{DriverCommand, ResumedFor};
use crate::model::error::Error;
use crate::model::held::{CopiedSandbox, HoldPurpose};
use crate::model::ids::{SandboxId, SessionId, SnapshotId, TenantId};
use crate::model::info::class::SandboxClass;
use crate::model::info::ownership::{Arrival, Departed, Departure, LocalSandbox};
use crate::model::info::{SandboxInfo, Trigger};
use crate::model::record::snapshot::{SnapshotRecord, SnapshotSession, SnapshotSpec};
use crate::model::record::{RecordBody, failed, stored_description};
use crate::model::state::State;
use crate::service::{Service, request};
use isolet_image::Reference;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

/// The time between two looks for sandboxes that have slept for long.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many are evicted at the same time.
const AT_ONCE: usize = 2;
/// How long a sandbox stands still while its last changes are pushed. Then it runs on, and stays: the object
/// store does not answer, or the changes are too many to stand still for them.
const STANDING_MAX: Duration = Duration::from_secs(10);
/// The pause after an eviction that failed.
const RETRY: Duration = Duration::from_secs(30);
/// Maximum number of evictions that wait for the driver of the fleet's protocol. The sweep of the
/// fleet does what does not fit.
pub(crate) const DEPARTURES_MAX: usize = 1024;

impl Service {
    /// Removes a sandbox from this node, after all of it is in the object store. Continues if the
    /// caller is dropped. The caller then lets other nodes take it over.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::NotMovable`], [`Error::NoStore`], [`Error::Failed`],
    /// [`Error::Unreachable`], [`Error::NotRecorded`], [`Error::Transfer`], [`Error::NotDeparted`] and errors
    /// of a snapshot. The sandbox continues then. [`Error::TooLate`]: its removal continues.
    pub async fn depart(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        why: Departure,
    ) -> Result<Departed, Error> {
        self.inner.running()?;
        let entry = self.entry(tenant, id)?;
        let inner = Arc::clone(&self.inner);
        let departing = async move { inner.depart(&entry, why).await };
        tokio::spawn(departing).await.map_err(|error| Error::Fault(error.to_string()))?
    }

    /// Removes the copies of a sandbox that has been moved, or that this node has restored again because it was
    /// not.
    pub async fn forget_departed(&self, departed: &Departed) {
        let LocalSandbox { tenant, name, .. } = &departed.sandbox;
        self.inner.snapshots.expire_automatic(tenant, name, 0);
        self.inner.remove_copy(tenant, &departed.snapshot).await;
    }

    /// Why a sandbox cannot leave this node, without changing anything.
    ///
    /// # Errors
    /// As of [`Self::depart`].
    pub async fn may_depart(&self, tenant: &TenantId, id: &SandboxId) -> Result<(), Error> {
        let entry = self.entry(tenant, id)?;
        self.inner.may_depart(&entry).await
    }

    /// Allows a sandbox to be created with an id that has left this node, or that is held: this node owns
    /// the id, or nobody does.
    pub fn returns(&self, tenant: &TenantId, id: &SandboxId) {
        let _ = self.inner.registry.returns(tenant, id);
    }

    /// Holds an id that this node owns, and of which it has no sandbox: it may have left this node when the
    /// last server ended. Until [`Self::returns`], none is created. Held ids are never forgotten: their
    /// number is bounded by what the node owns when the server starts.
    pub fn hold_id(&self, tenant: &TenantId, id: &SandboxId) {
        self.inner.registry.leaves(tenant, id, Absence::Held);
    }

    /// Whether a sandbox with this id has left this node, or its id is held, and none has returned.
    #[must_use]
    pub fn has_departed(&self, tenant: &TenantId, id: &SandboxId) -> bool {
        self.inner.registry.has_departed(tenant, id)
    }

    /// Why this node cannot take a sandbox, as far as that can be known before it comes.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::NoClass`], [`Error::NotMovable`], [`Error::NoWay`],
    /// [`Error::TooManySandboxes`], [`Error::Transfer`] if the object store cannot be read, and limits of
    /// space.
    pub async fn may_arrive(&self, tenant: &TenantId, arrival: &Arrival) -> Result<(), Error> {
        self.inner.may_arrive(tenant, arrival)?;
        self.inner.egress.check(&arrival.network).await?;
        if arrival.has_credentials {
            self.inner.egress.check_credentials().await?;
        }
        if arrival.store == self.store_id().await? {
            return Ok(());
        }
        let reason = "the other node has another object store, so it cannot restore it";
        Err(Error::NotMovable { id: arrival.id.clone(), reason: reason.to_owned() })
    }

    /// The id of the object store, the same on all servers that use it.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::Transfer`].
    pub async fn store_id(&self) -> Result<String, Error> {
        self.inner.snapshot_store.check()?;
        let failed = |reason| Error::Transfer { id: "*".to_owned(), what: "read", reason };
        Ok(self.inner.snapshot_store.repository().await.map_err(failed)?.id())
    }

    /// What another node needs to know before a sandbox of this one is moved to it.
    ///
    /// # Errors
    /// [`Error::NoSandbox`]; those of [`Self::store_id`].
    pub async fn arrival(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arrival, Error> {
        let store = self.store_id().await?;
        let record = Arc::clone(&self.entry(tenant, id)?.view().record);
        let body = &record.body;
        Ok(Arrival {
            id: id.clone(),
            pushed: body.pushed.as_ref().map(|pushed| pushed.id.clone()),
            store,
            network: body.network.clone(),
            has_credentials: !body.credentials.is_empty(),
            class: body.class,
            image: body.image.clone(),
            image_resolved: body.image_resolved.clone(),
            memory_mib: body.limits.memory_mib,
            disk_mib: body.limits.disk_mib,
            asleep: record.state == State::Sleeping,
        })
    }

    /// The sandboxes of this node that do not run and can be stored away as they are.
    #[must_use]
    pub fn sleeps_in_store_class(&self, sandbox: &LocalSandbox) -> bool {
        let found = self.inner.registry.find(&sandbox.tenant, &sandbox.id);
        sandbox.class == SandboxClass::Store
            && found.is_some_and(|entry| entry.state() == State::Sleeping)
    }

    /// What a sandbox is that only the object store has. `None`: another version wrote it.
    #[must_use]
    pub fn described(&self, tenant: &TenantId, id: &SandboxId, text: &[u8]) -> Option<SandboxInfo> {
        stored_description::read(tenant, id, text)
    }

    /// Adds the usage of a sandbox that was deleted while only the object store had it to that of its
    /// tenant on this node. A description of a later version adds nothing.
    ///
    /// # Errors
    /// Errors of the store, also of a full disk.
    pub async fn count_ended(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        text: &[u8],
    ) -> Result<(), Error> {
        let Some(record) = stored_description::read_record(tenant, id, text) else {
            return Ok(());
        };
        // Nothing of it runs, so its totals are complete.
        let past = record.past(isolet_jail::Usage::default())?;
        Ok(self.inner.store.add_ended(past).await?)
    }

    /// Reports sandboxes that were evicted. Only the first call gets them.
    #[must_use]
    pub fn evictions(&self) -> Option<mpsc::Receiver<Departed>> {
        let (report, reports) = mpsc::channel(DEPARTURES_MAX);
        self.inner.ownership.evictions.set(report).ok().map(|()| reports)
    }
}

impl Inner {
    fn may_arrive(&self, tenant: &TenantId, arrival: &Arrival) -> Result<(), Error> {
        self.snapshot_store.check()?;
        let class = arrival.class;
        crate::model::record::check_class(&self.config, class, None)?;
        self.space.check()?;
        self.quotas.check_disk_mib(tenant, arrival.disk_mib)?;
        self.quotas.check(tenant)?;
        let max = self.config.sandboxes_max(tenant);
        if self.registry.of(tenant).len() >= max as usize {
            return Err(Error::TooManySandboxes { max });
        }
        if let Some(lack) = self.config.no_disk.as_ref().filter(|_| arrival.disk_mib > 0) {
            return Err(Error::Lacks { field: "disk_mib", reason: lack.clone() });
        }
        if arrival.image_resolved == "host" {
            return Ok(());
        }
        let reference = Reference::parse(&arrival.image_resolved);
        let reference = reference.map_err(isolet_image::Error::from)?;
        let found = self.images.find(tenant.as_str(), &reference);
        match found.filter(|image| self.images.missing_layer(&image.root).is_none()) {
            Some(_) => Ok(()),
            None => {
                let image = format!("{} ({})", arrival.image, arrival.image_resolved);
                let reason = format!("the other node does not have its image {image}");
                Err(Error::NotMovable { id: arrival.id.clone(), reason })
            }
        }
    }

    async fn may_depart(&self, entry: &SandboxEntry) -> Result<(), Error> {
        self.snapshot_store.check()?;
        let record = Arc::clone(&entry.view().record);
        let refused =
            |reason: &str| Error::NotMovable { id: entry.id.clone(), reason: reason.to_owned() };
        if !record.body.persistent {
            return Err(refused("its files do not outlive a sleep (persistent is false)"));
        }
        if record.body.fork.is_some() {
            return Err(refused("the fork that creates it is not complete"));
        }
        match record.state {
            State::Running | State::Sleeping | State::Paused => {}
            State::Failed => return Err(failed(&record)),
            State::Unreachable => return Err(Error::Unreachable(entry.id.clone())),
            State::Creating | State::Destroying | State::Destroyed => {
                return Err(Error::NoSandbox(entry.id.clone()));
            }
        }
        stored_description::write(&record, &entry.sessions)?;
        self.ownership.check_records(entry).await
    }

    async fn depart(
        self: &Arc<Self>,
        entry: &Arc<SandboxEntry>,
        why: Departure,
    ) -> Result<Departed, Error> {
        self.may_depart(entry).await?;
        let was_paused = entry.state() == State::Paused && why == Departure::Moved;
        if was_paused {
            // Its shells are saved while it runs, and it must not be frozen for that.
            let resume = |answer| DriverCommand::Resume(ResumedFor::Server, answer);
            request(entry, resume).await?;
        }
        let only_asleep = why == Departure::Evicted;
        let mut taken = Vec::new();
        let departed = self.depart_with(entry, why, only_asleep, &mut taken).await;
        if was_paused
            && departed.is_err()
            && entry.state() == State::Running
            && let Err(error) = request(entry, DriverCommand::Pause).await
        {
            warn!(sandbox = %entry.id, %error, "it stays on this node, and is not paused again");
        }
        match &departed {
            // Until the other node has restored it, the copy lets this one go on without the store.
            Ok(departed) if why == Departure::Moved => {
                taken.retain(|taken| *taken != departed.snapshot);
                self.expire(&entry.tenant, &departed.snapshot).await;
            }
            // Its copy is in the store.
            Ok(departed) => taken.push(departed.snapshot.clone()),
            // It has left, or is leaving: these are all that is left of it.
            Err(_) if !entry.state().visible() => taken.clear(),
            Err(_) if entry.local().class == SandboxClass::Store => taken.clear(),
            // A sandbox of the class `node` has no snapshots but for this.
            Err(_) => {}
        }
        for snapshot in taken {
            let is_kept = departed.as_ref().is_ok_and(|departed| departed.snapshot == snapshot);
            self.remove_copy(&entry.tenant, &snapshot).await;
            if !is_kept && entry.local().class == SandboxClass::Node {
                self.discard_stored(&entry.tenant, &snapshot).await;
            }
        }
        departed
    }

    /// Removes the copy here of a snapshot of a sandbox that has left.
    async fn remove_copy(&self, tenant: &TenantId, snapshot: &SnapshotId) {
        match self.remove_snapshot(tenant, snapshot).await {
            Ok(_) | Err(Error::NoSnapshot(_)) => {}
            // Its push has not ended.
            Err(Error::SnapshotInUse(_)) => self.snapshots.expire(tenant, snapshot),
            Err(error) => {
                warn!(%tenant, %snapshot, %error, "a snapshot of a sandbox that has left stays here");
            }
        }
    }

    /// Gives a snapshot an end, in case that this server is killed before the move has ended.
    async fn expire(&self, tenant: &TenantId, snapshot: &SnapshotId) {
        let Ok(record) = self.snapshots.find(tenant, snapshot) else { return };
        let mut new = SnapshotRecord::clone(&record);
        new.body.expires_at_ms = Some(now_ms().saturating_add(COPY_KEPT_MS));
        let written = match new.row() {
            Ok(row) => self.store.update_snapshot(&new.name, row.body).await.map_err(Error::from),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            warn!(%tenant, %snapshot, %error, "the copy of a sandbox that leaves gets no end");
        }
        self.snapshots.replace(&record, new);
    }

    async fn depart_with(
        self: &Arc<Self>,
        entry: &Arc<SandboxEntry>,
        why: Departure,
        only_asleep: bool,
        taken: &mut Vec<SnapshotId>,
    ) -> Result<Departed, Error> {
        pass("depart.begun").await?;
        let purpose = HoldPurpose::Depart { only_asleep };
        let mut asleep = self.push_and_stand(entry, purpose, taken).await?;
        if asleep.is_none() && only_asleep && entry.state() == State::Sleeping {
            // The snapshot of its falling asleep came in between.
            asleep = self.push_and_stand(entry, purpose, taken).await?;
        }
        let (snapshot, standing) = match asleep {
            Some(found) => found,
            None if only_asleep => return Err(Error::InUse(entry.id.clone())),
            None => {
                let (record, standing) = self.take_ordered(entry, order(purpose)).await?;
                taken.push(record.id.clone());
                let late = || Error::TooLate("copying the files");
                let standing = standing.ok_or_else(late)?;
                let pushed = timeout(standing_max(), self.push_now(entry, &record.id)).await;
                // The end of `standing` lets it run on.
                pushed.map_err(|_| Error::NotDeparted(entry.id.clone()))??;
                (record.id, standing)
            }
        };
        pass("depart.pushed").await?;
        let known = entry.view().record.body.credentials.clone();
        let credentials = entry.secret_store.all(&known).await?;
        let sandbox = entry.local();
        let ended = standing.depart(why).await;
        ended.unwrap_or(Err(Error::TooLate("pushing its files while it stood still")))?;
        pass("depart.removed").await?;
        info!(sandbox = %entry.id, tenant = %entry.tenant, %snapshot, ?why, "has left this node");
        Ok(Departed { sandbox, snapshot, credentials })
    }

    /// Pushes what the store lacks while the sandbox can be used, and makes it stand still if it sleeps and
    /// has not changed since.
    async fn push_and_stand(
        self: &Arc<Self>,
        entry: &Arc<SandboxEntry>,
        purpose: HoldPurpose,
        taken: &mut Vec<SnapshotId>,
    ) -> Result<Option<(SnapshotId, CopiedSandbox)>, Error> {
        if self.current(entry, None).is_none() {
            let order = order(HoldPurpose::Depart { only_asleep: false });
            let (record, standing) = self.take_ordered(entry, order).await?;
            drop(standing);
            taken.push(record.id.clone());
            self.push_now(entry, &record.id).await?;
        }
        self.stand_asleep(entry, purpose, taken.last().cloned()).await
    }

    /// Makes a sleeping sandbox stand still whose pushed snapshot has everything. `None`: it does not
    /// sleep, or has changed.
    async fn stand_asleep(
        &self,
        entry: &Arc<SandboxEntry>,
        purpose: HoldPurpose,
        pushed: Option<SnapshotId>,
    ) -> Result<Option<(SnapshotId, CopiedSandbox)>, Error> {
        if self.current(entry, pushed.as_ref()).is_none() {
            return Ok(None);
        }
        let held = request(entry, |answer| DriverCommand::Hold(purpose, answer)).await?;
        let found = self.current(entry, pushed.as_ref());
        let found = found.filter(|_| held.state == State::Sleeping);
        let (_, stood, standing) = held.copied();
        Ok(found.filter(|_| stood.is_some()).map(|found| (found.id.clone(), standing)))
    }

    /// The snapshot of a sleeping sandbox that has everything of it and is in the object store. `pushed`
    /// is one of which the caller knows that.
    fn current(
        &self,
        entry: &SandboxEntry,
        pushed: Option<&SnapshotId>,
    ) -> Option<Arc<SnapshotRecord>> {
        let record = Arc::clone(&entry.view().record);
        if record.state != State::Sleeping {
            return None;
        }
        let last = newest(self, &record)?;
        let same = |now: Vec<(SessionId, String)>, then: &[SnapshotSession]| {
            let is_there = |(id, record): &(SessionId, String)| {
                then.iter().any(|one| one.id == *id && one.record == *record)
            };
            now.len() == then.len() && now.iter().all(is_there)
        };
        let sessions = &entry.sessions;
        let same_sessions = same(sessions.copied(), &last.body.sessions)
            && same(sessions.uncopied(), &last.body.own_sessions);
        let recorded = record.body.pushed.as_ref();
        let is_pushed =
            pushed == Some(&last.id) || recorded.is_some_and(|recorded| recorded.id == last.id);
        let identity = last.body.identity.as_deref()?;
        let is_current = is_pushed
            && same_sessions
            && last.body.asleep_after_ms == Some(record.awake_ms())
            && settings(identity) == settings(&record.body);
        is_current.then_some(last)
    }

    /// Pushes a snapshot and waits until it is recorded.
    async fn push_now(
        self: &Arc<Self>,
        entry: &SandboxEntry,
        id: &SnapshotId,
    ) -> Result<(), Error> {
        let mut transfer = self.start_push(&entry.tenant, id)?;
        transfer.ended().await?;
        Ok(())
    }
}

fn standing_max() -> Duration {
    failpoint::limit("depart.standing", STANDING_MAX)
}

/// The order of a snapshot with which a sandbox leaves.
fn order(purpose: HoldPurpose) -> SnapshotOrder {
    let spec = SnapshotSpec::default();
    SnapshotOrder { trigger: Trigger::Schedule, purpose, ..SnapshotOrder::requested(spec) }
}

/// The part of a record that a snapshot must have as it is, to be the same sandbox.
fn settings(body: &RecordBody) -> Value {
    let mut value = serde_json::to_value(body).unwrap_or_default();
    if let Value::Object(all) = &mut value {
        // What this server counts, and where it keeps files.
        let own = ["used", "pushed", "layers", "v", "id_base", "restore", "departure", "signs_as"];
        for own in own {
            all.remove(own);
        }
    }
    value
}

/// Evicts sandboxes of the class `store` that have slept for long. Runs until the server stops.
pub(in crate::service) async fn keep(inner: Arc<Inner>) {
    let Some(after) = inner.config.fleet.and_then(|fleet| fleet.evict_after) else { return };
    if inner.snapshot_store.check().is_err() {
        return;
    }
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asleep: HashMap<String, Asleep> = HashMap::new();
    let mut tasks: JoinSet<(String, bool)> = JoinSet::new();
    let mut running: HashSet<String> = HashSet::new();
    loop {
        ticks.tick().await;
        while let Some(done) = tasks.try_join_next() {
            match done {
                Ok((name, evicted)) => {
                    running.remove(&name);
                    if !evicted && let Some(known) = asleep.get_mut(&name) {
                        known.not_before = Instant::now() + RETRY;
                    }
                }
                // A task that panicked does not say whose it was.
                Err(_) if tasks.is_empty() => running.clear(),
                Err(_) => {}
            }
        }
        for entry in look(&inner, &mut asleep, after) {
            if tasks.len() >= AT_ONCE {
                break;
            }
            if !running.insert(entry.name.clone()) {
                continue;
            }
            tasks.spawn(evict(Arc::clone(&inner), entry));
        }
    }
}

/// A sandbox that sleeps.
struct Asleep {
    awake_ms: u64,
    /// When it is evicted at the earliest.
    not_before: Instant,
}

/// The sandboxes that have slept for long enough, as this server has seen it.
fn look(
    inner: &Inner,
    asleep: &mut HashMap<String, Asleep>,
    after: Duration,
) -> Vec<Arc<SandboxEntry>> {
    let mut due = Vec::new();
    let mut seen = HashSet::new();
    for entry in inner.registry.all() {
        let record = Arc::clone(&entry.view().record);
        let is_store = record.body.class == SandboxClass::Store;
        if !is_store || record.state != State::Sleeping || entry.is_suspended() {
            continue;
        }
        seen.insert(entry.name.clone());
        let awake_ms = record.awake_ms();
        let new = || Asleep { awake_ms, not_before: Instant::now() + after };
        let known = asleep.entry(entry.name.clone()).or_insert_with(new);
        if known.awake_ms != awake_ms {
            *known = new();
        }
        if known.not_before <= Instant::now() {
            due.push(entry);
        }
    }
    asleep.retain(|name, _| seen.contains(name));
    due
}

/// Returns the internal name, and whether the sandbox has left.
async fn evict(inner: Arc<Inner>, entry: Arc<SandboxEntry>) -> (String, bool) {
    let name = entry.name.clone();
    // The end of its lifetime is a time of day that other servers then go by.
    let ends = entry.view().record.body.expires_at_ms.is_some();
    if ends && let Err(reason) = inner.check_clock().await {
        warn!(sandbox = %entry.id, tenant = %entry.tenant, reason, "not evicted; it is tried again");
        return (name, false);
    }
    match inner.depart(&entry, Departure::Evicted).await {
        Ok(departed) => {
            if let Some(report) = inner.ownership.evictions.get() {
                let _ = report.try_send(departed);
            }
            (name, true)
        }
        Err(Error::NoSandbox(_) | Error::InUse(_)) => (name, false),
        Err(error) => {
            warn!(sandbox = %entry.id, tenant = %entry.tenant, %error, "not evicted; it is tried again");
            (name, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::Config;
    use crate::model::info::SandboxSpec;

    #[test]
    fn a_changed_setting_needs_a_new_snapshot_and_counters_do_not() {
        let nowhere = std::path::Path::new("/nowhere");
        let config = Config::new(nowhere.to_owned(), nowhere);
        let body = RecordBody::plan(&config, SandboxSpec::default()).unwrap();
        let mut counted = body.clone();
        counted.used = crate::model::used::UsageCounters::begun();
        counted.id_base = Some(7);
        assert_eq!(settings(&body), settings(&counted));
        for change in [
            (|body: &mut RecordBody| body.ttl_s = Some(5)) as fn(&mut RecordBody),
            |body| drop(body.metadata.insert("a".into(), 1.into())),
            |body| drop(body.env.insert("A".into(), "b".into())),
            |body| body.sleep_after_s = Some(9),
        ] {
            let mut changed = body.clone();
            change(&mut changed);
            assert_ne!(settings(&body), settings(&changed));
        }
    }
}
