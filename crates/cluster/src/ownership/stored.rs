//! Sandboxes that no node has: their node has ended them, their newest snapshot is in the object store,
//! and any node may take them over without waiting for a lease to end.
//!
//! The record of the owner stays, so the id stays taken and the sandbox counts for its tenant. The list
//! of the node does not name it any more. A description beside the record says what the sandbox is, so
//! that it can be listed and shown without being restored.

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

/// A part of the list of a tenant's stored sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredPage {
    /// The sandboxes, in the order of their keys.
    pub sandboxes: Vec<StoredSandbox>,
    /// Whether there are more behind the last one.
    pub has_more: bool,
}

impl Ownership {
    /// Says that this node has nothing of a sandbox any more, and that any node may restore it from the
    /// object store; `destination` should, if it is moved. Call it only after all of its processes have ended for good. Needs no lease.
    ///
    /// # Errors
    /// [`OwnershipError::Stale`] if this node does not own it at that epoch, also because an earlier
    /// attempt succeeded whose answer was lost; [`OwnershipError::TooLarge`],
    /// [`OwnershipError::Etcd`], [`OwnershipError::Unreadable`].
    pub async fn store_away(
        &self,
        fence: &Fence,
        from: &Owner,
        destination: Option<NodeName>,
        description: Vec<u8>,
    ) -> Result<(), OwnershipError> {
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
            reason: "in the object store".to_owned(),
            ..from.clone()
        };
        let outcome = self
            .etcd
            .transaction(Transaction {
                compares: vec![fence.compare()],
                then: vec![
                    Operation::put(key.clone(), stored.value()),
                    Operation::put(self.keys.stored(sandbox), description),
                    Operation::Delete { key: self.keys.held(&from.node, sandbox) },
                ],
                otherwise: vec![Operation::Get { key }],
            })
            .await?;
        self.cache.forget(sandbox, fence.epoch());
        if outcome.succeeded {
            return Ok(());
        }
        let owner = outcome.pair(0).map(|pair| read_owner(sandbox, pair)).transpose()?;
        Err(fence.stale(owner))
    }

    /// Deletes everything about a sandbox that was stored away at this epoch. Any node may do that.
    ///
    /// # Errors
    /// [`OwnershipError::Stale`] if a node has taken it over since, or it was deleted;
    /// [`OwnershipError::Etcd`].
    pub async fn release_stored(&self, fence: &Fence) -> Result<(), OwnershipError> {
        let sandbox = fence.sandbox();
        let key = self.keys.owner(sandbox);
        let outcome = self
            .etcd
            .transaction(Transaction {
                compares: vec![fence.compare()],
                then: vec![
                    Operation::Delete { key: key.clone() },
                    Operation::Delete { key: self.keys.stored(sandbox) },
                    Operation::DeletePrefix { prefix: self.keys.fenced_of(sandbox) },
                ],
                otherwise: vec![Operation::Get { key }],
            })
            .await?;
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
        let prefix = self.keys.stored_of_tenant(tenant);
        let behind = after.map(|after| self.keys.stored(after));
        let Page { pairs, has_more, .. } =
            self.etcd.list(&prefix, behind.as_deref(), limit, None).await?;
        let read = |pair: crate::etcd::KeyValue| {
            let sandbox = self.keys.read_stored(&pair.key)?;
            let epoch = Epoch::of_revision(pair.modified_at);
            Some(StoredSandbox { sandbox, epoch, description: pair.value })
        };
        Ok(StoredPage { sandboxes: pairs.into_iter().filter_map(read).collect(), has_more })
    }
}
