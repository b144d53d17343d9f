//! Clients of terminals: the one PTY of a session, and who is attached to it.
//!
//! As with shells, each client has a connection of its own to the agent, with nothing in between.
//! Unread output stays in the terminal's ring, in which the client has a position.

use crate::{
    agent_client::{
        link,
        wire::{AgentEvent, Wire},
    },
    live::entry::{Entry, scopes::Scope},
    model::{
        activity::ActivityGuard, agent_error::AgentError, error::Error, ids::SessionId,
        state::State,
    },
    sandbox::{Sandbox, shells::ShellName},
};
use isolet_wire::{
    activity::ShellKey,
    request::AgentRequest,
    response::{AgentResponse, RefusalReason},
    terminal::{Attach, Attached, Open, Since, Size, TYPE_BYTES_MAX, Terminal},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// What is typed counts as use of its session once in this time.
const TOUCH: Duration = Duration::from_secs(1);
/// The longest title that is handed on, in bytes.
const TITLE_BYTES_MAX: usize = 256;

/// How a client attaches to a session's terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// What to run where no terminal runs, empty for bash; `None`: one that runs is meant, of a
    /// session that is there, and none is made.
    pub open: Option<Vec<String>>,
    /// The client's window, where it has one of its own.
    pub size: Option<Size>,
    /// Where to go on.
    pub since: Option<Since>,
    /// It only looks.
    pub view: bool,
    /// It is also told of sizes and of who is attached.
    pub events: bool,
    /// How others see it.
    pub name: String,
}

/// A client of one terminal.
pub struct TerminalConnection {
    wire: Wire,
    attached: Attached,
    entry: Arc<Entry>,
    session: SessionId,
    touched: Instant,
}

impl TerminalConnection {
    pub(crate) async fn open(
        mut wire: Wire,
        attach: Attach,
        entry: Arc<Entry>,
        session: SessionId,
    ) -> Result<Self, Error> {
        wire.send(&AgentRequest::Terminal(attach)).await?;
        match wire.answer().await? {
            AgentResponse::TerminalAttached(attached) => {
                Ok(Self { wire, attached, entry, session, touched: Instant::now() })
            }
            AgentResponse::Refused { why, message, .. } => Err(Error::Refused { why, message }),
            _ => Err(AgentError::Turn("another answer to a terminal's attach").into()),
        }
    }

    /// What the agent said of the terminal.
    #[must_use]
    pub fn attached(&self) -> &Attached {
        &self.attached
    }

    /// Whose terminal it is.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// What was typed. Nothing is waited for: what the socket does not take now, [`Self::next`]
    /// sends. The caller bounds [`Self::waiting`].
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn type_in(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        if self.touched.elapsed() >= TOUCH {
            self.touched = Instant::now();
            self.entry.sessions.touch(&self.session);
        }
        bytes
            .chunks(TYPE_BYTES_MAX)
            .try_for_each(|part| self.wire.push(&AgentRequest::Type(part.to_vec())))
    }

    /// The client's window has another size. As [`Self::type_in`].
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn resize(&mut self, size: Size) -> Result<(), AgentError> {
        self.wire.push(&AgentRequest::Resize(size))
    }

    /// Whether its session has ended, and with it what ran there.
    #[must_use]
    pub fn orphaned(&self) -> bool {
        self.entry.sessions.info(&self.session).is_err()
    }

