//! The sessions of one sandbox that see only a part of its files: each has an agent of its own,
//! started when it is first needed, and found again by its socket after a restart of the server.
//!
//! The server talks to such an agent as to the sandbox's own: a socket in
//! `DATA/sandboxes/<name>/scopes/<session>/`, a pool of connections, events of its shells. An agent
//! whose session is not recorded is ended. One that ends early is started again by the next call.

use crate::agent_client::agent_activity::AgentActivity;
use crate::agent_client::pool::{Pool, Watched};
use crate::agent_client::watch::{AgentReports, watch_at};
use crate::agent_client::wire::{AgentEvent, Wire};
use crate::live::entry::SandboxEntry;
use crate::live::entry::running_scopes::Scope;
use crate::live::inner::Inner;
use crate::live::state_receiver::{self, StateReceiver};
use crate::model::agent_error::AgentError;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::ids::SessionId;
use crate::sandbox::Sandbox;
use isolet_wire::launcher;
use isolet_wire::response::AgentResponse;
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::{info, warn};

/// How long a new agent, or one from the previous server, may take to answer.
const GREETING_WAIT: Duration = Duration::from_secs(5);
/// How long the processes of a scope may take to end.
const END_WAIT: Duration = Duration::from_secs(4);

impl SandboxEntry {
    /// The pool of idle connections for a session.
    pub(crate) fn pool_of(&self, id: &SessionId) -> Arc<Pool> {
        self.scopes.get(id).map_or_else(|| Arc::clone(&self.pool), |scope| Arc::clone(&scope.pool))
    }

    /// Closes all connections to the sandbox's agents.
    pub(crate) fn disconnect(&self) {
        self.pool.drop_links(None);
        self.scopes.clear();
    }

    /// Ends the agent of a session's scope and all processes in it.
    pub(crate) async fn end_scope(&self, inner: &Inner, id: &SessionId) -> Result<(), Error> {
        let _turn = self.scopes.turn.lock().await;
        if let Some(scope) = self.scopes.get(id) {
            self.scopes.remove(id, &scope, false);
        }
        self.scopes.forgive(id);
        self.clear_scope(inner, id).await
    }

    /// Requires the lock `turn`.
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
    /// A handle whose file operations are those of this session.
    ///
    /// # Errors
    /// [`Error::NoSession`], and the errors of starting its scope.
    pub async fn within(&self, id: &SessionId) -> Result<Self, Error> {
        self.session(id)?;
        Ok(Self { scope: self.scope(id).await?, ..self.clone() })
    }

