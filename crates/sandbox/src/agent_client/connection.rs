//! Connections of clients to shells and programs. They exchange frames with the agent over a Unix
//! socket, directly from the caller's task.

use crate::agent_client::metering::count_output;
use crate::agent_client::pool::Pool;
use crate::agent_client::running_program::RunningProgram;
use crate::agent_client::wire::{ANSWER_WAIT, AgentEvent, Wire};
use crate::model::activity::ActivityGuard;
use crate::model::agent_error::AgentError;
use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::events::{CommandEvents, EventEmitter};
use crate::model::sessions::Lifetime;
use isolet_metrics::Meter;
use isolet_wire::activity::ShellKey;
use isolet_wire::request::{self, AgentRequest, ShellPosition};
use isolet_wire::response::{AgentResponse, RefusalReason};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;

/// A connection that is a client of one shell.
#[derive(Debug)]
pub struct ShellConnection {
    wire: Wire,
    attach: request::AttachShell,
    pid: i32,
    fresh: bool,
    at: ShellPosition,
    pool: Weak<Pool>,
    pooled: bool,
    emitter: Option<EventEmitter>,
    /// The lifetime of the session, for a session's shell.
    session: Option<Weak<Lifetime>>,
    meter: Option<Arc<Meter>>,
}

impl ShellConnection {
    pub(crate) async fn open(
        mut wire: Wire,
        mut attach: request::AttachShell,
        pool: Weak<Pool>,
    ) -> Result<Self, Error> {
        let (pid, fresh, at) = attach_to(&mut wire, &attach).await?;
        if let Some(open) = &mut attach.open {
            // A shell that ends loses its state.
            open.restore = None;
            open.replaces_lost = false;
        }
        Ok(Self {
            wire,
            attach,
            pid,
            fresh,
            at,
            pool,
            pooled: false,
            emitter: None,
            session: None,
            meter: None,
        })
    }

    /// Marks the connection as one that [`ShellConnection::park`] returns to the pool.
    pub(crate) fn pooled(mut self) -> Self {
        self.pooled = true;
        self
    }

    /// Publishes the commands of this connection as events.
    pub(crate) fn with_events(mut self, emitter: EventEmitter) -> Self {
        self.emitter = Some(emitter);
        self
    }

    /// Counts the output and the commands of this connection.
    pub(crate) fn metered(mut self, meter: &Arc<Meter>) -> Self {
        self.meter = Some(Arc::clone(meter));
        self
    }

    /// Marks the shell as the one of a session.
    pub(crate) fn of_session(mut self, session: Option<Weak<Lifetime>>) -> Self {
        self.session = session;
        self
    }

    /// Whether the session of this shell has ended. A new session with the same id has another
    /// shell.
    #[must_use]
    pub fn session_ended(&self) -> bool {
        let ended = |session: &Weak<Lifetime>| session.upgrade().is_none_or(|life| life.ended());
        self.session.as_ref().is_some_and(ended)
    }

    /// Commands of other owners are published and counted by their own clients.
    fn is_own(&self, id: &str) -> bool {
        !self.attach.watch || !id.contains('/')
    }

    fn count(&self, event: &AgentEvent) {
        let Some(meter) = &self.meter else { return };
        match event {
            AgentEvent::Response(AgentResponse::Exit(exit)) if self.is_own(&exit.id) => {
                meter.command(Duration::from_micros(exit.micros));
            }
            event => count_output(meter, event),
        }
    }

    fn publish(&self, event: &AgentEvent) {
        self.count(event);
        let Some(emitter) = &self.emitter else { return };
        match event {
            AgentEvent::Response(AgentResponse::Started { id, .. }) if self.is_own(id) => {
                emitter.started(id);
            }
            AgentEvent::Response(AgentResponse::Exit(exit)) if self.is_own(&exit.id) => {
                emitter.exited(&exit.id, Some(exit.code));
            }
            _ => {}
        }
    }

