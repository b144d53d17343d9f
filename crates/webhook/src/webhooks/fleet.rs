//! What a fleet does for the webhooks of a server: it gives their records to all nodes.

use std::future::Future;
use std::pin::Pin;
use tokio::sync::watch;

/// A future of [`FleetRecords`], which is a trait object.
pub type FleetFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// All nodes get it, and usually this one has it.
    Written,
    /// The tenant, or the fleet, has the maximum number of webhooks. Nothing was changed.
    TooMany {
        /// The maximum.
        max: usize,
    },
}

/// What became of a change of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceOutcome {
    /// All nodes get it, and usually this one has it.
    Written,
    /// Another node has changed it, and this one does not know that yet. Nothing was changed.
    Differs,
    /// It was deleted. Nothing was changed.
    Missing,
}

/// The records of webhooks of a fleet. This node's records are a copy, which the fleet writes.
pub trait FleetRecords: Send + Sync {
    /// Writes the record of a new webhook, which is JSON. The error says why it failed.
    fn put<'a>(
        &'a self,
        tenant: &'a str,
        id: &'a str,
        body: &'a str,
    ) -> FleetFuture<'a, Result<PutOutcome, String>>;

    /// Replaces the record of a webhook, if it is still `from`.
    fn replace<'a>(
        &'a self,
        tenant: &'a str,
        id: &'a str,
        from: &'a str,
        body: &'a str,
    ) -> FleetFuture<'a, Result<ReplaceOutcome, String>>;

    /// Deletes the record of a webhook. Returns whether there was one.
    fn remove<'a>(&'a self, tenant: &'a str, id: &'a str) -> FleetFuture<'a, Result<bool, String>>;

    /// Changes whenever the records of this node may have changed.
    fn changed(&self) -> watch::Receiver<i64>;
}
