//! What an operator does with nodes: from any node, also about nodes that do not run.

use crate::etcd::Compare;
use crate::etcd::Etcd;
use crate::etcd::EtcdError;
use crate::etcd::Operation;
use crate::etcd::Transaction;
use crate::membership::directory;
use crate::membership::error::OperatorError;
use crate::membership::table::Suspects;
use crate::membership::table::Table;
use crate::model::Keys;
use crate::model::Member;
use crate::model::Members;
use crate::model::NodeKey;
use isolet_wire::node::NodeName;

/// Commands about nodes. They write keys of their own, never the record of a node.
#[derive(Debug, Clone)]
pub struct Operator {
    pub(crate) etcd: Etcd,
    pub(crate) keys: Keys,
}

impl Operator {
    /// Commands for the fleet with these keys.
    #[must_use]
    pub fn new(etcd: Etcd, keys: Keys) -> Self {
        Self { etcd, keys }
    }

    /// All nodes, read from etcd. None is suspect: only a node knows which others it cannot reach.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn members(&self) -> Result<Members, EtcdError> {
        Ok(directory::list(&self.etcd, &self.keys).await?.members(&Suspects::default()))
    }

    /// One node, read from etcd; `None`: it never was a member, it was removed, or its record cannot
    /// be read.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn member(&self, name: &NodeName) -> Result<Option<Member>, EtcdError> {
        let get = |kind: fn(NodeName) -> NodeKey| Operation::Get { key: self.key(kind, name) };
        let kinds = [NodeKey::Live, NodeKey::Known, NodeKey::Cordoned, NodeKey::Dead];
        let then = kinds.map(get).into();
        let read = Transaction { then, ..Transaction::default() };
        let outcome = self.etcd.transaction(read).await?;
        let mut table = Table::new(self.keys.clone(), outcome.revision);
        for index in 0..kinds.len() {
            if let Some(pair) = outcome.pair(index) {
                table.put(pair.clone());
            }
        }
        Ok(table.members(&Suspects::default()).get(name).cloned())
    }

    /// Excludes a node from placement. Its sandboxes stay.
    ///
    /// # Errors
    /// [`OperatorError::Unknown`], [`OperatorError::Etcd`].
    pub async fn cordon(&self, name: &NodeName) -> Result<(), OperatorError> {
        let mark = Operation::put(self.key(NodeKey::Cordoned, name), marked_now());
        self.of_known(name, mark).await
    }

    /// Includes a node in placement again.
    ///
    /// # Errors
    /// [`OperatorError::Unknown`], [`OperatorError::Etcd`].
    pub async fn uncordon(&self, name: &NodeName) -> Result<(), OperatorError> {
        let key = self.key(NodeKey::Cordoned, name);
        self.of_known(name, Operation::Delete { key }).await
    }

    /// Declares a node dead whose lease has ended: the ids of its sandboxes of the class `node` can be given
    /// up from now on. Their files are lost unless the node returns before. Repeating it changes nothing.
    ///
    /// # Errors
    /// [`OperatorError::Alive`], [`OperatorError::Unknown`], [`OperatorError::Etcd`].
    pub async fn declare_dead(&self, name: &NodeName) -> Result<(), OperatorError> {
        let live = self.key(NodeKey::Live, name);
        let known = self.key(NodeKey::Known, name);
        let outcome = self
            .etcd
            .transaction(Transaction {
                compares: vec![Compare::absent(live.clone()), Compare::present(known)],
                then: vec![Operation::put(self.key(NodeKey::Dead, name), marked_now())],
                otherwise: vec![Operation::Get { key: live }],
            })
            .await?;
        if outcome.succeeded {
            return Ok(());
        }
        let name = name.clone();
        match outcome.pair(0) {
            Some(_) => Err(OperatorError::Alive { name }),
            None => Err(OperatorError::Unknown { name }),
        }
    }

    /// Removes the last traces of a node that was declared dead and owns nothing.
    ///
    /// # Errors
    /// [`OperatorError::Alive`], [`OperatorError::NotDead`], [`OperatorError::OwnsSandboxes`],
    /// [`OperatorError::Etcd`].
    pub async fn forget(&self, name: &NodeName) -> Result<(), OperatorError> {
        let live = self.key(NodeKey::Live, name);
        let dead = self.key(NodeKey::Dead, name);
        let held = self.keys.held_by(name);
        let outcome = self
            .etcd
            .transaction(Transaction {
                compares: vec![
                    Compare::absent(live.clone()),
                    Compare::present(dead.clone()),
                    Compare::none_below(held.clone()),
                ],
                then: vec![
                    Operation::Delete { key: self.key(NodeKey::Known, name) },
                    Operation::Delete { key: self.key(NodeKey::Cordoned, name) },
                    Operation::Delete { key: dead },
                ],
                otherwise: vec![Operation::Get { key: live }, Operation::Count { prefix: held }],
            })
            .await?;
        let name = name.clone();
        match (outcome.succeeded, outcome.pair(0), outcome.count(1)) {
            (true, ..) => Ok(()),
            (false, Some(_), _) => Err(OperatorError::Alive { name }),
            (false, None, 0) => Err(OperatorError::NotDead { name }),
            (false, None, sandboxes) => Err(OperatorError::OwnsSandboxes { name, sandboxes }),
        }
    }

    /// Does something about a node that is or was a member.
    async fn of_known(&self, name: &NodeName, operation: Operation) -> Result<(), OperatorError> {
        let known = self.key(NodeKey::Known, name);
        let compares = vec![Compare::present(known)];
        let transaction = Transaction { compares, then: vec![operation], otherwise: Vec::new() };
        if self.etcd.transaction(transaction).await?.succeeded {
            Ok(())
        } else {
            Err(OperatorError::Unknown { name: name.clone() })
        }
    }

    pub(crate) fn key(&self, kind: impl Fn(NodeName) -> NodeKey, name: &NodeName) -> Vec<u8> {
        self.keys.node(&kind(name.clone()))
    }
}

/// The value of a mark: when it was made, for people.
fn marked_now() -> Vec<u8> {
    let at = isolet_clock::rfc3339(isolet_clock::now_ms());
    serde_json::json!({ "v": 1, "at": at }).to_string().into_bytes()
}
