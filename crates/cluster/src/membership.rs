//! This node's membership in the fleet, and what it knows about the other nodes.
//!
//! A node is a member while its lease lives: `PREFIX/nodes/live/NAME` holds its record and ends with
//! the lease. The lease is renewed four times in its lifetime. Each renewal is followed by a
//! transaction that reads or writes that key, which proves two things: the key is still the one that
//! this node created, and the member of etcd that renewed the lease was not a leader that had just
//! been replaced (the terms are equal). Only then the [`LeaseDeadline`](crate::model::LeaseDeadline)
//! moves.
//!
//! | state | meaning |
//! |---|---|
//! | [`MemberState::Member`] | the lease is held |
//! | [`MemberState::Suspect`] | renewals fail, or the lease guard does not acknowledge the deadline; the deadline has not passed |
//! | [`MemberState::Lost`] | the deadline has passed, or the key is gone. The node tries to renew the lease, and registers again if it ended |
//!
//! The lease is renewed only while the process that guards sandboxes has acknowledged the deadline
//! before ([`Acknowledgements`]). So a node whose guard stands still loses its lease while its server
//! can still freeze the sandboxes itself, and its record says `suspect`.
//!
//! The node sees in its own watch that its lease was revoked or its key deleted, and does not wait
//! for its next renewal.
//!
//! A node that has lost its lease sends no renewal before etcd has answered a read: etcd may hear a
//! node that hears nothing.
//!
//! The watch of all nodes counts as silent when nothing is heard of it although its progress is asked
//! for, and when it does not report what this node has written: each node writes its record every 10 s
//! at least. Then all keys are listed and watched again.
//!
//! A server that stops leaves its lease, and the next server of the same data directory continues it
//! ([`NodeRecord::identity`](crate::model::NodeRecord::identity)), so sandboxes that outlive the
//! server are not taken over during an upgrade. A node that leaves the fleet for good ends its
//! sandboxes and calls [`Membership::leave`].

mod directory;
mod error;
mod lease;
mod operator;
mod register;
mod table;

use crate::etcd::Etcd;
use crate::model::ClusterSettings;
use crate::model::Epoch;
use crate::model::IMAGES_MAX;
use crate::model::LeaseDeadline;
use crate::model::Load;
use crate::model::Members;
use crate::model::NodeRecord;
use crate::model::ReportedState;
use directory::Suspicion;
pub use error::{JoinError, OperatorError};
use isolet_wire::node::NodeName;
use lease::LeaseTask;
pub use operator::Operator;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Maximum number of reports about unreachable nodes that wait. Further ones are dropped: the next
/// failed request repeats them.
const SUSPECTS_WAITING_MAX: usize = 64;

/// Whether this node holds its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// It does.
    Member {
        /// The registration.
        registration: Epoch,
        /// Whether the node was declared dead before it registered.
        was_declared_dead: bool,
        /// How often etcd has gone back in time since the server has started. What was known under
        /// another number is void.
        history: u64,
    },
    /// It does, but renewals fail, or the lease guard does not answer.
    Suspect {
        /// The registration.
        registration: Epoch,
    },
    /// It does not, or cannot know.
    Lost,
}

impl MemberState {
    /// The registration, unless it is lost.
    #[must_use]
    pub fn registration(self) -> Option<Epoch> {
        match self {
            Self::Member { registration, .. } | Self::Suspect { registration } => {
                Some(registration)
            }
            Self::Lost => None,
        }
    }
}

/// Where the process that guards sandboxes acknowledges deadlines.
#[derive(Debug, Clone)]
pub struct Acknowledgements(watch::Sender<Option<LeaseDeadline>>);

impl Acknowledgements {
    /// The guard stops the sandboxes at this deadline. From the first call on, the lease is renewed
    /// only while the guard has acknowledged the deadline of the renewal before.
    pub fn acknowledge(&self, deadline: LeaseDeadline) {
        self.0.send_replace(Some(deadline));
    }
}

/// The membership of this node. It ends when [`Self::stop`] or [`Self::leave`] is called, or when it
/// is dropped.
#[derive(Debug)]
pub struct Membership {
    acknowledged: Acknowledgements,
    /// Whether the lease guard has not acknowledged the deadline for too long.
    is_unguarded: watch::Receiver<bool>,
    state: watch::Receiver<MemberState>,
    deadline: watch::Receiver<LeaseDeadline>,
    members: watch::Receiver<Members>,
    record: watch::Sender<Arc<NodeRecord>>,
    suspects: mpsc::Sender<Suspicion>,
    stop: watch::Sender<bool>,
    lease: JoinHandle<i64>,
    directory: JoinHandle<()>,
    etcd: Etcd,
}

