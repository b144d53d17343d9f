//! One command over HTTP: sends it to the agent and receives its events.

use crate::auth::cancellation::{Cancellation, CancellationReason};
use crate::foundation::error::ApiError;
use crate::foundation::trace::CommandSpan;
use crate::stream::captured_output::CapturedOutput;
use bytes::Bytes;
use isolet_sandbox::{
    AgentError, AgentEvent, CommandText, Denials, Denied, EnvironmentChange, ExecConnection,
    ProgramSpec, Sandbox, SessionId, ShellConnection, WorkingDirectory,
};
use isolet_wire::frame::{DATA_BYTES_MAX, DataFrame};
use isolet_wire::request::{AgentRequest, RunCommand};
use isolet_wire::response::{AgentResponse, CommandExit};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a command may continue when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// An event of a command.
#[derive(Debug)]
pub(crate) enum CommandEvent {
    Started,
    Output {
        /// The stream: 1 for standard output, 2 for standard error.
        stream: u8,
        /// The position in the stream of the shell or program.
        offset: u64,
        /// At most 64 KiB.
        bytes: Bytes,
    },
    /// Output that is no longer available.
    Gap {
        /// The stream: 1 for standard output, 2 for standard error.
        stream: u8,
        /// The first missing byte.
        from: u64,
        /// The first byte that is available again.
        to: u64,
    },
    /// The last event: the exit, and the network traffic that was denied while the command ran.
    Exit(CommandExit, Denied),
}

/// A command after its end.
#[derive(Debug)]
pub(crate) struct FinishedCommand {
    pub(crate) exit: CommandExit,
    pub(crate) output: CapturedOutput,
    /// The network traffic that was denied while it ran.
    pub(crate) denied: Denied,
    /// See [`RunningCommand::shell_ended`].
    pub(crate) shell_ended: Option<bool>,
}

/// A command for the shell of a session.
#[derive(Debug, Default)]
pub(crate) struct ShellCommand {
    pub(crate) text: CommandText,
    /// For this command only.
    pub(crate) cwd: Option<WorkingDirectory>,
    /// For this command only.
    pub(crate) env: EnvironmentChange,
    /// Without it, the command reads end of file.
    pub(crate) stdin: Option<Vec<u8>>,
    /// In ms; 0 means never, `None` means the timeout of the session.
    pub(crate) timeout_ms: Option<u64>,
    /// Send standard error to standard output.
    pub(crate) merge: bool,
    /// Cancel the command if the client disconnects before its end.
    pub(crate) ends_with_client: bool,
}

enum AgentConnection {
    Shell(ShellConnection),
    Exec(ExecConnection),
}

impl AgentConnection {
    fn push(&mut self, ask: &AgentRequest) -> Result<(), AgentError> {
        match self {
            Self::Shell(link) => link.push(ask),
            Self::Exec(link) => link.push(ask),
        }
    }

    /// The session has ended, and its shell with it.
    fn session_ended(&self) -> bool {
        matches!(self, Self::Shell(link) if link.session_ended())
    }
}

/// A command that was sent to the agent.
pub(crate) struct RunningCommand {
    /// `None` after the connection was parked.
    link: Option<AgentConnection>,
    /// The id on the connection; empty for a program.
    id: String,
    /// Standard input that was not sent yet.
    stdin: VecDeque<AgentRequest>,
    /// Whether the command is cancelled when its client disconnects.
    ends_with_client: bool,
    denials: Denials,
    /// The exit, while the denied traffic is still awaited.
    ended: Option<CommandExit>,
    /// Whether the session's shell has ended with the command. `None` before the exit, and for
    /// a program.
    shell_ended: Option<bool>,
    span: CommandSpan,
}

/// Generates a command id. Several connections share one owner, and commands of the previous server
/// may still run, so ids are unique across servers.
fn fresh_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static SERVER: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(isolet_sandbox::ids::random);
    format!("{}-{}", *SERVER, NEXT.fetch_add(1, Ordering::Relaxed))
}

