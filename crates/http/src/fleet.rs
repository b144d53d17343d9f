//! What the server needs of a fleet: who owns a sandbox, and how to reach that node.
//!
//! The implementation lives outside of this crate. A server without one serves all sandboxes itself,
//! and none of the code in `forwarding` runs.

pub(crate) mod creating;
pub(crate) mod draining;
pub(crate) mod joined;
mod moving;
mod nodes;
mod rescue;

use axum::body::Body;
use axum::http::{Request, Response};
use isolet_sandbox::profiles::Profile;
use isolet_sandbox::{CredentialSpec, LocalSandbox, SandboxClass, SandboxId, SnapshotId, TenantId};
use isolet_wire::node::NodeName;
pub use moving::{MoveTo, StoredAway};
pub use nodes::{
    NodeCapacity, NodeChange, NodeDetails, NodeError, NodeInfo, NodeList, NodeLoad, NodeState,
    OwnedSandboxes, Placement, SkippedKey,
};
pub use rescue::{Presence, Rescue};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

/// A future of a [`Fleet`], which is a trait object.
pub type FleetFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers a request of the node with this name. The listener for nodes has checked the name by the
/// node's certificate. Request and response may be upgraded.
pub type PeerHandler = Arc<dyn Fn(NodeName, Request<Body>) -> PeerAnswer + Send + Sync>;

/// The future of a [`PeerHandler`]. Dropping it cancels the request.
pub type PeerAnswer = FleetFuture<'static, Response<Body>>;

/// The bytes of both directions after a node has switched protocols.
pub trait TunnelIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> TunnelIo for T {}

/// The response of another node.
pub struct PeerResponse {
    /// Its head, and its body unless the node has switched protocols.
    pub response: Response<Body>,
    /// After a response with status 101: waits for the connection itself.
    pub tunnel: Option<FleetFuture<'static, io::Result<Box<dyn TunnelIo>>>>,
}

/// Another node of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The name of the node.
    pub node: NodeName,
    /// The address of its listener for nodes, as `HOST:PORT`.
    pub address: Arc<str>,
}

/// The node that owns a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// This node owns it.
    Here {
        /// The revision of the record of ownership.
        epoch: u64,
    },
    /// Another node owns it.
    There {
        /// The owner.
        peer: Peer,
        /// The revision of the record of ownership.
        epoch: u64,
    },
    /// No node has it: only the object store does. Any node may take it over.
    Stored {
        /// The revision of the record of ownership.
        epoch: u64,
    },
    /// No node owns it: the sandbox does not exist.
    Nowhere,
}

/// The owner of a sandbox that was to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedSandbox {
    /// The owner.
    pub owner: Whereabouts,
    /// Whether this call has made it the owner. Otherwise an earlier one has.
    pub is_new: bool,
}

/// What a new sandbox needs of its node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacementWish {
    /// The image as the client named it; `None`: the default one.
    pub image: Option<String>,
    /// The memory limit, in MiB; `None`: the default one.
    pub memory_mib: Option<u64>,
    /// The size of the disk, in MiB; `None`: the default one.
    pub disk_mib: Option<u64>,
    /// Whether the sandbox survives its node.
    pub class: SandboxClass,
    /// The node that holds the snapshot to start from. No other node can create the sandbox.
    pub node: Option<NodeName>,
    /// The region as the client named it; `None`: that of the node that received the request.
    pub region: Option<String>,
    /// The labels that the node must have, as the client named them.
    pub labels: BTreeMap<String, String>,
    /// Nodes that have refused this sandbox for want of room.
    pub without: Vec<NodeName>,
}

