//! Performs the protocol of takeovers ([`isolet_cluster::protocol`]) for the sandboxes of this node.
//!
//! Two tasks serve all sandboxes. One sends each new deadline to the lease guard. The other one
//! feeds what the node learns to [`step`](isolet_cluster::protocol::step), records the views that have
//! changed, and performs the actions: those of one sandbox one after the other, those of all at most
//! [`ACTIONS_AT_ONCE`] at once. An action that fails is not repeated at once; [`table::Table::retry`]
//! asks again at the next tick, from the view.
//!
//! | learned from | event |
//! |---|---|
//! | the state of the membership | `LeaseLost`, `LeaseRegained`, `DeclaredDead` |
//! | the answer of the guard to a deadline | `GuardExpired`; `Restarted` if it is another process |
//! | a start of the server | `Restarted` |
//! | etcd: in pages of the node's list, or one owner | `Owned`, `Compared` |
//! | the sandboxes of the server | `Delete`, `Stopped`, `Ended` |
//! | etcd: a refused write | `Outdated` |
//!
//! A sandbox of the class `store` is announced before its first process tree starts ([`Permits`]). One
//! of the class `node` runs without the protocol, which follows it within [`TICK`].
//!
//! # Layers
//!
//! `table` and `turns`, then `owners`, `perform`, `permits`, `records` and `follow`.

mod follow;
mod owners;
mod perform;
mod permits;
mod records;
mod table;
mod turns;

use crate::ownership_driver::permits::Permits;
use crate::ownership_driver::records::Records;
use crate::ownership_driver::table::Table;
use crate::ownership_driver::turns::Turns;
use isolet_cluster::membership::{Acknowledgements, MemberState, Membership};
use isolet_cluster::model::{BootTime, Class, ClusterSettings, Epoch, LeaseDeadline, SandboxKey};
use isolet_cluster::ownership::Ownership;
use isolet_sandbox::{LocalSandbox, SandboxClass, Service};
use isolet_wire::node::NodeName;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Actions of all sandboxes that are under way at once.
const ACTIONS_AT_ONCE: usize = 16;
/// How often the sandboxes of the server are compared with the table, and failed actions are
/// repeated.
const TICK: Duration = Duration::from_secs(1);

/// The views of all sandboxes of this node.
pub(crate) struct OwnershipDriver {
    service: Service,
    ownership: Ownership,
    here: NodeName,
    region: String,
    state: watch::Receiver<MemberState>,
    deadline: watch::Receiver<LeaseDeadline>,
    acknowledgements: Acknowledgements,
    table: Mutex<Table>,
    /// Sandboxes that are being moved, and to which node.
    pub(crate) destinations: Mutex<HashMap<SandboxKey, NodeName>>,
    /// Held while the record of a sandbox's snapshots is read and written again.
    recording: Turns,
}

impl OwnershipDriver {
    /// Reads the recorded views, and tells the lease guard the deadline. From then on, sandboxes of the
    /// class `store` can start. The tasks are [`Self::send_deadlines`] and [`Self::follow`].
    ///
    /// # Errors
    /// The records cannot be read, or the guard cannot be started.
    pub(crate) async fn open(
        service: &Service,
        ownership: &Ownership,
        membership: &Membership,
        settings: &ClusterSettings,
    ) -> Result<Arc<Self>, isolet_sandbox::Error> {
        let driver = Arc::new(Self {
            service: service.clone(),
            ownership: ownership.clone(),
            here: settings.node.clone(),
            region: settings.region.to_string(),
            state: membership.state(),
            deadline: membership.deadline(),
            acknowledgements: membership.acknowledgements(),
            table: Mutex::default(),
            destinations: Mutex::default(),
            recording: Turns::default(),
        });
        let stored = service.stored_ownership().await?;
        let local = service.local_sandboxes();
        driver.table().load(stored, &local);
        let deadline = *driver.deadline.borrow();
        service.extend_lease(deadline).await?;
        driver.acknowledgements.acknowledge(deadline);
        service.set_start_permits(Arc::new(Permits(Arc::clone(&driver))));
        service.set_snapshot_records(Arc::new(Records(Arc::clone(&driver))));
        Ok(driver)
    }

    /// Whether this node certainly holds its lease, by the clock.
    pub(crate) fn holds_lease(&self) -> bool {
        BootTime::now() < self.deadline.borrow().at
    }

    /// The registration to which the present deadline belongs.
    pub(crate) fn registration_of_deadline(&self) -> Epoch {
        self.deadline.borrow().registration
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of a sandbox. Ids of tenants and sandboxes always have one.
fn key(sandbox: &LocalSandbox) -> Option<SandboxKey> {
    crate::sandbox_key::key(&sandbox.tenant, &sandbox.id)
}

fn class(sandbox: &LocalSandbox) -> Class {
    match sandbox.class {
        SandboxClass::Node => Class::Node,
        SandboxClass::Store => Class::Store,
    }
}
