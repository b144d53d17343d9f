//! The record in etcd of the snapshots from which a sandbox of the class `store` can be restored. Its key
//! is fenced by the epoch of the owner, and is deleted when the ownership is given up.
//!
//! Its order is that in which the owners recorded the snapshots: by epoch, which fences the writes, and within an
//! epoch by the number that the server of the sandbox gave each snapshot. Times are for people: clocks of nodes
//! differ.
//!
//! The record is the truth: the newest snapshot without a [`Mark`] is the one that is restored, whatever the
//! object store answers. An older one is used only after a newer one got a mark, which happens when a client or
//! a server deletes the newer one, or when the tenant calls for the older one.

use isolet_cluster::model::{Class, Custody, Epoch, Owner, SandboxKey};
use isolet_cluster::ownership::{Fence, Fenced, Ownership, OwnershipError, Restorable, StoredNote};
use isolet_sandbox::{KnownPushes, OwnedId, PushedSnapshot, Service, SnapshotId};
use isolet_wire::node::NodeName;
use serde::{Deserialize, Serialize};

/// The name of the fenced key.
const NAME: &str = "pushed";
/// The version of the value. A node refuses values of another one.
const VERSION: u8 = 1;
/// How many automatic snapshots stay in the store: the newest, and one for which the tenant can call.
const KEPT: usize = 2;
/// Maximum number of recorded snapshots that were not skipped. The oldest is dropped, a deleted one first. There
/// are more than [`KEPT`], because one whose deletion from the store failed is named again at the next push.
const RECORDED_MAX: usize = 8;
/// Maximum number of skipped snapshots. They are never dropped.
const SKIPPED_MAX: usize = 16;
/// How often a change of the record is tried, because another node or task has changed it in the meantime.
const CHANGES_MAX: usize = 16;

/// Why a recorded snapshot is not the one that is restored, although it may be the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mark {
    /// A tombstone: it is deleted from the store, by a client or because there are newer ones.
    Deleted,
    /// The tenant has called for an older one. It stays in the store until it or the sandbox is deleted.
    Skipped,
}

/// One snapshot in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedSnapshot {
    pub(crate) snapshot: PushedSnapshot,
    /// The node that pushed it, and the epoch at which it owned the sandbox.
    pub(crate) node: NodeName,
    pub(crate) epoch: Epoch,
    /// The internal name of the sandbox on that node. Numbers of one name are comparable.
    pub(crate) incarnation: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<Mark>,
}

/// From what a sandbox was restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) snapshot: SnapshotId,
    pub(crate) epoch: Epoch,
}

