//! A node without sandboxes: the calls to etcd that the server of a node makes.

use anyhow::Result;
use isolet_cluster::etcd::{Etcd, EtcdSettings, PAGE_KEYS_MAX, Watch};
use isolet_cluster::membership::Membership;
use isolet_cluster::model::{
    Capacity, ClusterFile, ClusterSettings, Keys, Label, Load, NodeRecord,
};
use isolet_cluster::ownership::{ListCursor, Ownership};
use isolet_wire::node::NodeName;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Memory of a node, in MiB.
pub(crate) const MEMORY_MIB: u64 = 256 * 1024;
/// Images of a node.
const IMAGES: usize = 20;
/// Keys of one page of a node's list, as the server reads it.
const PAGE: u16 = 1000;
/// The pause before a prefix is listed again.
const PAUSE: Duration = Duration::from_millis(250);

/// A member of the fleet.
pub(crate) struct SimulatedNode {
    pub(crate) name: NodeName,
    pub(crate) membership: Membership,
    pub(crate) ownership: Ownership,
    pub(crate) keys: Keys,
    _watches: Watches,
}

/// The watches of what all nodes share. They end when this is dropped.
struct Watches(Vec<JoinHandle<()>>);

/// How long the parts of a start took.
pub(crate) struct StartTimes {
    /// The registration, and the list of all nodes.
    pub(crate) join: Duration,
    /// The lists and the watches of what all nodes share.
    pub(crate) shared: Duration,
    /// The list of the records of the node.
    pub(crate) held: Duration,
    /// The number of these records.
    pub(crate) count: usize,
}

impl SimulatedNode {
    /// Does what a server does before it answers its first request.
    pub(crate) async fn start(urls: &[String], name: &str) -> Result<(Self, StartTimes)> {
        let settings = settings(urls, name)?;
        let etcd = Etcd::new(EtcdSettings { endpoints: urls.to_vec(), tls: None })?;
        let begun = Instant::now();
        let membership = Membership::join(etcd.clone(), &settings, record(&settings)?).await?;
        let join = begun.elapsed();
        let keys = settings.keys.clone();
        let begun = Instant::now();
        let mut watches = Watches(Vec::new());
        for prefix in [keys.api_keys(), keys.revocation_lists(), keys.profiles()] {
            watches.0.push(follow(&etcd, prefix).await?);
        }
        let shared = begun.elapsed();
        let state = membership.state();
        let ownership = Ownership::new(etcd, keys.clone(), settings.node.clone(), state);
        let begun = Instant::now();
        let count = count_held(&ownership, &settings.node).await?;
        let held = begun.elapsed();
        let node = Self { name: settings.node, membership, ownership, keys, _watches: watches };
        Ok((node, StartTimes { join, shared, held, count }))
    }

    /// Stops as a server does: the next one continues its registration.
    pub(crate) async fn stop(self) {
        self.membership.stop().await;
    }

    /// Reports a load.
    pub(crate) fn report(&self, memory_reserved_mib: u64) {
        self.membership.set_load(load(memory_reserved_mib));
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

fn settings(urls: &[String], name: &str) -> Result<ClusterSettings> {
    let file = ClusterFile {
        etcd: urls.to_vec(),
        node: name.to_owned(),
        advertise: "10.0.0.11:7301".to_owned(),
        region: Some("eu-central-1".to_owned()),
        labels: [("zone", "eu-central-1a"), ("gpu", "no"), ("disk", "nvme")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..ClusterFile::default()
    };
    Ok(file.settings()?)
}

/// The record of a node, of usual size.
pub(crate) fn record(settings: &ClusterSettings) -> Result<NodeRecord> {
    let identity = format!("{:032x}", 1);
    let region = Label::parse(settings.region.as_str())?;
    let mut record =
        NodeRecord::new(1, settings.node.clone(), identity, settings.advertise.clone(), region);
    record.labels = settings.labels.clone();
    record.store = true;
    record.limits_digest = format!("{:016x}", 1);
    record.capacity = Capacity {
        memory_mib: MEMORY_MIB,
        cpu_millis: 64_000,
        disk_mib: 4 * 1024 * 1024,
        sandboxes: 32_768,
    };
    record.load = load(0);
    Ok(record)
}

fn load(memory_reserved_mib: u64) -> Load {
    Load {
        memory_reserved_mib,
        disk_used_mib: 1024 * 1024,
        sandboxes: 1000,
        running: 400,
        is_full: false,
        pushes_stuck: false,
        images: (0..IMAGES).map(|index| format!("{index:016x}")).collect(),
    }
}

/// Lists and watches a prefix, as the replication of a server does.
async fn follow(etcd: &Etcd, prefix: Vec<u8>) -> Result<JoinHandle<()>> {
    let mut watch = listed(etcd, &prefix).await?;
    let etcd = etcd.clone();
    Ok(tokio::spawn(async move {
        loop {
            while watch.next().await.is_ok() {}
            // The member that served it has ended, or the history was compacted.
            watch = loop {
                sleep(PAUSE).await;
                if let Ok(next) = listed(&etcd, &prefix).await {
                    break next;
                }
            };
        }
    }))
}

/// Lists a prefix, and watches what follows.
async fn listed(etcd: &Etcd, prefix: &[u8]) -> Result<Watch> {
    let mut page = etcd.list(prefix, None, PAGE_KEYS_MAX, None).await?;
    let revision = page.revision;
    while let Some(last) = page.pairs.last().filter(|_| page.has_more) {
        let after = last.key.clone();
        page = etcd.list(prefix, Some(&after), PAGE_KEYS_MAX, Some(revision)).await?;
    }
    Ok(etcd.watch(prefix, revision + 1).await?)
}

async fn count_held(ownership: &Ownership, node: &NodeName) -> Result<usize> {
    let mut count = 0;
    let mut after: Option<ListCursor> = None;
    loop {
        let page = ownership.held(node, after.as_ref(), PAGE).await?;
        count += page.sandboxes.len();
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(count),
        }
    }
}