impl RunningCommand {
    /// Runs a command in a session's shell.
    pub(crate) async fn in_session(
        sandbox: &Sandbox,
        session: &SessionId,
        mut command: ShellCommand,
    ) -> Result<Self, ApiError> {
        let timeout_ms = match command.timeout_ms {
            Some(ms) => ms,
            None => sandbox.session_reach(session).await?.command_timeout_ms,
        };
        let mut link = sandbox.commands(session).await?;
        let denials = sandbox.denials();
        let id = fresh_id();
        let span = CommandSpan::begin();
        continue_trace(&span, &mut command.env);
        let run = RunCommand {
            id: id.clone(),
            text: command.text.into_inner(),
            timeout_ms,
            cwd: command.cwd.map(WorkingDirectory::into_inner),
            env: command.env.into_inner(),
            stdin: command.stdin.is_some(),
            merge: command.merge,
        };
        link.send(&AgentRequest::Run(run)).await?;
        let stdin = stdin_requests(&id, command.stdin);
        Ok(Self {
            link: Some(AgentConnection::Shell(link)),
            id,
            stdin,
            ends_with_client: command.ends_with_client,
            denials,
            ended: None,
            shell_ended: None,
            span,
        })
    }

    /// Starts a program, which is killed when this is dropped.
    pub(crate) async fn start_program(
        sandbox: &Sandbox,
        mut start: ProgramSpec,
        stdin: Option<Vec<u8>>,
    ) -> Result<Self, ApiError> {
        start.stdin = stdin.is_some();
        let denials = sandbox.denials();
        let span = CommandSpan::begin();
        continue_trace(&span, &mut start.env);
        let link = sandbox.exec(start).await?;
        let id = String::new();
        let stdin = stdin_requests("", stdin);
        Ok(Self {
            link: Some(AgentConnection::Exec(link)),
            id,
            stdin,
            ends_with_client: true,
            denials,
            ended: None,
            shell_ended: None,
            span,
        })
    }

    /// Waits for the next event. Cancel-safe. Must not be called after `CommandExit`.
    pub(crate) async fn next(&mut self) -> Result<CommandEvent, ApiError> {
        loop {
            if self.ended.is_some() {
                let denied = self.denials.settled().await;
                let exit = self.ended.take().ok_or(AgentError::Ended)?;
                return Ok(CommandEvent::Exit(exit, denied));
            }
            let message = self.receive().await.map_err(|error| self.end_reason(error))?;
            if let Some(event) = self.classify(message)? {
                return Ok(event);
            }
        }
    }

    /// Reports the end of the session as the cause if it has broken the connection.
    fn end_reason(&self, error: AgentError) -> AgentError {
        match error {
            AgentError::Destroyed(_) | AgentError::Departed(_) | AgentError::Slept(_) => error,
            _ if self.orphaned() => AgentError::SessionEnded,
            _ => error,
        }
    }

    /// Whether the session has ended, which explains any end of the shell.
    fn orphaned(&self) -> bool {
        self.link.as_ref().is_some_and(AgentConnection::session_ended)
    }

