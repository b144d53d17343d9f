//! The task that knows all nodes: it lists their keys and watches them from then on.

use crate::etcd::Change;
use crate::etcd::Etcd;
use crate::etcd::EtcdError;
use crate::etcd::KeyValue;
use crate::etcd::PAGE_KEYS_MAX;
use crate::etcd::Watch;
use crate::membership::error::JoinError;
use crate::membership::table::Suspects;
use crate::membership::table::Table;
use crate::model::Epoch;
use crate::model::Keys;
use crate::model::Members;
use crate::model::NODES_MAX;
use crate::model::NodeKey;
use crate::model::NodeRecord;
use crate::model::SkippedKey;
use isolet_wire::node::NodeName;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::sleep_until;
use tracing::warn;

/// Pause before the watch is opened again.
const PAUSE: Duration = Duration::from_millis(250);
/// Shortest time between two tables that are published because of changes in etcd. A table costs a copy
/// of all records, and each node of a large fleet reports its load every few seconds.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);
/// How long the watch may take to report a record that this node has written. After that it counts as
/// silent.
const SEEN_WITHIN: Duration = Duration::from_secs(5);
/// How long reading the key of a node may take that this node failed to reach.
const READ_WAIT: Duration = Duration::from_secs(2);
/// Maximum number of such reads at once. Further reports only mark the node.
const READS_MAX: usize = 16;
/// Maximum number of keys that a list reads: four about each node.
const KEYS_MAX: usize = 4 * NODES_MAX;

/// What the task needs.
pub(super) struct DirectoryTask {
    pub(super) etcd: Etcd,
    pub(super) keys: Keys,
    pub(super) members: watch::Sender<Members>,
    /// This node.
    pub(super) own: NodeName,
    /// What etcd has of this node's own key, for the task that renews the lease.
    pub(super) own_key: watch::Sender<OwnKey>,
    /// The revision at which this node has written its own record last.
    pub(super) written: watch::Receiver<i64>,
    pub(super) suspects: mpsc::Receiver<Suspicion>,
    /// How long a node stays suspect without a new record.
    pub(super) suspect_for: Duration,
    pub(super) stopped: watch::Receiver<bool>,
}

/// A node that this node failed to reach.
#[derive(Debug)]
pub(super) struct Suspicion {
    pub(super) node: NodeName,
    /// Gets an answer when the key of the node was read.
    pub(super) answer: oneshot::Sender<()>,
}

/// The key of a node that this node failed to reach, as it was read.
struct ReadKey {
    node: NodeName,
    found: Result<Found, EtcdError>,
    answer: oneshot::Sender<()>,
}

/// Whether a key exists, at a revision.
struct Found {
    revision: i64,
    is_there: bool,
}

impl Found {
    async fn read(etcd: &Etcd, key: &[u8]) -> Result<Self, EtcdError> {
        // Unlike a read of one key, a list says at which revision it was read.
        let page = etcd.list(key, None, 1, None).await?;
        let is_there = page.pairs.first().is_some_and(|pair| pair.key == key);
        Ok(Self { revision: page.revision, is_there })
    }
}

/// What is known of a node's own key in etcd.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OwnKey {
    /// The revision up to which this was known when it changed last.
    revision: i64,
    registration: Option<Epoch>,
    /// The number of nodes that hold their leases.
    pub(super) nodes: usize,
}

impl OwnKey {
    /// Whether a registration that was made before is gone: its lease was revoked, or its key was
    /// deleted.
    pub(super) fn has_lost(self, registration: Epoch) -> bool {
        match self.registration {
            Some(known) => known > registration,
            None => registration.revision() <= self.revision,
        }
    }
}

/// Nodes that this node failed to reach.
#[derive(Default)]
struct Marks {
    of: BTreeMap<NodeName, (i64, Instant)>,
}

impl Marks {
    fn suspects(&self) -> Suspects {
        self.of.iter().map(|(name, (revision, _))| (name.clone(), *revision)).collect()
    }

    fn first_end(&self) -> Option<Instant> {
        self.of.values().map(|(_, end)| *end).min()
    }
}

/// Reads all keys about nodes.
pub(super) async fn list(etcd: &Etcd, keys: &Keys) -> Result<Table, EtcdError> {
    let Listed { revision, pairs } = Listed::read(etcd, keys).await?;
    let mut table = Table::new(keys.clone(), revision);
    for pair in pairs {
        report(table.put(pair).as_ref());
    }
    Ok(table)
}

/// Refuses a fleet in which a node that holds its lease has another format.
pub(super) async fn check_formats(etcd: &Etcd, keys: &Keys, own: u32) -> Result<(), JoinError> {
    for pair in Listed::read(etcd, keys).await?.pairs {
        let Some(NodeKey::Live(name)) = keys.read_node(&pair.key) else { continue };
        let found = NodeRecord::read_format(&pair.value);
        if let Some(found) = found.filter(|found| *found != own) {
            return Err(JoinError::OtherFormat { name, found, own });
        }
    }
    Ok(())
}

/// The keys about nodes at one revision.
struct Listed {
    revision: i64,
    pairs: Vec<KeyValue>,
}

impl Listed {
    async fn read(etcd: &Etcd, keys: &Keys) -> Result<Self, EtcdError> {
        let prefix = keys.nodes();
        let mut page = etcd.list(&prefix, None, PAGE_KEYS_MAX, None).await?;
        let revision = page.revision;
        let mut pairs = Vec::new();
        loop {
            pairs.append(&mut page.pairs);
            match pairs.last() {
                Some(last) if page.has_more && pairs.len() < KEYS_MAX => {
                    page =
                        etcd.list(&prefix, Some(&last.key), PAGE_KEYS_MAX, Some(revision)).await?;
                }
                _ => return Ok(Self { revision, pairs }),
            }
        }
    }
}

