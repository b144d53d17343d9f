//! What a server that is a node of a fleet does with sandboxes that it may lose: the words between
//! the service and the driver of the fleet's protocol, which decides. The service does not know the
//! protocol.

use crate::model::error::Error;
use crate::model::ids::{SandboxId, TenantId};
use crate::model::info::class::SandboxClass;
use isolet_wire::lease::Epoch;
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
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self { allows_store: false, superseded_keep: SUPERSEDED_KEEP }
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
