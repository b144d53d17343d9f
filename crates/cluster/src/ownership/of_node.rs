//! What an operator sees and does about the sandboxes of a node, also of one that does not run.

use crate::etcd::Compare;
use crate::etcd::EtcdError;
use crate::etcd::KeyValue;
use crate::etcd::Operation;
use crate::etcd::PAGE_KEYS_MAX;
use crate::etcd::Transaction;
use crate::membership::Operator;
use crate::membership::OperatorError;
use crate::model::Class;
use crate::model::NodeKey;
use crate::model::Owner;
use crate::model::SandboxKey;
use crate::ownership::list::read_held_value;
use futures_util::StreamExt;
use futures_util::TryStreamExt;
use futures_util::stream;
use isolet_wire::node::NodeName;

/// Maximum number of sandboxes that are read of one node: ten times as many as a node may have.
pub const OWNED_READ_MAX: usize = 100_000;
/// Maximum number of sandboxes of the class `node` that are named.
pub const OWNED_FIRST_MAX: usize = 100;
/// Maximum number of sandboxes that are named which were not given up.
pub const KEPT_FIRST_MAX: usize = 100;
/// Transactions that are under way at once.
const AT_ONCE: usize = 16;

/// The sandboxes that a node owns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnedByNode {
    /// How many are of the class `node`: their files are on this node only.
    pub node: usize,
    /// How many are of the class `store`: another node can take them over.
    pub store: usize,
    /// Sandboxes of the class `node` in the order of their keys, the first [`OWNED_FIRST_MAX`].
    pub first: Vec<SandboxKey>,
    /// Whether the node may own more than [`OWNED_READ_MAX`], which were not read.
    pub is_cut: bool,
}

/// What became of the sandboxes of the class `node` of a node that was declared dead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReleasedLost {
    /// How many were given up.
    pub released: usize,
    /// How many were not, because they can be restored.
    pub kept: usize,
    /// Some of those, at most [`KEPT_FIRST_MAX`].
    pub kept_first: Vec<SandboxKey>,
}

/// What became of one of them.
enum Lost {
    Released,
    /// It can be restored.
    Kept(SandboxKey),
    /// It has another owner now, or none.
    Changed,
}

/// Says whether a sandbox of an owner can be restored, by the value of the fenced key of a name.
pub struct Restorable<'a> {
    /// The name of the fenced key.
    pub name: &'a str,
    /// Whether it can be restored with this value. `None` for an owner that cannot be read.
    pub is: fn(Option<&Owner>, &[u8]) -> bool,
}

