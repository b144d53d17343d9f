//! The task that renews the lease of this node.

use crate::etcd::Etcd;
use crate::membership::MemberState;
use crate::membership::directory::OwnKey;
use crate::membership::error::JoinError;
use crate::membership::register::Held;
use crate::membership::register::Registered;
use crate::membership::register::Renewal;
use crate::membership::register::holds_key;
use crate::membership::register::register;
use crate::membership::register::renew;
use crate::membership::register::write;
use crate::model::BootTime;
use crate::model::Epoch;
use crate::model::Keys;
use crate::model::LeaseDeadline;
use crate::model::NodeRecord;
use crate::model::ReportedState;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio::time::sleep_until;
use tracing::error;
use tracing::info;
use tracing::warn;

/// Renewals in the lifetime of a lease: three may fail.
const RENEWALS_PER_TTL: u32 = 4;
/// Shortest time between two renewals that only write a new load.
const LOAD_EVERY: Duration = Duration::from_secs(2);
/// After this time the record is written although it has not changed, because this node must see it
/// come back through its own watch.
const BEAT_EVERY: Duration = Duration::from_secs(10);
/// In a fleet of more nodes than this, the time is longer in proportion: every write reaches every node.
const NODES_OF_A_BEAT: usize = 100;
/// After this time a load is written although it has changed only a little.
const SMALL_CHANGE_AFTER: Duration = Duration::from_secs(60);
/// A load is written when its memory has changed by this part of the capacity.
const NOTICEABLE_PART: u64 = 32;
/// Pause after a registration failed, doubled up to the second value.
const REGISTER_PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// After this time without an acknowledgement of the lease guard, the node is suspect: the time of two
/// answers of the guard.
const UNGUARDED_AFTER: Duration = Duration::from_millis(600);
/// How often the files for TLS to etcd are compared.
const RELOAD_EVERY: Duration = Duration::from_secs(30);

/// What the task needs.
pub(super) struct LeaseTask {
    pub(super) etcd: Etcd,
    pub(super) keys: Keys,
    /// The lifetime of a new lease.
    pub(super) ttl: Duration,
    /// The lifetime of the lease that the node has.
    pub(super) granted: Duration,
    pub(super) record: watch::Receiver<Arc<NodeRecord>>,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) state: watch::Sender<MemberState>,
    pub(super) deadline: watch::Sender<LeaseDeadline>,
    /// The deadline that the lease guard has acknowledged last; `None`: there is no guard.
    pub(super) acknowledged: watch::Receiver<Option<LeaseDeadline>>,
    /// Whether the guard has not acknowledged the deadline for [`UNGUARDED_AFTER`].
    pub(super) is_unguarded: watch::Sender<bool>,
    /// This node's own key, as the watch of all nodes shows it.
    pub(super) own_key: watch::Receiver<OwnKey>,
    /// The revision at which this node has written its record last.
    pub(super) written: watch::Sender<i64>,
    /// How often etcd has gone back in time.
    pub(super) generations: watch::Receiver<u64>,
}

/// The record as it was last written.
struct Written {
    record: Arc<NodeRecord>,
    at: Instant,
}

impl LeaseTask {
    /// Runs until the membership stops. Returns the lease.
    pub(super) async fn run(mut self, registered: Registered) -> i64 {
        let mut lease = registered.lease;
        let mut written =
            Written { record: self.record.borrow_and_update().clone(), at: Instant::now() };
        let mut next = Instant::now() + self.every();
        let mut reload = Instant::now() + RELOAD_EVERY;
        loop {
            if self.wait(next, lease, &mut written).await {
                return lease;
            }
            if Instant::now() >= reload {
                reload = Instant::now() + RELOAD_EVERY;
                self.reload_tls().await;
            }
            let record = self.record.borrow_and_update().clone();
            // A record that is not valid must not cost the lease.
            let is_due = is_noticeable(&written, &record) || Instant::now() >= self.beat(&written);
            let is_due = is_due && record.value().is_ok();
            let known = *self.deadline.borrow();
            let held = Held { lease, registration: known.registration };
            let etcd = self.etcd.with_timeout(self.every());
            let write = is_due.then_some(&*record);
            let is_lost = *self.state.borrow() == MemberState::Lost;
            let renewed = async {
                // etcd may hear this node although no answer arrives. A renewal would then keep the
                // lease for ever, so that nobody could take the sandboxes over.
                if is_lost && !holds_key(&etcd, &self.keys, &record.name, held).await? {
                    return Ok(Renewal::Gone);
                }
                renew(&etcd, &self.keys, &record.name, held, write).await
            };
            match self.or_expire(renewed).await {
                // It was confirmed before the key was deleted.
                Ok(Renewal::Confirmed { .. }) if self.has_lost_key() => {
                    next = Instant::now() + self.retry();
                }
                Ok(Renewal::Confirmed { deadline, ttl, revision }) => {
                    self.granted = ttl;
                    if is_due {
                        self.written.send_replace(revision);
                        written = Written { record, at: Instant::now() };
                    }
                    self.publish(deadline, false);
                    next = Instant::now() + self.every();
                }
                Ok(Renewal::Unconfirmed) => next = Instant::now() + self.retry(),
                Err(failure) => {
                    self.failed(known, &failure);
                    next = Instant::now() + self.retry();
                }
                Ok(Renewal::Gone) => {
                    warn!(node = %record.name, "the lease of this node ended; it registers again");
                    self.state.send_replace(MemberState::Lost);
                    let Some(registered) = self.register_again().await else { return lease };
                    lease = registered.lease;
                    self.granted = registered.ttl;
                    written = Written { record: self.record.borrow().clone(), at: Instant::now() };
                    next = Instant::now() + self.every();
                }
            }
        }
    }

