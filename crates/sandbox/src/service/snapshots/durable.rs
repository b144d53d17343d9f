//! Snapshots of sandboxes of the class `store`, from which other nodes restore them: pushed to the
//! object store, and then recorded in the fleet.
//!
//! A snapshot in the store counts only once the record of the sandbox names it, and the transaction
//! that writes it compares the epoch. So a node that no longer owns the sandbox can push, but not
//! replace newer state; what it pushed is deleted again.

use crate::live::entry::SandboxEntry;
use crate::live::inner::Inner;
use crate::live::launch_queue::permits::not_recorded;
use crate::model::clock::now_ms;
use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::events::EventKind;
use crate::model::ids::{SnapshotId, TenantId};
use crate::model::info::Trigger;
use crate::model::info::class::SandboxClass;
use crate::model::info::ownership::{KnownPushes, LocalSandbox, NotRecorded, PushedSnapshot};
use crate::model::record::snapshot::SnapshotRecord;
use crate::service::Service;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

/// The time between two looks for snapshots that are not pushed.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many are pushed at the same time on the server's own account, so that a push that a client
/// requests does not wait for them.
const AT_ONCE: usize = 2;
/// The pause after a push that failed.
const RETRY: Duration = Duration::from_secs(5);

/// The end of one push.
struct PushEnd {
    /// The internal name of the sandbox.
    name: String,
    failure: Option<PushFailure>,
}

/// Why a push has to be tried again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PushFailure {
    /// The object store or the fleet failed, for every sandbox alike.
    OfStore,
    /// The snapshot cannot be pushed as it is, for example because its records are too large.
    OfSnapshot,
}

/// A snapshot to push.
struct DuePush {
    /// The internal name of its sandbox.
    name: String,
    snapshot: Arc<SnapshotRecord>,
    /// Whether its sandbox has none in the store.
    is_first: bool,
}

/// Sandboxes without a snapshot in the object store, by their internal names.
#[derive(Default)]
struct FirstPushes {
    /// Since when a snapshot of them waits.
    since: HashMap<String, Instant>,
    /// Those whose first push has failed, as their events have said.
    reported: HashSet<String>,
    /// Those whose snapshot cannot be pushed as it is.
    of_snapshot: HashSet<String>,
}

impl FirstPushes {
    /// Brings the list up to date, and says how many sandboxes have none.
    fn look(&mut self, inner: &Inner, due: &[DuePush]) {
        let waiting: HashSet<&String> =
            due.iter().filter(|one| one.is_first).map(|one| &one.name).collect();
        self.since.retain(|name, _| waiting.contains(name));
        self.reported.retain(|name| waiting.contains(name));
        self.of_snapshot.retain(|name| waiting.contains(name));
        for &name in &waiting {
            self.since.entry(name.clone()).or_insert_with(Instant::now);
        }
        let counts = |(name, _): &(&String, &Instant)| !self.of_snapshot.contains(*name);
        let oldest = self.since.iter().filter(counts).map(|(_, at)| *at).min();
        let is_not_durable = |entry: &Arc<SandboxEntry>| {
            let view = entry.view();
            let body = &view.record.body;
            let is_store = body.class == SandboxClass::Store && body.pushed.is_none();
            is_store && view.record.state.visible()
        };
        let count = inner.registry.all().iter().filter(|entry| is_not_durable(entry)).count();
        inner.snapshot_store.pushes.saw(count, oldest);
    }

    /// Remembers the end of a push. The first failure of a first push is an event of its sandbox.
    fn ended(&mut self, inner: &Inner, end: &PushEnd) {
        match end.failure {
            None => return,
            Some(PushFailure::OfSnapshot) => _ = self.of_snapshot.insert(end.name.clone()),
            Some(PushFailure::OfStore) => {}
        }
        if self.since.contains_key(&end.name)
            && self.reported.insert(end.name.clone())
            && let Some(entry) = inner.registry.named(&end.name)
        {
            let trigger = Trigger::Schedule;
            let cause = "no snapshot of it is in the object store yet, so no other node can restore it; \
                         the server keeps trying";
            let cause = cause.to_owned();
            inner.events.emit(&entry, EventKind::SnapshotFailed { trigger, cause });
        }
    }
}

