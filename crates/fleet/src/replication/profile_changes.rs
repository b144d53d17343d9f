//! Changes of network profiles by requests.

use crate::replication::error::ReplicationError;
use crate::replication::values;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::Operation;
use isolet_cluster::etcd::Outcome;
use isolet_cluster::etcd::Transaction;
use isolet_cluster::model::Keys as KeyNames;
use isolet_sandbox::profiles::PROFILES_MAX;
use isolet_sandbox::profiles::Profile;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Maximum number of network profiles of all tenants: each node has a copy of all on its disk, and
/// their names in memory while it lists them.
pub const ALL_PROFILES_MAX: usize = 100_000;
/// How long a change waits until this node has it too, after all others can have it. It takes longer
/// only while the watch is interrupted.
const APPLIED_WITHIN: Duration = Duration::from_secs(3);

/// What became of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutProfile {
    /// There was none of this name.
    Created,
    /// It replaces another one.
    Replaced,
    /// The tenant, or the fleet, has the maximum number of profiles. Nothing was changed.
    TooMany {
        /// The maximum.
        max: usize,
    },
}

/// Writes profiles to etcd.
pub(super) struct ProfileChanges {
    etcd: Etcd,
    names: KeyNames,
    /// The revision up to which the records of this node are current.
    applied: watch::Receiver<i64>,
}

impl ProfileChanges {
    pub(super) fn new(etcd: Etcd, names: KeyNames, applied: watch::Receiver<i64>) -> Self {
        Self { etcd, names, applied }
    }

    pub(super) async fn put(
        &self,
        tenant: &str,
        profile: &Profile,
    ) -> Result<PutProfile, ReplicationError> {
        let key = self.names.profile(tenant, &profile.name);
        let value = values::of_profile(profile);
        if value.len() > values::PROFILE_BYTES_MAX {
            return Err(ReplicationError::TooLarge {
                what: format!("the network profile {}", profile.name),
                bytes: value.len(),
                limit: values::PROFILE_BYTES_MAX,
            });
        }
        let look = vec![
            Operation::Get { key: key.clone() },
            Operation::Count { prefix: self.names.profiles_of_tenant(tenant) },
            Operation::Count { prefix: self.names.profiles() },
        ];
        let found = self.apply(look).await?;
        if found.pair(0).is_none() {
            for (index, max) in [(1, PROFILES_MAX), (2, ALL_PROFILES_MAX)] {
                if found.count(index) >= max as u64 {
                    return Ok(PutProfile::TooMany { max });
                }
            }
        }
        let write = vec![Operation::Get { key: key.clone() }, Operation::put(key, value)];
        let written = self.apply(write).await?;
        self.wait_until_applied(written.revision).await;
        let is_new = written.pair(0).is_none();
        Ok(if is_new { PutProfile::Created } else { PutProfile::Replaced })
    }

    pub(super) async fn remove(&self, tenant: &str, name: &str) -> Result<bool, ReplicationError> {
        let key = self.names.profile(tenant, name);
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
