//! What a server that is a node of a fleet does with sandboxes that it may lose: the words between
//! the service and the driver of the fleet's protocol, which decides. The service does not know the
//! protocol.

use crate::model::error::Error;
use crate::model::ids::{SandboxId, SnapshotId, TenantId};
use crate::model::info::Lost;
use crate::model::info::class::SandboxClass;
use crate::model::network::{CredentialSpec, Network};
use isolet_wire::lease::Epoch;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Default time for which the files of superseded sandboxes are kept: a week.
pub const SUPERSEDED_KEEP: Duration = Duration::from_secs(7 * 24 * 3600);

/// The settings of a node of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetSettings {
    /// Whether sandboxes may have the class `store`.
    pub allows_store: bool,
    /// How long the files of sandboxes are kept that another node has taken over.
    pub superseded_keep: Duration,
    /// How long a sandbox of the class `store` sleeps before it is evicted: only the object store has
    /// it then. `None`: never.
    pub evict_after: Option<Duration>,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self { allows_store: false, superseded_keep: SUPERSEDED_KEEP, evict_after: None }
    }
}

/// A sandbox of this server. A later one with the same id has another internal name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocalSandbox {
    /// The tenant.
    pub tenant: TenantId,
    /// The id.
    pub id: SandboxId,
    /// The internal name, unique on this server.
    pub name: String,
    /// The class.
    pub class: SandboxClass,
}

impl fmt::Display for LocalSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sandbox {} of tenant {}", self.id, self.tenant)
    }
}

/// What the records hold about the ownership of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOwnership {
    /// The internal name of the sandbox, which may be gone.
    pub name: String,
    /// The tenant.
    pub tenant: TenantId,
    /// The id.
    pub id: SandboxId,
    /// Whether nothing of it may run. A server that starts leaves such a sandbox frozen.
    pub suspended: bool,
    /// The view of the protocol, as JSON.
    pub view: String,
}

/// What the lease guard answered to a new deadline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuardReport {
    /// The number of guarded sandboxes that are stopped.
    pub stopped: u32,
    /// How often this server has connected to a guard. When it changes, the guard may be another
    /// process, which knows no sandbox.
    pub connections: u64,
}

/// The answer of [`StartPermits::permit`]: the registration, or why the sandbox must not start.
pub type PermitFuture<'a> = Pin<Box<dyn Future<Output = Result<Epoch, String>> + Send + 'a>>;

/// The answer of [`IdClaims::claim`].
pub type ClaimFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// Makes this node the owner of sandboxes that it creates without a request of their own: forks.
pub trait IdClaims: Send + Sync {
    /// Asked before they are created.
    ///
    /// # Errors
    /// [`Error::FleetUnavailable`], [`Error::TooManySandboxes`], and then none of them may be created.
    fn claim<'a>(&'a self, tenant: &'a TenantId, ids: &'a [SandboxId]) -> ClaimFuture<'a>;

    /// Told when they were not created, or not all of them. Returns at once.
    fn settle(&self, tenant: &TenantId, ids: &[SandboxId]);
}

/// Decides whether a sandbox of the class `store` may start on this node.
pub trait StartPermits: Send + Sync {
    /// Asked before a process tree of the sandbox starts. The answer is the registration under which
    /// this node owns it; the lease guard compares it just before the start.
    ///
    /// # Errors
    /// Why it must not start now, as text for people.
    fn permit<'a>(&'a self, sandbox: &'a LocalSandbox) -> PermitFuture<'a>;
}

/// A snapshot in the object store from which another node can restore a sandbox of the class `store`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedSnapshot {
    /// The id of the snapshot.
    pub id: SnapshotId,
    /// Its number among the snapshots of the sandbox since it was created or restored on its node, from 1
    /// on: their order, whatever the clocks say. 0: of the node before.
    pub number: u64,
    /// When it was taken, in milliseconds since 1970, for people.
    pub created_at_ms: i64,
    /// When it was complete in the store, in milliseconds since 1970.
    pub pushed_at_ms: i64,
    /// Whether the server took it on its own account, so that it is deleted from the store once there
    /// are newer ones.
    pub automatic: bool,
    /// Whether the sandbox slept when it was taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asleep: bool,
}

/// What a server knows of the pushes of a sandbox that it has. A server whose disk or data directory is an
/// earlier one does not know those that came later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPushes {
    /// The last number that one of its snapshots got here.
    pub number: u64,
    /// The last one that was recorded, or the one from which the sandbox was restored here.
    pub last: Option<SnapshotId>,
}

/// Why a sandbox leaves its node without being deleted. Its snapshot in the object store holds all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// It has slept for long.
    Evicted,
    /// It is moved to another node.
    Moved,
}