    /// Waits for the next renewal, a noticeable change of the record, or the end (true). There is no
    /// next renewal before the guard has acknowledged the deadline.
    async fn wait(&mut self, next: Instant, lease: i64, written: &mut Written) -> bool {
        let unguarded_at = Instant::now() + UNGUARDED_AFTER;
        loop {
            let is_acknowledged = self.is_acknowledged();
            if is_acknowledged {
                self.is_unguarded.send_replace(false);
            }
            let is_unguarded = *self.is_unguarded.borrow();
            let at = if is_noticeable(written, &self.record.borrow_and_update()) {
                next.min(written.at + LOAD_EVERY)
            } else {
                next.min(self.beat(written))
            };
            // A deadline that passes while renewals fail is published when it passes.
            let expiry = self.expiry();
            tokio::select! {
                () = sleep_until(at), if is_acknowledged => return false,
                () = sleep_until(unguarded_at), if !is_acknowledged && !is_unguarded => {
                    self.unguarded(lease, written).await;
                }
                () = is_stopped(self.stopped.clone()) => return true,
                changed = self.acknowledged.changed() => if changed.is_err() { return true },
                changed = self.own_key.changed() => {
                    if changed.is_err() {
                        return true;
                    }
                    if self.lose_key() {
                        return false;
                    }
                }
                changed = self.record.changed() => if changed.is_err() { return true },
                changed = self.generations.changed() => {
                    if changed.is_err() {
                        return true;
                    }
                    self.lose_history();
                    return false;
                }
                () = sleep_until(expiry.unwrap_or(at)), if expiry.is_some() => self.lose(),
            }
        }
    }

    /// When the record is written although it has not changed.
    fn beat(&self, written: &Written) -> Instant {
        let nodes = self.own_key.borrow().nodes.div_ceil(NODES_OF_A_BEAT).max(1);
        written.at + BEAT_EVERY * u32::try_from(nodes).unwrap_or(u32::MAX)
    }

    /// Whether the guard stops the sandboxes at the present deadline.
    fn is_acknowledged(&mut self) -> bool {
        let acknowledged = *self.acknowledged.borrow_and_update();
        acknowledged.is_none_or(|deadline| deadline == *self.deadline.borrow())
    }

    /// The guard does not acknowledge the deadline: tells the other nodes, so that they place no
    /// sandboxes here. This renews nothing.
    async fn unguarded(&mut self, lease: i64, written: &mut Written) {
        warn!("the lease guard does not answer: this node renews its lease only once it does");
        self.is_unguarded.send_replace(true);
        let registration = self.deadline.borrow().registration;
        self.become_suspect(registration);
        let mut record = NodeRecord::clone(&self.record.borrow());
        if record.state != ReportedState::Ready {
            return;
        }
        record.state = ReportedState::Suspect;
        let etcd = self.etcd.with_timeout(self.every());
        let held = Held { lease, registration };
        match self.or_expire(write(&etcd, &self.keys, held, &record)).await {
            Ok(()) => *written = Written { record: Arc::new(record), at: Instant::now() },
            Err(failure) => warn!(error = %failure, "cannot report that this node is suspect"),
        }
    }

    /// Waits for a renewal. A deadline that passes before is published when it passes, because requests
    /// must not reach sandboxes that the lease guard freezes then.
    async fn or_expire<R>(&self, renewed: impl Future<Output = R>) -> R {
        let mut renewed = pin!(renewed);
        loop {
            let expiry = self.expiry();
            let mut own_key = self.own_key.clone();
            own_key.borrow_and_update();
            let mut generations = self.generations.clone();
            generations.borrow_and_update();
            tokio::select! {
                renewed = &mut renewed => return renewed,
                Ok(()) = own_key.changed() => drop(self.lose_key()),
                Ok(()) = generations.changed() => self.lose_history(),
                () = sleep_until(expiry.unwrap_or_else(Instant::now)), if expiry.is_some() => {
                    self.lose();
                }
            }
        }
    }

