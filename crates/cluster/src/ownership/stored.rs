//! Sandboxes that no node has: their node has ended them, their newest snapshot is in the object store,
//! and any node may take them over without waiting for a lease to end.
//!
//! The record of the owner stays, so the id stays taken and the sandbox counts for its tenant. The list
//! of the node does not name it any more. A description beside the record says what the sandbox is, so
//! that it can be listed and shown without being restored.

use crate::etcd::Compare;
use crate::etcd::Operation;
use crate::etcd::Page;
use crate::etcd::Transaction;
use crate::model::Custody;
use crate::model::Epoch;
use crate::model::Owner;
use crate::model::SandboxKey;
use crate::ownership::Fence;
use crate::ownership::Ownership;
use crate::ownership::error::OwnershipError;
use crate::ownership::read_owner;
use isolet_wire::node::NodeName;

/// Maximum size of a description, in bytes.
pub const STORED_BYTES_MAX: usize = 64 * 1024;

/// What a sandbox leaves in etcd when it is stored away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredNote {
    /// What it is, so that it can be shown without being restored.
    pub description: Vec<u8>,
    /// The node that should restore it, if it is moved.
    pub destination: Option<NodeName>,
    /// When its lifetime ends, in milliseconds since 1970.
    pub ends_at_ms: Option<i64>,
}

/// A sandbox that was stored away, by the end of its lifetime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// The sandbox.
    pub sandbox: SandboxKey,
    /// The end of its lifetime, in milliseconds since 1970.
    pub at_ms: i64,
    /// The revision at which this was written.
    revision: i64,
}

/// A sandbox that was stored away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSandbox {
    /// The sandbox.
    pub sandbox: SandboxKey,
    /// The epoch of its owner: one transaction wrote both.
    pub epoch: Epoch,
    /// What the node that stored it away wrote about it.
    pub description: Vec<u8>,
}

/// A part of the list of stored sandboxes, of one tenant or of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredPage {
    /// The sandboxes, in the order of their keys.
    pub sandboxes: Vec<StoredSandbox>,
    /// Whether there are more behind the last one.
    pub has_more: bool,
}

impl Ownership {
    /// Says that this node has nothing of a sandbox any more, and that any node may restore it from the
    /// object store. Call it only after all of its processes have ended for good. Needs no lease.
    ///
    /// # Errors
    /// [`OwnershipError::Stale`] if this node does not own it at that epoch, also because an earlier
    /// attempt succeeded whose answer was lost; [`OwnershipError::TooLarge`],
    /// [`OwnershipError::Etcd`], [`OwnershipError::Unreadable`].
    pub async fn store_away(
        &self,
        fence: &Fence,
        from: &Owner,
        note: StoredNote,
    ) -> Result<(), OwnershipError> {
        let StoredNote { description, destination, ends_at_ms } = note;
        let sandbox = fence.sandbox();
        if description.len() > STORED_BYTES_MAX {
            let sandbox = sandbox.clone();
            let bytes = description.len();
            let what = "the description";
            return Err(OwnershipError::TooLarge { sandbox, what, bytes, limit: STORED_BYTES_MAX });
        }
        let key = self.keys.owner(sandbox);
        let stored = Owner {
            custody: Custody::Stored,
            destination,
            ends_at_ms,
            reason: "in the object store".to_owned(),
            ..from.clone()
        };
        let mut then = vec![
            Operation::put(key.clone(), stored.value()),
            Operation::put(self.keys.stored(sandbox), description),
            Operation::Delete { key: self.keys.held(&from.node, sandbox) },
        ];
        if let Some(at_ms) = ends_at_ms {
            then.push(Operation::put(self.keys.ending(at_ms, sandbox), Vec::new()));
        }
        let compares = vec![fence.compare()];
        let otherwise = vec![Operation::Get { key }];
        let outcome = self.etcd.transaction(Transaction { compares, then, otherwise }).await?;
        self.cache.forget(sandbox, fence.epoch());
        if outcome.succeeded {
            return Ok(());
        }
        let owner = outcome.pair(0).map(|pair| read_owner(sandbox, pair)).transpose()?;
        Err(fence.stale(owner))
    }