/// Why a fleet does not say where a sandbox is.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FleetError {
    /// The records of ownership cannot be read or written.
    #[error("the records of the fleet are unavailable: {0}")]
    Unavailable(String),
    /// The request names a region or labels that no node can have.
    #[error("{field}: {reason}")]
    BadWish {
        /// The field of the request.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// No node can take the sandbox.
    #[error("no node can take the sandbox: {missing}")]
    Full {
        /// What is missing, as text for people.
        missing: String,
        /// When to try again, in seconds.
        retry_after_s: u64,
    },
    /// The node of the sandbox was declared dead, and its files with it.
    #[error(
        "node \"{node}\" was declared dead, and with it the files of sandbox \"{sandbox}\" are lost"
    )]
    NodeDead {
        /// The node.
        node: NodeName,
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// The node of the sandbox has failed, and no other node can restore the sandbox.
    #[error(
        "node \"{node}\" cannot be reached, and no snapshot of sandbox \"{sandbox}\" is in the object \
         store from which another node could restore it"
    )]
    NoSnapshot {
        /// The node.
        node: NodeName,
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// The sandbox is being restored, and the request has waited long enough.
    #[error("sandbox \"{0}\" is being restored from the object store")]
    Restoring(SandboxId),
    /// The sandbox cannot be restored from the object store now.
    #[error("sandbox \"{sandbox}\" cannot be restored from the object store: {reason}")]
    NotRestored {
        /// The sandbox.
        sandbox: SandboxId,
        /// Why.
        reason: String,
    },
    /// No node of the fleet has this name.
    #[error("no node has the name \"{0}\"")]
    NoNode(NodeName),
    /// A sandbox cannot be moved to where a request wants it.
    #[error("the sandbox cannot be moved there: {0}")]
    NoTarget(String),
    /// The tenant has as many sandboxes on all nodes as it may have.
    #[error("the tenant has {max} sandboxes on all nodes, its limit")]
    TooManySandboxes {
        /// The limit.
        max: u32,
    },
    /// The tenant, or the fleet, has as many network profiles as it may have.
    #[error("at most {max} network profiles")]
    TooManyProfiles {
        /// The limit.
        max: usize,
    },
}

/// Why a node gave no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SendFailure {
    /// There is no connection to the node. Nothing of the request was sent.
    #[error("{0}")]
    Unreachable(String),
    /// The connection ended without an answer. The node may have carried the request out.
    #[error("{0}")]
    Lost(String),
}

