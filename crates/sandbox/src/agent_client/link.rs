//! Connections to agents: frames over a unix socket, straight from the caller's task.

use crate::{
    agent_client::{
        pool::Pool,
        running_program::RunningProgram,
        wire::{ANSWER_WAIT, AgentEvent, Wire},
    },
    model::{
        activity::ActivityGuard,
        agent_error::AgentError,
        command::DriverCommand,
        error::Error,
        events::{CommandEvents, EventEmitter},
        sessions::Lifetime,
    },
};
use isolet_wire::{
    activity::ShellKey,
    request::{self, AgentRequest, Since},
    response::{AgentResponse, RefusalReason},
};
use std::sync::Weak;
use tokio::sync::mpsc;

/// A client of one shell.
#[derive(Debug)]
pub struct ShellLink {
    wire: Wire,
    attach: request::Attach,
    pid: i32,
    fresh: bool,
    at: Since,
    pool: Weak<Pool>,
    pooled: bool,
    teller: Option<EventEmitter>,
    /// Of a session's shell: the lifetime of that session.
    session: Option<Weak<Lifetime>>,
}

impl ShellLink {
    pub(crate) async fn open(
        mut wire: Wire,
        mut attach: request::Attach,
        pool: Weak<Pool>,
    ) -> Result<Self, Error> {
        let (pid, fresh, at) = attach_to(&mut wire, &attach).await?;
        if let Some(open) = &mut attach.open {
            // One that ends takes what it held with it.
            (open.restore, open.again) = (None, false);
        }
        Ok(Self { wire, attach, pid, fresh, at, pool, pooled: false, teller: None, session: None })
    }

    /// Marks it as one that [`ShellLink::park`] keeps.
    pub(crate) fn pooled(mut self) -> Self {
        self.pooled = true;
        self
    }

    /// Its commands are told of as events.
    pub(crate) fn with_events(mut self, teller: EventEmitter) -> Self {
        self.teller = Some(teller);
        self
    }

    /// It is a client of this session's shell.
    pub(crate) fn of_session(mut self, session: Option<Weak<Lifetime>>) -> Self {
        self.session = session;
        self
    }

    /// Whether the session of this shell has ended: another one of the same id has another shell.
    #[must_use]
    pub fn session_ended(&self) -> bool {
        let ended = |session: &Weak<Lifetime>| session.upgrade().is_none_or(|life| life.ended());
        self.session.as_ref().is_some_and(ended)
    }

    fn tell(&self, heard: &AgentEvent) {
        let Some(teller) = &self.teller else { return };
        // Those of other owners have a client of their own.
        let own = |id: &str| !self.attach.watch || !id.contains('/');
        match heard {
            AgentEvent::Response(
                AgentResponse::Started { id } | AgentResponse::Began { id, .. },
            ) if own(id) => teller.started(id),
            AgentEvent::Response(AgentResponse::Exit(exit)) if own(&exit.id) => {
                teller.exited(&exit.id, Some(exit.code));
            }
            _ => {}
        }
    }

    /// Whom it keeps its sandbox awake for.
    pub(crate) fn awake(&mut self, awake: Option<ActivityGuard>) {
        self.wire.awake = awake;
    }

    /// Whether nothing has arrived that was not read.
    pub(crate) fn quiet(&self) -> bool {
        self.wire.quiet()
    }

    /// The name under which the agent knows the shell.
    #[must_use]
    pub fn key(&self) -> &ShellKey {
        &self.attach.shell
    }

    /// The id by which a private shell is resumed; the session's id otherwise.
    #[must_use]
    pub fn shell_id(&self) -> &str {
        self.attach.shell.id()
    }

    /// Process id of its bash, inside.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The shell was opened by this attach.
    #[must_use]
    pub fn fresh(&self) -> bool {
        self.fresh
    }

    /// End of each stream and number of the last exit, when attached.
    #[must_use]
    pub fn at(&self) -> Since {
        self.at
    }

    /// Sends one message; one system call when the socket takes it. Not cancel-safe: a send that
    /// was dropped half-way leaves the link unusable ([`AgentError::Turn`] from then on).
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn send(&mut self, ask: &AgentRequest) -> Result<(), AgentError> {
        self.wire.send(ask).await
    }

    /// Sends one message without waiting: what the socket does not take now, [`Self::next`] sends.
    /// The caller bounds [`Self::waiting`].
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn push(&mut self, ask: &AgentRequest) -> Result<(), AgentError> {
        self.wire.push(ask)
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
        let heard = self.wire.next().await?;
        self.tell(&heard);
        Ok(heard)
    }

