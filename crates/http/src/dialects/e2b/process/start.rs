//! `Start` and `Connect`: the output of a process or PTY as a stream.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::connect::envelope::{EnvelopeReader, Envelopes};
use crate::dialects::e2b::connect::stream::{MessageSource, Pace, respond};
use crate::dialects::e2b::connect::{Code, RpcError, timeout};
use crate::dialects::e2b::process::events::EventMessage;
use crate::dialects::e2b::process::pty::{self, PtyOutput, PtySize};
use crate::dialects::e2b::process::select::{self, Selected, Selector};
use crate::dialects::e2b::templates::started::Defaults;
use crate::dialects::e2b::user::User;
use crate::foundation::input::{PathIds, TIMEOUT_MS_MAX};
use crate::routes::processes::log::{LogEvent, LogReader};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use isolet_sandbox::{
    Argv, EnvironmentChange, ProcessId, ProcessSpec, Program, Sandbox, WorkingDirectory,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

/// How much longer a program may run than its client waits, so that the client learns of the timeout
/// and not of the kill.
const KILL_DELAY: Duration = Duration::from_millis(500);

/// A program to start.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StartRequest {
    process: Option<ProcessConfig>,
    pty: Option<Pty>,
    tag: Option<String>,
    /// Older clients leave it out and send input.
    stdin: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProcessConfig {
    pub(super) cmd: String,
    pub(super) args: Vec<String>,
    pub(super) envs: BTreeMap<String, String>,
    pub(super) cwd: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pty {
    pub(super) size: PtySize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ConnectRequest {
    process: Selector,
}

/// Starts a program, and streams its output until it ends. It continues when the client leaves.
pub(super) async fn start(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    request: Request,
) -> Response {
    let cancellation = app.cancellations.subscribe(&caller);
    respond(begin(&app, &caller, &ids, request).await, cancellation)
}

/// Streams what a running program writes from now on.
pub(super) async fn connect(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    request: Request,
) -> Response {
    let cancellation = app.cancellations.subscribe(&caller);
    respond(follow(&app, &caller, &ids, request).await, cancellation)
}

type Begun = Result<(ProgramOutput, Envelopes, Pace), RpcError>;

async fn begin(app: &App, caller: &Caller, ids: &PathIds, request: Request) -> Begun {
    let (parts, body) = request.into_parts();
    let timeout = timeout(&parts.headers)?;
    let wish: StartRequest = EnvelopeReader::new(&parts, body)?.only().await?;
    let config = wish.process.ok_or_else(|| RpcError::invalid("process: is needed"))?;
    let sandbox = select::reach(app, caller, ids).await?;
    let start = Defaults::of(&sandbox).with(User::of(&parts.headers)?);
    let output = match wish.pty {
        Some(pty) => {
            let output = pty::open(&sandbox, &start, config, pty.size, timeout).await?;
            ProgramOutput::Pty(output)
        }
        None => {
            let stdin = wish.stdin.unwrap_or(true);
            let spec = spec(&start, config, wish.tag, stdin, timeout)?;
            ProgramOutput::Process(start_process(sandbox, spec).await?)
        }
    };
    Ok(output.begun(&parts.headers, timeout))
}

async fn follow(app: &App, caller: &Caller, ids: &PathIds, request: Request) -> Begun {
    let (parts, body) = request.into_parts();
    let timeout = timeout(&parts.headers)?;
    let wish: ConnectRequest = EnvelopeReader::new(&parts, body)?.only().await?;
    let sandbox = select::reach(app, caller, ids).await?;
    let output = match wish.process.find(&sandbox).await? {
        Selected::Process { id, pid } => {
            let log = LogReader::new(sandbox.process_follow(&id, None).await?, id);
            ProgramOutput::Process(ProcessOutput { log, pid, _sandbox: sandbox })
        }
        Selected::Pty { session, pid } => {
            ProgramOutput::Pty(pty::attach(&sandbox, &session, pid).await?)
        }
    };
    Ok(output.begun(&parts.headers, timeout))
}

fn spec(
    start: &Defaults,
    config: ProcessConfig,
    tag: Option<String>,
    stdin: bool,
    timeout: Option<Duration>,
) -> Result<ProcessSpec, RpcError> {
    let id = tag.map(|tag| ProcessId::parse(&tag)).transpose();
    let id =
        id.map_err(|_| RpcError::invalid("tag: at most 128 letters, digits, dots and dashes"))?;
    let timeout = timeout.map_or(0, |timeout| {
        let ms = u64::try_from((timeout + KILL_DELAY).as_millis()).unwrap_or(u64::MAX);
        ms.min(TIMEOUT_MS_MAX)
    });
    let ProgramStart { argv, env, cwd } = program(start, config)?;
    Ok(ProcessSpec {
        id,
        program: Program::Argv(Argv::parse(argv)?),
        cwd: Some(cwd),
        env: EnvironmentChange::parse(env.into_iter().map(|(k, v)| (k, Some(v))).collect())?,
        session: None,
        stdin,
        timeout_ms: timeout,
    })
}

/// What a program starts with.
pub(super) struct ProgramStart {
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: WorkingDirectory,
}

/// The words, environment and directory of a program.
pub(super) fn program(start: &Defaults, config: ProcessConfig) -> Result<ProgramStart, RpcError> {
    let ProcessConfig { cmd, args, mut envs, cwd } = config;
    let user = start.user;
    for (name, value) in [("HOME", user.home()), ("USER", user.name()), ("LOGNAME", user.name())] {
        envs.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    let cwd = cwd.filter(|cwd| !cwd.is_empty()).or_else(|| start.workdir.clone());
    let cwd = WorkingDirectory::parse(user.resolve(&cwd.unwrap_or_default())?)?;
    let mut argv = vec![cmd];
    argv.extend(args);
    Ok(ProgramStart { argv, env: envs, cwd })
}

async fn start_process(sandbox: Sandbox, spec: ProcessSpec) -> Result<ProcessOutput, RpcError> {
    let (info, connection) = sandbox.process_run(spec).await?;
    let log = LogReader::new(connection, info.id);
    Ok(ProcessOutput { log, pid: info.process.pid, _sandbox: sandbox })
}

/// The output of a process. Keeps its sandbox awake.
pub(super) struct ProcessOutput {
    log: LogReader,
    pid: i32,
    _sandbox: Sandbox,
}

enum ProgramOutput {
    Process(ProcessOutput),
    Pty(PtyOutput),
}

enum ProgramItem {
    Log(LogEvent),
    Pty(pty::PtyItem),
}

impl ProgramOutput {
    fn begun(self, headers: &HeaderMap, timeout: Option<Duration>) -> (Self, Envelopes, Pace) {
        let pid = match &self {
            Self::Process(output) => output.pid,
            Self::Pty(output) => output.pid,
        };
        let mut first = Envelopes::default();
        first.message(&EventMessage::start(pid));
        (self, first, Pace::new(headers, timeout))
    }
}

impl MessageSource for ProgramOutput {
    type Item = ProgramItem;

    async fn next(&mut self) -> Result<ProgramItem, RpcError> {
        match self {
            Self::Process(output) => Ok(ProgramItem::Log(output.log.next().await?)),
            Self::Pty(output) => Ok(ProgramItem::Pty(output.next().await?)),
        }
    }

    fn ready(&mut self) -> Result<Option<ProgramItem>, RpcError> {
        match self {
            Self::Process(output) => Ok(output.log.ready()?.map(ProgramItem::Log)),
            Self::Pty(output) => Ok(output.ready()?.map(ProgramItem::Pty)),
        }
    }

    fn write(
        &mut self,
        item: ProgramItem,
        out: &mut Envelopes,
    ) -> ControlFlow<Result<(), RpcError>> {
        match item {
            ProgramItem::Log(LogEvent::Data(data, _)) => {
                out.message(&EventMessage::output(data.stream, &data.bytes));
            }
            ProgramItem::Log(LogEvent::Gap(from, to)) => {
                let lost = to.saturating_sub(from);
                let message =
                    format!("{lost} bytes of output were dropped: the client was too slow");
                return ControlFlow::Break(Err(RpcError::new(Code::DataLoss, message)));
            }
            ProgramItem::Log(LogEvent::End(info)) => {
                out.message(&EventMessage::end(&info.process.end.unwrap_or_default()));
                return ControlFlow::Break(Ok(()));
            }
            ProgramItem::Pty(pty::PtyItem::Output(bytes)) => {
                out.message(&EventMessage::pty(&bytes));
            }
            ProgramItem::Pty(pty::PtyItem::Nothing) => {}
            ProgramItem::Pty(pty::PtyItem::Exit(closed)) => {
                out.message(&EventMessage::closed(&closed));
                return ControlFlow::Break(Ok(()));
            }
        }
        ControlFlow::Continue(())
    }

    fn keep_alive(&self, out: &mut Envelopes) {
        out.message(&EventMessage::KEEP_ALIVE);
    }

    async fn finish(self) {
        if let Self::Pty(output) = self {
            output.finish().await;
        }
    }
}
