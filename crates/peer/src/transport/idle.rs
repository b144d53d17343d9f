//! Idle connections of the pool, and how many requests each node has.

use crate::transport::connection::{PeerConnection, RequestBody};
use crate::transport::pool::PoolLimits;
use isolet_wire::node::NodeName;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Semaphore;

/// The connections of all nodes that are not in use.
pub(super) struct IdleConnections<B: RequestBody> {
    limits: PoolLimits,
    table: Mutex<Table<B>>,
}

struct Table<B: RequestBody> {
    nodes: HashMap<NodeName, NodeEntry<B>>,
    count: usize,
}

struct NodeEntry<B: RequestBody> {
    /// One permit for each request that may be under way.
    permits: Arc<Semaphore>,
    /// From the one that has been idle longest.
    idle: Vec<(Instant, PeerConnection<B>)>,
}

impl<B: RequestBody> IdleConnections<B> {
    pub(super) fn new(limits: PoolLimits) -> Self {
        Self { limits, table: Mutex::new(Table { nodes: HashMap::new(), count: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, Table<B>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The permits of a node.
    pub(super) fn permits(&self, node: &NodeName) -> Arc<Semaphore> {
        let mut table = self.lock();
        if let Some(entry) = table.nodes.get(node) {
            return Arc::clone(&entry.permits);
        }
        let permits = Arc::new(Semaphore::new(self.limits.requests_per_node));
        let entry = NodeEntry { permits: Arc::clone(&permits), idle: Vec::new() };
        table.nodes.insert(node.clone(), entry);
        permits
    }

    /// Takes the connection to an address of a node that was used last and is still open.
    pub(super) fn take(
        &self,
        node: &NodeName,
        address: SocketAddr,
        own_serial: &str,
    ) -> Option<PeerConnection<B>> {
        loop {
            let (since, mut connection) = {
                let mut table = self.lock();
                let entry = table.nodes.get_mut(node)?;
                let taken = entry.idle.pop()?;
                table.count -= 1;
                taken
            };
            let same = connection.address == address;
            let current = connection.is_current(own_serial, self.limits.age);
            if same && current && since.elapsed() < self.limits.idle && connection.is_idle() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose response was read to the end, if it can be used again.
    pub(super) fn put(&self, node: &NodeName, own_serial: &str, mut connection: PeerConnection<B>) {
        if !connection.is_current(own_serial, self.limits.age) || !connection.is_idle() {
            return;
        }
        let mut table = self.lock();
        if table.count >= self.limits.idle_connections {
            return;
        }
        let Some(entry) = table.nodes.get_mut(node) else { return };
        if entry.idle.len() < self.limits.idle_per_node {
            entry.idle.push((Instant::now(), connection));
            table.count += 1;
        }
    }

    /// Closes connections that are not to be used again, and forgets nodes without any.
    pub(super) fn sweep(&self, own_serial: &str) {
        let mut table = self.lock();
        let PoolLimits { idle, age, .. } = self.limits;
        table.nodes.retain(|_, entry| {
            entry.idle.retain(|(since, connection)| {
                since.elapsed() < idle && connection.is_current(own_serial, age)
            });
            !entry.idle.is_empty() || Arc::strong_count(&entry.permits) > 1
        });
        table.count = table.nodes.values().map(|entry| entry.idle.len()).sum();
    }

    /// The number of idle connections, and of requests under way.
    pub(super) fn count(&self) -> (usize, usize) {
        let table = self.lock();
        let limit = self.limits.requests_per_node;
        let used = |entry: &NodeEntry<B>| limit - entry.permits.available_permits().min(limit);
        (table.count, table.nodes.values().map(used).sum())
    }
}
