//! Clients of a session's terminal, of which each session has at most one.
//!
//! As with shells, each client has its own connection to the agent, without a task in between.
//! Output that it has not read stays in the terminal's ring buffer.

use crate::agent_client::connection;
use crate::agent_client::metering::count_terminal;
use crate::agent_client::wire::{AgentEvent, Wire};
use crate::live::entry::SandboxEntry;
use crate::live::entry::running_scopes::Scope;
use crate::model::activity::ActivityGuard;
use crate::model::agent_error::AgentError;
use crate::model::error::Error;
use crate::model::ids::SessionId;
use crate::model::state::State;
use crate::sandbox::Sandbox;
use crate::sandbox::shells::ShellName;
use isolet_metrics::Stream;
use isolet_wire::activity::ShellKey;
use isolet_wire::request::AgentRequest;
use isolet_wire::response::{AgentResponse, RefusalReason};
use isolet_wire::terminal::{
    AttachTerminal, Attached, OpenTerminal, Size, TYPE_BYTES_MAX, TerminalPosition, TerminalStatus,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Input counts as use of its session at most once in this time.
const TOUCH: Duration = Duration::from_secs(1);
/// Maximum length of a title, in bytes.
const TITLE_BYTES_MAX: usize = 256;

/// How a client attaches to a session's terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TerminalClientOptions {
    /// The program to run if no terminal runs; empty means bash. `None` requires a running terminal
    /// of an existing session.
    pub open: Option<Vec<String>>,
    /// The size of the client's window, if it has one.
    pub size: Option<Size>,
    /// Where the client stopped reading.
    pub since: Option<TerminalPosition>,
    /// The client may only watch.
    pub view: bool,
    /// Also receive changes of the size and of the attached clients.
    pub events: bool,
    /// The name that other clients see.
    pub name: String,
}

/// A client of one terminal.
pub struct TerminalConnection {
    wire: Wire,
    attached: Attached,
    entry: Arc<SandboxEntry>,
    session: SessionId,
    touched: Instant,
}

impl TerminalConnection {
    pub(crate) async fn open(
        mut wire: Wire,
        attach: AttachTerminal,
        entry: Arc<SandboxEntry>,
        session: SessionId,
    ) -> Result<Self, Error> {
        wire.send(&AgentRequest::Terminal(attach)).await?;
        match wire.answer().await? {
            AgentResponse::TerminalAttached(attached) => {
                Ok(Self { wire, attached, entry, session, touched: Instant::now() })
            }
            AgentResponse::Refused { reason, message, .. } => {
                Err(Error::Refused { reason, message })
            }
            _ => Err(AgentError::Turn("unexpected answer to a terminal's attach").into()),
        }
    }

    /// The agent's answer to the attach.
    #[must_use]
    pub fn attached(&self) -> &Attached {
        &self.attached
    }

    /// The session of the terminal.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Sends input without waiting. [`Self::next`] sends the bytes that the socket does not accept
    /// now, and the caller limits [`Self::waiting`].
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn type_in(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        if self.touched.elapsed() >= TOUCH {
            self.touched = Instant::now();
            self.entry.sessions.touch(&self.session);
        }
        self.entry.meter.bytes(Stream::TerminalIn, bytes.len());
        bytes
            .chunks(TYPE_BYTES_MAX)
            .try_for_each(|part| self.wire.push(&AgentRequest::Type(part.to_vec())))
    }

    /// Reports a new size of the client's window. See [`Self::type_in`].
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn resize(&mut self, size: Size) -> Result<(), AgentError> {
        self.wire.push(&AgentRequest::Resize(size))
    }

    /// Whether the session has ended, and with it the terminal.
    #[must_use]
    pub fn orphaned(&self) -> bool {
        self.entry.sessions.info(&self.session).is_err()
    }

    /// Number of bytes that were pushed and not sent yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.wire.waiting()
    }

    /// Waits for the next event. Cancel-safe, so it can be used in `select!`.
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn next(&mut self) -> Result<AgentEvent, AgentError> {
        let event = self.wire.next().await?;
        count_terminal(&self.entry.meter, &event);
        Ok(event)
    }

    /// Waits for the next event, or until at most `queued` bytes wait to be sent: `None`. It is
    /// not returned if no more than that waited before. Cancel-safe.
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn next_or_sent(&mut self, queued: usize) -> Result<Option<AgentEvent>, AgentError> {
        let event = self.wire.next_or_sent(queued).await?;
        event.iter().for_each(|event| count_terminal(&self.entry.meter, event));
        Ok(event)
    }

    /// Returns an event that has already arrived, without waiting.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn try_next(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        let event = self.wire.try_next()?;
        event.iter().for_each(|event| count_terminal(&self.entry.meter, event));
        Ok(event)
    }
}

impl std::fmt::Debug for TerminalConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TerminalLink").field(&self.session).field(&self.attached).finish()
    }
}

/// The name under which the agent knows a session's terminal.
pub(crate) fn key(session: &SessionId) -> ShellKey {
    ShellKey::Terminal(session.to_string())
}

