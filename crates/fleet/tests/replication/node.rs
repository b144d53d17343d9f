//! Nodes with their own records and certificates.

use crate::etcd_server::EtcdServer;
use crate::etcd_server::wait_until;
use crate::relay::Relay;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::EtcdSettings;
use isolet_cluster::model::Keys as KeyNames;
use isolet_fleet::replication::PutRecord;
use isolet_fleet::replication::ReplacedRecord;
use isolet_fleet::replication::Replication;
use isolet_fleet::replication::ReplicationError;
use isolet_fleet::replication::ReplicationParts;
use isolet_peer::PeerFiles;
use isolet_peer::PeerTls;
use isolet_peer::certificates::Cluster;
use isolet_sandbox::profiles::Profile;
use isolet_store::KeyDigest;
use isolet_store::ProfileRow;
use isolet_store::Store;
use isolet_store::keys::Grant;
use isolet_store::keys::Keys;
use isolet_store::keys::NewKey;
use isolet_wire::node::NodeName;
use std::path::PathBuf;
use tempfile::TempDir;

/// A certificate authority in a temporary directory.
pub(crate) struct Authority {
    folder: TempDir,
    pub(crate) cluster: Cluster,
}

/// A node: its data directory, what it keeps open, and the replication while it is a member.
pub(crate) struct Node {
    folder: TempDir,
    pub(crate) keys: Keys,
    pub(crate) store: Store,
    pub(crate) tls: PeerTls,
    pub(crate) relay: Relay,
    replication: Option<Replication>,
}

pub(crate) fn now_s() -> i64 {
    isolet_clock::now_ms() / 1000
}

pub(crate) fn names() -> KeyNames {
    KeyNames::new("isolet").unwrap()
}

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster::init(&folder.path().join("ca"), now_s()).unwrap();
        Self { folder, cluster }
    }

    /// Issues a certificate to a node.
    pub(crate) fn issue(&mut self, node: &str) -> PeerFiles {
        let into = self.folder.path().join(node);
        let name = NodeName::parse(node).unwrap();
        self.cluster.issue_until(&name, now_s() + 86_400, &into, now_s()).unwrap();
        PeerFiles::in_directory(&into)
    }

    pub(crate) fn directory(&self, node: &str) -> PathBuf {
        self.folder.path().join(node)
    }
}

