//! PTYs: each is the terminal of a session of its own, which ends with it.

use crate::dialects::e2b::connect::{Code, RpcError};
use crate::dialects::e2b::process::pty_users::{PtyUser, is_used};
use crate::dialects::e2b::process::start::{ProcessConfig, ProgramStart, program};
use crate::dialects::e2b::templates::started::Defaults;
use bytes::Bytes;
use isolet_sandbox::info::{Life, TTL_S_MAX};
use isolet_sandbox::terminal::TerminalClientOptions;
use isolet_sandbox::{
    AgentError, AgentEvent, Environment, Sandbox, SessionId, SessionSpec, TerminalConnection, ids,
};
use isolet_wire::frame::DataFrame;
use isolet_wire::response::{AgentResponse, Closed};
use isolet_wire::terminal::{OUTPUT, SNAPSHOT, Size, TerminalPosition, TerminalStatus};
use serde::Deserialize;
use std::time::Duration;
use tokio::time;

/// Begins the ids of the sessions.
const SESSION: &str = "e2b-pty-";
/// How long a terminal may take to accept input.
const INPUT_WAIT: Duration = Duration::from_secs(10);

/// The size of a PTY.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct PtySize {
    cols: u32,
    rows: u32,
}

impl PtySize {
    /// The size of a window. The agent reduces one that is too large.
    fn window(self) -> Size {
        let default = Size::default();
        let side = |value: u32, default: u16| match value {
            0 => default,
            value => u16::try_from(value).unwrap_or(u16::MAX),
        };
        Size { cols: side(self.cols, default.cols), rows: side(self.rows, default.rows) }
    }
}

/// The output of a PTY.
pub(super) struct PtyOutput {
    connection: TerminalConnection,
    sandbox: Sandbox,
    user: PtyUser,
    pub(super) pid: i32,
}

/// What a PTY sends.
pub(super) enum PtyItem {
    Output(Bytes),
    /// Something that clients of this dialect do not learn.
    Nothing,
    Exit(Closed),
}

/// Opens a PTY, which ends after `timeout`.
pub(super) async fn open(
    sandbox: &Sandbox,
    start: &Defaults,
    config: ProcessConfig,
    size: PtySize,
    timeout: Option<Duration>,
) -> Result<PtyOutput, RpcError> {
    remove_ended(sandbox).await?;
    let ProgramStart { argv, env, cwd } = program(start, config)?;
    let session = SessionId::parse(&format!("{SESSION}{}", ids::random()));
    let session = session.map_err(|_| RpcError::new(Code::Internal, "no id for a session"))?;
    // From before its creation on, so that no other request removes it.
    let user = PtyUser::new(sandbox, &session);
    let life = timeout.map(|timeout| {
        let ttl_s = (timeout.as_secs() + 1).min(TTL_S_MAX);
        Life { ttl_s, ends_idle: false, across: false }
    });
    let spec = SessionSpec {
        id: Some(session.clone()),
        cwd: Some(cwd),
        env: Environment::parse(env)?,
        life,
        ..SessionSpec::default()
    };
    sandbox.session_create(spec, None).await?;
    let options = TerminalClientOptions { open: Some(argv), size: Some(size.window()), ..client() };
    match sandbox.terminal(&session, options).await {
        Ok(opened) => {
            // The window of this connection would win over every later size.
            let since = TerminalPosition { id: opened.attached().id.clone(), offset: 0 };
            let options = TerminalClientOptions { since: Some(since), ..client() };
            let connection = sandbox.terminal(&session, options).await?;
            let pid = opened.attached().pid;
            Ok(PtyOutput { connection, sandbox: sandbox.clone(), user, pid })
        }
        Err(error) => {
            let _ = sandbox.session_delete(&session).await;
            Err(error.into())
        }
    }
}

/// Follows a PTY, beginning with what draws its screen.
pub(super) async fn attach(
    sandbox: &Sandbox,
    session: &SessionId,
    pid: i32,
) -> Result<PtyOutput, RpcError> {
    let user = PtyUser::new(sandbox, session);
    let connection = sandbox.terminal(session, client()).await?;
    Ok(PtyOutput { connection, sandbox: sandbox.clone(), user, pid })
}

