//! A node: what it consists of, and how it stops.

mod webhook_records;

use crate::listener;
use crate::nodes::Nodes;
use crate::outgoing::Outgoing;
use crate::outgoing::owner_leases::OwnerLeases;
use crate::ownership_driver::OwnershipDriver;
use crate::release::Release;
use crate::replication::Replication;
use crate::reservations::Reservations;
use crate::store_class::restorer::Restorer;
use isolet_cluster::membership::{MemberState, Membership};
use isolet_cluster::model::{ClusterSettings, Member, Members, ReportedState};
use isolet_cluster::ownership::Ownership;
use isolet_http::fleet::PeerHandler;
use isolet_peer::PeerListener;
use isolet_sandbox::Service;
use isolet_wire::node::NodeName;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// How long requests of other nodes may take after the server was asked to stop.
const DRAIN_WAIT: Duration = Duration::from_secs(2);
/// How long a request waits for the key of a node in etcd that it could not reach.
const SUSPECT_WAIT: Duration = Duration::from_secs(2);
/// How long leaving the lease to the next server may take.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// This server as a node of a fleet.
pub struct Node {
    pub(crate) settings: ClusterSettings,
    pub(crate) service: Service,
    pub(crate) ownership: Ownership,
    pub(crate) nodes: Nodes,
    pub(crate) members: watch::Receiver<Members>,
    pub(crate) state: watch::Receiver<MemberState>,
    pub(crate) outgoing: Outgoing,
    pub(crate) replication: Replication,
    pub(crate) reservations: Reservations,
    /// Whether the log has said that the clock of this node does not agree with that of the object store.
    pub(crate) clock_disagrees: AtomicBool,
    pub(crate) driver: Arc<OwnershipDriver>,
    pub(crate) owner_leases: Arc<OwnerLeases>,
    pub(crate) restorer: Arc<Restorer>,
    pub(crate) releases: mpsc::Sender<Release>,
    /// `None` after [`Node::stop`].
    pub(crate) membership: Mutex<Option<Membership>>,
    /// `None` once it accepts.
    pub(crate) listener: Mutex<Option<PeerListener>>,
    pub(crate) tasks: Mutex<JoinSet<()>>,
    /// The task that answers requests of other nodes.
    pub(crate) serving: Mutex<Option<JoinHandle<()>>>,
    pub(crate) stopped: CancellationToken,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    /// Reports that this node accepts no more sandboxes, because the server is about to stop.
    pub fn stopping(&self) {
        if let Some(membership) = &*lock(&self.membership) {
            membership.set_state(ReportedState::Stopping);
        }
    }

    /// Stops listening for other nodes, waits for their requests that are under way, and leaves the
    /// lease to the next server of this node.
    pub async fn stop(&self) {
        lock(&self.listener).take();
        self.stopped.cancel();
        let serving = lock(&self.serving).take();
        if let Some(mut serving) = serving
            && timeout(DRAIN_WAIT, &mut serving).await.is_err()
        {
            warn!("requests of other nodes did not end in time");
            serving.abort();
        }
        lock(&self.tasks).abort_all();
        self.replication.stop();
        let membership = lock(&self.membership).take();
        let Some(membership) = membership else { return };
        if timeout(STOP_WAIT, membership.stop()).await.is_err() {
            warn!("the lease of this node was not left in time; the next server continues it");
        }
    }

    /// Answers requests of other nodes, and accepts sandboxes. Returns whether that has begun.
    pub(crate) fn begin_serving(&self, handler: PeerHandler) -> bool {
        let Some(listener) = lock(&self.listener).take() else { return false };
        let serving = listener::serve(listener, handler, self.stopped.clone());
        *lock(&self.serving) = Some(tokio::spawn(serving));
        self.with_membership(|membership| membership.set_state(ReportedState::Ready));
        true
    }

    /// Runs a task until the node stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.tasks).spawn(task);
    }

    /// Calls a function of the membership, unless the node has stopped.
    pub(crate) fn with_membership(&self, call: impl FnOnce(&Membership)) {
        if let Some(membership) = &*lock(&self.membership) {
            call(membership);
        }
    }

    /// Marks a node as suspect that cannot be reached, and waits until its key was read.
    pub(crate) async fn suspect(&self, node: &NodeName) {
        let mut read = None;
        self.with_membership(|membership| read = Some(membership.suspect(node)));
        if let Some(read) = read {
            // It ends without an answer if the key cannot be read.
            let _ = timeout(SUSPECT_WAIT, read).await;
        }
    }

    /// All nodes, with what this node reports now.
    pub(crate) fn current_members(&self) -> Members {
        let mut members = self.members.borrow().clone();
        if let Some(membership) = &*lock(&self.membership) {
            let is_full = self.service.is_full();
            members = members.with_reported(&self.settings.node, membership.reported(), is_full);
        }
        members
    }

    /// What this node knows of another one, or of itself.
    pub(crate) fn member(&self, node: &NodeName) -> Option<Member> {
        self.members.borrow().get(node).cloned()
    }
}
