//! What the keys about nodes say: pure, without I/O.

use crate::etcd::Change;
use crate::etcd::KeyValue;
use crate::model::Epoch;
use crate::model::Keys;
use crate::model::Member;
use crate::model::Members;
use crate::model::NODES_MAX;
use crate::model::NodeKey;
use crate::model::NodeRecord;
use crate::model::NodeState;
use crate::model::SKIPPED_MAX;
use crate::model::SkippedKey;
use isolet_wire::node::NodeName;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum length of a skipped key in a report, in bytes.
const KEY_BYTES_MAX: usize = 200;
/// The reason for keys beyond [`NODES_MAX`].
const TOO_MANY: &str = "the fleet has more nodes than are supported";

/// The nodes at a revision.
pub(super) struct Table {
    keys: Keys,
    /// All changes up to this revision are part of it.
    pub(super) revision: i64,
    live: BTreeMap<NodeName, Live>,
    known: BTreeMap<NodeName, NodeRecord>,
    cordoned: BTreeSet<NodeName>,
    dead: BTreeSet<NodeName>,
    skipped: BTreeMap<Vec<u8>, String>,
    /// Nodes as they were shown last, without those whose record has changed since: a large fleet is
    /// shown several times a second, and most records are the same.
    shown: BTreeMap<NodeName, Arc<Member>>,
}

struct Live {
    record: NodeRecord,
    registration: Epoch,
    modified_at: i64,
}

/// Nodes that this node failed to reach, with the revision of their record then.
pub(super) type Suspects = BTreeMap<NodeName, i64>;

impl Table {
    /// An empty table.
    pub(super) fn new(keys: Keys, revision: i64) -> Self {
        Self {
            keys,
            revision,
            live: BTreeMap::new(),
            known: BTreeMap::new(),
            cordoned: BTreeSet::new(),
            dead: BTreeSet::new(),
            skipped: BTreeMap::new(),
            shown: BTreeMap::new(),
        }
    }

    /// Applies a change. Returns why it was skipped, if it was.
    pub(super) fn apply(&mut self, change: Change) -> Option<SkippedKey> {
        match change {
            Change::Put(pair) => self.put(pair),
            Change::Deleted { key } => {
                self.delete(&key);
                None
            }
        }
    }

    /// Applies a written key. A key that cannot be used also removes what it said before.
    pub(super) fn put(&mut self, pair: KeyValue) -> Option<SkippedKey> {
        self.delete(&pair.key);
        let Some(key) = self.keys.read_node(&pair.key) else {
            return Some(self.skip(pair.key, "not a key of a node".to_owned()));
        };
        let is_full = self.live.len().max(self.known.len()) >= NODES_MAX;
        let (NodeKey::Live(name) | NodeKey::Known(name)) = &key else {
            let (set, name) = match key {
                NodeKey::Cordoned(name) => (&mut self.cordoned, name),
                NodeKey::Dead(name) => (&mut self.dead, name),
                NodeKey::Live(_) | NodeKey::Known(_) => return None,
            };
            if set.len() >= NODES_MAX {
                return Some(self.skip(pair.key, TOO_MANY.to_owned()));
            }
            set.insert(name);
            return None;
        };
        let is_listed = self.known.contains_key(name) || self.live.contains_key(name);
        if is_full && !is_listed {
            return Some(self.skip(pair.key, TOO_MANY.to_owned()));
        }
        let record = match NodeRecord::read(&pair.value, name) {
            Ok(record) => record,
            Err(error) => return Some(self.skip(pair.key, error.to_string())),
        };
        match key {
            NodeKey::Live(name) => {
                let registration = Epoch::of_revision(pair.created_at);
                let live = Live { record, registration, modified_at: pair.modified_at };
                self.live.insert(name, live);
            }
            NodeKey::Known(name) | NodeKey::Cordoned(name) | NodeKey::Dead(name) => {
                self.known.insert(name, record);
            }
        }
        None
    }

    fn delete(&mut self, key: &[u8]) {
        self.skipped.remove(key);
        match self.keys.read_node(key) {
            Some(NodeKey::Live(name)) => {
                self.shown.remove(&name);
                self.live.remove(&name);
            }
            Some(NodeKey::Known(name)) => {
                self.shown.remove(&name);
                self.known.remove(&name);
            }
            Some(NodeKey::Cordoned(name)) => drop(self.cordoned.remove(&name)),
            Some(NodeKey::Dead(name)) => drop(self.dead.remove(&name)),
            None => {}
        }
    }

