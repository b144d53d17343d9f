//! All nodes of the fleet, as one node sees them.

use crate::model::node_record::NodeRecord;
use crate::model::node_record::ReportedState;
use isolet_wire::lease::Epoch;
use isolet_wire::node::NodeName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of nodes of a fleet. Further ones are skipped and reported.
pub const NODES_MAX: usize = 2000;
/// Maximum number of skipped keys that are reported.
pub const SKIPPED_MAX: usize = 32;

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// What the node wrote about itself, last.
    pub record: NodeRecord,
    /// Since when it holds its lease; `None`: its lease has ended.
    pub registration: Option<Epoch>,
    /// Whether requests can be sent to it.
    pub state: NodeState,
    /// Whether an operator has excluded it from placement.
    pub cordoned: bool,
}

/// Whether a node can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// It holds its lease.
    Ready,
    /// It holds its lease, but this node failed to reach it.
    Suspect,
    /// Its lease has ended. Its sandboxes of the class `store` can be taken over.
    Lost,
    /// Its lease has ended, and an operator has declared it dead. Its sandboxes of the class `store` can be
    /// taken over; nobody takes over those of the class `node`, but their ids can be given up.
    Dead,
}

impl Member {
    /// Whether a new sandbox may be placed on it.
    #[must_use]
    pub fn accepts_sandboxes(&self) -> bool {
        self.state == NodeState::Ready
            && !self.cordoned
            && self.record.state == ReportedState::Ready
    }
}

/// A key below the fleet's prefix that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedKey {
    /// The key, readable.
    pub key: String,
    /// Why.
    pub reason: String,
}

/// All nodes at one revision. Clones share the content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// The revision of etcd.
    pub revision: i64,
    /// Whether the watch runs. If not, the nodes are those of the revision, which may be outdated.
    pub is_current: bool,
    nodes: Arc<BTreeMap<NodeName, Arc<Member>>>,
    skipped: Arc<[SkippedKey]>,
}

impl Members {
    /// The nodes at a revision.
    #[must_use]
    pub fn new(revision: i64, nodes: BTreeMap<NodeName, Member>, skipped: Vec<SkippedKey>) -> Self {
        let nodes = nodes.into_iter().map(|(name, member)| (name, Arc::new(member))).collect();
        Self::shared(revision, nodes, skipped)
    }

    /// The same, of nodes that other tables share.
    pub(crate) fn shared(
        revision: i64,
        nodes: BTreeMap<NodeName, Arc<Member>>,
        skipped: Vec<SkippedKey>,
    ) -> Self {
        Self { revision, is_current: true, nodes: Arc::new(nodes), skipped: skipped.into() }
    }

    /// The same nodes, of which it is unknown whether they are current.
    #[must_use]
    pub fn outdated(&self) -> Self {
        Self { is_current: false, ..self.clone() }
    }

    /// One node, if it ever was a member and was not removed.
    #[must_use]
    pub fn get(&self, name: &NodeName) -> Option<&Member> {
        self.nodes.get(name).map(|member| &**member)
    }

    /// The same nodes with what one of them reports now, which etcd may not have told yet.
    #[must_use]
    pub fn with_reported(mut self, name: &NodeName, state: ReportedState, is_full: bool) -> Self {
        let differs =
            |node: &Member| node.record.state != state || node.record.load.is_full != is_full;
        if self.get(name).is_some_and(differs)
            && let Some(node) = Arc::make_mut(&mut self.nodes).get_mut(name)
        {
            let record = &mut Arc::make_mut(node).record;
            record.state = state;
            record.load.is_full = is_full;
        }
        self
    }

    /// The nodes but these.
    #[must_use]
    pub fn without(mut self, names: &[NodeName]) -> Self {
        if !names.is_empty() {
            Arc::make_mut(&mut self.nodes).retain(|name, _| !names.contains(name));
        }
        self
    }

    /// All nodes in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.nodes.values().map(|member| &**member)
    }

    /// The nodes that hold their lease and have other limits of tenants in their configuration files
    /// than those with this digest, in the order of their names.
    #[must_use]
    pub fn with_other_limits(&self, digest: &str) -> Vec<NodeName> {
        let holds = |state: NodeState| matches!(state, NodeState::Ready | NodeState::Suspect);
        let differs =
            |member: &&Member| holds(member.state) && member.record.limits_digest != digest;
        self.iter().filter(differs).map(|member| member.record.name.clone()).collect()
    }

    /// The number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no node is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Keys that could not be used, at most [`SKIPPED_MAX`].
    #[must_use]
    pub fn skipped(&self) -> &[SkippedKey] {
        &self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::label::Label;

    #[test]
    fn only_living_nodes_with_other_limits_are_reported() {
        let nodes = [
            ("a", "1", NodeState::Ready),
            ("b", "2", NodeState::Ready),
            ("c", "2", NodeState::Lost),
            ("e", "3", NodeState::Suspect),
        ];
        let member = |(name, digest, state): (&str, &str, NodeState)| {
            let name = NodeName::parse(name).unwrap();
            let region = Label::parse("eu").unwrap();
            let mut record = NodeRecord::new(1, name.clone(), "i".into(), "h:1".into(), region);
            record.limits_digest = digest.to_owned();
            (name, Member { record, registration: None, state, cordoned: false })
        };
        let all = Members::new(1, nodes.into_iter().map(member).collect(), Vec::new());
        let names: Vec<String> =
            all.with_other_limits("1").iter().map(ToString::to_string).collect();
        assert_eq!(names, ["b", "e"]);
    }
}
