//! Which requests to other nodes must end because the lease of the node has ended.

use isolet_cluster::model::{Members, NodeState};
use isolet_wire::node::NodeName;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A channel for each node to which requests about sandboxes of the class `store` were sent. Their
/// number is that of nodes.
#[derive(Default)]
pub(crate) struct OwnerLeases(Mutex<HashMap<NodeName, watch::Sender<bool>>>);

impl OwnerLeases {
    /// Becomes true when the node loses its lease.
    pub(crate) fn until_lost(&self, node: &NodeName) -> watch::Receiver<bool> {
        self.lock().entry(node.clone()).or_insert_with(|| watch::Sender::new(false)).subscribe()
    }

    /// Follows the nodes until the task is aborted.
    pub(crate) async fn follow(&self, mut members: watch::Receiver<Members>) {
        loop {
            self.end_lost(&members.borrow_and_update());
            if members.changed().await.is_err() {
                return;
            }
        }
    }

    fn end_lost(&self, members: &Members) {
        self.lock().retain(|node, lost| {
            let state = members.get(node).map(|member| member.state);
            let holds = matches!(state, Some(NodeState::Ready | NodeState::Suspect));
            if !holds {
                lost.send_replace(true);
            }
            holds
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeName, watch::Sender<bool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
