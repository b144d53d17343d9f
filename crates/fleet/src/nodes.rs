//! What an operator sees of nodes and does with them, read from and written to etcd. The commands
//! `isolet node` use it without a server too.

use crate::store_class::pushed::RESTORABLE;
use isolet_cluster::etcd::{Etcd, EtcdError};
use isolet_cluster::membership::{Operator, OperatorError};
use isolet_cluster::model::{
    ClusterSettings, Keys, Label, Labels, Member, Members, NodeState, ReportedState, SandboxKey,
};
use isolet_cluster::ownership::{OwnedByNode, ReleasedLost};
use isolet_http::fleet::{
    NodeCapacity, NodeChange, NodeDetails, NodeError, NodeInfo, NodeList, NodeLoad,
    NodeState as ShownState, OwnedSandboxes, SkippedKey,
};
use isolet_wire::node::NodeName;
use std::collections::BTreeMap;

/// Reads and changes nodes. Blocks for the files of TLS when it is made.
#[derive(Debug, Clone)]
pub struct Nodes {
    operator: Operator,
}

impl Nodes {
    /// The nodes of the fleet of these settings. Connects at the first call.
    ///
    /// # Errors
    /// [`EtcdError::Settings`].
    pub fn open(settings: &ClusterSettings) -> Result<Self, EtcdError> {
        Ok(Self::new(Etcd::new(settings.etcd.clone())?, settings.keys.clone()))
    }

    pub(crate) fn new(etcd: Etcd, keys: Keys) -> Self {
        Self { operator: Operator::new(etcd, keys) }
    }

    /// All nodes. `here` is the node for which they are read.
    ///
    /// # Errors
    /// [`NodeError::Unavailable`].
    pub async fn list(&self, here: &NodeName) -> Result<NodeList, NodeError> {
        let members = self.operator.members().await.map_err(|error| unavailable(&error))?;
        Ok(shown(&members, here))
    }

    /// One node with the sandboxes that it owns.
    ///
    /// # Errors
    /// [`NodeError::Unknown`], [`NodeError::Unavailable`].
    pub async fn get(&self, name: &NodeName) -> Result<NodeInfo, NodeError> {
        let member = self.operator.member(name).await.map_err(|error| unavailable(&error))?;
        let member = member.ok_or_else(|| NodeError::Unknown(name.clone()))?;
        let owned = self.operator.owned(name).await.map_err(|error| unavailable(&error))?;
        Ok(NodeInfo { owned: Some(shown_owned(owned)), ..shown_node(&member) })
    }

    /// Changes a node, and returns it without its sandboxes.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn change(&self, name: &NodeName, change: NodeChange) -> Result<NodeInfo, NodeError> {
        match change {
            NodeChange::Cordon => self.operator.cordon(name).await,
            NodeChange::Uncordon => self.operator.uncordon(name).await,
            NodeChange::DeclareDead => self.operator.declare_dead(name).await,
        }
        .map_err(failed)?;
        // The change is done, so nothing more is read than what describes the node.
        let member = self.operator.member(name).await.map_err(|error| unavailable(&error))?;
        member.as_ref().map(shown_node).ok_or_else(|| NodeError::Unknown(name.clone()))
    }

    /// Forgets a node that was declared dead. With `release`, the ownership of its sandboxes of the
    /// class `node` is given up before, but for those that the object store has. Returns for how many.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn forget(&self, name: &NodeName, release: bool) -> Result<usize, NodeError> {
        let ReleasedLost { released, kept, kept_first } = match release {
            true => self.operator.release_lost(name, &RESTORABLE).await.map_err(failed)?,
            false => ReleasedLost::default(),
        };
        if kept > 0 {
            let path = |key: &SandboxKey| format!("{}/{}", key.tenant(), key.id());
            let sandboxes = kept_first.iter().map(path).collect();
            let node = name.clone();
            return Err(NodeError::OwnsRestorable { node, released, kept, sandboxes });
        }
        match self.operator.forget(name).await {
            Ok(()) => Ok(released),
            Err(OperatorError::NotDead { name }) => {
                let known = self.operator.member(&name).await.map_err(|e| unavailable(&e))?;
                Err(if known.is_some() {
                    NodeError::NotDead(name)
                } else {
                    NodeError::Unknown(name)
                })
            }
            Err(error) => Err(failed(error)),
        }
    }
}

fn unavailable(error: &EtcdError) -> NodeError {
    NodeError::Unavailable(error.to_string())
}

fn failed(error: OperatorError) -> NodeError {
    match error {
        OperatorError::Etcd(error) => unavailable(&error),
        OperatorError::Unknown { name } => NodeError::Unknown(name),
        OperatorError::Alive { name } => NodeError::Alive(name),
        OperatorError::NotDead { name } => NodeError::NotDead(name),
        OperatorError::OwnsSandboxes { name: node, sandboxes } => {
            NodeError::OwnsSandboxes { node, sandboxes }
        }
    }
}