    /// What has already arrived, without waiting; `None` when that is nothing.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn try_next(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        let heard = self.wire.try_next()?;
        heard.iter().for_each(|heard| self.tell(heard));
        Ok(heard)
    }

    /// After `AgentResponse::Closed`: attaches again, to a fresh shell (a session's only).
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Link`], also when the session has ended.
    pub async fn reattach(&mut self) -> Result<(), Error> {
        let _opening = match &self.session {
            None => None,
            Some(session) => {
                let opening = session.upgrade().and_then(|life| life.opening());
                Some(opening.ok_or(AgentError::SessionEnded)?)
            }
        };
        // Positions of the shell that ended mean nothing in the next one.
        self.attach.since = None;
        (self.pid, self.fresh, self.at) = attach_to(&mut self.wire, &self.attach).await?;
        Ok(())
    }

    /// Gives a link of [`crate::Sandbox::commands`] back for the next command, when no command of
    /// its own is queued or running. Dropping it instead is always allowed.
    pub fn park(self) {
        if let (true, Some(pool)) = (self.pooled, self.pool.upgrade()) {
            pool.park_shell(self);
        }
    }
}

async fn attach_to(wire: &mut Wire, attach: &request::Attach) -> Result<(i32, bool, Since), Error> {
    wire.send(&AgentRequest::Attach(attach.clone())).await?;
    match wire.answer().await? {
        AgentResponse::Attached { pid, fresh, at } => Ok((pid, fresh, at)),
        AgentResponse::Refused { why, message, .. } => Err(Error::Refused { why, message }),
        _ => Err(AgentError::Turn("another answer to attach").into()),
    }
}

/// One program without a shell.
#[derive(Debug)]
pub struct ExecLink {
    wire: Wire,
    over: bool,
    pool: Weak<Pool>,
    /// Of a program that runs in a session.
    working: Option<RunningProgram>,
    /// Whom to ask to look at the sandbox when no process can be made in it.
    driver: Option<mpsc::Sender<DriverCommand>>,
    told: Option<CommandEvents>,
}

impl ExecLink {
    pub(crate) async fn open(
        mut wire: Wire,
        exec: request::Exec,
        pool: Weak<Pool>,
    ) -> Result<Self, AgentError> {
        wire.send(&AgentRequest::Exec(exec)).await?;
        Ok(Self { wire, over: false, pool, working: None, driver: None, told: None })
    }

    /// It runs in a session.
    pub(crate) fn working(mut self, working: Option<RunningProgram>) -> Self {
        self.working = working;
        self
    }

    /// Its driver looks at the sandbox when no process can be made.
    pub(crate) fn doubting(mut self, driver: mpsc::Sender<DriverCommand>) -> Self {
        self.driver = Some(driver);
        self
    }

    /// It is told of as events.
    pub(crate) fn with_events(mut self, teller: EventEmitter) -> Self {
        self.told = Some(CommandEvents::new(teller));
        self
    }

    fn look(&mut self, heard: &AgentEvent) {
        if let (
            AgentEvent::Response(AgentResponse::Refused { why: RefusalReason::NoProcess, .. }),
            Some(driver),
        ) = (heard, &self.driver)
        {
            // A full queue: it has enough to do.
            let _ = driver.try_send(DriverCommand::Check);
        }
        if let AgentEvent::Response(AgentResponse::Exit(exit)) = heard {
            self.over = true;
            if let Some(told) = self.told.take() {
                told.exited(exit.code);
            }
        }
    }

    /// Sends `Stdin`, `Signal` or `Cancel` with an empty id. As [`ShellLink::send`].
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn send(&mut self, ask: &AgentRequest) -> Result<(), AgentError> {
        self.wire.send(ask).await
    }

    /// Sends one message without waiting: what the socket does not take now, [`Self::next`] sends.
    /// The caller bounds [`Self::waiting`].
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn push(&mut self, ask: &AgentRequest) -> Result<(), AgentError> {
        self.wire.push(ask)
    }

    /// Bytes that were pushed and are not sent.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.wire.waiting()
    }

    /// What comes next; `AgentResponse::Exit` is the last. Cancel-safe.
    ///
    /// # Errors
    /// [`AgentError`]; after [`AgentError::SessionEnded`] it is to be dropped, which kills the program.
    pub async fn next(&mut self) -> Result<AgentEvent, AgentError> {
        let heard = match &mut self.working {
            None => self.wire.next().await?,
            Some(working) => tokio::select! {
                biased;
                heard = self.wire.next() => heard?,
                () = working.over() => return Err(AgentError::SessionEnded),
            },
        };
        self.look(&heard);
        Ok(heard)
    }

    /// What has already arrived, without waiting; `None` when that is nothing.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn try_next(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        let heard = self.wire.try_next()?;
        heard.iter().for_each(|heard| self.look(heard));
        Ok(heard)
    }

    /// Gives the connection back after `AgentResponse::Exit`. Dropping it before that kills the program.
    pub fn park(self) {
        if let (true, Some(pool)) = (self.over, self.pool.upgrade()) {
            pool.park(self.wire);
        }
    }
}

/// Ends a shell or a terminal, and everything it started, on a connection of its own.
pub(crate) async fn close(mut wire: Wire, key: ShellKey) -> Result<(), Error> {
    wire.send(&AgentRequest::Close { key }).await?;
    let answer = tokio::time::timeout(ANSWER_WAIT, wire.next()).await;
    match answer.map_err(|_| Error::TooLate("closing the shell"))?? {
        AgentEvent::Response(AgentResponse::Done) => Ok(()),
        AgentEvent::Response(AgentResponse::Refused { why, message, .. }) => {
            Err(Error::Refused { why, message })
        }
        _ => Err(AgentError::Turn("another answer to close").into()),
    }
}