/// Pushes the newest scheduled snapshot of each sandbox of the class `store`. Runs until the server
/// stops.
pub(in crate::service) async fn keep(inner: Arc<Inner>) {
    let allows_store = inner.config.fleet.is_some_and(|fleet| fleet.allows_store);
    if !allows_store || inner.snapshot_store.check().is_err() {
        return;
    }
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tasks: JoinSet<PushEnd> = JoinSet::new();
    let mut running: HashSet<String> = HashSet::new();
    let mut failed: HashMap<String, Instant> = HashMap::new();
    let mut first = FirstPushes::default();
    loop {
        ticks.tick().await;
        failed.retain(|_, at| at.elapsed() < RETRY);
        while let Some(done) = tasks.try_join_next() {
            match done {
                Ok(end) => {
                    running.remove(&end.name);
                    first.ended(&inner, &end);
                    if end.failure.is_some() {
                        failed.insert(end.name, Instant::now());
                    }
                }
                // A task that panicked does not say whose it was.
                Err(_) if tasks.is_empty() => running.clear(),
                Err(_) => {}
            }
        }
        let due = due(&inner);
        first.look(&inner, &due);
        for DuePush { name, snapshot, .. } in due {
            if tasks.len() >= AT_ONCE {
                break;
            }
            if running.contains(&name) || failed.contains_key(&name) {
                continue;
            }
            running.insert(name.clone());
            let inner = Arc::clone(&inner);
            tasks.spawn(async move {
                let failure = push(&inner, &snapshot).await;
                PushEnd { name, failure }
            });
        }
    }
}

/// The snapshots to push: of each sandbox the newest scheduled one. Those of sandboxes that have none in the
/// store come first, and the oldest first among them.
fn due(inner: &Inner) -> Vec<DuePush> {
    if inner.ownership.records.get().is_none() {
        return Vec::new();
    }
    let all = inner.registry.all().into_iter();
    let sandboxes: HashMap<String, Option<PushedSnapshot>> = all
        .filter(|entry| entry.state().visible() && entry.local().class == SandboxClass::Store)
        .map(|entry| (entry.name.clone(), entry.view().record.body.pushed.clone()))
        .collect();
    if sandboxes.is_empty() {
        return Vec::new();
    }
    let mut newest: HashMap<String, Arc<SnapshotRecord>> = HashMap::new();
    for one in inner.snapshots.all() {
        let body = &one.body;
        let Some(of) = body.incarnation.as_ref().filter(|of| sandboxes.contains_key(*of)) else {
            continue;
        };
        let is_newer = |known: &Arc<SnapshotRecord>| body.number > known.body.number;
        if body.is_automatic() && newest.get(of).is_none_or(is_newer) {
            newest.insert(of.clone(), one);
        }
    }
    let mut due: Vec<DuePush> = newest
        .into_iter()
        .filter_map(|(name, snapshot)| {
            let pushed = sandboxes.get(&name).and_then(Option::as_ref);
            let is_older = |pushed: &PushedSnapshot| pushed.number < snapshot.body.number;
            let is_first = pushed.is_none();
            (is_first || pushed.is_some_and(is_older)).then_some(DuePush {
                name,
                snapshot,
                is_first,
            })
        })
        .collect();
    due.sort_by_key(|one| (!one.is_first, one.snapshot.body.created_at_ms));
    due
}

/// Whether a push failed for a reason that another snapshot does not share.
fn is_of_snapshot(error: &Error) -> bool {
    use isolet_repository::Error as Reason;
    let is_own = |reason: &Reason| {
        matches!(reason, Reason::TooLarge { .. } | Reason::File { .. } | Reason::Refused(_))
    };
    matches!(error, Error::Transfer { reason, .. } if is_own(reason))
}

