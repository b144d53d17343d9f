//! Deletes from the object store what sandboxes left there that were given up.
//!
//! The transaction that gives a sandbox up lists its snapshots in etcd. Who has given it up deletes them at
//! once; what fails, or what a killed server has not done, is repeated by the nodes that end stored sandboxes,
//! until the store has confirmed it.
//!
//! What nobody asked for is deleted later: the snapshots of a sandbox whose lifetime ended while only the
//! object store had it stay for [`GRACE_MS`], so that a wrong time of day costs nothing but work.

use crate::sandbox_key::owned_id;
use crate::store_class::pushed::PushedRecord;
use isolet_cluster::model::{Epoch, SandboxKey};
use isolet_cluster::ownership::{Discarded, Fence, Ownership};
use isolet_sandbox::{Service, SnapshotId, TenantId};
use serde::{Deserialize, Serialize};
use tracing::warn;

/// How long snapshots stay in the object store whose sandbox has ended by the time of day: a day.
pub(crate) const GRACE_MS: i64 = 24 * 3_600_000;
/// Deleted at once, because a client or a move asked for it.
pub(crate) const AT_ONCE: i64 = 0;
/// The version of the lists in etcd. A node leaves lists of another one.
const VERSION: u8 = 1;

/// A list in etcd.
#[derive(Serialize, Deserialize)]
struct Snapshots {
    v: u8,
    snapshots: Vec<SnapshotId>,
}

/// The list of the automatic snapshots of a sandbox that is given up; `None`: it has none.
pub(crate) fn list(
    sandbox: &SandboxKey,
    epoch: Epoch,
    stored: &PushedRecord,
    not_before_ms: i64,
) -> Option<Discarded> {
    let snapshots: Vec<SnapshotId> = stored.automatic().collect();
    if snapshots.is_empty() {
        return None;
    }
    // Strings and numbers only.
    let value = serde_json::to_vec(&Snapshots { v: VERSION, snapshots }).unwrap_or_default();
    Some(Discarded { not_before_ms, sandbox: sandbox.clone(), epoch, value })
}

/// The fence of a sandbox whose release leaves a list, if there is one.
pub(crate) fn fence(
    ownership: &Ownership,
    sandbox: &SandboxKey,
    epoch: Epoch,
    discarded: Option<&Discarded>,
) -> Fence {
    match discarded {
        Some(discarded) => ownership.fence_leaving(discarded),
        None => ownership.fence(sandbox, epoch),
    }
}

/// Deletes what a list names, in the background, because the store may be slow. If that fails, a look repeats
/// it.
pub(crate) fn begin(service: &Service, ownership: &Ownership, discarded: Option<Discarded>) {
    let Some(discarded) = discarded else { return };
    let service = service.clone();
    let ownership = ownership.clone();
    tokio::spawn(async move {
        if let Err(reason) = delete(&service, &ownership, &discarded).await {
            let sandbox = &discarded.sandbox;
            warn!(%sandbox, reason, "its snapshots are not deleted from the store yet; it is tried again");
        }
    });
}

/// Deletes what a list names, and the list.
pub(super) async fn delete(
    service: &Service,
    ownership: &Ownership,
    discarded: &Discarded,
) -> Result<(), String> {
    let read: Snapshots =
        serde_json::from_slice(&discarded.value).map_err(|error| error.to_string())?;
    if read.v != VERSION {
        return Err(format!("the list has version {}", read.v));
    }
    let Some(id) = owned_id(&discarded.sandbox) else {
        return Err("it is not the id of a sandbox".to_owned());
    };
    for snapshot in read.snapshots {
        let discarded = service.discard_stored_snapshot(&id.tenant, &snapshot).await;
        discarded.map_err(|error| error.to_string())?;
    }
    ownership.forget_discarded(discarded).await.map_err(|error| error.to_string())
}

/// Deletes snapshots from the object store in the background, because the store may be slow. One that cannot
/// be deleted is still in a record of its sandbox, or stays there.
pub(crate) fn discard(service: &Service, tenant: &TenantId, snapshots: Vec<SnapshotId>) {
    let service = service.clone();
    let tenant = tenant.clone();
    tokio::spawn(async move {
        for snapshot in snapshots {
            if let Err(error) = service.discard_stored_snapshot(&tenant, &snapshot).await {
                warn!(%tenant, %snapshot, %error, "a snapshot stays in the store");
            }
        }
    });
}
