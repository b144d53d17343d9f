//! What a sandbox that was given up leaves in the object store. The transaction that ends the record of the
//! sandbox lists it, and the list stays until the store has confirmed that it is deleted.
//!
//! A sandbox has no other list of its objects, so nothing would ever delete those that the store did not
//! delete at once. There are at most as many lists as sandboxes were given up while the store failed, and each
//! is shorter than the keys that the same transaction deletes.

use crate::etcd::Operation;
use crate::etcd::Page;
use crate::etcd::Transaction;
use crate::model::Epoch;
use crate::model::SandboxKey;
use crate::ownership::Fence;
use crate::ownership::Ownership;
use crate::ownership::error::OwnershipError;

/// What is to be deleted from the object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discarded {
    /// When it may be deleted, in milliseconds since 1970; 0: at once, whatever the time is.
    pub not_before_ms: i64,
    /// The sandbox.
    pub sandbox: SandboxKey,
    /// The last epoch of the sandbox: a later one with the same id has another.
    pub epoch: Epoch,
    /// What it is, as [`crate`] does not know it.
    pub value: Vec<u8>,
}

impl Ownership {
    /// A fence whose release, or deletion of a key, leaves a list of what is to be deleted.
    #[must_use]
    pub fn fence_leaving(&self, discarded: &Discarded) -> Fence {
        let key = self.key_of(discarded);
        let put = Operation::put(key, discarded.value.clone());
        self.fence(&discarded.sandbox, discarded.epoch).leaving(put)
    }

    /// What may be deleted at `until_ms`, the earliest first, behind `after`: at most `limit`, and at most
    /// [`crate::etcd::PAGE_KEYS_MAX`].
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`].
    pub async fn discarded(
        &self,
        until_ms: i64,
        after: Option<&Discarded>,
        limit: u16,
    ) -> Result<Vec<Discarded>, OwnershipError> {
        let prefix = self.keys.all_discarded();
        let behind = after.map(|after| self.key_of(after));
        let Page { pairs, .. } = self.etcd.list(&prefix, behind.as_deref(), limit, None).await?;
        let read = pairs.into_iter().filter_map(|pair| {
            let (not_before_ms, sandbox, epoch) = self.keys.read_discarded(&pair.key)?;
            Some(Discarded { not_before_ms, sandbox, epoch, value: pair.value })
        });
        Ok(read.take_while(|one| one.not_before_ms <= until_ms).collect())
    }

    /// Forgets what the store has confirmed to be deleted.
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`].
    pub async fn forget_discarded(&self, discarded: &Discarded) -> Result<(), OwnershipError> {
        let then = vec![Operation::Delete { key: self.key_of(discarded) }];
        let transaction = Transaction { compares: Vec::new(), then, otherwise: Vec::new() };
        self.etcd.transaction(transaction).await?;
        Ok(())
    }

    fn key_of(&self, discarded: &Discarded) -> Vec<u8> {
        let Discarded { not_before_ms, sandbox, epoch, .. } = discarded;
        self.keys.discarded(*not_before_ms, sandbox, *epoch)
    }
}