    /// Sets the guard that keeps the sandbox awake.
    pub(crate) fn awake(&mut self, awake: Option<ActivityGuard>) {
        self.wire.awake = awake;
    }

    /// Whether no unread bytes have arrived.
    pub(crate) fn quiet(&self) -> bool {
        self.wire.quiet()
    }

    /// The name under which the agent knows the shell.
    #[must_use]
    pub fn key(&self) -> &ShellKey {
        &self.attach.shell
    }

    /// The id by which a client can resume a private shell; the session's id for a session's shell.
    #[must_use]
    pub fn shell_id(&self) -> &str {
        self.attach.shell.id()
    }

    /// Process id of bash inside the sandbox.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether this attach opened the shell.
    #[must_use]
    pub fn fresh(&self) -> bool {
        self.fresh
    }

    /// End of each stream and number of the last exit at the time of the attach.
    #[must_use]
    pub fn at(&self) -> ShellPosition {
        self.at
    }

    /// Sends one message, with one system call if the socket accepts it. Not cancel-safe: an
    /// interrupted send makes the connection unusable ([`AgentError::Turn`]).
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn send(&mut self, request: &AgentRequest) -> Result<(), AgentError> {
        self.wire.send(request).await
    }

    /// Sends one message without waiting. [`Self::next`] sends the bytes that the socket does not
    /// accept now, and the caller limits [`Self::waiting`].
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn push(&mut self, request: &AgentRequest) -> Result<(), AgentError> {
        self.wire.push(request)
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
        self.publish(&event);
        Ok(event)
    }

    /// Waits for the next event, or until at most `queued` bytes wait to be sent: `None`. It is
    /// not returned if no more than that waited before. Cancel-safe.
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn next_or_sent(&mut self, queued: usize) -> Result<Option<AgentEvent>, AgentError> {
        let event = self.wire.next_or_sent(queued).await?;
        event.iter().for_each(|event| self.publish(event));
        Ok(event)
    }

    /// Returns an event that has already arrived, without waiting.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn try_next(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        let event = self.wire.try_next()?;
        event.iter().for_each(|event| self.publish(event));
        Ok(event)
    }

    /// Returns a connection of [`crate::Sandbox::commands`] to the pool when no command of it is
    /// queued or running. Dropping the connection instead is always allowed.
    pub fn park(self) {
        if self.pooled
            && let Some(pool) = self.pool.upgrade()
        {
            pool.park_shell(self);
        }
    }
}

async fn attach_to(
    wire: &mut Wire,
    attach: &request::AttachShell,
) -> Result<(i32, bool, ShellPosition), Error> {
    wire.send(&AgentRequest::Attach(attach.clone())).await?;
    match wire.answer().await? {
        AgentResponse::Attached { pid, fresh, at } => Ok((pid, fresh, at)),
        AgentResponse::Refused { reason, message, .. } => Err(Error::Refused { reason, message }),
        _ => Err(AgentError::Turn("unexpected answer to attach").into()),
    }
}

/// A connection that runs one program without a shell.
#[derive(Debug)]
pub struct ExecConnection {
    wire: Wire,
    over: bool,
    pool: Weak<Pool>,
    /// Set if the program runs in a session.
    working: Option<RunningProgram>,
    /// The driver that is asked for a health check if no process can be created.
    driver: Option<mpsc::Sender<DriverCommand>>,
    command_events: Option<CommandEvents>,
    meter: Option<Arc<Meter>>,
}

impl ExecConnection {
    pub(crate) async fn open(
        mut wire: Wire,
        exec: request::StartExec,
        pool: Weak<Pool>,
    ) -> Result<Self, AgentError> {
        wire.send(&AgentRequest::Exec(exec)).await?;
        Ok(Self {
            wire,
            over: false,
            pool,
            working: None,
            driver: None,
            command_events: None,
            meter: None,
        })
    }