impl DirectoryTask {
    /// Runs until the membership stops.
    pub(super) async fn run(mut self, mut table: Table) {
        let mut marks = Marks::default();
        let mut stopped = self.stopped.clone();
        tokio::select! {
            () = self.follow(&mut table, &mut marks) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }

    /// Watches, and lists again when etcd has forgotten the changes in between.
    async fn follow(&mut self, table: &mut Table, marks: &mut Marks) {
        loop {
            let prefix = self.keys.nodes();
            let ended = match self.etcd.watch(&prefix, table.revision + 1).await {
                Ok(watch) => self.apply(watch, table, marks).await,
                Err(error) => error,
            };
            self.members.send_modify(|members| *members = members.outdated());
            warn!(error = %ended, revision = table.revision, "the watch of the nodes ended");
            sleep(PAUSE).await;
            // Anything but an endpoint that does not answer may mean that the revision is not usable.
            if !matches!(ended, EtcdError::Unavailable { .. }) {
                match list(&self.etcd, &self.keys).await {
                    Ok(fresh) => *table = fresh,
                    Err(error) => warn!(%error, "cannot list the nodes"),
                }
            }
        }
    }

    /// Applies changes until the watch ends.
    async fn apply(&mut self, mut watch: Watch, table: &mut Table, marks: &mut Marks) -> EtcdError {
        self.publish_own(table);
        self.publish(table, marks);
        let mut next = Instant::now();
        let mut is_waiting = false;
        let mut reads = JoinSet::new();
        let mut seen_by = None;
        self.written.mark_changed();
        loop {
            let end = marks.first_end();
            let mut is_own = false;
            tokio::select! {
                Ok(()) = self.written.changed() => {
                    let written = *self.written.borrow_and_update();
                    // The watch may have been faster than the answer to the write.
                    if table.revision_of(&self.own).is_some_and(|seen| seen < written) {
                        seen_by = Some(Instant::now() + SEEN_WITHIN);
                    }
                }
                () = sleep_until(seen_by.unwrap_or_else(Instant::now)), if seen_by.is_some() => {
                    self.publish(table, marks);
                    return EtcdError::Silent { endpoint: "one of the endpoints".to_owned() };
                }
                Some(read) = reads.join_next(), if !reads.is_empty() => {
                    let Ok(ReadKey { node, found, answer }) = read else { continue };
                    match found {
                        // The watch has not told it yet, or it is silent.
                        Ok(Found { revision, is_there: false })
                            if table.revision_of(&node).is_some_and(|known| known <= revision) =>
                        {
                            let key = self.keys.node(&NodeKey::Live(node));
                            report(table.apply(Change::Deleted { key }).as_ref());
                            self.publish_own(table);
                            self.publish(table, marks);
                        }
                        Ok(_) => {}
                        Err(error) => warn!(%node, %error, "cannot read the key of a node"),
                    }
                    // The request that reported the node may have ended.
                    let _ = answer.send(());
                }
                batch = watch.next() => match batch {
                    Ok(batch) => {
                        for change in batch.changes {
                            report(table.apply(change).as_ref());
                        }
                        table.revision = batch.revision;
                        is_waiting = true;
                        self.publish_own(table);
                        let written = *self.written.borrow();
                        if table.revision_of(&self.own).is_none_or(|seen| seen >= written) {
                            seen_by = None;
                        }
                    }
                    Err(error) => {
                        self.publish(table, marks);
                        return error;
                    }
                },
                Some(Suspicion { node: name, answer }) = self.suspects.recv() => {
                    is_own = true;
                    if reads.len() < READS_MAX {
                        let key = self.keys.node(&NodeKey::Live(name.clone()));
                        let etcd = self.etcd.with_timeout(READ_WAIT);
                        let node = name.clone();
                        reads.spawn(async move {
                            let found = Found::read(&etcd, &key).await;
                            ReadKey { node, found, answer }
                        });
                    }
                    let end = Instant::now() + self.suspect_for;
                    if let Some(revision) = table.revision_of(&name) {
                        marks.of.insert(name, (revision, end));
                    }
                }
                () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => is_own = true,
                () = sleep_until(next), if is_waiting => {}
            }
            let now = Instant::now();
            marks.of.retain(|name, (revision, end)| {
                *end > now && table.revision_of(name) == Some(*revision)
            });
            // What this node itself has learned is published at once.
            if is_own || (is_waiting && now >= next) {
                self.publish(table, marks);
                next = now + PUBLISH_EVERY;
                is_waiting = false;
            }
        }
    }

    fn publish_own(&self, table: &Table) {
        let registration = table.registration_of(&self.own);
        let nodes = table.live_count();
        self.own_key.send_if_modified(|known| {
            let is_new = (known.registration, known.nodes) != (registration, nodes);
            if is_new {
                *known = OwnKey { revision: table.revision, registration, nodes };
            }
            is_new
        });
    }

    fn publish(&self, table: &mut Table, marks: &Marks) {
        let members = table.members(&marks.suspects());
        self.members.send_if_modified(|known| {
            let is_new = *known != members;
            *known = members;
            is_new
        });
    }
}

fn report(skipped: Option<&SkippedKey>) {
    if let Some(SkippedKey { key, reason }) = skipped {
        warn!(%key, %reason, "skipped a key in etcd; delete it if no node of the fleet wrote it");
    }
}
