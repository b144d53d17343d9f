//! Sessions of a tenant across its sandboxes: addressed by their own id alone, and ended when they
//! expire.

use crate::{
    live::{entry::Entry, inner::Inner},
    model::{
        error::Error,
        events::Happened,
        ids::{SandboxId, SessionId, TenantId},
        info::{IdempotencyKey, Life, SessionInfo, SessionSpec},
        sessions::Only,
        state::State,
    },
    sandbox::Sandbox,
    service::{Access, Service},
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tracing::{info, warn};

/// Where a session lives that names no sandbox.
pub const HOME: &str = "default";
/// How often sessions are looked through for those whose time has come.
const LOOK: Duration = Duration::from_millis(500);

impl Service {
    /// Makes a session in a sandbox (made too, where it is not there); `true` beside it: the same
    /// idempotency key had made it before. The wish says when it ends.
    ///
    /// # Errors
    /// Those of [`Service::reach`] and [`Sandbox::session_create`].
    pub async fn session_create(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        mut wish: SessionSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<(SessionInfo, bool), Error> {
        let sandbox = self.reach(tenant, sandbox, Access::CreateIfMissing).await?;
        let free = |id: &SessionId| self.held(tenant, id).is_err();
        wish.id = std::iter::repeat_with(SessionId::short).find(free);
        sandbox.session_create(wish, once).await
    }

    /// The sessions that a tenant keeps across its sandboxes, sorted by id.
    #[must_use]
    pub fn sessions(&self, tenant: &TenantId) -> Vec<SessionInfo> {
        let entries = self.inner.registry.of(tenant);
        let all = entries.iter().flat_map(|entry| entry.sessions.list());
        let mut own: Vec<_> = all.filter(|session| Life::is_across(session.life)).collect();
        own.sort_by(|a, b| a.id.cmp(&b.id));
        own
    }

    /// One of them.
    ///
    /// # Errors
    /// [`Error::NoSession`].
    pub fn session(&self, tenant: &TenantId, id: &SessionId) -> Result<SessionInfo, Error> {
        Ok(self.held(tenant, id)?.1)
    }

    /// One of them, used now.
    ///
    /// # Errors
    /// [`Error::NoSession`].
    pub fn session_use(&self, tenant: &TenantId, id: &SessionId) -> Result<SessionInfo, Error> {
        let (entry, _) = self.held(tenant, id)?;
        entry.sessions.touch(id);
        entry.sessions.info(id)
    }

    /// Ends one of them, and its shell.
    ///
    /// # Errors
    /// [`Error::NoSession`], and what the records refuse.
    pub async fn session_end(&self, tenant: &TenantId, id: &SessionId) -> Result<(), Error> {
        let (entry, info) = self.held(tenant, id)?;
        let none = Error::NoSession { id: info.sandbox_id, session: id.clone() };
        if end(&self.inner, entry, id.clone(), Only::default()).await? { Ok(()) } else { Err(none) }
    }

    /// Ends those of them that fit; how many that were.
    ///
    /// # Errors
    /// What the records refuse; some may have ended then.
    pub async fn sessions_end(&self, tenant: &TenantId, only: Only) -> Result<usize, Error> {
        let mut ended = 0;
        for session in self.sessions(tenant) {
            let Ok((entry, _)) = self.held(tenant, &session.id) else { continue };
            ended += usize::from(end(&self.inner, entry, session.id, only).await?);
        }
        Ok(ended)
    }

    fn held(&self, tenant: &TenantId, id: &SessionId) -> Result<(Arc<Entry>, SessionInfo), Error> {
        let found = self.inner.registry.of(tenant).into_iter().find_map(|entry| {
            let info = entry.sessions.info(id).ok().filter(|info| Life::is_across(info.life))?;
            Some((entry, info))
        });
        found.ok_or_else(|| {
            let home = SandboxId::parse(HOME).unwrap_or_else(|_| SandboxId::random());
            Error::NoSession { id: home, session: id.clone() }
        })
    }
}

/// Ends a session when it fits; whether it did. Goes on when the caller is dropped.
async fn end(
    inner: &Arc<Inner>,
    entry: Arc<Entry>,
    id: SessionId,
    only: Only,
) -> Result<bool, Error> {
    let inner = Arc::clone(inner);
    let work = async move {
        let _turn = entry.sessions.turn.lock().await;
        if !entry.sessions.fits(&id, only) {
            return Ok(false);
        }
        let scoped = entry.sessions.scoped(&id);
        // Recorded first: where that fails, the session goes on as if nothing had been asked.
        inner.store.remove_session(&entry.name, id.as_str()).await?;
        entry.sessions.end(&id).await;
        entry.pool_of(&id).drop_links(Some(&id));
        entry.shell_states.forget(&id).await;
        inner.events.say(&entry, Happened::SessionDeleted(id.clone()));
        if scoped {
            entry.end_scope(&inner, &id).await?;
        } else if entry.state() == State::Running {
            Sandbox::new(inner, Arc::clone(&entry)).close_session(&id).await?;
        }
        Ok(true)
    };
    tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))?
}

/// Ends sessions whose time has come; runs until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    while !inner.stopping.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
        for entry in inner.registry.all() {
            let parked = |id: &SessionId| entry.pool_of(id).parked(id);
            let over = entry.sessions.over(inner.config.session_idle, parked);
            for id in over {
                let sandbox = entry.id.clone();
                match end(&inner, Arc::clone(&entry), id.clone(), Only::default()).await {
                    Ok(_) => info!(session = %id, %sandbox, "its time was over"),
                    Err(error) => warn!(session = %id, %sandbox, %error, "cannot be ended"),
                }
            }
        }
    }
}
