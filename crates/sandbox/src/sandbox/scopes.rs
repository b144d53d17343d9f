//! The sessions of one sandbox that see only a part of its files: each has an agent of its own,
//! started when it is first needed, and found again by its socket after a restart of the server.
//!
//! The server talks to such an agent as to the sandbox's own: a socket in
//! `DATA/sandboxes/<name>/scopes/<session>/`, a pool of connections, events of its shells. An agent
//! whose session is not recorded is ended. One that ends early is started again by the next call.

use crate::{
    agent_client::{
        agent_activity::AgentActivity,
        pool::{Pool, Watched},
        watch::watch_at,
        wire::{AgentEvent, Wire},
    },
    live::{
        entry::{Entry, scopes::Scope},
        inner::Inner,
        saving::{self, Saving},
    },
    model::{agent_error::AgentError, blocking::blocking, error::Error, ids::SessionId},
    sandbox::Sandbox,
};
use isolet_wire::{activity::Activity, launcher, response::AgentResponse};
use rustix::io::Errno;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;
use tracing::{info, warn};

/// How long an agent that was just started, or was left by an earlier server, may take to answer.
const GREETING_WAIT: Duration = Duration::from_secs(5);
/// How long all of a scope may take to end.
const END_WAIT: Duration = Duration::from_secs(4);

impl Entry {
    /// Where idle connections for a session are kept.
    pub(crate) fn pool_of(&self, id: &SessionId) -> Arc<Pool> {
        self.scopes.get(id).map_or_else(|| Arc::clone(&self.pool), |scope| Arc::clone(&scope.pool))
    }

    /// Lets go of every connection to an agent of it.
    pub(crate) fn let_go(&self) {
        self.pool.drop_links(None);
        self.scopes.clear();
    }

    /// Ends the agent of a session's scope, and what runs there.
    pub(crate) async fn end_scope(&self, inner: &Inner, id: &SessionId) -> Result<(), Error> {
        let _turn = self.scopes.turn.lock().await;
        if let Some(scope) = self.scopes.get(id) {
            self.scopes.remove(id, &scope, false);
        }
        self.scopes.forgive(id);
        self.clear_scope(inner, id).await
    }

    /// Within a turn.
    async fn clear_scope(&self, inner: &Inner, id: &SessionId) -> Result<(), Error> {
        let config = inner.jail.clone();
        let name = self.name.clone();
        let id = id.clone();
        let ended = blocking(move || {
            isolet_jail::SandboxHandle::open(&config, &name).end_scope(id.as_str(), END_WAIT)
        });
        ended.await?.map_err(|error| Error::Fault(format!("cannot end a session's scope: {error}")))
    }
}

impl Sandbox {
    /// The same handle, whose file calls are those of this session.
    ///
    /// # Errors
    /// [`Error::NoSession`], and what the start of its scope refuses.
    pub async fn within(&self, id: &SessionId) -> Result<Self, Error> {
        self.session(id)?;
        Ok(Self { scope: self.scope(id).await?, ..self.clone() })
    }

