//! Claims, takeovers and releases.

use crate::etcd::Compare;
use crate::etcd::Operation;
use crate::etcd::Transaction;
use crate::model::Class;
use crate::model::Custody;
use crate::model::Epoch;
use crate::model::NodeKey;
use crate::model::Owner;
use crate::model::SandboxKey;
use crate::ownership::Claim;
use crate::ownership::Claimed;
use crate::ownership::Fence;
use crate::ownership::Ownership;
use crate::ownership::TakenOver;
use crate::ownership::error::OwnershipError;
use crate::ownership::read_owner;
use isolet_wire::node::NodeName;

/// The fenced key that the owner writes before it creates a sandbox that was placed on it.
const ACCEPTED: &str = "accepted";

impl Ownership {
    /// Makes this node the owner of a sandbox that nobody owns.
    ///
    /// # Errors
    /// [`OwnershipError::NotAMember`], [`OwnershipError::Etcd`] (it may own the sandbox anyway, and
    /// finds it in [`Self::held`]), [`OwnershipError::Unreadable`].
    pub async fn claim(&self, claim: &Claim) -> Result<Claimed, OwnershipError> {
        let (registration, _) = self.registered()?;
        self.claim_for(claim, &self.node, registration).await
    }

    /// Makes a node, for which the sandbox was placed, the owner of a sandbox that nobody owns.
    /// `registration` is that of the node.
    ///
    /// # Errors
    /// [`OwnershipError::NotAMember`] if the node does not hold its lease under this registration,
    /// [`OwnershipError::Etcd`] (it may own the sandbox anyway), [`OwnershipError::Unreadable`].
    pub async fn claim_for(
        &self,
        claim: &Claim,
        node: &NodeName,
        registration: Epoch,
    ) -> Result<Claimed, OwnershipError> {
        let sandbox = &claim.sandbox;
        let key = self.keys.owner(sandbox);
        let new = new_owner(claim, node)?;
        let registered = Compare::created_at(self.live(node), registration.revision());
        let outcome = self
            .etcd
            .transaction(Transaction {
                compares: vec![Compare::absent(key.clone()), registered],
                then: self.writes(sandbox, &new).into(),
                otherwise: vec![Operation::Get { key }],
            })
            .await?;
        if outcome.succeeded {
            return Ok(Claimed::Won(self.won(sandbox, new, outcome.revision)));
        }
        let Some(pair) = outcome.pair(0) else {
            return Err(OwnershipError::NotAMember { node: node.clone() });
        };
        let owner = read_owner(sandbox, pair)?;
        self.cache.learn(sandbox, &owner);
        if is_same_claim(&owner, &new) {
            Ok(Claimed::Won(owner))
        } else {
            Ok(Claimed::Owned(owner))
        }
    }

    /// Makes this node the owner instead of `from`, whose node has lost its lease, or has stored the
    /// sandbox away. With `from` of this node itself, it only renews the epoch: for a sandbox whose
    /// local state is gone. The region is that in which the sandbox was placed; see
    /// [`Self::take_over_into`].
    ///
    /// # Errors
    /// [`OwnershipError::NotAMember`], [`OwnershipError::Etcd`] (it may own the sandbox anyway),
    /// [`OwnershipError::Unreadable`].
    pub async fn take_over(
        &self,
        sandbox: &SandboxKey,
        from: &Owner,
        reason: &str,
    ) -> Result<TakenOver, OwnershipError> {
        self.take_over_into(sandbox, from, &from.region, reason).await
    }