    fn skip(&mut self, key: Vec<u8>, reason: String) -> SkippedKey {
        let skipped = SkippedKey { key: readable(&key), reason: reason.clone() };
        if self.skipped.len() < SKIPPED_MAX {
            self.skipped.insert(key, reason);
        }
        skipped
    }

    /// The revision of a node's record, to mark the node as suspect until the next one.
    pub(super) fn revision_of(&self, name: &NodeName) -> Option<i64> {
        self.live.get(name).map(|live| live.modified_at)
    }

    /// The registration of a node that holds its lease.
    pub(super) fn registration_of(&self, name: &NodeName) -> Option<Epoch> {
        self.live.get(name).map(|live| live.registration)
    }

    /// The number of nodes that hold their leases.
    pub(super) fn live_count(&self) -> usize {
        self.live.len()
    }

    /// All nodes.
    pub(super) fn members(&mut self, suspects: &Suspects) -> Members {
        let names: BTreeSet<&NodeName> = self.live.keys().chain(self.known.keys()).collect();
        let all = names.into_iter().filter_map(|name| {
            let live = self.live.get(name);
            let is_suspect = |live: &Live| {
                suspects.get(name).is_some_and(|revision| *revision >= live.modified_at)
            };
            let state = match live {
                Some(live) if is_suspect(live) => NodeState::Suspect,
                Some(_) => NodeState::Ready,
                None if self.dead.contains(name) => NodeState::Dead,
                None => NodeState::Lost,
            };
            let cordoned = self.cordoned.contains(name);
            let shown = self.shown.get(name);
            if let Some(same) = shown.filter(|one| one.state == state && one.cordoned == cordoned) {
                return Some((name.clone(), Arc::clone(same)));
            }
            let record = live.map(|live| &live.record).or_else(|| self.known.get(name))?;
            let record = record.clone();
            let registration = live.map(|live| live.registration);
            Some((name.clone(), Arc::new(Member { record, registration, state, cordoned })))
        });
        let all: BTreeMap<NodeName, Arc<Member>> = all.collect();
        self.shown.clone_from(&all);
        let skipped = |(key, reason): (&Vec<u8>, &String)| SkippedKey {
            key: readable(key),
            reason: reason.clone(),
        };
        Members::shared(self.revision, all, self.skipped.iter().map(skipped).collect())
    }
}