    /// Whether the watch shows that the key of this node is gone.
    fn has_lost_key(&self) -> bool {
        self.own_key.borrow().has_lost(self.deadline.borrow().registration)
    }

    /// Publishes that the key of this node is gone, unless the state says so already. Returns whether
    /// it did.
    fn lose_key(&self) -> bool {
        if !self.has_lost_key() || *self.state.borrow() == MemberState::Lost {
            return false;
        }
        warn!("the lease of this node was revoked, or its key was deleted");
        self.state.send_replace(MemberState::Lost);
        true
    }

    /// When the deadline passes, unless the state says so already.
    fn expiry(&self) -> Option<Instant> {
        if *self.state.borrow() == MemberState::Lost {
            return None;
        }
        let left = self.deadline.borrow().at.since(BootTime::now());
        Some(Instant::now() + left)
    }

    fn lose_history(&self) {
        error!(
            "etcd has gone back in time: this node compares the ownership of all its sandboxes before \
             those of the class store continue"
        );
        self.state.send_replace(MemberState::Lost);
    }

    fn lose(&self) {
        error!(
            "this node could not renew its lease in time: its sandboxes of the class store are \
             frozen until it can"
        );
        self.state.send_replace(MemberState::Lost);
    }

    fn failed(&self, known: LeaseDeadline, failure: &JoinError) {
        warn!(error = %failure, "cannot renew the lease of this node");
        if BootTime::now() >= known.at {
            self.state.send_if_modified(|state| {
                let is_new = *state != MemberState::Lost;
                *state = MemberState::Lost;
                is_new
            });
        } else {
            self.become_suspect(known.registration);
        }
    }

    fn become_suspect(&self, registration: Epoch) {
        self.state.send_if_modified(|state| {
            let is_new = matches!(state, MemberState::Member { .. });
            if is_new {
                *state = MemberState::Suspect { registration };
            }
            is_new
        });
    }

    /// Publishes a deadline before the state that it allows.
    fn publish(&self, deadline: LeaseDeadline, was_declared_dead: bool) {
        self.deadline.send_replace(deadline);
        let registration = deadline.registration;
        self.state.send_if_modified(|state| {
            let history = *self.generations.borrow();
            let is_new = !matches!(
                state,
                MemberState::Member { registration: known, history: of, .. }
                    if *known == registration && *of == history
            );
            if is_new {
                *state = MemberState::Member { registration, was_declared_dead, history };
            }
            is_new
        });
    }

    /// Registers until it succeeds; `None`: the membership stops.
    async fn register_again(&mut self) -> Option<Registered> {
        let (mut pause, longest) = REGISTER_PAUSE;
        loop {
            let record = self.record.borrow_and_update().clone();
            match register(&self.etcd, &self.keys, &record, self.ttl).await {
                Ok(registered) => {
                    info!(
                        node = %record.name,
                        registration = %registered.deadline.registration,
                        was_declared_dead = registered.was_declared_dead,
                        "this node is a member again"
                    );
                    self.publish(registered.deadline, registered.was_declared_dead);
                    return Some(registered);
                }
                Err(failure) => error!(error = %failure, "this node cannot register again"),
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = is_stopped(self.stopped.clone()) => return None,
            }
            pause = longest.min(pause * 2);
            self.reload_tls().await;
        }
    }

    async fn reload_tls(&self) {
        match self.etcd.reload_tls().await {
            Ok(true) => info!("connections to etcd use new certificates"),
            Ok(false) => {}
            Err(failure) => warn!(error = %failure, "the new files for TLS to etcd are not usable"),
        }
    }

    fn every(&self) -> Duration {
        self.granted / RENEWALS_PER_TTL
    }

    fn retry(&self) -> Duration {
        self.every() / 5
    }
}

/// Waits until the membership stops.
async fn is_stopped(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Whether a record differs enough from the written one to be written now. Every write reaches every
/// node of the fleet.
fn is_noticeable(written: &Written, record: &NodeRecord) -> bool {
    let known = &written.record;
    if **known == *record {
        return false;
    }
    let limit = record.capacity.memory_mib / NOTICEABLE_PART;
    let memory = known.load.memory_reserved_mib.abs_diff(record.load.memory_reserved_mib);
    let is_small = memory <= limit
        && known.state == record.state
        && known.load.images == record.load.images
        && known.load.is_full == record.load.is_full
        && known.load.pushes_stuck == record.load.pushes_stuck
        && known.capacity == record.capacity;
    !is_small || written.at.elapsed() >= SMALL_CHANGE_AFTER
}
