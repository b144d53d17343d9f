//! The task that knows all nodes: it lists their keys and watches them from then on.

use crate::etcd::Etcd;
use crate::etcd::EtcdError;
use crate::etcd::KeyValue;
use crate::etcd::PAGE_KEYS_MAX;
use crate::etcd::Watch;
use crate::membership::error::JoinError;
use crate::membership::table::Suspects;
use crate::membership::table::Table;
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
use tokio::sync::watch;
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::sleep_until;
use tracing::warn;

/// Pause before the watch is opened again.
const PAUSE: Duration = Duration::from_millis(250);
/// Shortest time between two tables that are published because of changes in etcd. A table costs a copy
/// of all records, and each node of a large fleet reports its load every few seconds.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of keys that a list reads: four about each node.
const KEYS_MAX: usize = 4 * NODES_MAX;

/// What the task needs.
pub(super) struct DirectoryTask {
    pub(super) etcd: Etcd,
    pub(super) keys: Keys,
    pub(super) members: watch::Sender<Members>,
    pub(super) suspects: mpsc::Receiver<NodeName>,
    /// How long a node stays suspect without a new record.
    pub(super) suspect_for: Duration,
    pub(super) stopped: watch::Receiver<bool>,
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
        self.publish(table, marks);
        let mut next = Instant::now();
        let mut is_waiting = false;
        loop {
            let end = marks.first_end();
            let mut is_own = false;
            tokio::select! {
                batch = watch.next() => match batch {
                    Ok(batch) => {
                        for change in batch.changes {
                            report(table.apply(change).as_ref());
                        }
                        table.revision = batch.revision;
                        is_waiting = true;
                    }
                    Err(error) => {
                        self.publish(table, marks);
                        return error;
                    }
                },
                Some(name) = self.suspects.recv() => {
                    is_own = true;
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
