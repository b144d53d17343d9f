//! What the server needs as a node of a fleet. A server that is none has nothing of it.

use crate::live::entry::SandboxEntry;
use crate::live::launch_queue::lease_guard::Guard;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::ids::{SandboxId, TenantId};
use crate::model::info::class::SandboxClass;
use crate::model::info::ownership::{
    Departed, IdClaims, LocalSandbox, NotRecorded, SnapshotRecords, StartPermits,
};
use isolet_wire::lease::Epoch;
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;
use tracing::warn;

/// Why a sandbox of the class `store` does not run on a server outside of a fleet.
const NO_FLEET: &str = "its class is store, and this server is no node of a fleet: it may run on \
                        another node; configure [cluster] again, or delete the data of this server";
/// Why a sandbox does not run before its node has joined the fleet.
const NOT_JOINED: &str = "this node has not joined its fleet yet";
/// Why a suspended sandbox does not run.
const LEASE_LOST: &str = "its node lost its lease, and another node may own it now";

/// The guard, and who decides about starts.
#[derive(Default)]
pub(crate) struct Ownership {
    /// `None`: the server is no node of a fleet.
    pub(crate) guard: Option<Arc<Guard>>,
    pub(crate) permits: OnceLock<Arc<dyn StartPermits>>,
    pub(crate) claims: OnceLock<Arc<dyn IdClaims>>,
    pub(crate) records: OnceLock<Arc<dyn SnapshotRecords>>,
    /// Learns which sandboxes were evicted.
    pub(crate) evictions: OnceLock<mpsc::Sender<Departed>>,
}

impl Ownership {
    pub(crate) fn new(guard: Option<Arc<Guard>>) -> Self {
        Self { guard, ..Self::default() }
    }

    /// Makes this node the owner of sandboxes that are about to be created.
    ///
    /// # Errors
    /// Those of [`IdClaims::claim`].
    pub(crate) async fn claim(&self, tenant: &TenantId, ids: &[SandboxId]) -> Result<(), Error> {
        match self.claims.get() {
            Some(claims) => claims.claim(tenant, ids).await,
            None if self.guard.is_none() => Ok(()),
            None => Err(Error::FleetUnavailable { reason: NOT_JOINED.to_owned() }),
        }
    }

    /// Gives up the ownership of those that were not created.
    pub(crate) fn settle(&self, tenant: &TenantId, ids: &[SandboxId]) {
        if let Some(claims) = self.claims.get() {
            claims.settle(tenant, ids);
        }
    }

    /// Whether a process tree of the sandbox may start; for the class `store`, the registration that
    /// the guard compares.
    ///
    /// # Errors
    /// [`Error::Suspended`].
    pub(crate) async fn permit(&self, entry: &SandboxEntry) -> Result<Option<Epoch>, Error> {
        let sandbox = entry.local();
        if sandbox.class == SandboxClass::Node {
            return if entry.is_suspended() { Err(suspended(entry)) } else { Ok(None) };
        }
        let refused = |reason: String| Error::Suspended { id: entry.id.clone(), reason };
        if self.guard.is_none() {
            return Err(refused(NO_FLEET.to_owned()));
        }
        let Some(permits) = self.permits.get() else {
            return Err(refused(NOT_JOINED.to_owned()));
        };
        let registration = permits.permit(&sandbox).await.map_err(refused)?;
        Ok(Some(registration))
    }
}

impl Ownership {
    /// Records in the fleet that a sandbox is deleted, before anything of it is removed. Does nothing
    /// for one of the class `node`, which no other node restores, unless it was moved.
    ///
    /// # Errors
    /// [`Error::Suspended`] if another node owns it, [`Error::NotRecorded`].
    pub(crate) async fn deleted(&self, entry: &SandboxEntry) -> Result<(), Error> {
        let sandbox = entry.local();
        let Some(records) = self.records.get() else { return Ok(()) };
        // One that was moved here may still have the snapshot with which it came.
        let was_moved = entry.view().record.body.restored_from.is_some();
        if sandbox.class == SandboxClass::Node && !was_moved {
            return Ok(());
        }
        records.deleted(&sandbox).await.map_err(|failure| not_recorded(entry, failure))
    }

    /// Records in the fleet that the snapshot in the object store has everything of a sandbox.
    ///
    /// # Errors
    /// [`Error::Suspended`] if another node owns it, [`Error::NotRecorded`].
    pub(crate) async fn departs(
        &self,
        entry: &SandboxEntry,
        description: &str,
    ) -> Result<(), Error> {
        let sandbox = entry.local();
        let Some(records) = self.records.get() else {
            // A server that starts ends what left before it has joined, and one whose table `[cluster]`
            // was removed keeps it.
            let reason = NOT_JOINED.to_owned();
            return Err(Error::NotRecorded { id: entry.id.clone(), reason });
        };
        let recorded = records.departs(&sandbox, description).await;
        recorded.map_err(|failure| not_recorded(entry, failure))
    }

    /// Checks that the departure of a sandbox can be written to the records of the fleet.
    ///
    /// # Errors
    /// [`Error::NotMovable`] if the server is no node of a fleet, [`Error::Suspended`],
    /// [`Error::NotRecorded`].
    pub(crate) async fn check_records(&self, entry: &SandboxEntry) -> Result<(), Error> {
        let Some(records) = self.records.get() else {
            let reason = "this server is no node of a fleet".to_owned();
            return Err(Error::NotMovable { id: entry.id.clone(), reason });
        };
        let checked = records.check(&entry.local()).await;
        checked.map_err(|failure| not_recorded(entry, failure))
    }

    /// Tells the lease guard that nothing of a sandbox runs any more. If that fails, the driver of the
    /// fleet's protocol repeats it.
    pub(crate) async fn ended(&self, entry: &SandboxEntry) {
        let is_guarded = entry.local().class == SandboxClass::Store || entry.is_suspended();
        let Some(guard) = self.guard.clone().filter(|_| is_guarded) else { return };
        let name = entry.name.clone();
        let released = blocking(move || guard.release(&name)).await;
        if !matches!(released, Ok(Ok(()))) {
            warn!(sandbox = %entry.id, ?released, "the lease guard does not know that it has ended");
        }
    }
}

/// The error of a call whose effect the fleet does not know.
pub(crate) fn not_recorded(entry: &SandboxEntry, failure: NotRecorded) -> Error {
    let id = entry.id.clone();
    match failure {
        NotRecorded::Superseded(reason) => Error::Suspended { id, reason },
        NotRecorded::Unavailable(reason) => Error::NotRecorded { id, reason },
    }
}

/// The error of requests for a suspended sandbox.
pub(crate) fn suspended(entry: &SandboxEntry) -> Error {
    Error::Suspended { id: entry.id.clone(), reason: LEASE_LOST.to_owned() }
}

impl SandboxEntry {
    /// The sandbox as the driver of the fleet's protocol knows it.
    pub(crate) fn local(&self) -> LocalSandbox {
        LocalSandbox {
            tenant: self.tenant.clone(),
            id: self.id.clone(),
            name: self.name.clone(),
            class: self.view.borrow().record.body.class,
        }
    }
}
