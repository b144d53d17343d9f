//! The fleet that a server has joined, and what the server remembers of it.

use crate::fleet::Fleet;
use crate::fleet::creating::CreatingRequests;
use crate::fleet::draining::Drains;
use isolet_sandbox::{SandboxId, TenantId};
use isolet_wire::node::NodeName;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many sessions, and how many snapshots, are remembered: a few MiB. When there are more, all are
/// forgotten, and other nodes are asked again.
const REMEMBERED_MAX: usize = 10_000;

/// A fleet, and where sessions and snapshots were found.
pub(crate) struct JoinedFleet {
    pub(crate) fleet: Arc<dyn Fleet>,
    /// Requests for sandboxes of this node that may create them.
    pub(crate) creating: CreatingRequests,
    /// The sandbox of each session that a path named without its sandbox.
    pub(crate) sessions: Remembered<SandboxId>,
    /// The node of each snapshot that was found on another node.
    pub(crate) snapshots: Remembered<NodeName>,
    /// The drain of this node.
    pub(crate) drains: Drains,
}

impl JoinedFleet {
    pub(crate) fn new(fleet: Arc<dyn Fleet>) -> Self {
        Self {
            fleet,
            creating: CreatingRequests::default(),
            sessions: Remembered::default(),
            snapshots: Remembered::default(),
            drains: Drains::default(),
        }
    }
}

/// Where something of a tenant was found, by its id.
pub(crate) struct Remembered<T>(Mutex<HashMap<(TenantId, String), T>>);

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Remembered<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<(TenantId, String), T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, tenant: &TenantId, id: &str) -> Option<T> {
        self.lock().get(&(tenant.clone(), id.to_owned())).cloned()
    }

    pub(crate) fn put(&self, tenant: &TenantId, id: &str, place: T) {
        let mut all = self.lock();
        if all.len() >= REMEMBERED_MAX {
            all.clear();
        }
        all.insert((tenant.clone(), id.to_owned()), place);
    }

    pub(crate) fn remove(&self, tenant: &TenantId, id: &str) {
        self.lock().remove(&(tenant.clone(), id.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_belongs_to_a_tenant() {
        let all = Remembered::<u32>::default();
        let tenant = |name: &str| TenantId::parse(name).unwrap();
        all.put(&tenant("a"), "x", 1);
        assert_eq!((all.get(&tenant("a"), "x"), all.get(&tenant("b"), "x")), (Some(1), None));
        all.remove(&tenant("a"), "x");
        assert_eq!(all.get(&tenant("a"), "x"), None);
        for n in 0..=REMEMBERED_MAX {
            all.put(&tenant("a"), &n.to_string(), 0);
        }
        assert_eq!(all.lock().len(), 1);
    }
}