impl Node {
    /// A node that has not joined.
    pub(crate) async fn new(name: &str, server: &EtcdServer, authority: &mut Authority) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("isolet.db");
        let port = server.url().rsplit(':').next().unwrap().parse().unwrap();
        Self {
            keys: Keys::open(&records).unwrap(),
            store: Store::open(&records).unwrap(),
            tls: PeerTls::open(authority.issue(name)).unwrap(),
            relay: Relay::to(port).await,
            replication: None,
            folder,
        }
    }

    /// A node that has joined.
    pub(crate) async fn joined(name: &str, server: &EtcdServer, all: &mut Authority) -> Self {
        let mut node = Self::new(name, server, all).await;
        node.join().await;
        node
    }

    /// Three nodes that have joined.
    pub(crate) async fn three(server: &EtcdServer, authority: &mut Authority) -> [Self; 3] {
        let a = Self::joined("a", server, authority).await;
        let b = Self::joined("b", server, authority).await;
        [a, b, Self::joined("c", server, authority).await]
    }

    pub(crate) async fn join(&mut self) {
        self.try_join().await.unwrap();
    }

    pub(crate) async fn try_join(&mut self) -> Result<(), ReplicationError> {
        let settings = EtcdSettings { endpoints: vec![self.relay.url()], tls: None };
        let parts = ReplicationParts {
            etcd: Etcd::new(settings).unwrap(),
            names: names(),
            api_keys: self.keys.clone(),
            store: self.store.clone(),
            data_dir: self.folder.path().to_owned(),
            tls: self.tls.clone(),
        };
        self.replication = Some(Replication::start(parts).await?);
        Ok(())
    }

    /// The server of the node ends. Its records stay.
    pub(crate) fn leave(&mut self) {
        self.replication = None;
    }

    /// Connects to another etcd from now on.
    pub(crate) async fn use_etcd(&mut self, server: &EtcdServer) {
        self.leave();
        let port = server.url().rsplit(':').next().unwrap().parse().unwrap();
        self.relay = Relay::to(port).await;
    }

    /// The keys as `isolet keys` opens them, in another process.
    pub(crate) fn command(&self) -> Keys {
        Keys::open(&self.folder.path().join("isolet.db")).unwrap()
    }

    /// Adds a key of the tenant `t` as `isolet keys add` does. Returns its id and secret.
    pub(crate) fn add_key(&self, label: &str) -> (String, String) {
        let new = NewKey { tenant: "t".into(), label: label.into(), ..NewKey::default() };
        let (key, secret) = self.command().add(&new).unwrap();
        (key.id, secret)
    }

    /// Revokes a key as `isolet keys revoke` does.
    pub(crate) fn revoke(&self, id: &str) {
        assert!(self.command().revoke(id).unwrap(), "{id} is valid here");
    }

    /// What a request with this secret may do here.
    pub(crate) fn grant(&self, secret: &str) -> Option<Grant> {
        self.keys.grant_of(&KeyDigest::of(secret)).unwrap()
    }

    pub(crate) fn accepts(&self, secret: &str) -> bool {
        self.grant(secret).is_some()
    }

    fn replication(&self) -> &Replication {
        self.replication.as_ref().expect("it has joined")
    }

    pub(crate) async fn put(
        &self,
        tenant: &str,
        name: &str,
        host: &str,
    ) -> Result<PutRecord, ReplicationError> {
        self.replication().put_profile(tenant, &profile(name, host)).await
    }

    pub(crate) async fn remove(&self, tenant: &str, name: &str) -> Result<bool, ReplicationError> {
        self.replication().remove_profile(tenant, name).await
    }

    /// Writes a webhook of the tenant `t` with this label.
    pub(crate) async fn put_webhook(
        &self,
        id: &str,
        label: &str,
    ) -> Result<PutRecord, ReplicationError> {
        let body = serde_json::json!({ "label": label }).to_string();
        self.replication().put_webhook("t", id, &body).await
    }

    /// Replaces a webhook of the tenant `t` whose label is `from`.
    pub(crate) async fn replace_webhook(
        &self,
        id: &str,
        from: &str,
        label: &str,
    ) -> Result<ReplacedRecord, ReplicationError> {
        let body = |label: &str| serde_json::json!({ "label": label }).to_string();
        self.replication().replace_webhook("t", id, &body(from), &body(label)).await
    }

    pub(crate) async fn remove_webhook(&self, id: &str) -> Result<bool, ReplicationError> {
        self.replication().remove_webhook("t", id).await
    }

    /// All webhooks of this node: `TENANT/ID BODY`.
    pub(crate) async fn webhooks(&self) -> Vec<String> {
        let rows = self.store.webhooks().await.unwrap().into_iter();
        rows.map(|row| format!("{}/{} {}", row.tenant, row.id, row.body)).collect()
    }

    /// All profiles of this node: `TENANT/NAME HOST`.
    pub(crate) async fn profiles(&self) -> Vec<String> {
        let start = (String::new(), String::new());
        let rows = self.store.all_profiles(start, 1000).await.unwrap();
        let shown = |row: ProfileRow| {
            let profile: Profile = serde_json::from_str(&row.body).unwrap();
            assert_eq!(profile.name, row.name);
            format!("{}/{} {}", row.tenant, row.name, profile.allow.join(" "))
        };
        rows.into_iter().map(shown).collect()
    }
}

/// A profile that allows one host.
pub(crate) fn profile(name: &str, host: &str) -> Profile {
    Profile { name: name.into(), allow: vec![host.into()], ..Profile::default() }
}

/// Waits until all nodes accept a secret, or none does.
pub(crate) async fn wait_for_key(nodes: &[&Node], secret: &str, is_valid: bool) {
    let what = || format!("a key to be {}", if is_valid { "valid" } else { "invalid" });
    wait_until(what, async || nodes.iter().all(|node| node.accepts(secret) == is_valid)).await;
}

/// Waits until all nodes have these profiles.
pub(crate) async fn wait_for_profiles(nodes: &[&Node], expected: &[&str]) {
    for node in nodes {
        let what = || format!("the profiles {expected:?}");
        wait_until(what, async || node.profiles().await == expected).await;
    }
}
