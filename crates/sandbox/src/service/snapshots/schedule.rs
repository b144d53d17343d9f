//! Snapshots at intervals (`snapshot_every_s`). They count as no use of the sandbox. The time of
//! the next one follows from the newest one, so that a restart of the server changes nothing.
//!
//! Of a sandbox of the class `store`, one is also due when it was created and when it has fallen
//! asleep: [`super::durable`] pushes them to the object store.

use super::SnapshotOrder;
use crate::live::entry::SandboxEntry;
use crate::live::inner::Inner;
use crate::model::clock::now_ms;
use crate::model::error::Error;
use crate::model::events::EventKind;
use crate::model::held::HoldPurpose;
use crate::model::info::class::SandboxClass;
use crate::model::info::{AutoSnapshots, STORE_EVERY_S, Trigger};
use crate::model::record::Record;
use crate::model::record::snapshot::{SnapshotRecord, SnapshotSpec};
use crate::model::state::State;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// The time between two looks for snapshots that are due.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many scheduled snapshots are taken at the same time, so that those which clients request do
/// not wait for them. Further ones are taken later, those that are due longest first.
const AT_ONCE: usize = 4;

/// When the next snapshot of a sandbox is due. One exists for each sandbox with an interval.
struct Plan {
    settings: AutoSnapshots,
    next: Instant,
    /// The record of the paused sandbox when its last snapshot was taken. While it is the same, no
    /// process has run since.
    paused: Option<Arc<Record>>,
    /// Whether the sandbox slept at the last look.
    slept: bool,
}

/// Takes the snapshots that are due. Runs until the server stops.
pub(in crate::service) async fn keep(inner: Arc<Inner>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut plans: HashMap<String, Plan> = HashMap::new();
    let mut tasks: JoinSet<String> = JoinSet::new();
    let mut running: HashSet<String> = HashSet::new();
    loop {
        ticks.tick().await;
        while let Some(done) = tasks.try_join_next() {
            match done {
                Ok(name) => _ = running.remove(&name),
                // A task that panicked does not say whose it was.
                Err(_) if tasks.is_empty() => running.clear(),
                Err(_) => {}
            }
        }
        let mut due = look(&inner, &mut plans);
        due.sort_by_key(|(entry, _)| plans.get(&entry.name).map(|plan| plan.next));
        for (entry, record) in due {
            if tasks.len() >= AT_ONCE {
                break;
            }
            // A copy that takes longer than the interval delays the next one.
            if running.contains(&entry.name) {
                continue;
            }
            let Some(plan) = plans.get_mut(&entry.name) else { continue };
            let every = plan.settings.every_s.unwrap_or(STORE_EVERY_S);
            plan.next = Instant::now() + Duration::from_secs(every);
            if unchanged(&inner, plan, &record) {
                continue;
            }
            plan.paused = Some(Arc::clone(&record)).filter(|record| record.state == State::Paused);
            running.insert(entry.name.clone());
            tasks.spawn(take(Arc::clone(&inner), entry, plan.settings.keep));
        }
    }
}

/// Brings the plans up to date, and returns the sandboxes whose snapshot is due.
fn look(inner: &Inner, plans: &mut HashMap<String, Plan>) -> Vec<(Arc<SandboxEntry>, Arc<Record>)> {
    let mut due = Vec::new();
    let mut known = HashSet::new();
    for entry in inner.registry.all() {
        let record = Arc::clone(&entry.view().record);
        let settings = record.body.snapshots;
        let is_store = record.body.class == SandboxClass::Store;
        let is_planned = settings.every_s.is_some() || is_store;
        if !is_planned || !record.state.visible() || entry.is_suspended() {
            continue;
        }
        known.insert(entry.name.clone());
        // Another node can restore it only after the first one.
        let is_new = is_store && record.body.pushed.is_none();
        let known = plans.get(&entry.name).is_some_and(|plan| plan.settings == settings);
        if !known {
            let last = newest(inner, &record).map(|last| last.body.created_at_ms);
            let left_ms = match last {
                None if is_new => 0,
                last => settings.due_in_ms(last, now_ms()).unwrap_or(0),
            };
            let next = Instant::now() + Duration::from_millis(left_ms);
            let plan = Plan { settings, next, paused: None, slept: false };
            plans.insert(entry.name.clone(), plan);
        }
        let Some(plan) = plans.get_mut(&entry.name) else { continue };
        let sleeps = record.state == State::Sleeping;
        if is_store && sleeps && !plan.slept {
            plan.next = Instant::now();
        }
        plan.slept = sleeps;
        let next = plan.next;
        let files = match record.state {
            State::Running | State::Paused => settings.every_s.is_some() || is_new,
            State::Sleeping => record.body.persistent,
            _ => false,
        };
        if files && next <= Instant::now() {
            due.push((entry, record));
        }
    }
    plans.retain(|name, _| known.contains(name));
    due
}