impl Sandbox {
    /// Opens a client of a session's terminal. The session and the terminal are created if
    /// necessary, unless the options forbid it. The connection keeps the sandbox awake.
    ///
    /// # Errors
    /// [`Error::Refused`] with the agent's reason, [`Error::NoSession`] if none is to be created,
    /// [`Error::Link`], [`Error::Sleeping`].
    pub async fn terminal(
        &self,
        session: &SessionId,
        wanted: TerminalClientOptions,
    ) -> Result<TerminalConnection, Error> {
        // Held until the terminal is open.
        let _place;
        let _opening;
        let (open, scope) = match wanted.open {
            None => {
                self.session(session)?;
                (None, self.running_scope(session)?)
            }
            Some(argv) => {
                let of = self.session_of(session).await?;
                _opening = self.entry.sessions.opening(session)?;
                _place = self.entry.sessions.terminal_place(session)?;
                let env = self.env(Some(&of));
                (Some(OpenTerminal { argv, cwd: of.cwd, env }), self.scope(session).await?)
            }
        };
        let attach = AttachTerminal {
            terminal: key(session),
            open,
            size: wanted.size,
            since: wanted.since,
            view: wanted.view,
            events: wanted.events,
            client: wanted.name,
            hidden: false,
        };
        let awake = self.stay()?;
        let mut wire = self.wire(scope.as_deref()).await?;
        wire.awake = Some(awake);
        let connection =
            TerminalConnection::open(wire, attach, Arc::clone(&self.entry), session.clone()).await;
        match &connection {
            Err(Error::Refused { reason: RefusalReason::NoProcess, .. }) => {
                self.request_health_check()
            }
            Ok(connection) if connection.attached.fresh => {
                self.entry.background.opened(self, session, &connection.attached.id);
            }
            _ => {}
        }
        connection
    }

    /// A guard that keeps the sandbox awake, also for a read-only handle.
    pub(crate) fn stay(&self) -> Result<ActivityGuard, Error> {
        self.check()?;
        let held = self.awake.clone().or_else(|| self.entry.activity.enter());
        held.ok_or_else(|| Error::Sleeping(self.entry.id.clone()))
    }

    /// The scope in which a session's terminal may run; `None` for a session that sees the whole
    /// workspace.
    pub(crate) fn running_scope(&self, session: &SessionId) -> Result<Option<Arc<Scope>>, Error> {
        if !self.entry.sessions.scoped(session) {
            return Ok(None);
        }
        self.entry.scopes.get(session).map(Some).ok_or_else(none)
    }

    /// The running terminals with their sessions, sorted by session. A sleeping sandbox has none.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Failed`], [`Error::Unreachable`].
    pub async fn terminals(&self) -> Result<Vec<(SessionId, TerminalStatus)>, Error> {
        match self.list_terminals().await {
            Err(_) if self.entry.state() == State::Sleeping => Ok(Vec::new()),
            listed => listed,
        }
    }

    async fn list_terminals(&self) -> Result<Vec<(SessionId, TerminalStatus)>, Error> {
        let mut all = Vec::new();
        for terminal in self.ask_terminals(None).await? {
            // An agent may only report its own sessions.
            let session = of(&terminal).filter(|id| !self.entry.sessions.scoped(id));
            all.extend(session.map(|id| (id, terminal)));
        }
        for (id, scope) in self.entry.scopes.all() {
            // A scope that ends in the meantime has no terminal.
            let found = self.ask_terminals(Some(&scope)).await.unwrap_or_default();
            let own = found.into_iter().find(|terminal| of(terminal).as_ref() == Some(&id));
            all.extend(own.map(|terminal| (id, terminal)));
        }
        all.retain(|(id, _)| self.entry.sessions.info(id).is_ok());
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(all)
    }

    async fn ask_terminals(&self, scope: Option<&Scope>) -> Result<Vec<TerminalStatus>, Error> {
        let mut wire = self.wire(scope).await?;
        wire.send(&AgentRequest::Terminals).await?;
        let answer = wire.answer().await?;
        let AgentResponse::Terminals(mut all) = answer else {
            return Err(AgentError::Turn("unexpected answer to the list of terminals").into());
        };
        scope.map_or(&self.entry.pool, |scope| &scope.pool).park(wire);
        for terminal in &mut all {
            let end = terminal.title.floor_char_boundary(TITLE_BYTES_MAX);
            terminal.title.truncate(end);
        }
        Ok(all)
    }

    /// Hangs up a session's terminal and kills what is left of its program. A missing terminal is
    /// no error.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::TooLate`].
    pub async fn terminal_close(&self, session: &SessionId) -> Result<(), Error> {
        let closed = async {
            let Ok(scope) = self.running_scope(session) else { return Ok(()) };
            connection::close(self.wire(scope.as_deref()).await?, key(session)).await
        };
        match closed.await {
            // The terminal ended with the sandbox's sleep and does not come back.
            Err(_) if self.entry.state() == State::Sleeping => Ok(()),
            closed => closed,
        }
    }

    /// Ends the shell, the terminal and the contexts of a session.
    pub(crate) async fn close_session(&self, session: &SessionId) -> Result<(), Error> {
        let shell = ShellName::Session(session.clone());
        let (shell, terminal) = tokio::join!(self.close(&shell), self.terminal_close(session));
        let contexts = self.close_contexts(session).await;
        shell.and(terminal).and(contexts)
    }
}

fn of(terminal: &TerminalStatus) -> Option<SessionId> {
    let ShellKey::Terminal(session) = &terminal.name else { return None };
    SessionId::parse(session).ok()
}

fn none() -> Error {
    Error::Refused {
        reason: RefusalReason::NoShell,
        message: "no terminal runs in this session".into(),
    }
}