impl Membership {
    /// Registers this node and begins to renew its lease and to watch the other nodes. Returns when
    /// the node is registered and the other nodes are known.
    ///
    /// # Errors
    /// [`JoinError::NameTaken`] if another node with this name lives; [`JoinError::OtherFormat`];
    /// [`JoinError::Record`]; [`JoinError::Etcd`].
    pub async fn join(
        etcd: Etcd,
        settings: &ClusterSettings,
        record: NodeRecord,
    ) -> Result<Self, JoinError> {
        directory::check_formats(&etcd, &settings.keys, record.format).await?;
        let registered =
            register::register(&etcd, &settings.keys, &record, settings.lease_ttl).await?;
        let mut table = directory::list(&etcd, &settings.keys).await?;
        let (state_sender, state) = watch::channel(registered.state());
        let (deadline_sender, deadline) = watch::channel(registered.deadline);
        let (members_sender, members) = watch::channel(table.members(&Default::default()));
        let (record_sender, record) = watch::channel(Arc::new(record));
        let (acknowledged_sender, acknowledged) = watch::channel(None);
        let (unguarded_sender, is_unguarded) = watch::channel(false);
        let (suspects, suspects_receiver) = mpsc::channel(SUSPECTS_WAITING_MAX);
        let (written_sender, written) = watch::channel(0);
        let (own_key_sender, own_key) = watch::channel(directory::OwnKey::default());
        let (stop, stopped) = watch::channel(false);
        let lease = LeaseTask {
            etcd: etcd.clone(),
            keys: settings.keys.clone(),
            ttl: settings.lease_ttl,
            granted: registered.ttl,
            record,
            stopped: stopped.clone(),
            state: state_sender,
            deadline: deadline_sender,
            acknowledged,
            is_unguarded: unguarded_sender,
            own_key,
            written: written_sender,
            generations: etcd.generations(),
        };
        let directory = directory::DirectoryTask {
            etcd: etcd.clone(),
            keys: settings.keys.clone(),
            members: members_sender,
            own: settings.node.clone(),
            own_key: own_key_sender,
            written,
            suspects: suspects_receiver,
            suspect_for: settings.lease_ttl,
            stopped,
        };
        Ok(Self {
            acknowledged: Acknowledgements(acknowledged_sender),
            is_unguarded,
            state,
            deadline,
            members,
            record: record_sender,
            suspects,
            stop,
            lease: tokio::spawn(lease.run(registered)),
            directory: tokio::spawn(directory.run(table)),
            etcd,
        })
    }

    /// Whether this node holds its lease, now and whenever that changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<MemberState> {
        self.state.clone()
    }

    /// Until when this node certainly holds its lease. The process that guards sandboxes gets each
    /// new value.
    #[must_use]
    pub fn deadline(&self) -> watch::Receiver<LeaseDeadline> {
        self.deadline.clone()
    }

    /// Where the process that guards sandboxes acknowledges each deadline.
    #[must_use]
    pub fn acknowledgements(&self) -> Acknowledgements {
        self.acknowledged.clone()
    }

    /// All nodes, now and whenever one changes.
    #[must_use]
    pub fn members(&self) -> watch::Receiver<Members> {
        self.members.clone()
    }

    /// Reports the load. It is written soon if it has changed noticeably. Of the images, the first
    /// [`IMAGES_MAX`] are reported.
    pub fn set_load(&self, mut load: Load) {
        load.images.truncate(IMAGES_MAX);
        self.record.send_modify(|record| Arc::make_mut(record).load = load);
    }

    /// What this node reports about itself.
    #[must_use]
    pub fn reported(&self) -> ReportedState {
        match self.record.borrow().state {
            ReportedState::Ready if *self.is_unguarded.borrow() => ReportedState::Suspect,
            state => state,
        }
    }

    /// Reports whether this node accepts sandboxes. It is written at once.
    pub fn set_state(&self, state: ReportedState) {
        self.record.send_modify(|record| Arc::make_mut(record).state = state);
    }

    /// Marks a node as suspect: a request to it failed. The mark ends with the node's next record or
    /// after the lifetime of a lease. The node's key is read, because the watch may not have reported
    /// its end; the returned channel ends when [`Self::members`] has what was read, or if it cannot be
    /// read.
    pub fn suspect(&self, node: &NodeName) -> oneshot::Receiver<()> {
        let (answer, answered) = oneshot::channel();
        let _ = self.suspects.try_send(Suspicion { node: node.clone(), answer });
        answered
    }

    /// Stops renewing the lease and leaves it, so that the next server of this node continues it.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let _ = (&mut self.lease).await;
        let _ = (&mut self.directory).await;
    }

    /// Ends the lease. All sandboxes of this node must have ended before: others may take them over
    /// from then on.
    ///
    /// # Errors
    /// [`JoinError::Etcd`]: the lease ends with its lifetime.
    pub async fn leave(mut self) -> Result<(), JoinError> {
        self.stop.send_replace(true);
        let lease = (&mut self.lease).await.unwrap_or_default();
        let _ = (&mut self.directory).await;
        Ok(self.etcd.revoke_lease(lease).await?)
    }
}

/// Both tasks end with their owner.
impl Drop for Membership {
    fn drop(&mut self) {
        self.lease.abort();
        self.directory.abort();
    }
}

/// The part of a lease's lifetime by which the deadline is earlier: for clocks that run at different
/// speeds, and for the time that freezing takes.
fn margin(ttl: Duration) -> Duration {
    ttl / 10
}