    /// The session's scope, started if necessary; `None` for a session that sees the whole
    /// workspace.
    pub(crate) async fn scope(&self, id: &SessionId) -> Result<Option<Arc<Scope>>, Error> {
        if !self.entry.sessions.scoped(id) {
            return Ok(None);
        }
        if let Some(scope) = self.entry.scopes.get(id) {
            return Ok(Some(scope));
        }
        let own = self.clone();
        let id = id.clone();
        // Runs as a task of its own, so that a caller that disconnects leaves nothing unfinished.
        let work = async move {
            let _turn = own.entry.scopes.turn.lock().await;
            if let Some(scope) = own.entry.scopes.get(&id) {
                return Ok(scope);
            }
            own.check()?;
            let Some(grants) = own.entry.sessions.grants(&id)? else {
                return Err(Error::NoSession { id: own.entry.id.clone(), session: id });
            };
            match own.found(&id).await? {
                Some(scope) => Ok(scope),
                None => own.start(&id, grants, false, Arc::default()).await,
            }
        };
        Ok(Some(tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))??))
    }

    /// Starts the scope of a session that is being created. Every read-only path must exist.
    pub(crate) async fn new_scope(
        &self,
        id: &SessionId,
        grants: Vec<launcher::Grant>,
    ) -> Result<(), Error> {
        let granted = Arc::new(Notify::new());
        let own = self.clone();
        let id = id.clone();
        let on_granted = Arc::clone(&granted);
        let work = async move {
            let _turn = own.entry.scopes.turn.lock().await;
            own.check()?;
            let started = own.start(&id, grants, true, on_granted).await.map(drop);
            // An invalid grant is reported to the client, so it is not logged.
            if let Err(error) = &started
                && !matches!(error, Error::BadField { .. })
            {
                warn!(sandbox = %own.entry.id, session = %id, %error, "scope of a session does not start; its next call retries");
            }
            started
        };
        // Continues when the grants are known to be available. Later calls wait for the lock.
        tokio::select! {
            () = granted.notified() => Ok(()),
            started = tokio::spawn(work) => {
                started.map_err(|error| Error::Fault(error.to_string()))?
            }
        }
    }

    /// Finds a scope whose agent still runs, from the previous server or after a broken connection.
    /// Requires the lock `turn`.
    ///
    /// # Errors
    /// [`Error::Link`] if the agent runs and speaks no version of this server. It is left alone.
    async fn found(&self, id: &SessionId) -> Result<Option<Arc<Scope>>, Error> {
        let directory = isolet_jail::scope_dir(&self.entry.directory, id.as_str());
        let pool = self.scope_pool();
        let reports = match watch_at(&directory, &pool.version, GREETING_WAIT).await {
            Ok(reports) => reports,
            Err(error) if error.is_unsupported() => return Err(error.into()),
            Err(_) => return Ok(None),
        };
        // The agent lives, so its shell is not lost.
        self.entry.scopes.forgive(id);
        for ended in state_receiver::ended(&reports.activities).iter().filter(|ended| *ended == id)
        {
            self.entry.shell_states.forget(ended).await;
        }
        Ok(Some(self.follow(id, directory, pool, reports)))
    }

    /// Finds the scopes that the previous server left running, and ends those without a recorded
    /// session.
    pub(crate) async fn find_scopes(&self) {
        if let Err(error) = self.end_strays().await {
            warn!(sandbox = %self.entry.id, %error, "scopes without a session could not be ended");
        }
        for id in self.entry.sessions.all_scoped() {
            let _turn = self.entry.scopes.turn.lock().await;
            if self.entry.scopes.get(&id).is_some() {
                continue;
            }
            match self.found(&id).await {
                Ok(Some(_)) => {
                    info!(sandbox = %self.entry.id, session = %id, "scope of a session found running");
                }
                Ok(None) => {}
                Err(error) => {
                    warn!(sandbox = %self.entry.id, session = %id, %error, "scope of a session cannot be used");
                }
            }
        }
    }

    /// Requires the sessions' lock, so that no session is being created.
    async fn end_strays(&self) -> Result<(), Error> {
        let _turn = self.entry.sessions.turn.lock().await;
        let config = self.inner.jail.clone();
        let name = self.entry.name.clone();
        let names =
            blocking(move || isolet_jail::SandboxHandle::open(&config, &name).scopes()).await?;
        for id in names.iter().filter_map(|name| SessionId::parse(name).ok()) {
            if !self.entry.sessions.scoped(&id) {
                info!(sandbox = %self.entry.id, session = %id, "scope without a session ended");
                self.entry.end_scope(&self.inner, &id).await?;
            }
        }
        Ok(())
    }

    /// Requires the lock `turn`.
    async fn start(
        &self,
        id: &SessionId,
        grants: Vec<launcher::Grant>,
        strict: bool,
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
        let request = launcher::Scope { name, slot, session, grants, memory_mib, user, strict };
        if let Err(error) = self.inner.launch.scope(request.clone(), Arc::clone(&granted)).await {
            match refused(&request, &error) {
                Some(refused) => return Err(refused),
                // The remains of an earlier scope are in the way.
                None => self.entry.clear_scope(&self.inner, id).await?,
            }
            let again = self.inner.launch.scope(request.clone(), granted).await;
            again.map_err(|error| refused(&request, &error).unwrap_or(error))?;
        }
        let directory = isolet_jail::scope_dir(&self.entry.directory, id.as_str());
        let pool = self.scope_pool();
        let reports = watch_at(&directory, &pool.version, GREETING_WAIT).await?;
        Ok(self.follow(id, directory, pool, reports))
    }

    fn scope_pool(&self) -> Arc<Pool> {
        Arc::new(Pool::new(Arc::<Watched>::clone(&self.inner.watched)))
    }

    fn follow(
        &self,
        id: &SessionId,
        directory: PathBuf,
        pool: Arc<Pool>,
        reports: AgentReports,
    ) -> Arc<Scope> {
        let AgentReports { wire, activities, execs } = reports;
        let seen = Mutex::new(AgentActivity::inventory(&activities, execs));
        let scope = Arc::new(Scope { directory, pool, seen });
        self.entry.sessions.inventory_of(id, &activities);
        self.entry.scopes.running().insert(id.clone(), Arc::clone(&scope));
        let mut news = self.entry.scopes.news.lock().unwrap_or_else(PoisonError::into_inner);
        while news.try_join_next().is_some() {}
        news.spawn(follow_agent(Arc::clone(&self.entry), id.clone(), Arc::clone(&scope), wire));
        scope
    }
}

/// Turns the launcher's refusal of a grant into an error for the client.
fn refused(request: &launcher::Scope, error: &Error) -> Option<Error> {
    let Error::GrantRefused { index, errno } = error else { return None };
    let grant = request.grants.get(*index)?;
    let other = std::io::Error::from(*errno).to_string();
    let problem = match *errno {
        Errno::NOENT => "is not there; make it first, or grant it for writing: then it is made",
        Errno::LOOP => "is or leads through a symbolic link",
        Errno::NOTDIR => "leads through something that is no directory",
        Errno::OPNOTSUPP => "is neither a directory nor a file",
        _ => other.as_str(),
    };
    let reason = format!("{:?} {problem}", grant.path);
    Some(match (request.strict, SessionId::parse(&request.session)) {
        (false, Ok(session)) => Error::ScopeBlocked { session, reason },
        _ => Error::BadField { field: "file_access", reason },
    })
}

/// Handles the reports of a scope's agent until the agent ends.
async fn follow_agent(entry: Arc<SandboxEntry>, id: SessionId, scope: Arc<Scope>, mut wire: Wire) {
    let mut saving = StateReceiver::new(&entry, Some(id.clone()));
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
            Ok(AgentEvent::Response(AgentResponse::ShellState { shell, update })) => {
                let _ = saving.on_update(&mut wire, shell, update).await;
            }
            Ok(_) => break AgentError::Turn("unexpected message on a scope's connection"),
            Err(error) => break error,
        }
    };
    let shell = scope.seen().shells() > 0;
    if entry.scopes.remove(&id, &scope, shell) {
        warn!(sandbox = %entry.id, session = %id, %error, "scope of a session has ended; the next call starts another");
        entry.sessions.inventory_of(&id, &[]);
    }
}
