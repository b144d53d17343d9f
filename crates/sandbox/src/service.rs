//! The way in: every sandbox of every tenant.

use crate::{
    Config, Created, Ended, Error, Info, OpenError, Page, Patch, Sandbox, SandboxId, TenantId,
    Wish, info::Once,
};
use isolet_store::keys::Keys;

/// All sandboxes of this server. Clones share one.
#[derive(Clone)]
pub struct Service {}

/// Whether a call may make the sandbox that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The first call that works in a sandbox creates it.
    CreateIfMissing,
    /// Reading calls and dialects that say so: 404 instead.
    MustExist,
}

impl Service {
    /// Takes the data directory, starts the launcher and finds again what ran before.
    ///
    /// # Errors
    /// [`OpenError`] when another server holds the directory, or it cannot be used. A machine that
    /// cannot make sandboxes is no error here: see [`Service::missing`].
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        let _ = config;
        todo!()
    }

    /// What this machine lacks for sandboxes, one sentence each; empty when all is there.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        todo!()
    }

    /// The API keys.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        todo!()
    }

    /// Makes a sandbox; answers when its agent has answered. Goes on when the caller is dropped.
    ///
    /// # Errors
    /// [`Error::SandboxExists`], the wish's own faults, limits, and what the machine refuses.
    pub async fn create(
        &self,
        tenant: &TenantId,
        wish: Wish,
        once: Option<Once>,
    ) -> Result<Created, Error> {
        let _ = (tenant, wish, once);
        todo!()
    }

    /// What is known of a sandbox.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    pub async fn get(&self, tenant: &TenantId, id: &SandboxId) -> Result<Info, Error> {
        let _ = (tenant, id);
        todo!()
    }

    /// The tenant's sandboxes after `after`, at most `limit` (1 to 1000).
    ///
    /// # Errors
    /// [`Error::Stopping`].
    pub async fn list(
        &self,
        tenant: &TenantId,
        after: Option<&SandboxId>,
        limit: usize,
    ) -> Result<Page, Error> {
        let _ = (tenant, after, limit);
        todo!()
    }

    /// Changes a sandbox; all of the patch or nothing.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::BadField`].
    pub async fn patch(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        patch: Patch,
    ) -> Result<Info, Error> {
        let _ = (tenant, id, patch);
        todo!()
    }

    /// Ends a sandbox; answers when nothing of it runs any more. Never waits behind commands.
    ///
    /// # Errors
    /// [`Error::NoSandbox`]; [`Error::TooLate`] when something could not be ended in its time (it
    /// goes on being tried).
    pub async fn delete(&self, tenant: &TenantId, id: &SandboxId) -> Result<Ended, Error> {
        let _ = (tenant, id);
        todo!()
    }

    /// A running sandbox to work in. Callers that arrive together while there is none make one.
    ///
    /// # Errors
    /// [`Error::NoSandbox`] with [`Reach::MustExist`], [`Error::Failed`], and those of `create`.
    pub async fn reach(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        reach: Reach,
    ) -> Result<Sandbox, Error> {
        let _ = (tenant, id, reach);
        todo!()
    }

    /// Takes no new work, lets go of the agents, writes what is not written. Sandboxes live on.
    pub async fn shutdown(&self) {
        todo!()
    }
}