impl Operator {
    /// The sandboxes that a node owns.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn owned(&self, name: &NodeName) -> Result<OwnedByNode, EtcdError> {
        let mut all = OwnedByNode::default();
        let (pairs, is_cut) = self.held_pairs(name).await?;
        all.is_cut = is_cut;
        for pair in pairs {
            match read_held_value(&pair.value) {
                Some(Class::Store) => all.store += 1,
                // One that cannot be read is shown as the one that can be lost.
                Some(Class::Node) | None => {
                    all.node += 1;
                    if all.first.len() < OWNED_FIRST_MAX {
                        all.first.extend(self.keys.read_held(&pair.key));
                    }
                }
            }
        }
        Ok(all)
    }

    /// Gives up the ownership of all sandboxes of the class `node` of a node that was declared dead,
    /// so that their ids can be used again. Those that can be restored stay. A node that returns afterwards
    /// claims those whose ids are still free.
    ///
    /// # Errors
    /// [`OperatorError::Alive`], [`OperatorError::NotDead`], [`OperatorError::Unknown`],
    /// [`OperatorError::Etcd`]. Some may have been given up.
    pub async fn release_lost(
        &self,
        name: &NodeName,
        restorable: &Restorable<'_>,
    ) -> Result<ReleasedLost, OperatorError> {
        self.check_dead(name).await?;
        let (pairs, _) = self.held_pairs(name).await?;
        let lost = pairs.into_iter().filter_map(|pair| {
            // One that cannot be read counts as one of the class `node`, as in `owned`.
            let is_lost = read_held_value(&pair.value) != Some(Class::Store);
            let sandbox = self.keys.read_held(&pair.key).filter(|_| is_lost)?;
            Some((sandbox, pair))
        });
        let released = stream::iter(lost)
            .map(|(sandbox, held)| self.release_one(name, sandbox, held, restorable))
            .buffer_unordered(AT_ONCE)
            .try_fold(ReleasedLost::default(), async |mut all, one| {
                match one {
                    Lost::Released => all.released += 1,
                    Lost::Kept(sandbox) => {
                        all.kept += 1;
                        if all.kept_first.len() < KEPT_FIRST_MAX {
                            all.kept_first.push(sandbox);
                        }
                    }
                    Lost::Changed => {}
                }
                Ok(all)
            })
            .await?;
        // The node may have returned in between, which ended it early.
        self.check_dead(name).await?;
        Ok(released)
    }

    async fn release_one(
        &self,
        name: &NodeName,
        sandbox: SandboxKey,
        held: KeyValue,
        restorable: &Restorable<'_>,
    ) -> Result<Lost, EtcdError> {
        let owner = self.keys.owner(&sandbox);
        let stored = self.keys.fenced(&sandbox, restorable.name);
        let get = |key: &Vec<u8>| Operation::Get { key: key.clone() };
        let then = vec![get(&owner), get(&stored)];
        let read = self.etcd.transaction(Transaction { then, ..Transaction::default() }).await?;
        let found = read.pair(1);
        if let Some(found) = found {
            let read =
                read.pair(0).and_then(|pair| Owner::read(&pair.value, pair.modified_at).ok());
            if (restorable.is)(read.as_ref(), &found.value) {
                return Ok(Lost::Kept(sandbox));
            }
        }
        let compares = vec![
            Compare::modified_at(stored, found.map_or(0, |found| found.modified_at)),
            Compare::absent(self.key(NodeKey::Live, name)),
            Compare::present(self.key(NodeKey::Dead, name)),
            // Both keys are written by one transaction.
            Compare::modified_at(owner.clone(), held.modified_at),
        ];
        let then = vec![
            Operation::Delete { key: owner },
            Operation::Delete { key: held.key },
            Operation::DeletePrefix { prefix: self.keys.fenced_of(&sandbox) },
        ];
        let transaction = Transaction { compares, then, otherwise: Vec::new() };
        let released = self.etcd.transaction(transaction).await?.succeeded;
        Ok(if released { Lost::Released } else { Lost::Changed })
    }

    async fn check_dead(&self, name: &NodeName) -> Result<(), OperatorError> {
        let get = |kind: fn(NodeName) -> NodeKey| Operation::Get { key: self.key(kind, name) };
        let then = [NodeKey::Live, NodeKey::Dead, NodeKey::Known].map(get).into();
        let read = Transaction { then, ..Transaction::default() };
        let outcome = self.etcd.transaction(read).await?;
        let name = name.clone();
        match (outcome.pair(0), outcome.pair(1), outcome.pair(2)) {
            (Some(_), ..) => Err(OperatorError::Alive { name }),
            (None, Some(_), _) => Ok(()),
            (None, None, Some(_)) => Err(OperatorError::NotDead { name }),
            (None, None, None) => Err(OperatorError::Unknown { name }),
        }
    }

    /// The list of a node's sandboxes, and whether it was cut off.
    async fn held_pairs(&self, name: &NodeName) -> Result<(Vec<KeyValue>, bool), EtcdError> {
        let prefix = self.keys.held_by(name);
        let mut all: Vec<KeyValue> = Vec::new();
        loop {
            let after = all.last().map(|pair| pair.key.clone());
            let page = self.etcd.list(&prefix, after.as_deref(), PAGE_KEYS_MAX, None).await?;
            all.extend(page.pairs);
            if !page.has_more || all.len() >= OWNED_READ_MAX {
                return Ok((all, page.has_more));
            }
        }
    }
}
