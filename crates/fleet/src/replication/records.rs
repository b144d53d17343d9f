//! Records that tenants name, such as network profiles: `PREFIX/KIND/TENANT/NAME` has each of them,
//! and the records of a node are a copy that only [`RecordReplica`] writes.

use crate::blocking::blocking;
use crate::replication::error::ReplicationError;
use crate::replication::fleet_id;
use crate::replication::follow::Replica;
use crate::replication::listed::Pages;
use crate::replication::values::BadValue;
use isolet_cluster::etcd::Change;
use isolet_cluster::etcd::Compare;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::KeyValue;
use isolet_cluster::etcd::Operation;
use isolet_cluster::etcd::Transaction;
use isolet_cluster::etcd::WatchBatch;
use isolet_cluster::model::Keys as KeyNames;
use isolet_sandbox::TenantId;
use isolet_store::Error as StoreError;
use isolet_store::Store;
use std::collections::BTreeMap;
use std::collections::HashSet;
use std::marker::PhantomData;
use std::path::PathBuf;
use tokio::sync::watch;
use tracing::info;
use tracing::warn;

/// A record of a tenant, as its node holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SharedRecord {
    pub(super) tenant: String,
    pub(super) name: String,
    /// JSON.
    pub(super) body: String,
}

/// One kind of records: its keys and values in etcd, and where a node holds it.
pub(super) trait RecordKind: Send + Sync + 'static {
    /// The kind, for the log.
    const KIND: &'static str;
    /// One record, for the log.
    const WHAT: &'static str;
    /// Records of one page. The largest ones must fit into an answer of etcd.
    const PAGE: u16;
    /// Maximum size of a value in etcd, in bytes.
    const VALUE_BYTES_MAX: usize;
    /// Maximum number of records of a tenant.
    const TENANT_MAX: usize;
    /// Maximum number of records of all tenants: each node has a copy of all on its disk, and their
    /// names in memory while it lists them.
    const ALL_MAX: usize;
    /// The file in the data directory that names the fleet whose records the node holds.
    const FLEET_FILE: &'static str;

    /// The prefix of all keys.
    fn prefix(names: &KeyNames) -> Vec<u8>;
    /// The prefix of the keys of a tenant.
    fn prefix_of(names: &KeyNames, tenant: &str) -> Vec<u8>;
    /// The key of a record.
    fn key(names: &KeyNames, tenant: &str, name: &str) -> Vec<u8>;
    /// The tenant and the name that a key holds.
    fn read_key(names: &KeyNames, key: &[u8]) -> Option<(String, String)>;
    /// The value in etcd; `None`: the body does not read.
    fn value(body: &str) -> Option<Vec<u8>>;
    /// The body that a value holds.
    fn read_value(name: &str, value: &[u8]) -> Result<String, BadValue>;

    /// Records of the node behind a tenant and a name, at most `limit`; empty only at the end.
    fn all(
        store: &Store,
        after: (String, String),
        limit: u32,
    ) -> impl Future<Output = Result<Vec<SharedRecord>, StoreError>> + Send;
    /// Writes records to the node.
    fn set(
        store: &Store,
        records: Vec<SharedRecord>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
    /// Deletes all records of the node but these. Returns how many.
    fn retain(
        store: &Store,
        kept: HashSet<(String, String)>,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
    /// Deletes a record of the node.
    fn remove(
        store: &Store,
        tenant: &str,
        name: &str,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// The copy of all records of a kind on this node.
pub(super) struct RecordReplica<K> {
    etcd: Etcd,
    names: KeyNames,
    store: Store,
    /// The file that names the fleet whose records the node holds.
    fleet_file: PathBuf,
    /// The revision up to which the records are current.
    applied: watch::Sender<i64>,
    kind: PhantomData<K>,
}

impl<K: RecordKind> RecordReplica<K> {
    /// The copy on the node with this data directory.
    pub(super) fn new(
        etcd: Etcd,
        names: KeyNames,
        store: Store,
        data_dir: &std::path::Path,
        applied: watch::Sender<i64>,
    ) -> Self {
        let fleet_file = data_dir.join(K::FLEET_FILE);
        Self { etcd, names, store, fleet_file, applied, kind: PhantomData }
    }

    /// Adds the records of this node that etcd lacks.
    async fn add_own(&self) -> Result<(), ReplicationError> {
        let mut after = (String::new(), String::new());
        let mut added = 0;
        loop {
            let records = K::all(&self.store, after, u32::from(K::PAGE)).await?;
            let Some(last) = records.last() else { break };
            after = (last.tenant.clone(), last.name.clone());
            for record in &records {
                added += u64::from(self.add(record).await?);
            }
        }
        if added > 0 {
            info!(added, "added the {} of this node to the fleet", K::KIND);
        }
        Ok(())
    }

    /// Adds a record unless etcd has one of this name.
    async fn add(&self, record: &SharedRecord) -> Result<bool, ReplicationError> {
        let SharedRecord { tenant, name, body } = record;
        let Some(value) = K::value(body).filter(|_| is_tenant(tenant)) else {
            warn!(tenant, name, "a {} does not read; it is not given to the fleet", K::WHAT);
            return Ok(false);
        };
        let key = K::key(&self.names, tenant, name);
        let transaction = Transaction {
            compares: vec![Compare::absent(key.clone())],
            then: vec![Operation::put(key, value)],
            otherwise: Vec::new(),
        };
        let is_new = self.etcd.transaction(transaction).await?.succeeded;
        if !is_new {
            info!(tenant, name, "the fleet has a {} of this name, which replaces ours", K::WHAT);
        }
        Ok(is_new)
    }

    /// Makes the records equal to etcd. Returns the revision.
    async fn take_all(&self) -> Result<i64, ReplicationError> {
        let mut pages = Pages::new(&self.etcd, K::prefix(&self.names), K::PAGE);
        let mut kept = HashSet::new();
        while let Some(page) = pages.next().await? {
            let mut records = Vec::with_capacity(page.len());
            for pair in page {
                // One that does not read stays as it is.
                kept.extend(K::read_key(&self.names, &pair.key));
                records.extend(self.record(&pair));
            }
            K::set(&self.store, records).await?;
        }
        let removed = K::retain(&self.store, kept).await?;
        if removed > 0 {
            info!(removed, "removed {} that the fleet does not have", K::KIND);
        }
        Ok(pages.revision())
    }

    /// The record that etcd holds.
    fn record(&self, pair: &KeyValue) -> Option<SharedRecord> {
        let key = String::from_utf8_lossy(&pair.key);
        let Some((tenant, name)) = K::read_key(&self.names, &pair.key) else {
            warn!(%key, "skipped a key in etcd: it does not name a {}", K::WHAT);
            return None;
        };
        match K::read_value(&name, &pair.value) {
            Ok(body) if is_tenant(&tenant) => Some(SharedRecord { tenant, name, body }),
            Ok(_) => None,
            Err(reason) => {
                warn!(%key, %reason, "skipped a {} in etcd", K::WHAT);
                None
            }
        }
    }
}

fn is_tenant(text: &str) -> bool {
    TenantId::parse(text).is_ok()
}

impl<K: RecordKind> Replica for RecordReplica<K> {
    const KIND: &'static str = K::KIND;

    fn prefix(&self) -> Vec<u8> {
        K::prefix(&self.names)
    }

    async fn join(&mut self) -> Result<i64, ReplicationError> {
        let id = fleet_id::of_etcd(&self.etcd, &self.names).await?;
        let path = self.fleet_file.clone();
        let own = blocking(move || fleet_id::read(&path)).await?;
        let is_new = own.as_deref() != Some(&*id);
        if is_new {
            self.add_own().await?;
        }
        let revision = self.take_all().await?;
        if is_new {
            let path = self.fleet_file.clone();
            blocking(move || fleet_id::write(&path, &id)).await?;
        }
        self.applied.send_replace(revision);
        Ok(revision)
    }

    async fn apply(&mut self, batch: WatchBatch) -> Result<(), ReplicationError> {
        // The last change of each record.
        let mut last: BTreeMap<Vec<u8>, Option<KeyValue>> = BTreeMap::new();
        for change in batch.changes {
            match change {
                Change::Put(pair) => last.insert(pair.key.clone(), Some(pair)),
                Change::Deleted { key } => last.insert(key, None),
            };
        }
        let mut records = Vec::new();
        for (key, written) in last {
            match written {
                Some(pair) => records.extend(self.record(&pair)),
                None => {
                    if let Some((tenant, name)) = K::read_key(&self.names, &key) {
                        K::remove(&self.store, &tenant, &name).await?;
                    }
                }
            }
        }
        K::set(&self.store, records).await?;
        self.applied.send_replace(batch.revision);
        Ok(())
    }
}