/// A fleet, as one of its nodes knows it.
pub trait Fleet: Send + Sync + 'static {
    /// The name of this node.
    fn here(&self) -> &NodeName;

    /// Where a sandbox is, if this node knows it without asking anyone.
    fn known(&self, tenant: &TenantId, sandbox: &SandboxId) -> Option<Whereabouts>;

    /// Where a sandbox is.
    ///
    /// # Errors
    /// [`FleetError::Unavailable`].
    fn find<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
    ) -> FleetFuture<'a, Result<Whereabouts, FleetError>>;

    /// Chooses a node for a new sandbox and makes it the owner. Returns the owner if there is one
    /// already; never [`Whereabouts::Nowhere`].
    ///
    /// # Errors
    /// [`FleetError`].
    fn place<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
        wish: &'a PlacementWish,
    ) -> FleetFuture<'a, Result<PlacedSandbox, FleetError>>;

    /// Removes the record of ownership of a sandbox that this call has placed on a node which got
    /// nothing of the request. If that node has learned otherwise that the sandbox is placed on it, it
    /// may be creating it, and the record stays. Returns whether the record is gone.
    fn unplace<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
        epoch: u64,
    ) -> FleetFuture<'a, bool>;

    /// Called on the owner after a request that may have created its sandbox: gives up the record if
    /// there is no such sandbox, and writes it again if it is missing. Returns at once.
    fn settle(&self, tenant: &TenantId, sandbox: &SandboxId);

    /// Called on the owner after it has refused a request that creates its sandbox: as [`Self::settle`], and
    /// returns when it is done, or has failed and will be repeated.
    fn give_up<'a>(&'a self, tenant: &'a TenantId, sandbox: &'a SandboxId) -> FleetFuture<'a, ()>;

    /// Forgets that a node owned a sandbox at this epoch: the node did not confirm it.
    fn forget(&self, tenant: &TenantId, sandbox: &SandboxId, epoch: u64);

    /// Whether a node has no lease, as this node knows it.
    fn has_failed(&self, _node: &Peer) -> bool {
        false
    }

    /// Becomes true when the lease of the node of a sandbox ends, so that another node may take the
    /// sandbox over. `None` for one that no other node takes over.
    fn until_lost(
        &self,
        _tenant: &TenantId,
        _sandbox: &SandboxId,
        _node: &Peer,
    ) -> Option<watch::Receiver<bool>> {
        None
    }

    /// The registration of this node, under which it begins to answer a request.
    fn registration(&self) -> u64 {
        0
    }

    /// Whether this node may still answer for a sandbox that it has, a request that it began to answer
    /// under a registration. It may not if another node may have taken the sandbox over since.
    fn may_answer(&self, _tenant: &TenantId, _sandbox: &SandboxId, _registration: u64) -> bool {
        true
    }

    /// Called for a sandbox whose node has no lease. One of the class `store` is taken over by this node.
    ///
    /// # Errors
    /// [`FleetError::NodeDead`], [`FleetError::NoSnapshot`], [`FleetError::Full`] if no node may take it
    /// over, [`FleetError::Unavailable`].
    fn rescue<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
    ) -> FleetFuture<'a, Result<Rescue, FleetError>> {
        Box::pin(async move { Ok(Rescue::Owner(self.find(tenant, sandbox).await?)) })
    }

    /// Whether this node owns a sandbox of the class `store` and does not have it, without asking
    /// anyone.
    fn lacks(&self, _tenant: &TenantId, _sandbox: &SandboxId) -> bool {
        false
    }

    /// Restores a sandbox that this node owns and lacks, if a snapshot is in the object store. Without
    /// one, the request may create it. `called` is the snapshot for which the tenant calls: if it is one of
    /// the recorded ones, it is restored, and newer ones are skipped.
    ///
    /// # Errors
    /// [`FleetError::Restoring`], [`FleetError::NotRestored`], [`FleetError::Unavailable`].
    fn restore<'a>(
        &'a self,
        _tenant: &'a TenantId,
        _sandbox: &'a SandboxId,
        _called: Option<&'a SnapshotId>,
    ) -> FleetFuture<'a, Result<Presence, FleetError>> {
        Box::pin(std::future::ready(Ok(Presence::Here(None))))
    }

    /// A sandbox that only the object store has; `None`: a node has it, or it does not exist.
    ///
    /// # Errors
    /// [`FleetError::Unavailable`].
    fn stored<'a>(
        &'a self,
        _tenant: &'a TenantId,
        _sandbox: &'a SandboxId,
    ) -> FleetFuture<'a, Result<Option<StoredAway>, FleetError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The sandboxes of a tenant that only the object store has, sorted by id, behind `after`, and
    /// whether there are more than `limit`.
    ///
    /// # Errors
    /// [`FleetError::Unavailable`].
    fn stored_page<'a>(
        &'a self,
        _tenant: &'a TenantId,
        _after: Option<&'a SandboxId>,
        _limit: usize,
    ) -> FleetFuture<'a, Result<(Vec<StoredAway>, bool), FleetError>> {
        Box::pin(std::future::ready(Ok((Vec::new(), false))))
    }

    /// Deletes a sandbox that only the object store has. Returns `false` if a node has taken it over
    /// since this epoch, or it was deleted.
    ///
    /// # Errors
    /// [`FleetError::Unavailable`].
    fn delete_stored<'a>(
        &'a self,
        _tenant: &'a TenantId,
        _sandbox: &'a SandboxId,
        _epoch: u64,
    ) -> FleetFuture<'a, Result<bool, FleetError>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// The node that a sandbox can be moved to, as this one knows; `None`: it is there already. It needs
    /// `memory_mib` there.
    ///
    /// # Errors
    /// [`FleetError::NoNode`], [`FleetError::NoTarget`], [`FleetError::Unavailable`].
    fn target<'a>(
        &'a self,
        _tenant: &'a TenantId,
        _sandbox: &'a SandboxId,
        _memory_mib: u64,
        _to: &'a MoveTo,
    ) -> FleetFuture<'a, Result<Option<Peer>, FleetError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Begins to move a sandbox of this node. Requests for it wait until the result is dropped. `None`:
    /// it is being moved already.
    fn begin_move(
        &self,
        _tenant: &TenantId,
        _sandbox: &SandboxId,
        _to: &NodeName,
    ) -> Option<Box<dyn std::any::Any + Send>> {
        None
    }

    /// Lets other nodes take over a sandbox that has left this one. Returns whether they can.
    fn store_away<'a>(&'a self, _sandbox: &'a LocalSandbox) -> FleetFuture<'a, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Remembers the values of credentials of a sandbox that is moved to this node, in memory.
    fn expect(&self, _tenant: &TenantId, _sandbox: &SandboxId, _credentials: Vec<CredentialSpec>) {}

    /// Takes over a sandbox that is moved to this node, and restores it.
    ///
    /// # Errors
    /// As of [`Self::restore`], and [`FleetError::NoTarget`].
    fn receive<'a>(
        &'a self,
        _tenant: &'a TenantId,
        _sandbox: &'a SandboxId,
    ) -> FleetFuture<'a, Result<(), FleetError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Gives up the id of a sandbox whose node was declared dead.
    ///
    /// # Errors
    /// [`FleetError::Unavailable`].
    fn abandon<'a>(
        &'a self,
        _tenant: &'a TenantId,
        _sandbox: &'a SandboxId,
    ) -> FleetFuture<'a, Result<(), FleetError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The other nodes of the fleet, sorted by name.
    fn peers(&self) -> Vec<Peer>;

    /// The other nodes, from those that most probably have layers of an image: first those that report the
    /// image, then those of the same region.
    fn peers_by_image(&self, _digest: &str) -> Vec<Peer> {
        self.peers()
    }

    /// Where a sandbox of this node is and why, without asking anyone.
    fn placement_of(&self, tenant: &TenantId, sandbox: &SandboxId) -> Placement;

    /// All nodes, without asking anyone.
    fn nodes(&self) -> NodeList;

    /// One node with the sandboxes that it owns, read from the records.
    ///
    /// # Errors
    /// [`NodeError::Unknown`], [`NodeError::Unavailable`].
    fn node<'a>(&'a self, name: &'a NodeName) -> FleetFuture<'a, Result<NodeInfo, NodeError>>;

    /// Changes a node, which need not run, and returns it.
    ///
    /// # Errors
    /// [`NodeError`].
    fn change_node<'a>(
        &'a self,
        name: &'a NodeName,
        change: NodeChange,
    ) -> FleetFuture<'a, Result<NodeInfo, NodeError>>;

    /// Forgets a node that was declared dead. With `release`, the ownership of its sandboxes of the
    /// class `node` is given up before. Returns for how many.
    ///
    /// # Errors
    /// [`NodeError`].
    fn forget_node<'a>(
        &'a self,
        name: &'a NodeName,
        release: bool,
    ) -> FleetFuture<'a, Result<usize, NodeError>>;

    /// Sends a request to another node and returns the head of its response. The request has a path
    /// as its URI. Dropping the future or the body of the response cancels the request. There is no
    /// time limit for the response.
    ///
    /// # Errors
    /// [`SendFailure`].
    fn send<'a>(
        &'a self,
        peer: &'a Peer,
        request: Request<Body>,
    ) -> FleetFuture<'a, Result<PeerResponse, SendFailure>>;

    /// Writes a network profile, which the caller has checked, for all nodes. Returns `true` if there
    /// was none of this name. When it returns, this node usually has it too.
    ///
    /// # Errors
    /// [`FleetError::Unavailable`], and then nothing was changed, unless the answer was lost and it was
    /// changed for all nodes; [`FleetError::TooManyProfiles`].
    fn put_profile<'a>(
        &'a self,
        tenant: &'a TenantId,
        profile: &'a Profile,
    ) -> FleetFuture<'a, Result<bool, FleetError>>;

    /// Deletes a network profile for all nodes. Returns whether there was one.
    ///
    /// # Errors
    /// [`FleetError::Unavailable`], as for [`Self::put_profile`].
    fn remove_profile<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a str,
    ) -> FleetFuture<'a, Result<bool, FleetError>>;

    /// Called once, when this server can answer requests of other nodes. `handler` answers 503 once
    /// the server stops.
    fn serve(&self, handler: PeerHandler);
}