    /// Returns the next event if it has already arrived.
    pub(crate) fn ready(&mut self) -> Result<Option<CommandEvent>, ApiError> {
        while self.ended.is_none() {
            let message = match &mut self.link {
                Some(AgentConnection::Shell(link)) => link.try_next(),
                Some(AgentConnection::Exec(link)) => link.try_next(),
                None => Ok(None),
            };
            let Some(message) = message.map_err(|error| self.end_reason(error))? else {
                return Ok(None);
            };
            if let Some(event) = self.classify(message)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    async fn receive(&mut self) -> Result<AgentEvent, AgentError> {
        let link = self.link.as_mut().ok_or(AgentError::Ended)?;
        // Pushed without waiting: the output of a program that writes before it reads must be
        // received at the same time. The size of the request's body bounds what is pushed.
        while let Some(ask) = self.stdin.pop_front() {
            link.push(&ask)?;
        }
        match link {
            AgentConnection::Shell(link) => link.next().await,
            AgentConnection::Exec(link) => link.next().await,
        }
    }

    fn classify(&mut self, message: AgentEvent) -> Result<Option<CommandEvent>, ApiError> {
        match message {
            AgentEvent::Data(body) => {
                let data = DataFrame::parse(body).map_err(AgentError::from)?;
                let ours = data.id == self.id;
                let DataFrame { stream, offset, bytes, .. } = data;
                Ok(ours.then_some(CommandEvent::Output { stream, offset, bytes }))
            }
            AgentEvent::Response(AgentResponse::Started { id, .. }) if id == self.id => {
                self.denials.begin();
                Ok(Some(CommandEvent::Started))
            }
            AgentEvent::Response(AgentResponse::Exit(exit)) if exit.id == self.id => {
                if self.orphaned() {
                    return Err(AgentError::SessionEnded.into());
                }
                self.span.exited(&exit);
                self.shell_ended = match &self.link {
                    Some(AgentConnection::Shell(_)) => Some(exit.ends_shell),
                    Some(AgentConnection::Exec(_)) | None => None,
                };
                if !self.denials.there() {
                    return Ok(Some(CommandEvent::Exit(exit, Denied::default())));
                }
                self.ended = Some(exit);
                Ok(None)
            }
            AgentEvent::Response(AgentResponse::Gap { stream, from, to }) => {
                Ok(Some(CommandEvent::Gap { stream, from, to }))
            }
            AgentEvent::Response(AgentResponse::Refused { id, reason, message })
                if id.as_ref().is_none_or(|id| *id == self.id) =>
            {
                if self.orphaned() {
                    return Err(AgentError::SessionEnded.into());
                }
                Err(ApiError::from_agent(reason, message))
            }
            // This includes that a session's shell has ended: the next request opens another shell
            // or is refused.
            AgentEvent::Response(_) => Ok(None),
        }
    }

    /// Whether the session's shell has ended with the command, once it has ended; `None` for a
    /// program without a shell.
    pub(crate) fn shell_ended(&self) -> Option<bool> {
        self.shell_ended
    }

    /// Receives all events, captures the output, and parks the connection.
    pub(crate) async fn finish(
        mut self,
        mut output: CapturedOutput,
        mut cancellation: Cancellation,
    ) -> Result<FinishedCommand, ApiError> {
        let ended = async move {
            let reason = cancellation.cancelled().await;
            if reason == CancellationReason::Stopping {
                tokio::time::sleep(STOP_GRACE).await;
            }
            reason
        };
        tokio::pin!(ended);
        loop {
            // Cancellation first: a command that never stops writing must not delay it.
            let event = tokio::select! {
                biased;
                reason = &mut ended => return Err(reason.into()),
                event = self.next() => event?,
            };
            match event {
                CommandEvent::Started => {}
                CommandEvent::Output { stream, bytes, .. } => output.push(stream, &bytes),
                CommandEvent::Gap { stream, from, to } => {
                    output.add_gap(stream, to.saturating_sub(from))
                }
                CommandEvent::Exit(exit, denied) => {
                    let shell_ended = self.shell_ended;
                    self.park();
                    return Ok(FinishedCommand { exit, output, denied, shell_ended });
                }
            }
        }
    }

    /// After the exit: returns the connection for the next command.
    pub(crate) fn park(mut self) {
        match self.link.take() {
            None => {}
            Some(AgentConnection::Exec(link)) => link.park(),
            Some(AgentConnection::Shell(mut link)) => {
                // Events after the exit belong to other commands, or report that the shell has
                // ended.
                while let Ok(message) = link.try_next() {
                    match message {
                        None => return link.park(),
                        Some(AgentEvent::Response(AgentResponse::Closed(_))) => return,
                        Some(_) => {}
                    }
                }
            }
        }
    }
}

impl Drop for RunningCommand {
    /// The client disconnected early: cancels a command that is bound to it.
    fn drop(&mut self) {
        if let Some(link) = self.link.as_mut().filter(|_| self.ends_with_client) {
            let _ = link.push(&AgentRequest::Cancel { id: std::mem::take(&mut self.id) });
        }
    }
}

/// Tells the programs of a command which trace they are part of.
fn continue_trace(span: &CommandSpan, env: &mut EnvironmentChange) {
    if let Some(value) = span.traceparent() {
        env.set_default("TRACEPARENT", value);
    }
}

fn stdin_requests(id: &str, stdin: Option<Vec<u8>>) -> VecDeque<AgentRequest> {
    let Some(bytes) = stdin else { return VecDeque::new() };
    let part =
        |data: &[u8], eof| AgentRequest::Stdin { id: id.to_owned(), data: data.to_vec(), eof };
    let mut all: VecDeque<AgentRequest> =
        bytes.chunks(DATA_BYTES_MAX).map(|data| part(data, false)).collect();
    all.push_back(part(&[], true));
    all
}