/// All nodes as the API describes them.
pub(crate) fn shown(members: &Members, here: &NodeName) -> NodeList {
    let skipped = members
        .skipped()
        .iter()
        .map(|one| SkippedKey { key: one.key.clone(), reason: one.reason.clone() });
    NodeList {
        here: here.to_string(),
        is_current: members.is_current,
        nodes: members.iter().map(shown_node).collect(),
        skipped: Some(skipped.collect()),
    }
}

fn shown_node(member: &Member) -> NodeInfo {
    let record = &member.record;
    let state = match (member.state, record.state) {
        (NodeState::Dead, _) => ShownState::Dead,
        (NodeState::Lost, _) => ShownState::Lost,
        (NodeState::Ready | NodeState::Suspect, ReportedState::Stopping) => ShownState::Stopping,
        (NodeState::Ready | NodeState::Suspect, ReportedState::Starting) => ShownState::Starting,
        (NodeState::Suspect, ReportedState::Ready)
        | (NodeState::Ready | NodeState::Suspect, ReportedState::Suspect) => ShownState::Suspect,
        (NodeState::Ready, ReportedState::Ready) => ShownState::Ready,
    };
    let text = |(name, value): (&Label, &Label)| (name.to_string(), value.to_string());
    NodeInfo {
        name: record.name.to_string(),
        region: record.region.to_string(),
        labels: record.labels.iter().map(text).collect(),
        state,
        cordoned: member.cordoned,
        details: Some(NodeDetails {
            address: record.address.clone(),
            version: record.version.clone(),
            started_at_ms: record.started_at_ms,
            registered_epoch: member.registration.map(|epoch| epoch.revision()),
            store: record.store,
            capacity: NodeCapacity {
                memory_mib: record.capacity.memory_mib,
                cpu_millis: record.capacity.cpu_millis,
                disk_mib: record.capacity.disk_mib,
                sandboxes: record.capacity.sandboxes,
            },
            load: NodeLoad {
                memory_reserved_mib: record.load.memory_reserved_mib,
                disk_used_mib: record.load.disk_used_mib,
                sandboxes: record.load.sandboxes,
                running: record.load.running,
            },
        }),
        owned: None,
    }
}

fn shown_owned(owned: OwnedByNode) -> OwnedSandboxes {
    let first = owned.first.iter().map(|key| format!("{}/{}", key.tenant(), key.id()));
    OwnedSandboxes {
        node: owned.node,
        store: owned.store,
        first: first.collect(),
        is_cut: owned.is_cut,
    }
}

/// The region and the labels that a request demands, checked.
///
/// # Errors
/// The field, and what is wrong with it.
pub(crate) fn demanded(
    region: Option<&str>,
    labels: &BTreeMap<String, String>,
) -> Result<(Option<Label>, Labels), (&'static str, String)> {
    const MAX: usize = isolet_cluster::model::LABELS_MAX;
    if labels.len() > MAX {
        return Err(("labels", format!("at most {MAX} are possible")));
    }
    let parse = |field, text: &str| Label::parse(text).map_err(|error| (field, error.to_string()));
    let region = region.map(|text| parse("region", text)).transpose()?;
    let label =
        |(name, value): (&String, &String)| Ok((parse("labels", name)?, parse("labels", value)?));
    Ok((region, labels.iter().map(label).collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_cluster::model::NodeRecord;

    #[test]
    fn the_state_of_a_node_is_one_word() {
        let name = NodeName::parse("a").unwrap();
        let region = Label::parse("eu").unwrap();
        let record = NodeRecord::new(1, name, "id".into(), "h:1".into(), region);
        let of = |state, reported| {
            let mut record = record.clone();
            record.state = reported;
            let member = Member { record, registration: None, state, cordoned: false };
            shown_node(&member).state.word()
        };
        let ready = ReportedState::Ready;
        let stopping = ReportedState::Stopping;
        let starting = ReportedState::Starting;
        assert_eq!(of(NodeState::Ready, ready), "ready");
        assert_eq!(of(NodeState::Suspect, ready), "suspect");
        assert_eq!(of(NodeState::Ready, stopping), "stopping");
        assert_eq!(of(NodeState::Ready, starting), "starting");
        assert_eq!(of(NodeState::Lost, stopping), "lost");
        assert_eq!(of(NodeState::Dead, ready), "dead");
    }

    #[test]
    fn a_demand_is_checked_before_a_node_is_chosen() {
        let labels = |name: &str, value: &str| BTreeMap::from([(name.into(), value.into())]);
        assert!(demanded(Some("eu"), &labels("gpu", "yes")).is_ok());
        assert_eq!(demanded(Some("a b"), &BTreeMap::new()).unwrap_err().0, "region");
        assert_eq!(demanded(None, &labels("gpu", "")).unwrap_err().0, "labels");
        let many = (0..33).map(|n| (n.to_string(), "x".to_owned())).collect();
        assert_eq!(demanded(None, &many).unwrap_err().0, "labels");
    }
}
