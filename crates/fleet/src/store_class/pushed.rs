//! The record in etcd of the snapshots from which a sandbox of the class `store` can be restored. Its key
//! is fenced by the epoch of the owner, and is deleted when the ownership is given up.

use isolet_cluster::model::{Class, Custody, Epoch, Owner, SandboxKey};
use isolet_cluster::ownership::{Fence, Ownership, OwnershipError, Restorable, StoredNote};
use isolet_sandbox::{OwnedId, PushedSnapshot, Service, SnapshotId};
use isolet_wire::node::NodeName;
use serde::{Deserialize, Serialize};

/// The name of the fenced key.
const NAME: &str = "pushed";
/// The version of the value. A node refuses values of another one.
const VERSION: u8 = 1;
/// How many automatic snapshots stay in the store: the newest, and one to fall back to if it cannot be
/// restored.
const KEPT: usize = 2;
/// Maximum number of recorded snapshots. The oldest is dropped. There are more than [`KEPT`], because
/// one whose deletion from the store failed is named again at the next push.
const RECORDED_MAX: usize = 8;

/// One snapshot in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedSnapshot {
    pub(crate) snapshot: PushedSnapshot,
    /// The node that pushed it, and the epoch at which it owned the sandbox.
    pub(crate) node: NodeName,
    pub(crate) epoch: Epoch,
}

/// The value of the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PushedRecord {
    v: u8,
    /// The sandbox is deleted: no node restores it.
    pub(crate) is_deleted: bool,
    /// The sandbox has not run since the newest snapshot.
    pub(crate) is_final: bool,
    /// With `is_final`: what the sandbox is, for nodes that show it without restoring it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// With `is_final`: the node to which it is moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) destination: Option<NodeName>,
    /// With `is_final`, and until the restore that follows has ended: when its lifetime ends, in
    /// milliseconds since 1970. If the node is killed during that restore, nothing else says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ends_at_ms: Option<i64>,
    /// The snapshots, newest first.
    snapshots: Vec<RecordedSnapshot>,
}

impl Default for PushedRecord {
    fn default() -> Self {
        Self {
            v: VERSION,
            is_deleted: false,
            is_final: false,
            description: None,
            destination: None,
            ends_at_ms: None,
            snapshots: Vec::new(),
        }
    }
}

impl PushedRecord {
    /// The record of a sandbox; `None` if it has none.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(crate) async fn read(
        ownership: &Ownership,
        sandbox: &SandboxKey,
    ) -> Result<Option<Self>, OwnershipError> {
        let Some(stored) = ownership.read_fenced(sandbox, NAME).await? else { return Ok(None) };
        let unreadable =
            |reason: String| OwnershipError::Unreadable { sandbox: sandbox.clone(), reason };
        let record: Self = serde_json::from_slice(&stored.value)
            .map_err(|error| unreadable(format!("the record of its snapshots: {error}")))?;
        match record.v {
            VERSION => Ok(Some(record)),
            other => Err(unreadable(format!("the record of its snapshots has version {other}"))),
        }
    }

    /// Writes the record, if the fence holds.
    ///
    /// # Errors
    /// As of [`Ownership::write_fenced`].
    pub(crate) async fn write(
        &self,
        ownership: &Ownership,
        fence: &Fence,
    ) -> Result<(), OwnershipError> {
        // Strings and numbers only.
        let value = serde_json::to_vec(self).unwrap_or_default();
        ownership.write_fenced(fence, NAME, value).await
    }

    /// Adds a snapshot, after which the sandbox may have run. Returns the automatic ones that nobody
    /// needs any more.
    pub(crate) fn add(&mut self, new: RecordedSnapshot) -> Vec<SnapshotId> {
        self.is_final = false;
        self.description = None;
        self.destination = None;
        self.ends_at_ms = None;
        self.snapshots.retain(|known| known.snapshot.id != new.snapshot.id);
        self.snapshots.push(new);
        self.snapshots.sort_by_key(|one| std::cmp::Reverse(one.snapshot.created_at_ms));
        self.snapshots.truncate(RECORDED_MAX);
        self.automatic().skip(KEPT).collect()
    }

    /// Deletes the record: nothing is restored from it any more.
    ///
    /// # Errors
    /// As of [`Ownership::delete_fenced`].
    pub(crate) async fn delete(ownership: &Ownership, fence: &Fence) -> Result<(), OwnershipError> {
        ownership.delete_fenced(fence, NAME).await
    }

    /// Whether the ownership of a sandbox that its node lacks must not be given up, because it can be
    /// restored. What a move that did not happen has left of one of the class `node` does not count.
    pub(crate) fn keeps(&self, owner: &Owner) -> bool {
        let lives_on =
            owner.class == Class::Store || owner.custody != Custody::Held || self.is_final;
        lives_on && !self.restorable().is_empty()
    }

    /// Whether the sandbox can be restored, and its lifetime was over at this time, in milliseconds since
    /// 1970.
    pub(crate) fn is_over(&self, now_ms: i64) -> bool {
        !self.restorable().is_empty() && self.ends_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// The snapshots that can be restored, newest first.
    pub(crate) fn restorable(&self) -> &[RecordedSnapshot] {
        if self.is_deleted { &[] } else { &self.snapshots }
    }

    /// The snapshots that the servers took on their own account, newest first.
    pub(crate) fn automatic(&self) -> impl Iterator<Item = SnapshotId> {
        let automatic = self.snapshots.iter().filter(|one| one.snapshot.automatic);
        automatic.map(|one| one.snapshot.id.clone())
    }
}