/// The value of the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PushedRecord {
    v: u8,
    /// The sandbox is deleted: no node restores it.
    pub(crate) is_deleted: bool,
    /// With `is_deleted`: its internal name on its node. A later one with its id has another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted_incarnation: Option<String>,
    /// From what the sandbox was restored last, and the epoch of the node that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<Base>,
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
            deleted_incarnation: None,
            base: None,
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
        let stored = ownership.read_fenced(sandbox, NAME).await?;
        stored.map(|stored| Self::parse(sandbox, &stored)).transpose()
    }

    fn parse(sandbox: &SandboxKey, stored: &Fenced) -> Result<Self, OwnershipError> {
        let unreadable =
            |reason: String| OwnershipError::Unreadable { sandbox: sandbox.clone(), reason };
        let record: Self = serde_json::from_slice(&stored.value)
            .map_err(|error| unreadable(format!("the record of its snapshots: {error}")))?;
        match record.v {
            VERSION => Ok(record),
            other => Err(unreadable(format!("the record of its snapshots has version {other}"))),
        }
    }

    /// Changes the record, if the fence holds. `change` gets the present one, if there is one, and returns
    /// `None` if nothing is to be written; it is called again when another node or task has written in the
    /// meantime, so that no mark is lost.
    ///
    /// # Errors
    /// As of [`Ownership::replace_fenced`]; the record cannot be read, or changes too quickly.
    pub(crate) async fn change<T>(
        ownership: &Ownership,
        fence: &Fence,
        mut change: impl FnMut(Option<Self>) -> Option<(Self, T)>,
    ) -> Result<Option<T>, OwnershipError> {
        let sandbox = fence.sandbox();
        for _ in 0..CHANGES_MAX {
            let stored = ownership.read_fenced(sandbox, NAME).await?;
            let revision = stored.as_ref().map(|stored| stored.revision);
            let present = stored.map(|stored| Self::parse(sandbox, &stored)).transpose()?;
            let Some((changed, outcome)) = change(present) else { return Ok(None) };
            // Strings and numbers only.
            let value = serde_json::to_vec(&changed).unwrap_or_default();
            if ownership.replace_fenced(fence, NAME, value, revision).await? {
                return Ok(Some(outcome));
            }
        }
        let reason = "the record of its snapshots changes too quickly".to_owned();
        Err(OwnershipError::Unreadable { sandbox: sandbox.clone(), reason })
    }

    /// Adds a snapshot, after which the sandbox may have run. Returns the automatic ones that nobody
    /// needs any more.
    pub(crate) fn add(&mut self, new: RecordedSnapshot) -> Vec<SnapshotId> {
        if self.is_deleted && self.deleted_incarnation.as_ref() != Some(&new.incarnation) {
            // It continues the ownership of a deleted sandbox with the same id.
            let of_deleted: Vec<SnapshotId> = self.automatic().collect();
            *self = Self::default();
            self.add(new);
            return of_deleted;
        }
        self.is_final = false;
        self.description = None;
        self.destination = None;
        self.ends_at_ms = None;
        self.snapshots.retain(|known| known.snapshot.id != new.snapshot.id);
        // Only the present owner records, so all others are older, but for its own with a higher number.
        let later = |one: &RecordedSnapshot| {
            let is_own = one.epoch == new.epoch && one.incarnation == new.incarnation;
            is_own && one.snapshot.number > new.snapshot.number
        };
        let index = self.snapshots.iter().rposition(later).map_or(0, |last| last + 1);
        self.snapshots.insert(index, new);
        let kept =
            self.snapshots.iter_mut().filter(|one| one.snapshot.automatic && one.mark.is_none());
        kept.skip(KEPT).for_each(|one| one.mark = Some(Mark::Deleted));
        self.drop_oldest();
        let deleted = self.snapshots.iter().filter(|one| one.snapshot.automatic);
        let deleted = deleted.filter(|one| one.mark == Some(Mark::Deleted));
        deleted.map(|one| one.snapshot.id.clone()).collect()
    }

    fn drop_oldest(&mut self) {
        let count = |all: &[RecordedSnapshot]| {
            all.iter().filter(|one| one.mark != Some(Mark::Skipped)).count()
        };
        while count(&self.snapshots) > RECORDED_MAX {
            let oldest = |mark| self.snapshots.iter().rposition(|one| one.mark == mark);
            let Some(index) = oldest(Some(Mark::Deleted)).or_else(|| oldest(None)) else { return };
            self.snapshots.remove(index);
        }
    }

    /// Whether the record names a push of this epoch that the server does not know which has the sandbox under
    /// this internal name: its disk, or its data directory, is an earlier one.
    pub(crate) fn has_unknown(&self, epoch: Epoch, incarnation: &str, known: &KnownPushes) -> bool {
        for one in self.snapshots.iter().filter(|one| one.epoch == epoch) {
            if one.incarnation == incarnation {
                return one.snapshot.number > known.number;
            }
            // Of a restore at the same epoch, after which this one was restored: from that snapshot.
            if one.mark.is_none() {
                return known.last.as_ref() != Some(&one.snapshot.id);
            }
        }
        false
    }

    /// Records that the sandbox with this internal name is deleted.
    pub(crate) fn delete_sandbox(&mut self, incarnation: &str) {
        self.is_deleted = true;
        self.deleted_incarnation = Some(incarnation.to_owned());
    }

    /// Marks a snapshot as deleted. Returns whether the record names it.
    pub(crate) fn forget(&mut self, snapshot: &SnapshotId) -> bool {
        let found = self.snapshots.iter_mut().find(|one| one.snapshot.id == *snapshot);
        found.map(|one| one.mark = Some(Mark::Deleted)).is_some()
    }

    /// Makes a snapshot the one that is restored, because the tenant has called for it. Returns whether that is
    /// possible: the record names it, and it is not deleted.
    pub(crate) fn call_for(&mut self, snapshot: &SnapshotId) -> bool {
        let found = self.snapshots.iter().position(|one| one.snapshot.id == *snapshot);
        let Some(index) = found.filter(|index| self.snapshots[*index].mark != Some(Mark::Deleted))
        else {
            return false;
        };
        let newer = self.snapshots[..index].iter().filter(|one| one.mark != Some(Mark::Deleted));
        let older = self.snapshots[index + 1..].iter();
        let skipped = older.filter(|one| one.mark == Some(Mark::Skipped)).count() + newer.count();
        if self.is_deleted || skipped > SKIPPED_MAX {
            return false;
        }
        self.snapshots[index].mark = None;
        for one in &mut self.snapshots[..index] {
            one.mark.get_or_insert(Mark::Skipped);
        }
        true
    }

    /// Whether nothing newer than this snapshot was pushed, apart from what the servers do not need.
    pub(crate) fn is_newest(&self, snapshot: &SnapshotId) -> bool {
        self.snapshots.first().is_some_and(|newest| newest.snapshot.id == *snapshot)
    }

    /// The skipped snapshots that are newer than this one, newest first.
    pub(crate) fn skipped_after(&self, snapshot: &SnapshotId) -> Vec<SnapshotId> {
        let newer = self.snapshots.iter().take_while(|one| one.snapshot.id != *snapshot);
        let skipped = newer.filter(|one| one.mark == Some(Mark::Skipped));
        skipped.map(|one| one.snapshot.id.clone()).collect()
    }

    /// The ids of the snapshots that the tenant has skipped, newest first.
    pub(crate) fn skipped(&self) -> Vec<SnapshotId> {
        let skipped = self.snapshots.iter().filter(|one| one.mark == Some(Mark::Skipped));
        skipped.map(|one| one.snapshot.id.clone()).collect()
    }

    /// The snapshots for which the tenant can call instead of the one that is restored, newest first.
    pub(crate) fn others(&self) -> Vec<&SnapshotId> {
        let there = self.snapshots.iter().filter(|one| one.mark != Some(Mark::Deleted));
        let restored = self.restorable().map(|one| &one.snapshot.id);
        there.map(|one| &one.snapshot.id).filter(|id| Some(*id) != restored).collect()
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
        lives_on && self.names_any()
    }

    /// Whether the sandbox is not deleted, and snapshots of it were pushed, which may be deleted since.
    pub(crate) fn names_any(&self) -> bool {
        !self.is_deleted && !self.snapshots.is_empty()
    }

    /// Whether the sandbox is not deleted, and the store has a snapshot of it, if only one that was skipped.
    pub(crate) fn has_any(&self) -> bool {
        let is_there = |one: &RecordedSnapshot| one.mark != Some(Mark::Deleted);
        !self.is_deleted && self.snapshots.iter().any(is_there)
    }

    /// Whether the sandbox can be restored, and its lifetime was over at this time, in milliseconds since
    /// 1970.
    pub(crate) fn is_over(&self, now_ms: i64) -> bool {
        self.names_any() && self.ends_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// The snapshot that is restored: the newest one without a mark.
    pub(crate) fn restorable(&self) -> Option<&RecordedSnapshot> {
        let is_deleted = self.is_deleted;
        self.snapshots.iter().find(|one| one.mark.is_none()).filter(|_| !is_deleted)
    }

    /// The snapshots that the servers took on their own account, newest first, also those with a mark.
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
    use proptest::prelude::*;
    use proptest::sample::Index;

    fn snapshot(id: usize, automatic: bool) -> RecordedSnapshot {
        let at = i64::try_from(id).unwrap();
        RecordedSnapshot {
            snapshot: PushedSnapshot {
                id: SnapshotId::parse(&format!("s{id}")).unwrap(),
                number: id as u64,
                created_at_ms: at,
                pushed_at_ms: at,
                automatic,
                asleep: false,
            },
            node: NodeName::parse("a").unwrap(),
            epoch: Epoch::of_revision(7),
            incarnation: "one".to_owned(),
            mark: None,
        }
    }

    fn ids(all: Vec<SnapshotId>) -> Vec<String> {
        all.into_iter().map(Into::into).collect()
    }

    fn restored(record: &PushedRecord) -> Option<&str> {
        record.restorable().map(|one| one.snapshot.id.as_str())
    }

    #[test]
    fn the_newest_snapshots_stay_and_those_of_clients_are_never_unneeded() {
        let mut record = PushedRecord::default();
        for id in 1..=4 {
            assert!(record.add(snapshot(id, false)).is_empty(), "of a client");
        }
        assert!(record.add(snapshot(5, true)).is_empty());
        assert!(record.add(snapshot(6, true)).is_empty());
        assert_eq!(ids(record.add(snapshot(7, true))), ["s5"]);
        assert_eq!(ids(record.add(snapshot(8, true))), ["s6", "s5"], "named again");
        assert!(record.snapshots.len() <= RECORDED_MAX);
        assert_eq!(record.restorable(), Some(&snapshot(8, true)));
        record.add(snapshot(3, false));
        assert_eq!(restored(&record), Some("s8"), "an older one is not the newest");
        let read: PushedRecord =
            serde_json::from_slice(&serde_json::to_vec(&record).unwrap()).unwrap();
        assert_eq!(read, record);
        record.is_deleted = true;
        assert_eq!(record.restorable(), None);
    }

    #[test]
    fn an_older_snapshot_is_restored_only_after_a_newer_one_was_deleted_or_skipped() {
        let id = |id: usize| snapshot(id, true).snapshot.id;
        let mut record = PushedRecord::default();
        for at in 1..=3 {
            record.add(snapshot(at, at != 2));
        }
        assert_eq!(restored(&record), Some("s3"));
        assert!(record.forget(&id(3)) && !record.forget(&id(9)));
        assert_eq!(restored(&record), Some("s2"), "the record has a tombstone of the newest");
        assert!(!record.call_for(&id(3)) && !record.call_for(&id(9)), "deleted, and unknown");
        assert!(record.call_for(&id(1)));
        assert_eq!((restored(&record), ids(record.skipped())), (Some("s1"), vec!["s2".to_owned()]));
        // Later pushes neither delete nor drop what was skipped.
        for at in 4..=30 {
            let unneeded = record.add(snapshot(at, true));
            assert!(!unneeded.contains(&id(2)) && record.snapshots.len() <= RECORDED_MAX + 1);
        }
        assert_eq!(
            (restored(&record), ids(record.skipped())),
            (Some("s30"), vec!["s2".to_owned()])
        );
        assert!(record.call_for(&id(2)) && record.skipped().contains(&id(30)));
        assert_eq!(restored(&record), Some("s2"), "it is there");
        assert!(record.forget(&id(2)));
        assert_eq!(restored(&record), None);
        assert!(record.has_any(), "what was skipped can be called for");
    }

    #[test]
    fn a_sandbox_with_the_id_of_a_deleted_one_has_a_record_of_its_own() {
        let mut record = PushedRecord::default();
        record.add(snapshot(1, true));
        record.delete_sandbox("one");
        record.add(snapshot(2, true));
        assert_eq!(restored(&record), None, "a push that was under way when it was deleted");
        let next = RecordedSnapshot { incarnation: "two".to_owned(), ..snapshot(3, true) };
        assert_eq!(ids(record.add(next)), ["s2", "s1"], "nobody needs those of the deleted one");
        assert_eq!(restored(&record), Some("s3"));
    }

    #[test]
    fn a_push_that_the_server_does_not_know_is_found() {
        let known = |number, last: usize| KnownPushes {
            number,
            last: Some(snapshot(last, true).snapshot.id),
        };
        let mut record = PushedRecord::default();
        record.add(snapshot(3, true));
        let epoch = Epoch::of_revision(7);
        assert!(!record.has_unknown(epoch, "one", &known(3, 2)), "the server was just killed");
        assert!(!record.has_unknown(epoch, "one", &known(5, 3)), "later ones are not pushed yet");
        assert!(record.has_unknown(epoch, "one", &known(2, 2)), "its disk is an earlier one");
        assert!(
            !record.has_unknown(Epoch::of_revision(9), "one", &known(2, 2)),
            "of an owner before"
        );
        assert!(!record.has_unknown(epoch, "two", &known(0, 3)), "restored from it");
        assert!(record.has_unknown(epoch, "zero", &known(9, 2)), "of before that restore");
        // Its own last push was deleted by a client.
        record.add(RecordedSnapshot { incarnation: "two".to_owned(), ..snapshot(4, true) });
        record.forget(&snapshot(4, true).snapshot.id);
        assert!(!record.has_unknown(epoch, "two", &known(4, 4)));
    }

    /// What happens to a sandbox.
    #[derive(Debug, Clone)]
    enum Step {
        /// Another node takes it over, or its node restores it again, with or without a new epoch.
        Restore { renews: bool },
        /// Its node takes a snapshot, which has the time of any clock.
        Take { at_ms: i64, automatic: bool },
        /// One of the snapshots that its node has taken is recorded.
        Record(Index),
        /// A client deletes a recorded one.
        Forget(Index),
        /// The tenant calls for a recorded one.
        Call(Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        let take = (any::<i64>(), any::<bool>());
        prop_oneof![
            1 => any::<bool>().prop_map(|renews| Step::Restore { renews }),
            3 => take.prop_map(|(at_ms, automatic)| Step::Take { at_ms, automatic }),
            3 => any::<Index>().prop_map(Step::Record),
            1 => any::<Index>().prop_map(Step::Forget),
            1 => any::<Index>().prop_map(Step::Call),
        ]
    }

    proptest! {
        /// The newest is the one with the highest epoch, restore and number, whatever the clocks say, and in
        /// whatever order one owner records its own.
        /// Promises: FL39.
        #[test]
        fn what_is_restored_depends_on_no_clock(steps in prop::collection::vec(step(), 1..120)) {
            let mut record = PushedRecord::default();
            let mut epoch = 1;
            let mut restore = 0_u64;
            let mut number = 0_u64;
            let mut next = 0_usize;
            let mut taken: Vec<RecordedSnapshot> = Vec::new();
            // By epoch, restore and number.
            let mut recorded: Vec<((i64, u64, u64), SnapshotId)> = Vec::new();
            let mut unusable: std::collections::HashSet<SnapshotId> = Default::default();
            for step in steps {
                match step {
                    Step::Restore { renews } => {
                        epoch += i64::from(renews);
                        restore += 1;
                        number = 0;
                        taken.clear();
                    }
                    Step::Take { at_ms, automatic } => {
                        number += 1;
                        next += 1;
                        let mut new = snapshot(next, automatic);
                        new.snapshot.number = number;
                        new.snapshot.created_at_ms = at_ms;
                        new.epoch = Epoch::of_revision(epoch);
                        new.incarnation = format!("restore-{restore}");
                        taken.push(new);
                    }
                    Step::Record(index) if !taken.is_empty() => {
                        let new = taken.remove(index.index(taken.len()));
                        let key = (epoch, restore, new.snapshot.number);
                        recorded.push((key, new.snapshot.id.clone()));
                        record.add(new);
                    }
                    Step::Forget(index) if !recorded.is_empty() => {
                        let (_, id) = &recorded[index.index(recorded.len())];
                        if record.forget(id) {
                            unusable.insert(id.clone());
                        }
                    }
                    Step::Call(index) if !recorded.is_empty() => {
                        let (key, id) = recorded[index.index(recorded.len())].clone();
                        if record.call_for(&id) {
                            unusable.remove(&id);
                            let newer = recorded.iter().filter(|(other, _)| *other > key);
                            unusable.extend(newer.map(|(_, id)| id.clone()));
                        }
                    }
                    _ => {}
                }
                recorded.sort();
                let there = |id: &SnapshotId| record.snapshots.iter().any(|one| one.snapshot.id == *id);
                let newest = recorded.iter().rev().find(|(_, id)| !unusable.contains(id));
                // An automatic one before the newest two, or one that was dropped, is not there any more.
                let newest = newest.map(|(_, id)| id).filter(|id| there(id));
                let is_kept = |id: &&SnapshotId| {
                    record.snapshots.iter().any(|one| one.snapshot.id == **id && one.mark.is_none())
                };
                if let Some(newest) = newest.filter(is_kept) {
                    prop_assert_eq!(restored(&record), Some(newest.as_str()));
                }
                if let Some((_, last)) = recorded.last().filter(|(_, last)| !unusable.contains(last)) {
                    prop_assert_eq!(restored(&record), Some(last.as_str()), "the last one is never dropped");
                }
            }
        }
    }

    #[test]
    fn the_number_of_skipped_snapshots_is_limited() {
        let mut record = PushedRecord::default();
        let mut next = 0;
        while record.skipped().len() < SKIPPED_MAX - 1 {
            for _ in 0..2 {
                next += 1;
                record.add(snapshot(next, false));
            }
            assert!(record.call_for(&snapshot(next - 1, false).snapshot.id));
        }
        next += 3;
        (next - 2..=next).for_each(|at| drop(record.add(snapshot(at, false))));
        assert!(!record.call_for(&snapshot(next - 2, false).snapshot.id), "two more are too many");
        assert_eq!(restored(&record), Some(&*format!("s{next}")), "nothing has changed");
        assert!(record.snapshots.len() <= SKIPPED_MAX + RECORDED_MAX);
    }
}