/// The running PTYs with their sessions.
pub(super) async fn running(
    sandbox: &Sandbox,
) -> Result<Vec<(SessionId, TerminalStatus)>, RpcError> {
    let mut all = sandbox.terminals().await?;
    all.retain(|(session, _)| session.as_str().starts_with(SESSION));
    Ok(all)
}

/// Sends input to a PTY.
pub(super) async fn type_in(
    sandbox: &Sandbox,
    session: &SessionId,
    bytes: &[u8],
) -> Result<(), RpcError> {
    let mut connection = sandbox.terminal(session, client()).await?;
    connection.type_in(bytes)?;
    sent(connection).await
}

/// Gives a PTY another size.
pub(super) async fn resize(
    sandbox: &Sandbox,
    session: &SessionId,
    size: PtySize,
) -> Result<(), RpcError> {
    let mut connection = sandbox.terminal(session, client()).await?;
    connection.resize(size.window())?;
    sent(connection).await
}

/// Ends a PTY with everything that it started.
pub(super) async fn kill(sandbox: &Sandbox, session: &SessionId) -> Result<(), RpcError> {
    sandbox.terminal_close(session).await?;
    Ok(())
}

/// Waits until the agent has received what was sent.
async fn sent(mut connection: TerminalConnection) -> Result<(), RpcError> {
    let sending = async {
        while connection.waiting() > 0 {
            connection.next_or_sent(0).await?;
        }
        Ok::<_, AgentError>(())
    };
    match time::timeout(INPUT_WAIT, sending).await {
        Ok(sent) => Ok(sent?),
        Err(_) => Err(RpcError::new(Code::DeadlineExceeded, "the PTY accepts no input")),
    }
}

/// Deletes the sessions of PTYs that ended while no client followed them. A session that no request
/// uses has had its terminal opened, so the terminals that run are listed after the users.
async fn remove_ended(sandbox: &Sandbox) -> Result<(), RpcError> {
    let sessions = sandbox.sessions().into_iter().map(|info| info.id);
    let unused = |id: &SessionId| id.as_str().starts_with(SESSION) && !is_used(sandbox, id);
    let mut own: Vec<_> = sessions.filter(unused).collect();
    if own.is_empty() {
        return Ok(());
    }
    for (session, _) in running(sandbox).await? {
        own.retain(|id| *id != session);
    }
    for id in own.into_iter().filter(unused) {
        let _ = sandbox.session_delete(&id).await;
    }
    Ok(())
}

fn client() -> TerminalClientOptions {
    TerminalClientOptions { name: "e2b".to_owned(), ..TerminalClientOptions::default() }
}

impl PtyOutput {
    /// Waits for the next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<PtyItem, RpcError> {
        let event = self.connection.next().await.map_err(|error| self.broken(error))?;
        classify(event)
    }

    pub(super) fn ready(&mut self) -> Result<Option<PtyItem>, RpcError> {
        let event = self.connection.try_next();
        let event = event.map_err(|error| self.broken(error))?;
        event.map(classify).transpose()
    }

    /// The end of a session that its lifetime or another client has ended.
    fn broken(&self, error: AgentError) -> RpcError {
        let is_gone = matches!(
            error,
            AgentError::Destroyed(_) | AgentError::Departed(_) | AgentError::Slept(_)
        );
        match self.connection.orphaned() && !is_gone {
            true => RpcError::new(Code::DeadlineExceeded, "the PTY has ended"),
            false => error.into(),
        }
    }

    /// Ends the session of a PTY that has ended, unless another client still reads its output.
    pub(super) async fn finish(self) {
        let Self { connection, sandbox, user, .. } = self;
        let session = connection.session().clone();
        drop(user);
        if !is_used(&sandbox, &session) {
            // An error means that it is gone, or that the next PTY removes it.
            let _ = sandbox.session_delete(&session).await;
        }
    }
}

fn classify(event: AgentEvent) -> Result<PtyItem, RpcError> {
    match event {
        AgentEvent::Data(body) => {
            let data = DataFrame::parse(body).map_err(AgentError::from)?;
            let drawn = matches!(data.stream, OUTPUT | SNAPSHOT) && !data.bytes.is_empty();
            Ok(if drawn { PtyItem::Output(data.bytes) } else { PtyItem::Nothing })
        }
        AgentEvent::Response(AgentResponse::TerminalExit(closed)) => Ok(PtyItem::Exit(closed)),
        AgentEvent::Response(_) => Ok(PtyItem::Nothing),
    }
}
