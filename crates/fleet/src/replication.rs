//! What every node of a fleet must know, in etcd: API keys, network profiles of tenants, and
//! revocation lists of the nodes' certificates.
//!
//! Requests read the local records only, so a request costs etcd nothing. A task for each kind lists
//! its keys in etcd, watches them, and writes what is new to the local records. Whenever the watch
//! ends, and once in a while without a reason, it lists everything again, so that neither a compacted
//! history nor an etcd that was restored leaves a difference.
//!
//! | kind | written to etcd | when both differ |
//! |---|---|---|
//! | API keys | by the node whose records have a key, or a revocation, that etcd lacks | union; revocation wins |
//! | profiles | by [`Replication::put_profile`] and [`Replication::remove_profile`], before the answer | etcd's; a node that joins for the first time adds its own |
//! | revocation lists | by the node that has a newer list | the higher number of a signed list |
//!
//! Only digests of API keys leave a node.
//!
//! # Layers
//!
//! `error`, `values` (what lies in etcd), `follow`, then `keys`, `profiles` and `revocation`, which do
//! not know each other.

mod error;
mod fleet_id;
mod follow;
mod keys;
mod listed;
mod profile_changes;
mod profiles;
mod revocation;
mod values;

pub use error::ReplicationError;
pub use keys::KEYS_MAX;
pub use profile_changes::{ALL_PROFILES_MAX, PutProfile};

use isolet_cluster::etcd::Etcd;
use isolet_cluster::model::Keys as KeyNames;
use isolet_peer::PeerTls;
use isolet_store::Store;
use isolet_store::keys::Keys;
use keys::KeyReplica;
use profile_changes::ProfileChanges;
use profiles::ProfileReplica;
use revocation::ListReplica;
use std::path::PathBuf;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the replication connects.
#[derive(Clone)]
pub struct ReplicationParts {
    /// The client of etcd.
    pub etcd: Etcd,
    /// Makes the names of the keys in etcd.
    pub names: KeyNames,
    /// The API keys of this node.
    pub api_keys: Keys,
    /// The records of this node, for the network profiles.
    pub store: Store,
    /// The data directory. The file `fleet` in it names the fleet whose profiles the records hold.
    pub data_dir: PathBuf,
    /// The certificates of this node.
    pub tls: PeerTls,
}

/// Copies what every node must know, until it is dropped.
pub struct Replication {
    changes: ProfileChanges,
    tasks: [JoinHandle<()>; 3],
}

impl Replication {
    /// Makes the records of this node equal to those of the fleet, and keeps them so. When it
    /// returns, a key that was revoked while this node was away opens nothing, so the caller listens
    /// for requests only then.
    ///
    /// # Errors
    /// [`ReplicationError`]: etcd cannot be reached, or the records cannot be written, for another
    /// reason than a full disk. Call it again later; what was merged stays.
    pub async fn start(parts: ReplicationParts) -> Result<Self, ReplicationError> {
        let ReplicationParts { etcd, names, api_keys, store, data_dir, tls } = parts;
        let mut keys = KeyReplica::new(etcd.clone(), names.clone(), api_keys);
        let keys_at = follow::first_join(&mut keys).await?;
        let mut lists = ListReplica::new(etcd.clone(), names.clone(), tls);
        let lists_at = follow::first_join(&mut lists).await?;
        let (applied_sender, applied) = watch::channel(0);
        let mut profiles = ProfileReplica::new(
            etcd.clone(),
            names.clone(),
            store,
            data_dir.join(fleet_id::FILE),
            applied_sender,
        );
        let profiles_at = follow::first_join(&mut profiles).await?;
        let changes = ProfileChanges::new(etcd.clone(), names, applied);
        let tasks = [
            tokio::spawn(follow::run(keys, etcd.clone(), keys_at)),
            tokio::spawn(follow::run(lists, etcd.clone(), lists_at)),
            tokio::spawn(follow::run(profiles, etcd, profiles_at)),
        ];
        Ok(Self { changes, tasks })
    }

    /// Writes a network profile, for all nodes. The caller has checked it. When it returns, etcd has
    /// it, and usually this node too; the others get it within a second.
    ///
    /// # Errors
    /// [`ReplicationError::Etcd`]: nothing was changed, or, if the answer of etcd was lost, it was
    /// changed for all nodes.
    pub async fn put_profile(
        &self,
        tenant: &str,
        profile: &isolet_sandbox::profiles::Profile,
    ) -> Result<PutProfile, ReplicationError> {
        self.changes.put(tenant, profile).await
    }

    /// Deletes a network profile, for all nodes. Returns whether there was one.
    ///
    /// # Errors
    /// Like [`Self::put_profile`].
    pub async fn remove_profile(&self, tenant: &str, name: &str) -> Result<bool, ReplicationError> {
        self.changes.remove(tenant, name).await
    }

    /// Ends the tasks. Profiles can still be changed for the other nodes.
    pub fn stop(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The tasks end with their owner. Each write of theirs is complete or can be repeated.
impl Drop for Replication {
    fn drop(&mut self) {
        self.stop();
    }
}
