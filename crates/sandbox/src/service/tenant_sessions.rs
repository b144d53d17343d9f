//! Sessions across sandboxes: a tenant addresses them by their id alone, and they end when their
//! lifetime has passed.

use crate::live::entry::SandboxEntry;
use crate::live::inner::Inner;
use crate::model::error::Error;
use crate::model::events::EventKind;
use crate::model::ids::{SandboxId, SessionId, TenantId};
use crate::model::info::{IdempotencyKey, Life, SessionInfo, SessionSpec};
use crate::model::sessions::Only;
use crate::model::state::State;
use crate::sandbox::Sandbox;
use crate::service::{Access, Service};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tracing::{info, warn};

/// The sandbox of a session whose request names none.
pub const HOME: &str = "default";
/// Pause between two checks for expired sessions.
const LOOK: Duration = Duration::from_millis(500);

impl Service {
    /// Creates a session in a sandbox, which is also created if necessary. Returns `true` if the
    /// same idempotency key had created the session before. The request sets the session's
    /// lifetime.
    ///
    /// # Errors
    /// See [`Service::reach`] and [`Sandbox::session_create`].
    pub async fn session_create(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        mut spec: SessionSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<(SessionInfo, bool), Error> {
        let sandbox = self.reach(tenant, sandbox, Access::CreateIfMissing).await?;
        let free = |id: &SessionId| self.held(tenant, id).is_err();
        spec.id = std::iter::repeat_with(SessionId::short).find(free);
        sandbox.session_create(spec, once).await
    }

    /// The tenant's sessions across sandboxes, sorted by id.
    #[must_use]
    pub fn sessions(&self, tenant: &TenantId) -> Vec<SessionInfo> {
        let entries = self.inner.registry.of(tenant);
        let all = entries.iter().flat_map(|entry| entry.sessions.list());
        let mut own: Vec<_> = all.filter(|session| Life::is_across(session.life)).collect();
        own.sort_by(|a, b| a.id.cmp(&b.id));
        own
    }

    /// The description of one session.
    ///
    /// # Errors
    /// [`Error::NoSession`].
    pub fn session(&self, tenant: &TenantId, id: &SessionId) -> Result<SessionInfo, Error> {
        Ok(self.held(tenant, id)?.1)
    }

    /// The description of one session, which also counts as use.
    ///
    /// # Errors
    /// [`Error::NoSession`].
    pub fn session_use(&self, tenant: &TenantId, id: &SessionId) -> Result<SessionInfo, Error> {
        let (entry, _) = self.held(tenant, id)?;
        entry.sessions.touch(id);
        entry.sessions.info(id)
    }

    /// Ends a session and its shell.
    ///
    /// # Errors
    /// [`Error::NoSession`], and errors of the store.
    pub async fn session_end(&self, tenant: &TenantId, id: &SessionId) -> Result<(), Error> {
        let (entry, info) = self.held(tenant, id)?;
        let none = Error::NoSession { id: info.sandbox_id, session: id.clone() };
        if end(&self.inner, entry, id.clone(), Only::default()).await? { Ok(()) } else { Err(none) }
    }

    /// Ends all matching sessions and returns their number.
    ///
    /// # Errors
    /// Errors of the store, after some sessions may have ended.
    pub async fn sessions_end(&self, tenant: &TenantId, only: Only) -> Result<usize, Error> {
        let mut ended = 0;
        for session in self.sessions(tenant) {
            let Ok((entry, _)) = self.held(tenant, &session.id) else { continue };
            ended += usize::from(end(&self.inner, entry, session.id, only).await?);
        }
        Ok(ended)
    }

    fn held(
        &self,
        tenant: &TenantId,
        id: &SessionId,
    ) -> Result<(Arc<SandboxEntry>, SessionInfo), Error> {
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

/// Ends a session if it matches, and returns whether it did. Continues if the caller is dropped.
async fn end(
    inner: &Arc<Inner>,
    entry: Arc<SandboxEntry>,
    id: SessionId,
    only: Only,
) -> Result<bool, Error> {
    let inner = Arc::clone(inner);
    let work = async move {
        let _turn = entry.sessions.turn.lock().await;
        if !entry.sessions.fits(&id, only) {
            return Ok(false);
        }
        if entry.state() == State::Paused {
            return Err(Error::Paused(entry.id.clone()));
        }
        let scoped = entry.sessions.scoped(&id);
        // Recorded first: if that fails, the session continues unchanged.
        inner.store.remove_session(&entry.name, id.as_str()).await?;
        entry.sessions.end(&id).await;
        entry.pool_of(&id).drop_links(Some(&id));
        entry.shell_states.forget(&id).await;
        inner.events.emit(&entry, EventKind::SessionDeleted(id.clone()));
        if scoped {
            entry.end_scope(&inner, &id).await?;
        } else if entry.state() == State::Running {
            Sandbox::new(inner, Arc::clone(&entry)).close_session(&id).await?;
        }
        Ok(true)
    };
    tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))?
}

/// Ends expired sessions until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    while !inner.stopping.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
        for entry in inner.registry.all() {
            // The shell of a session ends with it, which a frozen agent cannot do.
            if entry.state() == State::Paused {
                continue;
            }
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