    /// Marks the program as running in a session.
    pub(crate) fn working(mut self, working: Option<RunningProgram>) -> Self {
        self.working = working;
        self
    }

    /// Asks this driver for a health check if no process can be created.
    pub(crate) fn doubting(mut self, driver: mpsc::Sender<DriverCommand>) -> Self {
        self.driver = Some(driver);
        self
    }

    /// Publishes the start and the end of the program as events.
    pub(crate) fn with_events(mut self, emitter: EventEmitter) -> Self {
        self.command_events = Some(CommandEvents::new(emitter));
        self
    }

    /// Counts the output and the end of the program.
    pub(crate) fn metered(mut self, meter: &Arc<Meter>) -> Self {
        self.meter = Some(Arc::clone(meter));
        self
    }

    fn look(&mut self, event: &AgentEvent) {
        if let Some(meter) = &self.meter {
            count_output(meter, event);
        }
        if let (
            AgentEvent::Response(AgentResponse::Refused {
                reason: RefusalReason::NoProcess, ..
            }),
            Some(driver),
        ) = (event, &self.driver)
        {
            // If the queue is full, the driver is busy with other commands anyway.
            let _ = driver.try_send(DriverCommand::Check);
        }
        if let AgentEvent::Response(AgentResponse::Exit(exit)) = event {
            self.over = true;
            if let Some(meter) = &self.meter {
                meter.program(Duration::from_micros(exit.micros));
            }
            if let Some(command_events) = self.command_events.take() {
                command_events.exited(exit.code);
            }
        }
    }

    /// Sends `Stdin`, `Signal` or `Cancel` with an empty id. See [`ShellConnection::send`].
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn send(&mut self, request: &AgentRequest) -> Result<(), AgentError> {
        self.wire.send(request).await
    }

    /// Sends one message without waiting. [`Self::next`] sends the bytes that the socket does not
    /// accept now, and the caller limits [`Self::waiting`].
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn push(&mut self, request: &AgentRequest) -> Result<(), AgentError> {
        self.wire.push(request)
    }

    /// Number of bytes that were pushed and not sent yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.wire.waiting()
    }

    /// Waits for the next event; `AgentResponse::Exit` is the last one. Cancel-safe.
    ///
    /// # Errors
    /// [`AgentError`]. After [`AgentError::SessionEnded`], the caller must drop the connection,
    /// which kills the program.
    pub async fn next(&mut self) -> Result<AgentEvent, AgentError> {
        let event = match &mut self.working {
            None => self.wire.next().await?,
            Some(working) => tokio::select! {
                biased;
                event = self.wire.next() => event?,
                () = working.over() => return Err(AgentError::SessionEnded),
            },
        };
        self.look(&event);
        Ok(event)
    }

    /// Returns an event that has already arrived, without waiting.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn try_next(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        let event = self.wire.try_next()?;
        event.iter().for_each(|event| self.look(event));
        Ok(event)
    }

    /// Returns the connection to the pool after `AgentResponse::Exit`. Dropping it before that
    /// kills the program.
    pub fn park(self) {
        if self.over
            && let Some(pool) = self.pool.upgrade()
        {
            pool.park(self.wire);
        }
    }
}

/// Ends a shell or a terminal and everything that it started, on a connection of its own.
pub(crate) async fn close(mut wire: Wire, key: ShellKey) -> Result<(), Error> {
    wire.send(&AgentRequest::Close { key }).await?;
    let answer = wire.next_within(ANSWER_WAIT).await;
    match answer.map_err(|_| Error::TooLate("closing the shell"))?? {
        AgentEvent::Response(AgentResponse::Done) => Ok(()),
        AgentEvent::Response(AgentResponse::Refused { reason, message, .. }) => {
            Err(Error::Refused { reason, message })
        }
        _ => Err(AgentError::Turn("unexpected answer to close").into()),
    }
}
