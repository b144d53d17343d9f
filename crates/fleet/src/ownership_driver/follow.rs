//! The three tasks: one tells the guard each deadline, one suspends sandboxes when the lease is lost, and one
//! follows everything that the node learns.

use crate::ownership_driver::{ACTIONS_AT_ONCE, OwnershipDriver, TICK};
use futures_util::{StreamExt as _, stream};
use isolet_cluster::membership::MemberState;
use isolet_cluster::model::Epoch;
use isolet_cluster::protocol::Event;
use isolet_sandbox::LocalSandbox;
use isolet_sandbox::ownership::GuardReport;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{debug, error, info};

/// The pause before the guard is asked again after it could not be reached.
const GUARD_PAUSE: Duration = Duration::from_millis(200);
/// Owners of new sandboxes that are read at one tick.
const OWNERS_PER_TICK: usize = 256;
/// The time before a sandbox without an owner, or with another one, is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What the following task has seen.
struct Seen {
    registration: Option<Epoch>,
    history: u64,
    connections: u64,
    /// Sandboxes that this node does not own, and when they were looked at.
    not_owned: HashMap<String, Instant>,
}

impl OwnershipDriver {
    /// Sends each deadline to the lease guard, and publishes its answers, until the task is aborted.
    pub(crate) async fn send_deadlines(self: Arc<Self>, reports: watch::Sender<GuardReport>) {
        let mut deadlines = self.deadline.clone();
        loop {
            let deadline = *deadlines.borrow_and_update();
            match self.service.extend_lease(deadline).await {
                Ok(report) => {
                    self.acknowledgements.acknowledge(deadline);
                    reports.send_replace(report);
                }
                Err(failure) => {
                    error!(error = %failure, "the lease guard does not answer: sandboxes of the class store stop at their deadline");
                    sleep(GUARD_PAUSE).await;
                    continue;
                }
            }
            if deadlines.changed().await.is_err() {
                return;
            }
        }
    }

    /// Suspends sandboxes as soon as the lease is lost, until the task is aborted. The guard freezes them at
    /// the same time, and no request may reach them then, but [`Self::follow`] may be waiting for etcd.
    pub(crate) async fn suspend_when_lost(self: Arc<Self>) {
        let mut state = self.state.clone();
        loop {
            let (suspended, busy) = {
                let mut table = self.table();
                // Read under the lock of the table, so that what follows a regained lease comes later.
                let is_lost = *state.borrow_and_update() == MemberState::Lost;
                if is_lost {
                    table.learn_all(Event::LeaseLost);
                    (table.begin_suspensions(), table.busy_suspended())
                } else {
                    (Vec::new(), Vec::new())
                }
            };
            if !suspended.is_empty() || !busy.is_empty() {
                self.suspend(&suspended, &busy).await;
            }
            if state.changed().await.is_err() {
                return;
            }
        }
    }

    /// Follows what the node learns, until the task is aborted.
    pub(crate) async fn follow(self: Arc<Self>, mut reports: watch::Receiver<GuardReport>) {
        let mut state = self.state.clone();
        let now = *state.borrow_and_update();
        let connections = reports.borrow_and_update().connections;
        let mut seen =
            Seen { registration: None, history: 0, connections, not_owned: HashMap::new() };
        self.find_stopped().await;
        self.learn_state(now, &mut seen);
        self.table().learn_all(Event::Restarted);
        let mut clock = interval(TICK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.settle().await;
            tokio::select! {
                changed = state.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let now = *state.borrow_and_update();
                    self.learn_state(now, &mut seen);
                }
                changed = reports.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let report = *reports.borrow_and_update();
                    self.learn_report(report, &mut seen).await;
                }
                _ = clock.tick() => {
                    self.sync(&mut seen).await;
                    let held = self.registration();
                    self.table().retry(held);
                }
            }
        }
    }

    fn learn_state(&self, state: MemberState, seen: &mut Seen) {
        let mut table = self.table();
        match state {
            MemberState::Lost => table.learn_all(Event::LeaseLost),
            MemberState::Suspect { .. } => {}
            MemberState::Member { registration, was_declared_dead, history } => {
                if history != seen.history {
                    seen.history = history;
                    // The loss may have been too short to be seen.
                    table.learn_all(Event::LeaseLost);
                }
                if was_declared_dead && seen.registration != Some(registration) {
                    info!(%registration, "this node was declared dead: its sandboxes are compared before they continue");
                    table.learn_all(Event::DeclaredDead);
                }
                seen.registration = Some(registration);
                table.learn_all(Event::LeaseRegained { registration });
            }
        }
    }

    async fn learn_report(&self, report: GuardReport, seen: &mut Seen) {
        if report.connections != seen.connections {
            seen.connections = report.connections;
            // It may be another process, which has to learn what runs and what must not.
            self.table().learn_all(Event::Restarted);
            self.settle().await;
            info!("told another lease guard all sandboxes of the class store");
        }
        if report.stopped > 0 {
            self.find_stopped().await;
        }
    }

    async fn find_stopped(&self) {
        match self.service.stopped_by_guard().await {
            Ok(stopped) => self.table().learn_stopped(&stopped),
            Err(failure) => error!(error = %failure, "the lease guard cannot be asked"),
        }
    }

    /// Gives up what is gone, and learns who owns what is new.
    async fn sync(&self, seen: &mut Seen) {
        let new = self.table().sync(self.service.local_sandboxes());
        seen.not_owned.retain(|name, at| {
            at.elapsed() < LOOK_AGAIN && new.iter().any(|one| one.name == *name)
        });
        let new: Vec<LocalSandbox> = new
            .into_iter()
            .filter(|one| !seen.not_owned.contains_key(&one.name))
            .take(OWNERS_PER_TICK)
            .collect();
        let looked = stream::iter(new).map(|sandbox| async move {
            let owned = self.own(&sandbox).await;
            (sandbox, owned)
        });
        let looked: Vec<_> = looked.buffer_unordered(ACTIONS_AT_ONCE).collect().await;
        for (sandbox, owned) in looked {
            if let Err(reason) = owned {
                debug!(%sandbox, reason, "this node does not own it");
                seen.not_owned.insert(sandbox.name, Instant::now());
            }
        }
    }
}