/// What a node needs to know before a sandbox is moved to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The id of the sandbox.
    pub id: SandboxId,
    /// A snapshot of it in the object store, which the node must be able to read.
    pub pushed: Option<SnapshotId>,
    /// The id of the object store through which it is moved.
    pub store: String,
    /// Its network policy.
    pub network: Network,
    /// Whether values of credentials come with it, which the egress proxy of the node injects.
    pub has_credentials: bool,
    /// The class.
    pub class: SandboxClass,
    /// The image as the client requested it.
    pub image: String,
    /// The full name of the image.
    pub image_resolved: String,
    /// The memory limit, in MiB.
    pub memory_mib: u64,
    /// The size of its disk, in MiB; 0 means none.
    pub disk_mib: u64,
    /// Whether it sleeps, so that it needs no memory yet.
    pub asleep: bool,
}

/// A sandbox that has left this node.
#[derive(Debug, Clone)]
pub struct Departed {
    /// The sandbox. Nothing of it is on this node any more.
    pub sandbox: LocalSandbox,
    /// The snapshot in the object store that holds all of it.
    pub snapshot: SnapshotId,
    /// The credentials that were injected into its requests, with their values, which are not part of
    /// the snapshot.
    pub credentials: Vec<CredentialSpec>,
}

/// What a node restores of a sandbox whose former node has failed or has stored it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSandbox {
    /// The newest snapshot in the object store.
    pub snapshot: PushedSnapshot,
    /// The node that pushed it.
    pub node: String,
    /// Whether the sandbox may have run since then.
    pub has_run_since: bool,
    /// The values of its credentials, if its former node has sent them.
    pub credentials: Vec<CredentialSpec>,
    /// Newer snapshots that the tenant has given up by calling for this one.
    pub skipped: Vec<SnapshotId>,
}

/// From what a sandbox was restored on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredFrom {
    /// The snapshot in the object store.
    pub snapshot: SnapshotId,
    /// When it was taken, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// The node that pushed it.
    pub node: String,
    /// When the sandbox was restored, in milliseconds since 1970.
    pub restored_at_ms: i64,
    /// What was lost; `None`: the sandbox had not run since the snapshot.
    pub lost: Option<LostSince>,
    /// Newer snapshots that were not used, because the tenant has called for this one. They stay in the
    /// object store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SnapshotId>,
}

/// What a sandbox lost that was restored from a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostSince {
    /// Changes of this time may be lost: from the snapshot until the restore, in seconds.
    pub seconds: u64,
    /// What the snapshot does not contain.
    pub items: Vec<Lost>,
}

/// Why something about a sandbox is not recorded in the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotRecorded {
    /// Another node owns the sandbox. The text is for people.
    Superseded(String),
    /// The records cannot be written now. The text is for people.
    Unavailable(String),
}

/// The answer of a call of [`SnapshotRecords`].
pub type RecordedFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, NotRecorded>> + Send + 'a>>;

/// Records for the other nodes of a fleet from which snapshot they restore a sandbox of the class
/// `store`. A snapshot in the store counts only once it is recorded, which only the owner can do.
pub trait SnapshotRecords: Send + Sync {
    /// Records a snapshot that is complete in the store. Returns older snapshots that nobody needs any
    /// more and that are to be deleted from the store.
    ///
    /// # Errors
    /// [`NotRecorded`]: other nodes do not restore it.
    fn pushed<'a>(
        &'a self,
        sandbox: &'a LocalSandbox,
        snapshot: &'a PushedSnapshot,
    ) -> RecordedFuture<'a, Vec<SnapshotId>>;

    /// Records that the newest recorded snapshot has everything of the sandbox, which never runs on this
    /// node again, and what the sandbox is, for nodes that show it without restoring it.
    ///
    /// # Errors
    /// [`NotRecorded`].
    fn departs<'a>(
        &'a self,
        sandbox: &'a LocalSandbox,
        description: &'a str,
    ) -> RecordedFuture<'a, ()>;

    /// Whether the records can be written for this sandbox now, as far as that can be known.
    ///
    /// # Errors
    /// [`NotRecorded`].
    fn check<'a>(&'a self, sandbox: &'a LocalSandbox) -> RecordedFuture<'a, ()>;

    /// Records that a client deletes a snapshot from the store, before that is done: no node restores from
    /// it. The sandbox may be one of another node, or not exist.
    ///
    /// # Errors
    /// [`NotRecorded`].
    fn forgets<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
        snapshot: &'a SnapshotId,
    ) -> RecordedFuture<'a, ()>;

    /// Records that the sandbox is deleted, so that no node restores it.
    ///
    /// # Errors
    /// [`NotRecorded`].
    fn deleted<'a>(&'a self, sandbox: &'a LocalSandbox) -> RecordedFuture<'a, ()>;
}
