//! Which node owns a sandbox: claimed, taken over and released by transactions.
//!
//! An owner's epoch is the revision at which its key was last written, so every owner has another one
//! and later owners have greater ones. Only a node that holds its lease can claim and take over: each
//! such transaction compares the registration. A takeover also compares the epoch that it replaces,
//! that the former node's lease has ended, and, for the class `node`, that an operator has declared
//! that node dead.
//!
//! | transaction | compares | writes |
//! |---|---|---|
//! | [`Ownership::claim`], [`Ownership::claim_for`] | no owner; registration of the node | owner, entry in the node's list |
//! | [`Ownership::take_over`] | owner's epoch; own registration; former node without a lease (and declared dead) | owner, entry moved to the own list |
//! | [`Ownership::take_over`] of a stored sandbox | owner's epoch; own registration | the same; deletes its description |
//! | [`Ownership::store_away`] | owner's epoch | owner without a node's list, description |
//! | [`Ownership::release_stored`] | owner's epoch | deletes owner, description and all fenced keys |
//! | [`Ownership::release`] | owner's epoch | deletes owner, entry and all fenced keys |
//! | [`Ownership::write_fenced`] | owner's epoch | one fenced key |
//! | [`Ownership::accept`] | owner's epoch | the fenced key `accepted` |
//! | [`Ownership::release_unaccepted`] | owner's epoch; no key `accepted` | as a release |
//! | a release with [`Ownership::fence_leaving`] | as without | also a list of what the object store must delete |
//!
//! A transaction whose answer was lost may have been applied. Each claim has a random number, by which
//! a repetition recognises its own owner.

mod cache;
mod discarded;
mod error;
mod fence;
mod list;
mod of_node;
mod stored;
mod transfer;

use crate::etcd::Compare;
use crate::etcd::Etcd;
use crate::membership::MemberState;
use crate::model::Class;
use crate::model::Epoch;
use crate::model::Keys;
use crate::model::NodeKey;
use crate::model::Owner;
use crate::model::SandboxKey;
pub use cache::OWNERS_CACHED_MAX;
use cache::OwnerCache;
pub use discarded::Discarded;
pub use error::OwnershipError;
pub use fence::{FENCED_BYTES_MAX, FENCED_NAME_BYTES_MAX, Fence, Fenced};
use isolet_wire::node::NodeName;
pub use list::{HeldPage, HeldSandbox, ListCursor, OwnedSandbox, OwnerPage};
pub use of_node::{
    KEPT_FIRST_MAX, OWNED_FIRST_MAX, OWNED_READ_MAX, OwnedByNode, ReleasedLost, Restorable,
};
use std::sync::Arc;
pub use stored::{Ending, STORED_BYTES_MAX, StoredNote, StoredPage, StoredSandbox};
use tokio::sync::watch;

/// Claims and finds owners. Clones share the cache.
#[derive(Clone)]
pub struct Ownership {
    etcd: Etcd,
    keys: Keys,
    node: NodeName,
    state: watch::Receiver<MemberState>,
    cache: Arc<OwnerCache>,
    /// How often etcd has gone back in time.
    generations: watch::Receiver<u64>,
}

/// A sandbox that a node wants to own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The sandbox.
    pub sandbox: SandboxKey,
    /// Its class.
    pub class: Class,
    /// The region in which it was placed.
    pub region: String,
    /// Why it was placed on this node; at most [`crate::model::REASON_BYTES_MAX`] bytes are stored.
    pub reason: String,
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// This node owns the sandbox now.
    Won(Owner),
    /// Another claim was earlier, possibly one of this node.
    Owned(Owner),
}

/// The result of a takeover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenOver {
    /// This node owns the sandbox now.
    Won(Owner),
    /// The owner has changed since it was read; `None`: nobody owns the sandbox any more.
    Changed(Option<Owner>),
    /// The former node holds its lease.
    NodeAlive,
    /// The sandbox is of the class `node`, and no operator has declared its node dead.
    NotDeclaredDead,
}

impl Ownership {
    /// Ownership for this node, with the state of its membership and an empty cache.
    #[must_use]
    pub fn new(
        etcd: Etcd,
        keys: Keys,
        node: NodeName,
        state: watch::Receiver<MemberState>,
    ) -> Self {
        let cache = Arc::new(OwnerCache::new(OWNERS_CACHED_MAX));
        let generations = etcd.generations();
        Self { etcd, keys, node, state, cache, generations }
    }

    /// The owner of a sandbox: from the cache, or from etcd if it is not there. A cached owner may be
    /// outdated; the node that it names answers that it is not the owner, and [`Self::forget`] makes
    /// the next call ask etcd.
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`], [`OwnershipError::Unreadable`].
    pub async fn owner(&self, sandbox: &SandboxKey) -> Result<Option<Owner>, OwnershipError> {
        match self.cached(sandbox) {
            Some(owner) => Ok(Some(owner)),
            None => self.owner_in_etcd(sandbox).await,
        }
    }

    /// The owner of a sandbox, if the cache has it.
    #[must_use]
    pub fn cached(&self, sandbox: &SandboxKey) -> Option<Owner> {
        self.cache.follow(*self.generations.borrow());
        self.cache.get(sandbox)
    }

    /// Drops all owners from the cache: this node may have lost what it owned.
    pub fn forget_all(&self) {
        self.cache.clear();
    }

    /// The owner of a sandbox, read from the newest state of etcd.
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`], [`OwnershipError::Unreadable`].
    pub async fn owner_in_etcd(
        &self,
        sandbox: &SandboxKey,
    ) -> Result<Option<Owner>, OwnershipError> {
        let pair = self.etcd.get(&self.keys.owner(sandbox)).await?;
        let owner = pair.map(|pair| read_owner(sandbox, &pair)).transpose()?;
        self.cache.follow(*self.generations.borrow());
        match &owner {
            Some(owner) => self.cache.learn(sandbox, owner),
            None => self.cache.remove(sandbox),
        }
        Ok(owner)
    }

    /// Drops the owner of this epoch, and earlier ones, from the cache: its node answered that it is
    /// not the owner.
    pub fn forget(&self, sandbox: &SandboxKey, epoch: Epoch) {
        self.cache.forget(sandbox, epoch);
    }

    /// The number of sandboxes that a tenant has in the fleet. Claims that run at the same time may
    /// each see the number without the others.
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`].
    pub async fn count(&self, tenant: &str) -> Result<u64, OwnershipError> {
        Ok(self.etcd.count(&self.keys.owners_of_tenant(tenant)).await?)
    }

    /// The compare that this node holds its lease under the registration that it knows.
    fn registered(&self) -> Result<(Epoch, Compare), OwnershipError> {
        let state = *self.state.borrow();
        let registration = state.registration().ok_or_else(|| self.not_a_member())?;
        let compare = Compare::created_at(self.live(&self.node), registration.revision());
        Ok((registration, compare))
    }

    fn not_a_member(&self) -> OwnershipError {
        OwnershipError::NotAMember { node: self.node.clone() }
    }

    fn live(&self, node: &NodeName) -> Vec<u8> {
        self.keys.node(&NodeKey::Live(node.clone()))
    }
}

/// Reads the value of an owner's key.
fn read_owner(sandbox: &SandboxKey, pair: &crate::etcd::KeyValue) -> Result<Owner, OwnershipError> {
    Owner::read(&pair.value, pair.modified_at).map_err(|error| OwnershipError::Unreadable {
        sandbox: sandbox.clone(),
        reason: error.to_string(),
    })
}
