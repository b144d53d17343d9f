//! Network profiles of tenants: `PREFIX/profiles/TENANT/NAME` has each of them, and the records of a
//! node are a copy that only [`ProfileReplica`] writes.

use crate::blocking::blocking;
use crate::replication::error::ReplicationError;
use crate::replication::fleet_id;
use crate::replication::follow::Replica;
use crate::replication::listed::Pages;
use crate::replication::values;
use isolet_cluster::etcd::Change;
use isolet_cluster::etcd::Compare;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::KeyValue;
use isolet_cluster::etcd::Operation;
use isolet_cluster::etcd::Transaction;
use isolet_cluster::etcd::WatchBatch;
use isolet_cluster::model::Keys as KeyNames;
use isolet_sandbox::TenantId;
use isolet_store::ProfileRow;
use isolet_store::Store;
use std::collections::BTreeMap;
use std::collections::HashSet;
use std::path::PathBuf;
use tokio::sync::watch;
use tracing::info;
use tracing::warn;

/// Profiles of one page: 40 of the largest ones are smaller than an answer of etcd may be.
const PAGE: u16 = 40;

/// The copy of all profiles in the records of this node.
pub(super) struct ProfileReplica {
    etcd: Etcd,
    names: KeyNames,
    store: Store,
    /// The file that names the fleet whose profiles the records hold.
    fleet_file: PathBuf,
    /// The revision up to which the records are current.
    applied: watch::Sender<i64>,
}

impl ProfileReplica {
    pub(super) fn new(
        etcd: Etcd,
        names: KeyNames,
        store: Store,
        fleet_file: PathBuf,
        applied: watch::Sender<i64>,
    ) -> Self {
        Self { etcd, names, store, fleet_file, applied }
    }

    /// Adds the profiles of this node that etcd lacks.
    async fn add_own(&self) -> Result<(), ReplicationError> {
        let mut after = (String::new(), String::new());
        let mut added = 0;
        loop {
            let rows = self.store.all_profiles(after, u32::from(PAGE)).await?;
            let Some(last) = rows.last() else { break };
            after = (last.tenant.clone(), last.name.clone());
            for row in &rows {
                added += u64::from(self.add(row).await?);
            }
        }
        if added > 0 {
            info!(added, "added the network profiles of this node to the fleet");
        }
        Ok(())
    }

    /// Adds a profile unless etcd has one of this name.
    async fn add(&self, row: &ProfileRow) -> Result<bool, ReplicationError> {
        let ProfileRow { tenant, name, body } = row;
        let Some(profile) = serde_json::from_str(body).ok().filter(|_| is_tenant(tenant)) else {
            warn!(tenant, name, "a network profile does not read; it is not given to the fleet");
            return Ok(false);
        };
        let key = self.names.profile(tenant, name);
        let transaction = Transaction {
            compares: vec![Compare::absent(key.clone())],
            then: vec![Operation::put(key, values::of_profile(&profile))],
            otherwise: Vec::new(),
        };
        let is_new = self.etcd.transaction(transaction).await?.succeeded;
        if !is_new {
            info!(
                tenant,
                name, "the fleet has a network profile of this name, which replaces ours"
            );
        }
        Ok(is_new)
    }

    /// Makes the records equal to etcd. Returns the revision.
    async fn take_all(&self) -> Result<i64, ReplicationError> {
        let mut pages = Pages::new(&self.etcd, self.names.profiles(), PAGE);
        let mut kept = HashSet::new();
        while let Some(page) = pages.next().await? {
            let mut rows = Vec::with_capacity(page.len());
            for pair in page {
                // One that does not read stays as it is.
                kept.extend(self.names.read_profile(&pair.key));
                rows.extend(self.row(&pair));
            }
            self.store.set_profiles(rows).await?;
        }
        let removed = self.store.retain_profiles(kept).await?;
        if removed > 0 {
            info!(removed, "removed network profiles that the fleet does not have");
        }
        Ok(pages.revision())
    }

    /// The record of a profile in etcd.
    fn row(&self, pair: &KeyValue) -> Option<ProfileRow> {
        let key = String::from_utf8_lossy(&pair.key);
        let Some((tenant, name)) = self.names.read_profile(&pair.key) else {
            warn!(%key, "skipped a key in etcd: it does not name a network profile");
            return None;
        };
        let read = values::read_profile(&name, &pair.value);
        let body = match read {
            Ok(profile) if is_tenant(&tenant) => serde_json::to_string(&profile).ok()?,
            Ok(_) => return None,
            Err(reason) => {
                warn!(%key, %reason, "skipped a network profile in etcd");
                return None;
            }
        };
        Some(ProfileRow { tenant, name, body })
    }
}

fn is_tenant(text: &str) -> bool {
    TenantId::parse(text).is_ok()
}

impl Replica for ProfileReplica {
    const KIND: &'static str = "network profiles";

    fn prefix(&self) -> Vec<u8> {
        self.names.profiles()
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
        // The last change of each profile.
        let mut last: BTreeMap<Vec<u8>, Option<KeyValue>> = BTreeMap::new();
        for change in batch.changes {
            match change {
                Change::Put(pair) => last.insert(pair.key.clone(), Some(pair)),
                Change::Deleted { key } => last.insert(key, None),
            };
        }
        let mut rows = Vec::new();
        for (key, written) in last {
            match written {
                Some(pair) => rows.extend(self.row(&pair)),
                None => {
                    if let Some((tenant, name)) = self.names.read_profile(&key) {
                        self.store.remove_profile(&tenant, &name).await?;
                    }
                }
            }
        }
        self.store.set_profiles(rows).await?;
        self.applied.send_replace(batch.revision);
        Ok(())
    }
}
