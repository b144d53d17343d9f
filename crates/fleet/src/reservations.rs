//! Memory of sandboxes that this node has placed and that are not yet part of the reported loads, so
//! that many creates at once do not all go to the node that had the most free memory.

use isolet_cluster::model::SandboxKey;
use isolet_wire::node::NodeName;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After this time the node has reported the sandbox: loads are written at most every 2 s.
const REPORTED_AFTER: Duration = Duration::from_secs(5);
/// Maximum number of remembered placements. The oldest is dropped.
const PLACED_MAX: usize = 10_000;

struct Placement {
    sandbox: SandboxKey,
    node: NodeName,
    memory_mib: u64,
    at: Instant,
}

/// The latest placements, oldest first.
#[derive(Default)]
pub(crate) struct Reservations(Mutex<VecDeque<Placement>>);

impl Reservations {
    /// Remembers a placement.
    pub(crate) fn add(&self, sandbox: &SandboxKey, node: &NodeName, memory_mib: u64) {
        let mut placed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if placed.len() >= PLACED_MAX {
            placed.pop_front();
        }
        placed.push_back(Placement {
            sandbox: sandbox.clone(),
            node: node.clone(),
            memory_mib,
            at: Instant::now(),
        });
    }

    /// Forgets the placement of a sandbox that was not created.
    pub(crate) fn remove(&self, sandbox: &SandboxKey) {
        let mut placed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        placed.retain(|placement| placement.sandbox != *sandbox);
    }

    /// The memory of the latest placements, by node.
    pub(crate) fn by_node(&self) -> BTreeMap<NodeName, u64> {
        let mut placed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while placed.front().is_some_and(|oldest| oldest.at.elapsed() >= REPORTED_AFTER) {
            placed.pop_front();
        }
        let mut all = BTreeMap::<NodeName, u64>::new();
        for Placement { node, memory_mib, .. } in &*placed {
            let sum = all.entry(node.clone()).or_default();
            *sum = sum.saturating_add(*memory_mib);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_add_up_and_are_bounded() {
        let all = Reservations::default();
        let node = |name: &str| NodeName::parse(name).unwrap();
        let key = |id: &str| SandboxKey::new("t", id).unwrap();
        all.add(&key("1"), &node("a"), 5);
        all.add(&key("2"), &node("a"), 6);
        all.add(&key("3"), &node("b"), 7);
        assert_eq!(all.by_node(), BTreeMap::from([(node("a"), 11), (node("b"), 7)]));
        all.remove(&key("2"));
        assert_eq!(all.by_node(), BTreeMap::from([(node("a"), 5), (node("b"), 7)]));
        all.add(&key("4"), &node("a"), u64::MAX);
        assert_eq!(all.by_node()[&node("a")], u64::MAX);
        for _ in 0..PLACED_MAX {
            all.add(&key("5"), &node("c"), 1);
        }
        assert_eq!(all.by_node(), BTreeMap::from([(node("c"), PLACED_MAX as u64)]));
    }
}
