//! Nodes of a fleet, for tests.

use crate::etcd_server::EtcdServer;
use crate::etcd_server::wait_until;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::EtcdSettings;
use isolet_cluster::membership::JoinError;
use isolet_cluster::membership::MemberState;
use isolet_cluster::membership::Membership;
use isolet_cluster::model::Class;
use isolet_cluster::model::ClusterFile;
use isolet_cluster::model::ClusterSettings;
use isolet_cluster::model::Members;
use isolet_cluster::model::NodeRecord;
use isolet_cluster::model::NodeState;
use isolet_cluster::model::Owner;
use isolet_cluster::model::SandboxKey;
use isolet_cluster::ownership::Claim;
use isolet_cluster::ownership::Claimed;
use isolet_cluster::ownership::Ownership;
use isolet_wire::node::NodeName;
use std::time::Duration;

/// The format of all nodes.
pub(crate) const FORMAT: u32 = 7;
/// The lifetime of a lease whose end a test waits for.
pub(crate) const BRIEF: Duration = Duration::from_secs(3);

/// A node with its membership.
pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) membership: Membership,
    pub(crate) ownership: Ownership,
}

/// The settings of a node; its lease lasts as long as `lease_ttl` says.
pub(crate) fn settings(server: &EtcdServer, node: &str, lease_ttl: Duration) -> ClusterSettings {
    let file = ClusterFile {
        etcd: vec![server.url()],
        node: node.into(),
        advertise: "127.0.0.1:7301".into(),
        ..ClusterFile::default()
    };
    ClusterSettings { lease_ttl, ..file.settings().unwrap() }
}

/// The record of a node whose data directory has this identity.
pub(crate) fn record(settings: &ClusterSettings, identity: &str) -> NodeRecord {
    let name = settings.node.clone();
    let region = settings.region.clone();
    NodeRecord::new(FORMAT, name, identity.into(), settings.advertise.clone(), region)
}

impl Node {
    /// A node that joins, with a lease that is longer than a busy machine delays renewals.
    pub(crate) async fn join(server: &EtcdServer, name: &str) -> Self {
        let long = Duration::from_secs(20);
        Self::try_join(server, name, "identity", long).await.unwrap()
    }

    /// A node that joins, with a lease whose end a test waits for.
    pub(crate) async fn join_briefly(server: &EtcdServer, name: &str) -> Self {
        Self::try_join(server, name, "identity", BRIEF).await.unwrap()
    }

    /// A node that may be refused.
    pub(crate) async fn try_join(
        server: &EtcdServer,
        name: &str,
        identity: &str,
        lease_ttl: Duration,
    ) -> Result<Self, JoinError> {
        Self::join_with(server.client(), settings(server, name, lease_ttl), identity).await
    }

    /// A node whose connections to etcd lead through another URL.
    pub(crate) async fn join_through(
        server: &EtcdServer,
        url: &str,
        name: &str,
        lease_ttl: Duration,
    ) -> Self {
        let settings = settings(server, name, lease_ttl);
        let etcd = EtcdSettings { endpoints: vec![url.to_owned()], tls: None };
        Self::join_with(Etcd::new(etcd).unwrap(), settings, "identity").await.unwrap()
    }

    async fn join_with(
        etcd: Etcd,
        settings: ClusterSettings,
        identity: &str,
    ) -> Result<Self, JoinError> {
        let record = record(&settings, identity);
        let membership = Membership::join(etcd.clone(), &settings, record).await?;
        let keys = settings.keys.clone();
        let ownership = Ownership::new(etcd, keys, settings.node.clone(), membership.state());
        Ok(Self { name: settings.node, membership, ownership })
    }

    /// Ends the node as SIGKILL would: nobody renews its lease.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Waits for a state of the membership.
    pub(crate) async fn wait_for(&self, is_it: impl Fn(&MemberState) -> bool) -> MemberState {
        let mut states = self.membership.state();
        let waited = tokio::time::timeout(Duration::from_secs(60), states.wait_for(|s| is_it(s)));
        *waited.await.expect("the state").unwrap()
    }

    /// Waits until the nodes are as expected.
    pub(crate) async fn wait_for_members(&self, are_they: impl Fn(&Members) -> bool) -> Members {
        let mut all = self.membership.members();
        let waited = tokio::time::timeout(Duration::from_secs(60), all.wait_for(|m| are_they(m)));
        waited.await.expect("the nodes").unwrap().clone()
    }

    /// The state of another node, as this one sees it.
    pub(crate) async fn wait_for_node(&self, other: &NodeName, state: NodeState) {
        self.wait_for_members(|all| all.get(other).is_some_and(|node| node.state == state)).await;
    }

    /// Claims a sandbox that nobody owns.
    pub(crate) async fn own(&self, id: &str, class: Class) -> Owner {
        match self.ownership.claim(&claim(id, class)).await.unwrap() {
            Claimed::Won(owner) => owner,
            Claimed::Owned(owner) => panic!("owned by {}", owner.node),
        }
    }
}

/// Waits until the lease of a node has ended.
pub(crate) async fn wait_for_end(server: &EtcdServer, node: &str) {
    let etcd = server.client();
    let key = format!("isolet/nodes/live/{node}").into_bytes();
    let what = || format!("the end of the lease of {node}");
    wait_until(what, async || etcd.get(&key).await.unwrap().is_none()).await;
}

/// A sandbox of the tenant `t`.
pub(crate) fn sandbox(id: &str) -> SandboxKey {
    SandboxKey::new("t", id).unwrap()
}

/// A claim of a sandbox of the tenant `t`.
pub(crate) fn claim(id: &str, class: Class) -> Claim {
    Claim { sandbox: sandbox(id), class, region: "eu".into(), reason: "test".into() }
}