    /// As [`Self::take_over`], with another region: that to which a client moves the sandbox.
    ///
    /// # Errors
    /// As of [`Self::take_over`].
    pub async fn take_over_into(
        &self,
        sandbox: &SandboxKey,
        from: &Owner,
        region: &str,
        reason: &str,
    ) -> Result<TakenOver, OwnershipError> {
        let (_, registered) = self.registered()?;
        let key = self.keys.owner(sandbox);
        let claim = Claim {
            sandbox: sandbox.clone(),
            class: from.class,
            region: region.to_owned(),
            reason: reason.to_owned(),
        };
        let mut new = new_owner(&claim, &self.node)?;
        if from.custody != Custody::Held {
            new.custody = Custody::Fetched;
        }
        let dead = self.keys.node(&NodeKey::Dead(from.node.clone()));
        let mut compares =
            vec![Compare::modified_at(key.clone(), from.epoch.revision()), registered];
        let mut then = self.writes(sandbox, &new).to_vec();
        if from.is_stored() {
            // Nothing of it runs anywhere, and it is in no node's list.
            then.push(Operation::Delete { key: self.keys.stored(sandbox) });
            if let Some(at_ms) = from.ends_at_ms {
                then.push(Operation::Delete { key: self.keys.ending(at_ms, sandbox) });
            }
        } else if from.node != self.node {
            compares.push(Compare::absent(self.live(&from.node)));
            if from.class == Class::Node {
                compares.push(Compare::present(dead.clone()));
            }
            then.push(Operation::Delete { key: self.keys.held(&from.node, sandbox) });
        }
        let otherwise = vec![
            Operation::Get { key },
            Operation::Get { key: self.live(&from.node) },
            Operation::Get { key: dead },
        ];
        let outcome = self.etcd.transaction(Transaction { compares, then, otherwise }).await?;
        if outcome.succeeded {
            return Ok(TakenOver::Won(self.won(sandbox, new, outcome.revision)));
        }
        let owner = outcome.pair(0).map(|pair| read_owner(sandbox, pair)).transpose()?;
        match owner {
            Some(owner) if is_same_claim(&owner, &new) => {
                self.cache.learn(sandbox, &owner);
                Ok(TakenOver::Won(owner))
            }
            Some(owner) if owner.epoch == from.epoch => {
                if from.node == self.node || from.is_stored() {
                    Err(self.not_a_member())
                } else if outcome.pair(1).is_some() {
                    Ok(TakenOver::NodeAlive)
                } else if from.class == Class::Node && outcome.pair(2).is_none() {
                    Ok(TakenOver::NotDeclaredDead)
                } else {
                    Err(self.not_a_member())
                }
            }
            owner => {
                match &owner {
                    Some(owner) => self.cache.learn(sandbox, owner),
                    None => self.cache.remove(sandbox),
                }
                Ok(TakenOver::Changed(owner))
            }
        }
    }

    /// Gives up the ownership, after all processes of the sandbox have ended, and deletes its fenced
    /// keys. Needs no lease. A sandbox that nobody owns counts as released.
    ///
    /// # Errors
    /// [`OwnershipError::Stale`] if another node owns it, [`OwnershipError::Etcd`].
    pub async fn release(&self, fence: &Fence) -> Result<(), OwnershipError> {
        self.release_of(fence, &self.node).await
    }

    /// Gives up the ownership of a node for which a sandbox was placed and that did not create it.
    ///
    /// # Errors
    /// As of [`Self::release`].
    pub async fn release_of(&self, fence: &Fence, node: &NodeName) -> Result<(), OwnershipError> {
        let sandbox = fence.sandbox();
        let key = self.keys.owner(sandbox);
        let outcome = self
            .etcd
            .transaction(Transaction {
                compares: vec![fence.compare()],
                then: self.deletions(fence, node),
                otherwise: vec![Operation::Get { key }],
            })
            .await?;
        self.cache.forget(sandbox, fence.epoch());
        match outcome.pair(0) {
            Some(pair) if !outcome.succeeded => Err(fence.stale(Some(read_owner(sandbox, pair)?))),
            _ => Ok(()),
        }
    }

