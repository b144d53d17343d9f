//! What every node of a fleet must know, in etcd: API keys, network profiles and webhooks of
//! tenants, and revocation lists of the nodes' certificates.
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
//! | webhooks | by [`Replication::put_webhook`] and [`Replication::remove_webhook`], likewise | likewise |
//! | revocation lists | by the node that has a newer list | the higher number of a signed list |
//!
//! Only digests of API keys leave a node.
//!
//! # Layers
//!
//! `error`, `values` (what lies in etcd), `follow`, `records` and `record_changes`, then `keys`,
//! `profiles`, `webhooks` and `revocation`, which do not know each other.

mod error;
mod fleet_id;
mod follow;
mod keys;
mod listed;
mod profiles;
mod record_changes;
mod records;
mod revocation;
mod values;
mod webhooks;

pub use error::ReplicationError;
pub(crate) use fleet_id::{OtherFleet, other_fleet};
pub use keys::KEYS_MAX;
pub use profiles::ALL_PROFILES_MAX;
pub use record_changes::{PutRecord, ReplacedRecord};
pub use webhooks::ALL_WEBHOOKS_MAX;

use isolet_cluster::etcd::Etcd;
use isolet_cluster::model::Keys as KeyNames;
use isolet_peer::PeerTls;
use isolet_store::Store;
use isolet_store::keys::Keys;
use keys::KeyReplica;
use profiles::Profiles;
use record_changes::RecordChanges;
use records::{RecordKind, RecordReplica};
use revocation::ListReplica;
use std::path::{Path, PathBuf};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use webhooks::Webhooks;

/// What the replication connects.
#[derive(Clone)]
pub struct ReplicationParts {
    /// The client of etcd.
    pub etcd: Etcd,
    /// Makes the names of the keys in etcd.
    pub names: KeyNames,
    /// The API keys of this node.
    pub api_keys: Keys,
    /// The records of this node, for the network profiles and webhooks.
    pub store: Store,
    /// The data directory. Files in it name the fleet whose profiles and webhooks the records hold.
    pub data_dir: PathBuf,
    /// The certificates of this node.
    pub tls: PeerTls,
}

/// Copies what every node must know, until it is dropped.
pub struct Replication {
    profiles: RecordChanges<Profiles>,
    webhooks: RecordChanges<Webhooks>,
    tasks: [JoinHandle<()>; 4],
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
        let copied = Copied { etcd: &etcd, names: &names, store: &store, data_dir: &data_dir };
        let (profiles, profile_replica, profiles_at) = copied.join::<Profiles>().await?;
        let (webhooks, webhook_replica, webhooks_at) = copied.join::<Webhooks>().await?;
        let tasks = [
            tokio::spawn(follow::run(keys, etcd.clone(), keys_at)),
            tokio::spawn(follow::run(lists, etcd.clone(), lists_at)),
            tokio::spawn(follow::run(profile_replica, etcd.clone(), profiles_at)),
            tokio::spawn(follow::run(webhook_replica, etcd, webhooks_at)),
        ];
        Ok(Self { profiles, webhooks, tasks })
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
    ) -> Result<PutRecord, ReplicationError> {
        self.profiles.put(tenant, &profile.name, values::of_profile(profile)).await
    }

    /// Deletes a network profile, for all nodes. Returns whether there was one.
    ///
    /// # Errors
    /// Like [`Self::put_profile`].
    pub async fn remove_profile(&self, tenant: &str, name: &str) -> Result<bool, ReplicationError> {
        self.profiles.remove(tenant, name).await
    }

    /// Writes a webhook, which is JSON, for all nodes.
    ///
    /// # Errors
    /// Like [`Self::put_profile`].
    pub async fn put_webhook(
        &self,
        tenant: &str,
        id: &str,
        body: &str,
    ) -> Result<PutRecord, ReplicationError> {
        self.webhooks.put(tenant, id, values::of_webhook(body).unwrap_or_default()).await
    }

    /// Replaces a webhook, for all nodes, if it is still `from`.
    ///
    /// # Errors
    /// Like [`Self::put_profile`].
    pub async fn replace_webhook(
        &self,
        tenant: &str,
        id: &str,
        from: &str,
        body: &str,
    ) -> Result<ReplacedRecord, ReplicationError> {
        let value = values::of_webhook(body).unwrap_or_default();
        self.webhooks.replace(tenant, id, from, value).await
    }

    /// Deletes a webhook, for all nodes. Returns whether there was one.
    ///
    /// # Errors
    /// Like [`Self::put_profile`].
    pub async fn remove_webhook(&self, tenant: &str, id: &str) -> Result<bool, ReplicationError> {
        self.webhooks.remove(tenant, id).await
    }

    /// Changes whenever the webhooks of this node may have changed.
    #[must_use]
    pub fn webhooks_changed(&self) -> watch::Receiver<i64> {
        self.webhooks.applied()
    }

    /// Ends the tasks. Profiles can still be changed for the other nodes.
    pub fn stop(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// What records of all kinds are copied between.
struct Copied<'a> {
    etcd: &'a Etcd,
    names: &'a KeyNames,
    store: &'a Store,
    data_dir: &'a Path,
}

impl Copied<'_> {
    /// Makes the records of one kind equal to those of the fleet. Returns how they are changed, their
    /// copy, and the revision of etcd that it has.
    async fn join<K: RecordKind>(
        &self,
    ) -> Result<(RecordChanges<K>, RecordReplica<K>, Option<i64>), ReplicationError> {
        let (sender, applied) = watch::channel(0);
        let etcd = self.etcd.clone();
        let names = self.names.clone();
        let mut replica = RecordReplica::<K>::new(
            etcd.clone(),
            names.clone(),
            self.store.clone(),
            self.data_dir,
            sender,
        );
        let joined = follow::first_join(&mut replica).await?;
        Ok((RecordChanges::new(etcd, names, applied), replica, joined))
    }
}

/// The tasks end with their owner. Each write of theirs is complete or can be repeated.
impl Drop for Replication {
    fn drop(&mut self) {
        self.stop();
    }
}