/// Whether no process of the sandbox has run since its last scheduled snapshot.
fn unchanged(inner: &Inner, plan: &Plan, record: &Arc<Record>) -> bool {
    match record.state {
        State::Paused => plan.paused.as_ref().is_some_and(|last| Arc::ptr_eq(last, record)),
        State::Sleeping => newest(inner, record).is_some_and(|last| {
            let current = record.body.snapshots.is_current(last.body.created_at_ms);
            current && last.body.asleep_after_ms == Some(record.awake_ms())
        }),
        _ => false,
    }
}

/// The scheduled snapshots of a sandbox, oldest first.
fn scheduled(inner: &Inner, record: &Record) -> Vec<Arc<SnapshotRecord>> {
    let mut own = inner.snapshots.of(&record.tenant);
    own.retain(|one| {
        one.body.trigger == Trigger::Schedule && one.body.incarnation.as_ref() == Some(&record.name)
    });
    own.sort_by_key(|one| (one.body.number, one.body.created_at_ms));
    own
}

pub(super) fn newest(inner: &Inner, record: &Record) -> Option<Arc<SnapshotRecord>> {
    scheduled(inner, record).pop()
}

/// Takes a snapshot and deletes the oldest ones. Returns the internal name of the sandbox.
async fn take(inner: Arc<Inner>, entry: Arc<SandboxEntry>, keep: u32) -> String {
    let trigger = Trigger::Schedule;
    let purpose = HoldPurpose::Scheduled;
    let spec = SnapshotSpec::default();
    let order = SnapshotOrder { trigger, purpose, ..SnapshotOrder::requested(spec) };
    let (kind, taken) = match inner.take_ordered(&entry, order).await {
        Ok((record, _)) => {
            let taken = record.id.clone();
            (EventKind::SnapshotTaken { snapshot: record.id, trigger }, Some(taken))
        }
        // It was deleted in the meantime.
        Err(Error::NoSandbox(_)) => return entry.name.clone(),
        Err(error) => {
            warn!(sandbox = %entry.id, tenant = %entry.tenant, %error, "scheduled snapshot failed");
            let cause = format!("{error}; retried after the next interval");
            (EventKind::SnapshotFailed { trigger, cause }, None)
        }
    };
    inner.events.emit(&entry, kind);
    if let Some(taken) = taken {
        if entry.state().visible() {
            prune(&inner, &entry, keep as usize).await;
        } else if entry.local().class == SandboxClass::Store {
            // It was deleted, or has left, while its files were copied. Its end has the others deleted.
            inner.snapshots.expire(&entry.tenant, &taken);
        }
    }
    entry.name.clone()
}

/// Deletes the oldest scheduled snapshots beyond `keep`. One that is in use is deleted after the
/// next snapshot.
async fn prune(inner: &Arc<Inner>, entry: &SandboxEntry, keep: usize) {
    let record = Arc::clone(&entry.view().record);
    let all = scheduled(inner, &record);
    let beyond = all.len().saturating_sub(keep);
    for old in &all[..beyond] {
        match inner.remove_snapshot(&old.tenant, &old.id).await {
            Ok(_) | Err(Error::NoSnapshot(_) | Error::SnapshotInUse(_)) => {}
            Err(error) => {
                warn!(snapshot = %old.id, %error, "old scheduled snapshot is not deleted yet");
            }
        }
    }
}
