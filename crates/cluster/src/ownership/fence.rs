//! Fences: conditions that only the current owner of a sandbox meets.

use crate::etcd::Compare;
use crate::etcd::Operation;
use crate::etcd::Transaction;
use crate::model::Epoch;
use crate::model::Keys;
use crate::model::Owner;
use crate::model::SandboxKey;
use crate::ownership::Ownership;
use crate::ownership::error::OwnershipError;
use crate::ownership::read_owner;

/// Maximum length of the name of a fenced key, in bytes.
pub const FENCED_NAME_BYTES_MAX: usize = 128;
/// Maximum size of a fenced value, in bytes: a description of a snapshot, not its content.
pub const FENCED_BYTES_MAX: usize = 64 * 1024;

/// The ownership of a sandbox at an epoch. A transaction with its compare is applied only while that
/// owner is the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    sandbox: SandboxKey,
    key: Vec<u8>,
    epoch: Epoch,
    /// What a deletion behind this fence writes.
    leaves: Option<Operation>,
}

/// A value that was written with a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fenced {
    /// The value.
    pub value: Vec<u8>,
    /// The revision at which it was written.
    pub revision: i64,
}

impl Fence {
    /// The fence of a sandbox's owner at an epoch.
    #[must_use]
    pub fn new(keys: &Keys, sandbox: SandboxKey, epoch: Epoch) -> Self {
        Self { key: keys.owner(&sandbox), sandbox, epoch, leaves: None }
    }

    /// The sandbox.
    #[must_use]
    pub fn sandbox(&self) -> &SandboxKey {
        &self.sandbox
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The condition, for any transaction on the same etcd.
    #[must_use]
    pub fn compare(&self) -> Compare {
        Compare::modified_at(self.key.clone(), self.epoch.revision())
    }

    pub(super) fn leaving(self, leaves: Operation) -> Self {
        Self { leaves: Some(leaves), ..self }
    }

    /// What a deletion behind this fence writes, with the deletion itself.
    pub(super) fn deleting(&self, mut deletions: Vec<Operation>) -> Vec<Operation> {
        deletions.extend(self.leaves.clone());
        deletions
    }

    /// The error for a fence that does not hold.
    #[must_use]
    pub fn stale(&self, owner: Option<Owner>) -> OwnershipError {
        let owner = owner.map(Box::new);
        OwnershipError::Stale { sandbox: self.sandbox.clone(), epoch: self.epoch, owner }
    }
}

fn check_size(sandbox: &SandboxKey, name: &str, value: &[u8]) -> Result<(), OwnershipError> {
    let within = |what, bytes: usize, limit: usize| {
        let sandbox = sandbox.clone();
        let error = OwnershipError::TooLarge { sandbox, what, bytes, limit };
        if bytes <= limit { Ok(()) } else { Err(error) }
    };
    within("the name", name.len(), FENCED_NAME_BYTES_MAX)?;
    within("the value", value.len(), FENCED_BYTES_MAX)
}

impl Ownership {
    /// The fence of a sandbox at an epoch.
    #[must_use]
    pub fn fence(&self, sandbox: &SandboxKey, epoch: Epoch) -> Fence {
        Fence::new(&self.keys, sandbox.clone(), epoch)
    }

    /// Checks in etcd that the epoch is that of the current owner.
    ///
    /// # Errors
    /// [`OwnershipError::Stale`], [`OwnershipError::Etcd`], [`OwnershipError::Unreadable`].
    pub async fn check(&self, fence: &Fence) -> Result<Owner, OwnershipError> {
        match self.owner_in_etcd(fence.sandbox()).await? {
            Some(owner) if owner.epoch == fence.epoch() => Ok(owner),
            owner => Err(fence.stale(owner)),
        }
    }

    /// Writes a value about a sandbox if the fence holds. It is deleted when the sandbox is released.
    ///
    /// # Errors
    /// [`OwnershipError::Stale`], [`OwnershipError::TooLarge`], [`OwnershipError::Etcd`].
    pub async fn write_fenced(
        &self,
        fence: &Fence,
        name: &str,
        value: Vec<u8>,
    ) -> Result<(), OwnershipError> {
        let sandbox = fence.sandbox();
        check_size(sandbox, name, &value)?;
        let outcome = self
            .etcd
            .transaction(Transaction {
                compares: vec![fence.compare()],
                then: vec![Operation::put(self.keys.fenced(sandbox, name), value)],
                otherwise: vec![Operation::Get { key: self.keys.owner(sandbox) }],
            })
            .await?;
        if outcome.succeeded {
            return Ok(());
        }
        let owner = outcome.pair(0).map(|pair| read_owner(sandbox, pair)).transpose()?;
        self.cache.forget(sandbox, fence.epoch());
        Err(fence.stale(owner))
    }

    /// Writes a value about a sandbox if the fence holds and the value is still the one that was written at
    /// `revision`; `None`: there is none. Returns whether it was written: `false` means that another write came
    /// first, maybe an earlier attempt of this call whose answer was lost.
    ///
    /// # Errors
    /// As of [`Self::write_fenced`].
    pub async fn replace_fenced(
        &self,
        fence: &Fence,
        name: &str,
        value: Vec<u8>,
        revision: Option<i64>,
    ) -> Result<bool, OwnershipError> {
        let sandbox = fence.sandbox();
        check_size(sandbox, name, &value)?;
        let key = self.keys.fenced(sandbox, name);
        let unchanged = match revision {
            Some(revision) => Compare::modified_at(key.clone(), revision),
            None => Compare::absent(key.clone()),
        };
        let outcome = self
            .etcd
            .transaction(Transaction {
                compares: vec![fence.compare(), unchanged],
                then: vec![Operation::put(key, value)],
                otherwise: vec![Operation::Get { key: self.keys.owner(sandbox) }],
            })
            .await?;
        if outcome.succeeded {
            return Ok(true);
        }
        let owner = outcome.pair(0).map(|pair| read_owner(sandbox, pair)).transpose()?;
        if owner.as_ref().is_some_and(|owner| owner.epoch == fence.epoch()) {
            return Ok(false);
        }
        self.cache.forget(sandbox, fence.epoch());
        Err(fence.stale(owner))
    }

    /// Deletes a value about a sandbox if the fence holds.
    ///
    /// # Errors
    /// [`OwnershipError::Stale`], [`OwnershipError::Etcd`].
    pub async fn delete_fenced(&self, fence: &Fence, name: &str) -> Result<(), OwnershipError> {
        let sandbox = fence.sandbox();
        let outcome = self
            .etcd
            .transaction(Transaction {
                compares: vec![fence.compare()],
                then: fence
                    .deleting(vec![Operation::Delete { key: self.keys.fenced(sandbox, name) }]),
                otherwise: vec![Operation::Get { key: self.keys.owner(sandbox) }],
            })
            .await?;
        if outcome.succeeded {
            return Ok(());
        }
        let owner = outcome.pair(0).map(|pair| read_owner(sandbox, pair)).transpose()?;
        self.cache.forget(sandbox, fence.epoch());
        Err(fence.stale(owner))
    }

    /// A value that was written with a fence of any epoch.
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`].
    pub async fn read_fenced(
        &self,
        sandbox: &SandboxKey,
        name: &str,
    ) -> Result<Option<Fenced>, OwnershipError> {
        let pair = self.etcd.get(&self.keys.fenced(sandbox, name)).await?;
        Ok(pair.map(|pair| Fenced { value: pair.value, revision: pair.modified_at }))
    }
}
