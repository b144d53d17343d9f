//! A node: what it consists of, and how it stops.

use crate::outgoing::Outgoing;
use crate::release::Release;
use crate::reservations::Reservations;
use isolet_cluster::membership::{MemberState, Membership};
use isolet_cluster::model::{ClusterSettings, Member, Members, ReportedState, SandboxKey};
use isolet_cluster::ownership::Ownership;
use isolet_peer::PeerListener;
use isolet_sandbox::{SandboxId, Service, TenantId};
use isolet_wire::node::NodeName;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::warn;

/// How long leaving the lease to the next server may take.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// This server as a node of a fleet.
pub struct Node {
    pub(crate) settings: ClusterSettings,
    pub(crate) service: Service,
    pub(crate) ownership: Ownership,
    pub(crate) members: watch::Receiver<Members>,
    pub(crate) state: watch::Receiver<MemberState>,
    pub(crate) outgoing: Outgoing,
    pub(crate) reservations: Reservations,
    pub(crate) releases: mpsc::Sender<Release>,
    /// `None` after [`Node::stop`].
    pub(crate) membership: Mutex<Option<Membership>>,
    /// `None` once it accepts.
    pub(crate) listener: Mutex<Option<PeerListener>>,
    pub(crate) tasks: Mutex<JoinSet<()>>,
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

    /// Stops listening for other nodes, and leaves the lease to the next server of this node.
    pub async fn stop(&self) {
        lock(&self.tasks).abort_all();
        lock(&self.listener).take();
        let membership = lock(&self.membership).take();
        let Some(membership) = membership else { return };
        if timeout(STOP_WAIT, membership.stop()).await.is_err() {
            warn!("the lease of this node was not left in time; the next server continues it");
        }
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

    /// The listener, once.
    pub(crate) fn take_listener(&self) -> Option<PeerListener> {
        lock(&self.listener).take()
    }

    /// What this node knows of another one, or of itself.
    pub(crate) fn member(&self, node: &NodeName) -> Option<Member> {
        self.members.borrow().get(node).cloned()
    }
}

/// The key of a sandbox. Ids of tenants and sandboxes always have one.
pub(crate) fn key(tenant: &TenantId, sandbox: &SandboxId) -> Option<SandboxKey> {
    SandboxKey::new(tenant.as_str(), sandbox.as_str()).ok()
}
