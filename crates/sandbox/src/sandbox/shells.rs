//! Shells and programs of a sandbox: opened, run and closed.

use crate::{
    agent_client::{
        link::{self, ExecLink, ShellLink},
        running_program::RunningProgram,
    },
    model::{
        error::Error,
        ids::{self, SessionId},
        state::State,
    },
    sandbox::Sandbox,
};
use isolet_wire::{
    activity::ShellKey,
    request::{self, Open, Since, What},
    response::RefusalReason,
};
use std::{collections::BTreeMap, sync::Arc};

/// How long a private shell waits for a client that dropped, in ms.
pub const PRIVATE_LINGER_MS: u64 = 60_000;

/// Which shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellName {
    /// The session's one shell; the session is made when it is not there.
    Session(SessionId),
    /// A new shell of this client's own; its id is in [`ShellLink::shell_id`].
    Private,
    /// A private shell that was left, by its id. Refused with `RefusalReason::NoShell` when it is gone.
    Resume(String),
}

/// How a client attaches to a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attach {
    /// Which.
    pub shell: ShellName,
    /// Whose the command ids are; a client that comes back names the same.
    pub owner: String,
    /// See other owners' commands too.
    pub watch: bool,
    /// Where to go on; `None` from now.
    pub since: Option<Since>,
}

/// A program to start without a shell behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// What.
    pub what: What,
    /// Start directory; [`crate::WORKSPACE`], or the image's own, unless told.
    pub cwd: Option<String>,
    /// Over the sandbox's (and the session's) environment; `None` unsets.
    pub env: BTreeMap<String, Option<String>>,
    /// Take cwd and environment from this session (made when it is not there).
    pub session: Option<SessionId>,
    /// Whether `AgentRequest::Stdin` will follow.
    pub stdin: bool,
    /// Killed whole after this many ms; 0 never.
    pub timeout_ms: u64,
}

impl Sandbox {
    /// A client of a shell.
    ///
    /// # Errors
    /// [`Error::Refused`] with the agent's reason, [`Error::Link`], [`Error::Failed`].
    pub async fn shell(&self, attach: Attach) -> Result<ShellLink, Error> {
        let mut scope = None;
        let mut restored = None;
        let mut told = None;
        // Held until the shell is open: a deletion of its session waits for that.
        let mut opening = None;
        let (shell, open) = match attach.shell {
            ShellName::Session(id) => {
                let session = self.session_of(&id).await?;
                opening = Some(self.entry.sessions.opening(&id)?);
                scope = self.scope(&id).await?;
                let restore = self.entry.shell_states.next(&id).await;
                let again = self.entry.scopes.again(&id, scope.as_ref());
                let save = self.entry.view.borrow().record.body.persistent;
                let open = Open {
                    env: self.env(Some(&session)),
                    cwd: session.cwd,
                    linger_ms: None,
                    save,
                    restore,
                    again: told.insert(again).lost(),
                };
                let key = ShellKey::Session(id.to_string());
                restored = open.restore.is_some().then_some(id);
                (key, Some(open))
            }
            ShellName::Private => {
                let open = Open {
                    cwd: self.start_dir(),
                    env: self.env(None),
                    linger_ms: Some(PRIVATE_LINGER_MS),
                    ..Open::default()
                };
                (ShellKey::Private(format!("sh_{}", ids::random())), Some(open))
            }
            ShellName::Resume(id) => (ShellKey::Private(id), None),
        };
        let attach = request::Attach {
            shell,
            open,
            owner: attach.owner,
            watch: attach.watch,
            since: attach.since,
        };
        let session = match &attach.shell {
            ShellKey::Session(id) => Some(Arc::from(id.as_str())),
            _ => None,
        };
        let scope = scope.as_deref();
        let pool = Arc::downgrade(scope.map_or(&self.entry.pool, |scope| &scope.pool));
        let link = ShellLink::open(self.wire(scope).await?, attach, pool).await;
        if let Err(Error::Refused { why: RefusalReason::NoProcess, .. }) = &link {
            self.request_health_check();
        }
        let link = link?;
        if let (Some(scope), Some(again)) = (scope, told) {
            scope.opened(link.key());
            again.told();
        }
        if let Some(id) = restored {
            self.entry.shell_states.taken(&id);
        }
        let lifetime = opening.map(|(lifetime, _)| Arc::downgrade(&lifetime));
        Ok(link.of_session(lifetime).with_events(self.teller(session)))
    }

    /// A client of a session's shell for one command after the other: from the pool when one
    /// waits there. Give it back with [`ShellLink::park`].
    ///
    /// # Errors
    /// As [`Sandbox::shell`].
    pub async fn commands(&self, session: &SessionId) -> Result<ShellLink, Error> {
        self.check()?;
        if let Some(mut link) = self.entry.pool_of(session).take_shell(session) {
            link.awake(self.awake.clone());
            self.entry.sessions.touch(session);
            return Ok(link);
        }
        let shell = ShellName::Session(session.clone());
        let attach =
            Attach { shell, owner: format!("h_{}", ids::random()), watch: false, since: None };
        Ok(self.shell(attach).await?.pooled())
    }

    /// Starts a program. Its frames end with `AgentResponse::Exit`, or `AgentResponse::Refused` when it could not start.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Failed`].
    pub async fn exec(&self, start: Start) -> Result<ExecLink, Error> {
        let (session, scope) = match &start.session {
            Some(id) => (Some(self.session_of(id).await?), self.scope(id).await?),
            None => (None, None),
        };
        let mut env = self.env(session.as_ref());
        for (name, value) in start.env {
            match value {
                Some(value) => env.insert(name, value),
                None => env.remove(&name),
            };
        }
        let cwd =
            start.cwd.or(session.map(|session| session.cwd)).unwrap_or_else(|| self.start_dir());
        let exec = request::Exec {
            what: start.what,
            cwd,
            env,
            stdin: start.stdin,
            timeout_ms: start.timeout_ms,
            uid: 0,
        };
        let working = start
            .session
            .as_ref()
            .map(|id| RunningProgram::begin(&self.entry.sessions, id))
            .transpose()?;
        let scope = scope.as_deref();
        let pool = Arc::downgrade(scope.map_or(&self.entry.pool, |scope| &scope.pool));
        let link = ExecLink::open(self.wire(scope).await?, exec, pool).await?.working(working);
        let link = link.doubting(self.entry.orders.clone());
        Ok(link.with_events(self.teller(start.session.map(|id| Arc::from(id.as_str())))))
    }

    /// Ends a shell and everything it started; its session stays.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::TooLate`].
    pub async fn close(&self, shell: &ShellName) -> Result<(), Error> {
        let mut scope = None;
        let key = match shell {
            ShellName::Session(id) if self.entry.sessions.scoped(id) => {
                scope = self.entry.scopes.get(id);
                if scope.is_none() {
                    return Ok(());
                }
                ShellKey::Session(id.to_string())
            }
            ShellName::Session(id) => ShellKey::Session(id.to_string()),
            ShellName::Resume(id) => ShellKey::Private(id.clone()),
            ShellName::Private => return Ok(()),
        };
        let closed = async { link::close(self.wire(scope.as_deref()).await?, key).await };
        match closed.await {
            // It has ended with all others, and does not come back.
            Err(_) if self.entry.state() == State::Sleeping => Ok(()),
            closed => closed,
        }
    }
}
