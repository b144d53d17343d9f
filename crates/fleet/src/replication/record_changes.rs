//! Changes of records of tenants by requests.

use crate::replication::error::ReplicationError;
use crate::replication::records::RecordKind;
use isolet_cluster::etcd::Compare;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::Operation;
use isolet_cluster::etcd::Outcome;
use isolet_cluster::etcd::Transaction;
use isolet_cluster::model::Keys as KeyNames;
use serde_json::Value;
use std::marker::PhantomData;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a change waits until this node has it too, after all others can have it. It takes longer
/// only while the watch is interrupted.
const APPLIED_WITHIN: Duration = Duration::from_secs(3);

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutRecord {
    /// There was none of this name.
    Created,
    /// It replaces another one.
    Replaced,
    /// The tenant, or the fleet, has the maximum number of such records. Nothing was changed.
    TooMany {
        /// The maximum.
        max: usize,
    },
}

/// What became of a change of a record that another node may change, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacedRecord {
    /// It was changed.
    Replaced,
    /// It is not what the caller has read. Nothing was changed.
    Differs,
    /// There is none of this name. Nothing was changed.
    Missing,
}

/// Writes records of a kind to etcd.
pub(super) struct RecordChanges<K> {
    etcd: Etcd,
    names: KeyNames,
    /// The revision up to which the records of this node are current.
    applied: watch::Receiver<i64>,
    kind: PhantomData<K>,
}

impl<K: RecordKind> RecordChanges<K> {
    pub(super) fn new(etcd: Etcd, names: KeyNames, applied: watch::Receiver<i64>) -> Self {
        Self { etcd, names, applied, kind: PhantomData }
    }

    /// Changes whenever this node has taken changes of etcd.
    pub(super) fn applied(&self) -> watch::Receiver<i64> {
        self.applied.clone()
    }

    pub(super) async fn put(
        &self,
        tenant: &str,
        name: &str,
        value: Vec<u8>,
    ) -> Result<PutRecord, ReplicationError> {
        let key = K::key(&self.names, tenant, name);
        if value.len() > K::VALUE_BYTES_MAX {
            return Err(ReplicationError::TooLarge {
                what: format!("the {} {name}", K::WHAT),
                bytes: value.len(),
                limit: K::VALUE_BYTES_MAX,
            });
        }
        let look = vec![
            Operation::Get { key: key.clone() },
            Operation::Count { prefix: K::prefix_of(&self.names, tenant) },
            Operation::Count { prefix: K::prefix(&self.names) },
        ];
        let found = self.apply(look).await?;
        if found.pair(0).is_none() {
            for (index, max) in [(1, K::TENANT_MAX), (2, K::ALL_MAX)] {
                if found.count(index) >= max as u64 {
                    return Ok(PutRecord::TooMany { max });
                }
            }
        }
        let write = vec![Operation::Get { key: key.clone() }, Operation::put(key, value)];
        let written = self.apply(write).await?;
        self.wait_until_applied(written.revision).await;
        let is_new = written.pair(0).is_none();
        Ok(if is_new { PutRecord::Created } else { PutRecord::Replaced })
    }

    /// Replaces a record that is still `from`, so that of two nodes that change it at the same time, none
    /// undoes the change of the other or brings back what the other has removed.
    pub(super) async fn replace(
        &self,
        tenant: &str,
        name: &str,
        from: &str,
        value: Vec<u8>,
    ) -> Result<ReplacedRecord, ReplicationError> {
        let key = K::key(&self.names, tenant, name);
        let found = self.apply(vec![Operation::Get { key: key.clone() }]).await?;
        let Some(pair) = found.pair(0) else { return Ok(ReplacedRecord::Missing) };
        let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
        let held = K::read_value(name, &pair.value).ok().and_then(|body| parsed(&body));
        if held.is_none() || held != parsed(from) {
            return Ok(ReplacedRecord::Differs);
        }
        let transaction = Transaction {
            compares: vec![Compare::modified_at(key.clone(), pair.modified_at)],
            then: vec![Operation::put(key, value)],
            otherwise: Vec::new(),
        };
        let written = self.etcd.transaction(transaction).await?;
        if !written.succeeded {
            return Ok(ReplacedRecord::Differs);
        }
        self.wait_until_applied(written.revision).await;
        Ok(ReplacedRecord::Replaced)
    }

    pub(super) async fn remove(&self, tenant: &str, name: &str) -> Result<bool, ReplicationError> {
        let key = K::key(&self.names, tenant, name);
        let outcome = self.apply(vec![Operation::Delete { key }]).await?;
        let existed = outcome.count(0) > 0;
        if existed {
            self.wait_until_applied(outcome.revision).await;
        }
        Ok(existed)
    }

    async fn apply(&self, then: Vec<Operation>) -> Result<Outcome, ReplicationError> {
        let transaction = Transaction { then, ..Transaction::default() };
        Ok(self.etcd.transaction(transaction).await?)
    }

    /// Waits until the records of this node have a change, so that the client's next request sees it.
    async fn wait_until_applied(&self, revision: i64) {
        let mut applied = self.applied.clone();
        // The change is made, also if this node gets it later.
        let _ = timeout(APPLIED_WITHIN, applied.wait_for(|at| *at >= revision)).await;
    }
}