    /// Deletes everything about a sandbox that was stored away at this epoch. Any node may do that.
    /// `ends_at_ms` is that of its owner.
    ///
    /// # Errors
    /// [`OwnershipError::Stale`] if a node has taken it over since, or it was deleted;
    /// [`OwnershipError::Etcd`].
    pub async fn release_stored(
        &self,
        fence: &Fence,
        ends_at_ms: Option<i64>,
    ) -> Result<(), OwnershipError> {
        let sandbox = fence.sandbox();
        let key = self.keys.owner(sandbox);
        let mut then = vec![
            Operation::Delete { key: key.clone() },
            Operation::Delete { key: self.keys.stored(sandbox) },
            Operation::DeletePrefix { prefix: self.keys.fenced_of(sandbox) },
        ];
        if let Some(at_ms) = ends_at_ms {
            then.push(Operation::Delete { key: self.keys.ending(at_ms, sandbox) });
        }
        let compares = vec![fence.compare()];
        let then = fence.deleting(then);
        let otherwise = vec![Operation::Get { key }];
        let outcome = self.etcd.transaction(Transaction { compares, then, otherwise }).await?;
        self.cache.forget(sandbox, fence.epoch());
        if outcome.succeeded {
            return Ok(());
        }
        let owner = outcome.pair(0).map(|pair| read_owner(sandbox, pair)).transpose()?;
        Err(fence.stale(owner))
    }

    /// A sandbox that was stored away; `None`: a node has it, or it does not exist.
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`].
    pub async fn stored(
        &self,
        sandbox: &SandboxKey,
    ) -> Result<Option<StoredSandbox>, OwnershipError> {
        let pair = self.etcd.get(&self.keys.stored(sandbox)).await?;
        Ok(pair.map(|pair| StoredSandbox {
            sandbox: sandbox.clone(),
            epoch: Epoch::of_revision(pair.modified_at),
            description: pair.value,
        }))
    }

    /// The stored sandboxes of a tenant behind `after`: at most `limit`, and at most
    /// [`crate::etcd::PAGE_KEYS_MAX`].
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`].
    pub async fn stored_of_tenant(
        &self,
        tenant: &str,
        after: Option<&SandboxKey>,
        limit: u16,
    ) -> Result<StoredPage, OwnershipError> {
        self.stored_below(&self.keys.stored_of_tenant(tenant), after, limit).await
    }

    async fn stored_below(
        &self,
        prefix: &[u8],
        after: Option<&SandboxKey>,
        limit: u16,
    ) -> Result<StoredPage, OwnershipError> {
        let behind = after.map(|after| self.keys.stored(after));
        let Page { pairs, has_more, .. } =
            self.etcd.list(prefix, behind.as_deref(), limit, None).await?;
        let read = |pair: crate::etcd::KeyValue| {
            let sandbox = self.keys.read_stored(&pair.key)?;
            let epoch = Epoch::of_revision(pair.modified_at);
            Some(StoredSandbox { sandbox, epoch, description: pair.value })
        };
        Ok(StoredPage { sandboxes: pairs.into_iter().filter_map(read).collect(), has_more })
    }

    /// The stored sandboxes of all tenants whose lifetime ended at or before `until_ms`, the earliest
    /// first, behind `after`: at most `limit`, and at most [`crate::etcd::PAGE_KEYS_MAX`].
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`].
    pub async fn endings(
        &self,
        until_ms: i64,
        after: Option<&Ending>,
        limit: u16,
    ) -> Result<Vec<Ending>, OwnershipError> {
        let prefix = self.keys.endings();
        let behind = after.map(|after| self.keys.ending(after.at_ms, &after.sandbox));
        let Page { pairs, .. } = self.etcd.list(&prefix, behind.as_deref(), limit, None).await?;
        let read = pairs.into_iter().filter_map(|pair| {
            let (at_ms, sandbox) = self.keys.read_ending(&pair.key)?;
            Some(Ending { sandbox, at_ms, revision: pair.modified_at })
        });
        Ok(read.take_while(|ending| ending.at_ms <= until_ms).collect())
    }

    /// Forgets the end of a sandbox that was not stored away again since it was read.
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`].
    pub async fn forget_ending(&self, ending: &Ending) -> Result<(), OwnershipError> {
        let key = self.keys.ending(ending.at_ms, &ending.sandbox);
        let compares = vec![Compare::modified_at(key.clone(), ending.revision)];
        let then = vec![Operation::Delete { key }];
        self.etcd.transaction(Transaction { compares, then, otherwise: Vec::new() }).await?;
        Ok(())
    }
}