    /// Bytes that were pushed and are not sent.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.wire.waiting()
    }

    /// What comes next. Cancel-safe: may stand in a `select!`.
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn next(&mut self) -> Result<AgentEvent, AgentError> {
        self.wire.next().await
    }

    /// What has already arrived, without waiting; `None` when that is nothing.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn try_next(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        self.wire.try_next()
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
    /// A client of a session's terminal; both are made where they are not there, unless the wish
    /// says otherwise. The sandbox stays awake as long as the link is held.
    ///
    /// # Errors
    /// [`Error::Refused`] with the agent's reason, [`Error::NoSession`] where none is to be made,
    /// [`Error::Link`], [`Error::Sleeping`].
    pub async fn terminal(
        &self,
        session: &SessionId,
        wanted: Wanted,
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
                (Some(Open { argv, cwd: of.cwd, env }), self.scope(session).await?)
            }
        };
        let attach = Attach {
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
        let link =
            TerminalConnection::open(wire, attach, Arc::clone(&self.entry), session.clone()).await;
        match &link {
            Err(Error::Refused { why: RefusalReason::NoProcess, .. }) => {
                self.request_health_check()
            }
            Ok(link) if link.attached.fresh => {
                self.entry.background.opened(self, session, &link.attached.id);
            }
            _ => {}
        }
        link
    }

    /// Keeps it awake, also for a handle that only looks.
    pub(crate) fn stay(&self) -> Result<ActivityGuard, Error> {
        self.check()?;
        let held = self.awake.clone().or_else(|| self.entry.activity.enter());
        held.ok_or_else(|| Error::Sleeping(self.entry.id.clone()))
    }

    /// The scope in which a session's terminal may run; `None` for a session that sees all.
    pub(crate) fn running_scope(&self, session: &SessionId) -> Result<Option<Arc<Scope>>, Error> {
        if !self.entry.sessions.scoped(session) {
            return Ok(None);
        }
        self.entry.scopes.get(session).map(Some).ok_or_else(none)
    }

    /// The terminals that run, each with its session, sorted by that; none of a sandbox that sleeps.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Failed`], [`Error::Unreachable`].
    pub async fn terminals(&self) -> Result<Vec<(SessionId, Terminal)>, Error> {
        match self.list_terminals().await {
            Err(_) if self.entry.state() == State::Sleeping => Ok(Vec::new()),
            listed => listed,
        }
    }

    async fn list_terminals(&self) -> Result<Vec<(SessionId, Terminal)>, Error> {
        let mut all = Vec::new();
        for terminal in self.ask_terminals(None).await? {
            // An agent speaks for its own sessions alone.
            let session = of(&terminal).filter(|id| !self.entry.sessions.scoped(id));
            all.extend(session.map(|id| (id, terminal)));
        }
        for (id, scope) in self.entry.scopes.all() {
            // One that ends meanwhile has none.
            let found = self.ask_terminals(Some(&scope)).await.unwrap_or_default();
            let own = found.into_iter().find(|terminal| of(terminal).as_ref() == Some(&id));
            all.extend(own.map(|terminal| (id, terminal)));
        }
        all.retain(|(id, _)| self.entry.sessions.info(id).is_ok());
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(all)
    }

    async fn ask_terminals(&self, scope: Option<&Scope>) -> Result<Vec<Terminal>, Error> {
        let mut wire = self.wire(scope).await?;
        wire.send(&AgentRequest::Terminals).await?;
        let answer = wire.answer().await?;
        let AgentResponse::Terminals(mut all) = answer else {
            return Err(AgentError::Turn("another answer to the list of terminals").into());
        };
        scope.map_or(&self.entry.pool, |scope| &scope.pool).park(wire);
        for terminal in &mut all {
            let end = terminal.title.floor_char_boundary(TITLE_BYTES_MAX);
            terminal.title.truncate(end);
        }
        Ok(all)
    }

    /// Hangs a session's terminal up, then kills what is left of its program; nothing where none runs.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::TooLate`].
    pub async fn terminal_close(&self, session: &SessionId) -> Result<(), Error> {
        let closed = async {
            let Ok(scope) = self.running_scope(session) else { return Ok(()) };
            link::close(self.wire(scope.as_deref()).await?, key(session)).await
        };
        match closed.await {
            // It has ended with all others, and does not come back.
            Err(_) if self.entry.state() == State::Sleeping => Ok(()),
            closed => closed,
        }
    }

    /// Ends a session's shell and its terminal.
    pub(crate) async fn close_session(&self, session: &SessionId) -> Result<(), Error> {
        let shell = ShellName::Session(session.clone());
        let (shell, terminal) = tokio::join!(self.close(&shell), self.terminal_close(session));
        let contexts = self.close_contexts(session).await;
        shell.and(terminal).and(contexts)
    }
}

fn of(terminal: &Terminal) -> Option<SessionId> {
    let ShellKey::Terminal(session) = &terminal.name else { return None };
    SessionId::parse(session).ok()
}

fn none() -> Error {
    Error::Refused {
        why: RefusalReason::NoShell,
        message: "no terminal runs in this session".into(),
    }
}