fn readable(key: &[u8]) -> String {
    key[..key.len().min(KEY_BYTES_MAX)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Label;
    use proptest::prelude::*;

    fn name(text: &str) -> NodeName {
        NodeName::parse(text).unwrap()
    }

    fn value(node: &str) -> Vec<u8> {
        let region = Label::parse("eu").unwrap();
        NodeRecord::new(1, name(node), "id".into(), "h:1".into(), region).value().unwrap()
    }

    fn pair(key: &str, value: Vec<u8>, at: i64) -> KeyValue {
        KeyValue { key: key.into(), value, created_at: at, modified_at: at, lease: 0 }
    }

    fn table() -> Table {
        Table::new(Keys::new("p").unwrap(), 1)
    }

    fn state(table: &mut Table, suspects: &Suspects) -> Option<NodeState> {
        table.members(suspects).get(&name("a")).map(|member| member.state)
    }

    #[test]
    fn a_node_is_ready_then_lost_then_dead_then_forgotten() {
        let mut table = table();
        let none = Suspects::new();
        assert_eq!(state(&mut table, &none), None);
        assert_eq!(table.put(pair("p/nodes/known/a", value("a"), 2)), None);
        assert_eq!(table.put(pair("p/nodes/live/a", value("a"), 2)), None);
        assert_eq!(table.put(pair("p/nodes/cordoned/a", b"{}".to_vec(), 3)), None);
        let member = table.members(&none).get(&name("a")).cloned().unwrap();
        assert!(member.state == NodeState::Ready && member.cordoned);
        assert_eq!(member.registration, Some(Epoch::of_revision(2)));
        let suspects = Suspects::from([(name("a"), table.revision_of(&name("a")).unwrap())]);
        assert_eq!(state(&mut table, &suspects), Some(NodeState::Suspect));
        let next = KeyValue { modified_at: 5, ..pair("p/nodes/live/a", value("a"), 2) };
        table.put(next);
        assert_eq!(state(&mut table, &suspects), Some(NodeState::Ready), "it wrote a record since");
        table.apply(Change::Deleted { key: b"p/nodes/live/a".to_vec() });
        assert_eq!(state(&mut table, &none), Some(NodeState::Lost));
        table.put(pair("p/nodes/dead/a", b"{}".to_vec(), 6));
        assert_eq!(state(&mut table, &none), Some(NodeState::Dead));
        table.apply(Change::Deleted { key: b"p/nodes/known/a".to_vec() });
        assert_eq!(state(&mut table, &none), None);
    }

    #[test]
    fn garbage_is_reported_once_and_replaces_what_it_overwrote() {
        let mut table = table();
        table.put(pair("p/nodes/live/a", value("a"), 2));
        let skipped = table.put(pair("p/nodes/live/a", b"garbage".to_vec(), 3)).unwrap();
        assert_eq!(skipped.key, "p/nodes/live/a");
        assert_eq!(state(&mut table, &Suspects::new()), None);
        assert_eq!(table.members(&Suspects::new()).skipped(), [skipped]);
        table.put(pair("p/nodes/live/a", value("a"), 4));
        assert!(table.members(&Suspects::new()).skipped().is_empty());
        assert!(table.put(pair("p/nodes/live/b", value("a"), 5)).is_some(), "another name");
        for index in 0..2 * SKIPPED_MAX {
            table.put(pair(&format!("p/nodes/other/{index}"), Vec::new(), 6));
        }
        assert_eq!(table.members(&Suspects::new()).skipped().len(), SKIPPED_MAX);
    }

    #[test]
    fn nodes_above_the_limit_are_skipped() {
        let mut table = table();
        for index in 0..NODES_MAX {
            let node = format!("n{index}");
            assert_eq!(table.put(pair(&format!("p/nodes/live/{node}"), value(&node), 2)), None);
        }
        assert!(table.put(pair("p/nodes/live/a", value("a"), 3)).is_some());
        assert_eq!(table.members(&Suspects::new()).len(), NODES_MAX);
        let again = table.put(pair("p/nodes/live/n0", value("n0"), 4));
        assert_eq!(again, None, "one of those that are listed");
    }

    #[test]
    fn a_node_that_has_not_changed_is_shared_by_all_tables() {
        let mut table = table();
        for node in ["a", "b"] {
            table.put(pair(&format!("p/nodes/live/{node}"), value(node), 2));
        }
        let none = Suspects::new();
        let first = table.members(&none);
        table.put(pair("p/nodes/live/a", value("a"), 3));
        let second = table.members(&none);
        let is_same =
            |node| std::ptr::eq(first.get(&name(node)).unwrap(), second.get(&name(node)).unwrap());
        assert_eq!((is_same("a"), is_same("b")), (false, true));
    }

    proptest! {
        #[test]
        fn shared_nodes_are_those_that_a_new_table_would_have(
            changes in proptest::collection::vec(("(live|known|dead|cordoned)", "[ab]", 0..3), 1..30),
        ) {
            let mut table = table();
            let mut suspects = Suspects::new();
            for (at, (kind, node, what)) in (3..).zip(changes) {
                let key = format!("p/nodes/{kind}/{node}");
                match what {
                    0 => drop(table.put(pair(&key, value(&node), at))),
                    1 => drop(table.apply(Change::Deleted { key: key.into_bytes() })),
                    _ => drop(suspects.insert(name(&node), at)),
                }
                let shared = table.members(&suspects);
                table.shown.clear();
                prop_assert_eq!(shared, table.members(&suspects));
            }
        }

        #[test]
        fn any_keys_and_values_are_survived(
            pairs in proptest::collection::vec(
                ("(p/nodes/(live|known|dead|cordoned)/)?.{0,6}", proptest::collection::vec(any::<u8>(), 0..20)),
                0..20,
            ),
        ) {
            let mut table = table();
            for (key, value) in pairs {
                table.put(pair(&key, value, 2));
                table.apply(Change::Deleted { key: key.into_bytes() });
            }
            prop_assert!(table.members(&Suspects::new()).is_empty());
            prop_assert!(table.members(&Suspects::new()).skipped().is_empty());
        }
    }
}