/// Finds sandboxes that the object store has, by their record in etcd.
pub(crate) const RESTORABLE: Restorable<'static> = Restorable { name: NAME, is: is_restorable };

/// A record that cannot be read may be one of another version, and counts.
fn is_restorable(owner: Option<&Owner>, record: &[u8]) -> bool {
    let Some(owner) = owner else { return true };
    let read = serde_json::from_slice::<PushedRecord>(record).ok();
    read.filter(|read| read.v == VERSION).is_none_or(|read| read.keeps(owner))
}

/// What a sandbox leaves in etcd when its node stores it away.
pub(crate) fn note(
    service: &Service,
    sandbox: &OwnedId,
    stored: &PushedRecord,
    destination: Option<NodeName>,
) -> StoredNote {
    let description = stored.description.clone().unwrap_or_default().into_bytes();
    let ends_at_ms = ends_at_ms(service, sandbox, &description);
    StoredNote { description, destination, ends_at_ms }
}

/// When the lifetime of a sandbox with this description ends, in milliseconds since 1970. One that is paused
/// at its end sleeps on instead.
pub(crate) fn ends_at_ms(service: &Service, sandbox: &OwnedId, description: &[u8]) -> Option<i64> {
    let info = service.described(&sandbox.tenant, &sandbox.id, description)?;
    info.expires_at_ms.filter(|_| !info.pause_on_expiry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(id: usize, automatic: bool) -> RecordedSnapshot {
        let at = i64::try_from(id).unwrap();
        RecordedSnapshot {
            snapshot: PushedSnapshot {
                id: SnapshotId::parse(&format!("s{id}")).unwrap(),
                created_at_ms: at,
                pushed_at_ms: at,
                automatic,
                asleep: false,
            },
            node: NodeName::parse("a").unwrap(),
            epoch: Epoch::of_revision(7),
        }
    }

    #[test]
    fn the_newest_snapshots_stay_and_those_of_clients_are_never_unneeded() {
        let mut record = PushedRecord::default();
        for id in 1..=4 {
            assert!(record.add(snapshot(id, false)).is_empty(), "of a client");
        }
        let ids =
            |all: Vec<SnapshotId>| -> Vec<String> { all.into_iter().map(Into::into).collect() };
        assert!(record.add(snapshot(5, true)).is_empty());
        assert!(record.add(snapshot(6, true)).is_empty());
        assert_eq!(ids(record.add(snapshot(7, true))), ["s5"]);
        assert_eq!(ids(record.add(snapshot(8, true))), ["s6", "s5"], "named again");
        assert!(record.restorable().len() <= RECORDED_MAX);
        assert_eq!(record.restorable()[0], snapshot(8, true));
        record.add(snapshot(3, false));
        assert_eq!(record.restorable()[0], snapshot(8, true), "an older one is not the newest");
        let read: PushedRecord =
            serde_json::from_slice(&serde_json::to_vec(&record).unwrap()).unwrap();
        assert_eq!(read, record);
        record.is_deleted = true;
        assert!(record.restorable().is_empty());
    }
}
