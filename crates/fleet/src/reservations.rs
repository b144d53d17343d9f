//! Memory of sandboxes that this node has placed and that are not yet part of the reported loads, so
//! that many creates at once do not all go to the node that had the most free memory.

use isolet_wire::node::NodeName;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After this time the node has reported the sandbox: loads are written at most every 2 s.
const REPORTED_AFTER: Duration = Duration::from_secs(5);
/// Maximum number of remembered placements. The oldest is dropped.
const PLACED_MAX: usize = 10_000;

struct Placement {
    node: NodeName,
    memory_mib: u64,
    at: Instant,
}

/// The latest placements, oldest first.
#[derive(Default)]
pub(crate) struct Reservations(Mutex<VecDeque<Placement>>);

impl Reservations {
    /// Remembers a placement.
    pub(crate) fn add(&self, node: &NodeName, memory_mib: u64) {
        let mut placed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if placed.len() >= PLACED_MAX {
            placed.pop_front();
        }
        placed.push_back(Placement { node: node.clone(), memory_mib, at: Instant::now() });
    }

    /// The memory of the latest placements, by node.
    pub(crate) fn by_node(&self) -> BTreeMap<NodeName, u64> {
        let mut placed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while placed.front().is_some_and(|oldest| oldest.at.elapsed() >= REPORTED_AFTER) {
            placed.pop_front();
        }
        let mut all = BTreeMap::new();
        for Placement { node, memory_mib, .. } in &*placed {
            *all.entry(node.clone()).or_default() += memory_mib;
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
        all.add(&node("a"), 5);
        all.add(&node("a"), 6);
        all.add(&node("b"), 7);
        assert_eq!(all.by_node(), BTreeMap::from([(node("a"), 11), (node("b"), 7)]));
        for _ in 0..PLACED_MAX {
            all.add(&node("c"), 1);
        }
        assert_eq!(all.by_node(), BTreeMap::from([(node("c"), PLACED_MAX as u64)]));
    }
}