/// Pushes a snapshot, and watches it advance.
async fn push_watched(inner: &Arc<Inner>, snapshot: &SnapshotRecord) -> Result<(), Error> {
    let mut transfer = inner.start_push(&snapshot.tenant, &snapshot.id)?;
    let mut progress = transfer.progress.clone();
    let advances = async {
        while progress.changed().await.is_ok() {
            inner.snapshot_store.pushes.advanced();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = transfer.ended() => ended.map(drop),
        () = advances => Ok(()),
    }
}

/// Returns why it has to be tried again; `None`: it need not be.
async fn push(inner: &Arc<Inner>, snapshot: &SnapshotRecord) -> Option<PushFailure> {
    match push_watched(inner, snapshot).await {
        Ok(()) => {
            inner.snapshot_store.pushes.advanced();
            let found = inner.registry.find(&snapshot.tenant, &snapshot.body.sandbox);
            let of_sandbox = |entry: &Arc<SandboxEntry>| {
                snapshot.body.incarnation.as_ref() == Some(&entry.name) && entry.state().visible()
            };
            if !found.is_some_and(|entry| of_sandbox(&entry)) {
                // It was deleted during the push, and its other snapshots with it.
                inner.discard_stored(&snapshot.tenant, &snapshot.id).await;
            }
            None
        }
        // A newer one has replaced it in the meantime.
        Err(Error::NoSnapshot(_)) => None,
        Err(error) => {
            let sandbox = &snapshot.body.sandbox;
            warn!(%sandbox, tenant = %snapshot.tenant, %error, "its snapshot is not in the store yet; it is tried again");
            Some(if is_of_snapshot(&error) {
                PushFailure::OfSnapshot
            } else {
                PushFailure::OfStore
            })
        }
    }
}

impl Service {
    /// The scheduled snapshots on this server of a sandbox of the class `store` that it had, by the
    /// internal name of the sandbox. Each may be in the object store.
    #[must_use]
    pub fn scheduled_snapshots(&self, sandbox: &LocalSandbox) -> Vec<SnapshotId> {
        let mut all = self.inner.snapshots.of(&sandbox.tenant);
        all.retain(|one| {
            one.body.is_automatic() && one.body.incarnation.as_ref() == Some(&sandbox.name)
        });
        all.into_iter().map(|one| one.id.clone()).collect()
    }

    /// What this server knows of the pushes of a sandbox; `None`: it does not have it.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn known_pushes(&self, sandbox: &LocalSandbox) -> Result<Option<KnownPushes>, Error> {
        let found = self.inner.registry.find(&sandbox.tenant, &sandbox.id);
        let Some(entry) = found.filter(|entry| entry.name == sandbox.name) else { return Ok(None) };
        let number = self.inner.store.last_snapshot_number(&sandbox.name).await?;
        let last = entry.view().record.body.pushed.as_ref().map(|pushed| pushed.id.clone());
        Ok(Some(KnownPushes { number, last }))
    }
}

impl Inner {
    /// Records in the fleet that a snapshot is in the store, if it is one of a sandbox of the class
    /// `store` that this server has.
    ///
    /// # Errors
    /// [`Error::NotRecorded`]; [`Error::Suspended`] if another node owns the sandbox.
    pub(super) async fn record_push(&self, snapshot: &SnapshotRecord) -> Result<(), Error> {
        let body = &snapshot.body;
        // One of the class `node` has an identity only if it is about to be moved.
        let of_snapshot = |entry: &Arc<SandboxEntry>| {
            body.incarnation.as_ref() == Some(&entry.name) && body.identity.is_some()
        };
        let found = self.registry.find(&snapshot.tenant, &body.sandbox).filter(of_snapshot);
        let records = self.ownership.records.get();
        let (Some(entry), Some(records)) = (found, records) else {
            return Ok(());
        };
        let known = entry.view().record.body.pushed.clone();
        if known.is_some_and(|known| known.number > body.number) {
            return Ok(());
        }
        let pushed = PushedSnapshot {
            id: snapshot.id.clone(),
            number: body.number,
            created_at_ms: body.created_at_ms,
            pushed_at_ms: now_ms(),
            automatic: body.trigger == Trigger::Schedule,
            asleep: body.asleep_after_ms.is_some(),
        };
        match records.pushed(&entry.local(), &pushed).await {
            Ok(unneeded) => {
                // Its driver may be busy with a copy of its files for minutes.
                let entry = Arc::clone(&entry);
                if entry.local().class == SandboxClass::Store {
                    self.spawn(async move {
                        let _ = entry.commands.send(DriverCommand::Pushed(pushed)).await;
                    });
                }
                for old in unneeded {
                    self.discard_stored(&snapshot.tenant, &old).await;
                }
                Ok(())
            }
            Err(failure) => {
                if matches!(failure, NotRecorded::Superseded(_)) && pushed.automatic {
                    self.discard_stored(&snapshot.tenant, &snapshot.id).await;
                }
                Err(not_recorded(&entry, failure))
            }
        }
    }

    /// Deletes a snapshot from the store that nobody needs. If that fails, `isolet store` shows it.
    pub(super) async fn discard_stored(&self, tenant: &TenantId, snapshot: &SnapshotId) {
        match self.delete_stored(tenant, snapshot).await {
            Ok(()) | Err(Error::NotInStore(_)) => {}
            Err(error) => debug!(%snapshot, %tenant, %error, "not deleted from the store yet"),
        }
    }
}