    /// The scope that a session has, running; `None` for one that sees all.
    pub(crate) async fn scope(&self, id: &SessionId) -> Result<Option<Arc<Scope>>, Error> {
        if !self.entry.sessions.scoped(id) {
            return Ok(None);
        }
        if let Some(scope) = self.entry.scopes.get(id) {
            return Ok(Some(scope));
        }
        let own = self.clone();
        let id = id.clone();
        // A task of its own: a caller that goes away leaves nothing half-done.
        let work = async move {
            let _turn = own.entry.scopes.turn.lock().await;
            if let Some(scope) = own.entry.scopes.get(&id) {
                return Ok(scope);
            }
            own.check()?;
            let Some(grants) = own.entry.sessions.grants(&id)? else {
                return Err(Error::NoSession { id: own.entry.id.clone(), session: id });
            };
            match own.found(&id).await {
                Some(scope) => Ok(scope),
                None => own.start(&id, (grants, false), Arc::default()).await,
            }
        };
        Ok(Some(tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))??))
    }

    /// Starts the scope of a session that is being made: every path to be read must be there.
    pub(crate) async fn new_scope(
        &self,
        id: &SessionId,
        grants: Vec<launcher::Grant>,
    ) -> Result<(), Error> {
        let granted = Arc::new(Notify::new());
        let own = self.clone();
        let id = id.clone();
        let told = Arc::clone(&granted);
        let work = async move {
            let _turn = own.entry.scopes.turn.lock().await;
            own.check()?;
            let started = own.start(&id, (grants, true), told).await.map(drop);
            // What cannot be granted is its asker's to hear.
            if let Err(error) = &started
                && !matches!(error, Error::BadField { .. })
            {
                warn!(sandbox = %own.entry.id, session = %id, %error, "its scope does not start; its next call tries again");
            }
            started
        };
        // Goes on when it is granted: whoever comes first waits for the turn.
        tokio::select! {
            () = granted.notified() => Ok(()),
            started = tokio::spawn(work) => {
                started.map_err(|error| Error::Fault(error.to_string()))?
            }
        }
    }

    /// Within a turn: one that an earlier server has left running, or whose news were cut off.
    async fn found(&self, id: &SessionId) -> Option<Arc<Scope>> {
        let directory = isolet_jail::scope_dir(&self.entry.directory, id.as_str());
        let told = watch_at(&directory, GREETING_WAIT).await.ok()?;
        // It lives: what it has is not lost.
        self.entry.scopes.forgive(id);
        for ended in saving::ended(&told.1).iter().filter(|ended| *ended == id) {
            self.entry.shell_states.forget(ended).await;
        }
        Some(self.follow(id, directory, told))
    }

    /// Finds those again that an earlier server has left running, and ends those whose session it
    /// had not recorded yet, or not any more.
    pub(crate) async fn find_scopes(&self) {
        if let Err(error) = self.end_strays().await {
            warn!(sandbox = %self.entry.id, %error, "scopes without a session are left");
        }
        for id in self.entry.sessions.all_scoped() {
            let _turn = self.entry.scopes.turn.lock().await;
            if self.entry.scopes.get(&id).is_none() && self.found(&id).await.is_some() {
                info!(sandbox = %self.entry.id, session = %id, "its scope runs");
            }
        }
    }

    /// In the sessions' turn: none of those is being made.
    async fn end_strays(&self) -> Result<(), Error> {
        let _turn = self.entry.sessions.turn.lock().await;
        let config = self.inner.jail.clone();
        let name = self.entry.name.clone();
        let names =
            blocking(move || isolet_jail::SandboxHandle::open(&config, &name).scopes()).await?;
        for id in names.iter().filter_map(|name| SessionId::parse(name).ok()) {
            if !self.entry.sessions.scoped(&id) {
                info!(sandbox = %self.entry.id, session = %id, "ended: a scope without a session");
                self.entry.end_scope(&self.inner, &id).await?;
            }
        }
        Ok(())
    }

    /// Within a turn.
    async fn start(
        &self,
        id: &SessionId,
        (grants, strict): (Vec<launcher::Grant>, bool),
        granted: Arc<Notify>,
    ) -> Result<Arc<Scope>, Error> {
        let (memory_mib, user) = {
            let body = &self.entry.view.borrow().record.body;
            (
                body.limits.memory_mib,
                body.root.as_ref().map_or((0, 0), |r| (r.user.uid, r.user.gid)),
            )
        };
        let name = self.entry.name.clone();
        let session = id.to_string();
        let slot = self.entry.slot;
        let order = launcher::Scope { name, slot, session, grants, memory_mib, user, strict };
        if let Err(error) = self.inner.launch.scope(order.clone(), Arc::clone(&granted)).await {
            match refused(&order, &error) {
                Some(refused) => return Err(refused),
                // What is left of an earlier one, half-made or not answering, is in the way.
                None => self.entry.clear_scope(&self.inner, id).await?,
            }
            let again = self.inner.launch.scope(order.clone(), granted).await;
            again.map_err(|error| refused(&order, &error).unwrap_or(error))?;
        }
        let directory = isolet_jail::scope_dir(&self.entry.directory, id.as_str());
        let told = watch_at(&directory, GREETING_WAIT).await?;
        Ok(self.follow(id, directory, told))
    }

    fn follow(
        &self,
        id: &SessionId,
        directory: PathBuf,
        (wire, shells, execs): (Wire, Vec<Activity>, u32),
    ) -> Arc<Scope> {
        let pool = Arc::new(Pool::new(Arc::<Watched>::clone(&self.inner.watched)));
        let seen = Mutex::new(AgentActivity::inventory(&shells, execs));
        let scope = Arc::new(Scope { directory, pool, seen });
        self.entry.sessions.inventory_of(id, &shells);
        self.entry.scopes.running().insert(id.clone(), Arc::clone(&scope));
        let mut news = self.entry.scopes.news.lock().unwrap_or_else(PoisonError::into_inner);
        while news.try_join_next().is_some() {}
        news.spawn(hear(Arc::clone(&self.entry), id.clone(), Arc::clone(&scope), wire));
        scope
    }
}

/// What the launcher said of a grant, in words for who asked for it.
fn refused(order: &launcher::Scope, error: &Error) -> Option<Error> {
    let Error::GrantRefused { index, errno } = error else { return None };
    let grant = order.grants.get(*index)?;
    let other = std::io::Error::from(*errno).to_string();
    let why = match *errno {
        Errno::NOENT => "is not there; make it first, or grant it for writing: then it is made",
        Errno::LOOP => "is or leads through a symbolic link",
        Errno::NOTDIR => "leads through something that is no directory",
        Errno::OPNOTSUPP => "is neither a directory nor a file",
        _ => other.as_str(),
    };
    let reason = format!("{:?} {why}", grant.path);
    Some(match (order.strict, SessionId::parse(&order.session)) {
        (false, Ok(session)) => Error::ScopeBlocked { session, reason },
        _ => Error::BadField { field: "file_access", reason },
    })
}

/// Hears what a scope's agent tells until it ends.
async fn hear(entry: Arc<Entry>, id: SessionId, scope: Arc<Scope>, mut wire: Wire) {
    let mut saving = Saving::new(&entry, Some(id.clone()));
    let error = loop {
        match wire.next().await {
            Ok(AgentEvent::Response(AgentResponse::Changed { activity, execs })) => {
                if scope.seen().busy() {
                    entry.activity.touch();
                }
                scope.seen().changed(activity.as_ref(), execs);
                if let Some(activity) = activity {
                    entry.sessions.changed(&activity, true);
                }
            }
            Ok(AgentEvent::Response(AgentResponse::Saved { shell, what })) => {
                let _ = saving.told(&mut wire, shell, what).await;
            }
            Ok(_) => break AgentError::Turn("unasked on a scope's connection"),
            Err(error) => break error,
        }
    };
    let shell = scope.seen().shells() > 0;
    if entry.scopes.remove(&id, &scope, shell) {
        warn!(sandbox = %entry.id, session = %id, %error, "its scope has ended; the next call starts another");
        entry.sessions.inventory_of(&id, &[]);
    }
}
