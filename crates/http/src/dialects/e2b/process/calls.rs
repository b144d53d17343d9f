//! Unary calls about processes: list, resize, send a signal.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::connect::RpcError;
use crate::dialects::e2b::connect::unary::Unary;
use crate::dialects::e2b::process::pty;
use crate::dialects::e2b::process::select::{self, Selected, Selector};
use crate::dialects::e2b::process::start::Pty;
use crate::foundation::input::PathIds;
use axum::Json;
use axum::extract::State;
use isolet_sandbox::ProcessInfo;
use isolet_wire::terminal::TerminalStatus;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

const TERM: i32 = 15;
const KILL: i32 = 9;
/// How ids begin that the server generates; others are tags of clients.
const GENERATED: &str = "proc_";

/// A message without fields.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Empty {}

#[derive(Debug, Serialize)]
pub(super) struct ListResponse {
    processes: Vec<ProcessView>,
}

#[derive(Debug, Serialize)]
struct ProcessView {
    config: ConfigView,
    pid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
}

#[derive(Debug, Serialize)]
struct ConfigView {
    cmd: String,
    args: Vec<String>,
    /// Always empty: the server tells nobody the environment of a program.
    envs: BTreeMap<String, String>,
}

impl ConfigView {
    /// The words of a command line. That of a client's command is `/bin/bash -l -c COMMAND`.
    fn of_line(line: &str) -> Self {
        let mut words = line.splitn(4, ' ').map(str::to_owned);
        let cmd = words.next().unwrap_or_default();
        Self { cmd, args: words.collect(), envs: BTreeMap::new() }
    }
}

impl From<ProcessInfo> for ProcessView {
    fn from(info: ProcessInfo) -> Self {
        Self {
            config: ConfigView::of_line(&info.process.command),
            pid: info.process.pid,
            tag: Some(info.id.to_string()).filter(|id| !id.starts_with(GENERATED)),
        }
    }
}

impl From<TerminalStatus> for ProcessView {
    fn from(status: TerminalStatus) -> Self {
        let mut argv = status.argv.into_iter();
        let cmd = argv.next().unwrap_or_default();
        let config = ConfigView { cmd, args: argv.collect(), envs: BTreeMap::new() };
        Self { config, pid: status.pid, tag: None }
    }
}

/// Lists the running processes and PTYs.
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    _: Unary<Empty>,
) -> Result<Json<ListResponse>, RpcError> {
    let sandbox = select::reach(&app, &caller, &ids).await?;
    let ptys = pty::running(&sandbox).await?.into_iter().map(|(_, status)| status.into());
    let all = select::running(&sandbox).await?.into_iter().map(ProcessView::from);
    Ok(Json(ListResponse { processes: all.chain(ptys).collect() }))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct UpdateRequest {
    process: Selector,
    pty: Option<Pty>,
}

/// Gives a PTY another size.
pub(super) async fn update(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Unary(wish): Unary<UpdateRequest>,
) -> Result<Json<Empty>, RpcError> {
    let sandbox = select::reach(&app, &caller, &ids).await?;
    match (wish.process.find(&sandbox).await?, wish.pty) {
        (_, None) => {}
        (Selected::Process { .. }, Some(_)) => {
            return Err(RpcError::invalid("the process has no PTY"));
        }
        (Selected::Pty { session, .. }, Some(pty)) => {
            pty::resize(&sandbox, &session, pty.size).await?;
        }
    }
    Ok(Json(Empty {}))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SignalRequest {
    process: Selector,
    signal: Value,
}

/// Sends SIGTERM to a process, or kills it with everything that it started.
pub(super) async fn signal(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Unary(wish): Unary<SignalRequest>,
) -> Result<Json<Empty>, RpcError> {
    let number = match &wish.signal {
        Value::String(name) if name == "SIGNAL_SIGTERM" => TERM,
        Value::String(name) if name == "SIGNAL_SIGKILL" => KILL,
        Value::Number(number) if number.as_i64() == Some(TERM.into()) => TERM,
        Value::Number(number) if number.as_i64() == Some(KILL.into()) => KILL,
        _ => return Err(RpcError::invalid("signal: SIGNAL_SIGTERM or SIGNAL_SIGKILL")),
    };
    let sandbox = select::reach(&app, &caller, &ids).await?;
    match wish.process.find(&sandbox).await? {
        Selected::Process { id, .. } => {
            sandbox.process_signal(&id, number, number == KILL).await?;
        }
        Selected::Pty { session, .. } => pty::kill(&sandbox, &session).await?,
    }
    Ok(Json(Empty {}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_keeps_its_spaces() {
        let config = ConfigView::of_line("/bin/bash -l -c sleep 10; echo a");
        assert_eq!(config.cmd, "/bin/bash");
        assert_eq!(config.args, ["-l", "-c", "sleep 10; echo a"]);
        assert!(ConfigView::of_line("true").args.is_empty());
    }
}