    /// Gives up the ownership of a node that has no lease. Returns `false` if it has one again.
    ///
    /// # Errors
    /// As of [`Self::release`].
    pub async fn release_of_lost(
        &self,
        fence: &Fence,
        node: &NodeName,
    ) -> Result<bool, OwnershipError> {
        let sandbox = fence.sandbox();
        let key = self.keys.owner(sandbox);
        let live = self.keys.node(&NodeKey::Live(node.clone()));
        let outcome = self
            .etcd
            .transaction(Transaction {
                compares: vec![fence.compare(), Compare::absent(live.clone())],
                then: self.deletions(fence, node),
                otherwise: vec![Operation::Get { key }, Operation::Get { key: live }],
            })
            .await?;
        if outcome.succeeded {
            self.cache.forget(sandbox, fence.epoch());
            return Ok(true);
        }
        let owner = outcome.pair(0).map(|pair| read_owner(sandbox, pair)).transpose()?;
        let is_same = owner.as_ref().is_some_and(|owner| owner.epoch == fence.epoch());
        if is_same && outcome.pair(1).is_some() {
            return Ok(false);
        }
        self.cache.forget(sandbox, fence.epoch());
        Err(fence.stale(owner))
    }

    /// Says that this node begins to create a sandbox that was placed on it, so that the node that
    /// placed it does not place it on another one. Returns `false` if this node does not own it at
    /// that epoch any more.
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`], [`OwnershipError::Unreadable`].
    pub async fn accept(&self, fence: &Fence) -> Result<bool, OwnershipError> {
        match self.write_fenced(fence, ACCEPTED, Vec::new()).await {
            Ok(()) => Ok(true),
            Err(OwnershipError::Stale { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives up the ownership of a node for which a sandbox was placed and that did not accept it.
    /// Returns `false` if it did: a request that arrived on another way may have created it.
    ///
    /// # Errors
    /// [`OwnershipError::Stale`] if that node does not own it any more, [`OwnershipError::Etcd`].
    pub async fn release_unaccepted(
        &self,
        fence: &Fence,
        node: &NodeName,
    ) -> Result<bool, OwnershipError> {
        let sandbox = fence.sandbox();
        let key = self.keys.owner(sandbox);
        let accepted = self.keys.fenced(sandbox, ACCEPTED);
        let outcome = self
            .etcd
            .transaction(Transaction {
                compares: vec![fence.compare(), Compare::absent(accepted)],
                then: self.deletions(fence, node),
                otherwise: vec![Operation::Get { key }],
            })
            .await?;
        if outcome.succeeded {
            self.cache.forget(sandbox, fence.epoch());
            return Ok(true);
        }
        let owner = outcome.pair(0).map(|pair| read_owner(sandbox, pair)).transpose()?;
        match owner {
            Some(owner) if owner.epoch == fence.epoch() => Ok(false),
            owner => {
                self.cache.forget(sandbox, fence.epoch());
                Err(fence.stale(owner))
            }
        }
    }

    /// All that a release deletes.
    fn deletions(&self, fence: &Fence, node: &NodeName) -> Vec<Operation> {
        let sandbox = fence.sandbox();
        fence.deleting(vec![
            Operation::Delete { key: self.keys.owner(sandbox) },
            Operation::Delete { key: self.keys.held(node, sandbox) },
            Operation::DeletePrefix { prefix: self.keys.fenced_of(sandbox) },
        ])
    }

    fn writes(&self, sandbox: &SandboxKey, new: &Owner) -> [Operation; 2] {
        let class = crate::ownership::list::held_value(new.class);
        [
            Operation::put(self.keys.owner(sandbox), new.value()),
            Operation::put(self.keys.held(&new.node, sandbox), class),
        ]
    }

    fn won(&self, sandbox: &SandboxKey, new: Owner, revision: i64) -> Owner {
        let owner = Owner { epoch: Epoch::of_revision(revision), ..new };
        self.cache.learn(sandbox, &owner);
        owner
    }
}

/// An owner without its epoch, which the transaction decides.
fn new_owner(claim: &Claim, node: &NodeName) -> Result<Owner, OwnershipError> {
    Ok(Owner {
        node: node.clone(),
        epoch: Epoch::of_revision(0),
        class: claim.class,
        region: claim.region.clone(),
        reason: claim.reason.clone(),
        custody: Custody::Held,
        destination: None,
        ends_at_ms: None,
        claim: getrandom::u64().map_err(|_| OwnershipError::NoRandom)?,
    })
}

fn is_same_claim(owner: &Owner, new: &Owner) -> bool {
    let parts = |owner: &Owner| -> (NodeName, u64) { (owner.node.clone(), owner.claim) };
    parts(owner) == parts(new)
}
