//! Opens and closes shells, and runs programs.

use crate::agent_client::connection::{self, ExecConnection, ShellConnection};
use crate::agent_client::running_program::RunningProgram;
use crate::model::error::Error;
use crate::model::ids::{self, SessionId};
use crate::model::input::{EnvironmentChange, Program, WorkingDirectory};
use crate::model::state::State;
use crate::sandbox::Sandbox;
use isolet_wire::activity::ShellKey;
use isolet_wire::request::{self, OpenShell, ShellPosition};
use isolet_wire::response::RefusalReason;
use std::sync::Arc;

/// How long a private shell waits for its client to reconnect, in ms.
pub const PRIVATE_LINGER_MS: u64 = 60_000;

/// Selects the shell of a session or a private one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellName {
    /// The session's shell. The session is created if it does not exist.
    Session(SessionId),
    /// A new shell for this client alone; [`ShellConnection::shell_id`] returns its id.
    Private,
    /// An existing private shell, by its id. Refused with `RefusalReason::NoShell` if it has ended.
    Resume(String),
}

/// How a client attaches to a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellClientOptions {
    /// Which shell to attach to.
    pub shell: ShellName,
    /// The owner of the client's command ids. A reconnecting client repeats it.
    pub owner: String,
    /// Also receive the commands of other owners.
    pub watch: bool,
    /// Where the client stopped reading; `None` means only new output.
    pub since: Option<ShellPosition>,
}

/// The parameters of a program without a shell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramSpec {
    /// The program to run.
    pub program: Program,
    /// The directory in which the program starts; by default the image's, or [`crate::WORKSPACE`].
    pub cwd: Option<WorkingDirectory>,
    /// Overrides the environment of the session and the sandbox.
    pub env: EnvironmentChange,
    /// The session whose directory and environment the program inherits. It is created if it does
    /// not exist.
    pub session: Option<SessionId>,
    /// Keep standard input open for `AgentRequest::Stdin`.
    pub stdin: bool,
    /// Time after which the program and its descendants are killed, in ms; 0 means never.
    pub timeout_ms: u64,
}

impl Sandbox {
    /// Opens a client of a shell.
    ///
    /// # Errors
    /// [`Error::Refused`] with the agent's reason, [`Error::Link`], [`Error::Failed`].
    pub async fn shell(&self, attach: ShellClientOptions) -> Result<ShellConnection, Error> {
        let mut scope = None;
        let mut restored = None;
        let mut loss = None;
        // Held until the shell is open, because the deletion of its session waits for it.
        let mut opening = None;
        let (shell, open) = match attach.shell {
            ShellName::Session(id) => {
                let session = self.session_of(&id).await?;
                opening = Some(self.entry.sessions.opening(&id)?);
                scope = self.scope(&id).await?;
                let restore = self.entry.shell_states.next(&id).await;
                let again = self.entry.scopes.again(&id, scope.as_ref());
                let save = self.entry.view.borrow().record.body.persistent;
                let open = OpenShell {
                    env: self.env(Some(&session)),
                    cwd: session.cwd,
                    linger_ms: None,
                    save,
                    restore,
                    replaces_lost: loss.insert(again).lost(),
                };
                let key = ShellKey::Session(id.to_string());
                restored = open.restore.is_some().then_some(id);
                (key, Some(open))
            }
            ShellName::Private => {
                let open = OpenShell {
                    cwd: self.start_dir(),
                    env: self.env(None),
                    linger_ms: Some(PRIVATE_LINGER_MS),
                    ..OpenShell::default()
                };
                (ShellKey::Private(format!("sh_{}", ids::random())), Some(open))
            }
            ShellName::Resume(id) => (ShellKey::Private(id), None),
        };
        let attach = request::AttachShell {
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
        let connection = ShellConnection::open(self.wire(scope).await?, attach, pool).await;
        if let Err(Error::Refused { reason: RefusalReason::NoProcess, .. }) = &connection {
            self.request_health_check();
        }
        let connection = connection?;
        if let Some(scope) = scope
            && let Some(again) = loss
        {
            scope.opened(connection.key());
            again.reported();
        }
        if let Some(id) = restored {
            self.entry.shell_states.taken(&id);
        }
        let lifetime = opening.map(|(lifetime, _)| Arc::downgrade(&lifetime));
        let connection = connection.of_session(lifetime).metered(&self.entry.meter);
        Ok(connection.with_events(self.emitter(session)))
    }

    /// A client of a session's shell that runs one command after the other, from the pool if one is
    /// idle. Return it with [`ShellConnection::park`].
    ///
    /// # Errors
    /// See [`Sandbox::shell`].
    pub async fn commands(&self, session: &SessionId) -> Result<ShellConnection, Error> {
        self.check()?;
        if let Some(mut connection) = self.entry.pool_of(session).take_shell(session) {
            connection.awake(self.awake.clone());
            self.entry.sessions.touch(session);
            return Ok(connection);
        }
        let shell = ShellName::Session(session.clone());
        let attach = ShellClientOptions {
            shell,
            owner: format!("h_{}", ids::random()),
            watch: false,
            since: None,
        };
        Ok(self.shell(attach).await?.pooled())
    }

    /// Starts a program. The last event is `AgentResponse::Exit`, or `AgentResponse::Refused` if
    /// the program could not start.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Failed`].
    pub async fn exec(&self, start: ProgramSpec) -> Result<ExecConnection, Error> {
        self.exec_as(start, 0).await
    }

    /// Starts a program as [`Sandbox::exec`] does, with this user id and the same group id; 0 stands
    /// for the user of the sandbox. Only a sandbox whose user is root can change to another one.
    ///
    /// # Errors
    /// Those of [`Sandbox::exec`].
    pub async fn exec_as(&self, start: ProgramSpec, uid: u32) -> Result<ExecConnection, Error> {
        let (session, scope) = match &start.session {
            Some(id) => (Some(self.session_of(id).await?), self.scope(id).await?),
            None => (None, None),
        };
        let mut env = self.env(session.as_ref());
        start.env.apply(&mut env);
        let cwd = start.cwd.map(WorkingDirectory::into_inner);
        let cwd = cwd.or(session.map(|session| session.cwd)).unwrap_or_else(|| self.start_dir());
        let exec = request::StartExec {
            program: start.program.into(),
            cwd,
            env,
            stdin: start.stdin,
            timeout_ms: start.timeout_ms,
            uid,
        };
        let working = start
            .session
            .as_ref()
            .map(|id| RunningProgram::begin(&self.entry.sessions, id))
            .transpose()?;
        let scope = scope.as_deref();
        let pool = Arc::downgrade(scope.map_or(&self.entry.pool, |scope| &scope.pool));
        let connection =
            ExecConnection::open(self.wire(scope).await?, exec, pool).await?.working(working);
        let connection =
            connection.doubting(self.entry.commands.clone()).metered(&self.entry.meter);
        Ok(connection.with_events(self.emitter(start.session.map(|id| Arc::from(id.as_str())))))
    }

    /// Ends a shell and everything that it started. Its session stays.
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
        let closed = async { connection::close(self.wire(scope.as_deref()).await?, key).await };
        match closed.await {
            // The shell ended with the sandbox's sleep and does not come back.
            Err(_) if self.entry.state() == State::Sleeping => Ok(()),
            closed => closed,
        }
    }
}
