//! `run_in_session`: a command in the shell of a session.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::swerex::error::SwerexError;
use crate::dialects::swerex::sessions::existing;
use crate::foundation::error::ApiError;
use crate::foundation::input::{PathIds, TIMEOUT_MS_MAX};
use crate::foundation::json::StrictJson;
use crate::foundation::json_text::{self, OutputText};
use crate::stream::captured_output::{CapturedOutput, OUTPUT_BYTES};
use crate::stream::command::{RunningCommand, ShellCommand};
use axum::extract::State;
use axum::response::Response;
use isolet_sandbox::service::Access;
use isolet_sandbox::{Argv, CommandText, Program, ProgramSpec, Sandbox, SessionId};
use isolet_wire::response::CommandExit;
use serde::{Deserialize, Serialize};

/// What SWE-ReX's shells have as their prompt: the text that ended a command.
const PROMPT: &str = "SHELLPS1PREFIX";
/// How much of a command an error message repeats, in characters.
const SHOWN_LETTERS_MAX: usize = 1000;
/// How long bash may take to check the syntax of a command, in ms.
const SYNTAX_TIMEOUT_MS: u64 = 10_000;

/// What the client does with exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Check {
    Silent,
    #[default]
    Raise,
    Ignore,
}

/// What a request does in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
enum ActionType {
    #[default]
    #[serde(rename = "bash")]
    Bash,
    #[serde(rename = "bash_interrupt")]
    BashInterrupt,
}

/// A command, or an interruption.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct Action {
    action_type: ActionType,
    command: String,
    session: String,
    /// In seconds.
    timeout: Option<f64>,
    is_interactive_command: bool,
    is_interactive_quit: bool,
    check: Check,
    error_msg: String,
    expect: Vec<String>,
}

impl Default for Action {
    fn default() -> Self {
        Self {
            action_type: ActionType::Bash,
            command: String::new(),
            session: "default".to_owned(),
            timeout: None,
            is_interactive_command: false,
            is_interactive_quit: false,
            check: Check::Raise,
            error_msg: String::new(),
            expect: Vec::new(),
        }
    }
}

/// What a command has written, and how it ended.
#[derive(Serialize)]
struct Observation<'a> {
    output: OutputText<'a>,
    exit_code: Option<i32>,
    failure_reason: &'static str,
    expect_string: &'static str,
    session_type: &'static str,
}

/// What sourcing the startup files has written.
#[derive(Serialize)]
struct Created<'a> {
    output: OutputText<'a>,
    session_type: &'static str,
}

/// A command that ended.
pub(super) struct Finished {
    pub(super) exit: CommandExit,
    pub(super) output: CapturedOutput,
}

/// Converts a timeout in seconds. `None` becomes 0, which stands for no timeout.
pub(super) fn timeout_ms(seconds: Option<f64>) -> Result<u64, ApiError> {
    let Some(seconds) = seconds else { return Ok(0) };
    let ms = (seconds * 1000.0).ceil();
    if !(0.0..=TIMEOUT_MS_MAX as f64).contains(&ms) {
        return Err(ApiError::bad_field("timeout", "must be 0 to 86400 seconds (a day)"));
    }
    Ok((ms as u64).max(1))
}

pub(super) fn shown(command: &str) -> String {
    command.chars().take(SHOWN_LETTERS_MAX).collect()
}

/// The answer for a new session.
pub(super) fn created(output: &str) -> Response {
    json_text::response(&Created { output: output.into(), session_type: "bash" }, output.len())
}

/// Runs a command in a session and captures what it writes.
pub(super) async fn in_session(
    app: &App,
    caller: &Caller,
    sandbox: &Sandbox,
    session: &SessionId,
    command: ShellCommand,
) -> Result<Finished, SwerexError> {
    let command = RunningCommand::in_session(sandbox, session, command).await?;
    Ok(finish(app, caller, command).await?)
}

/// Runs a program and captures what it writes.
pub(super) async fn program(
    app: &App,
    caller: &Caller,
    sandbox: &Sandbox,
    start: ProgramSpec,
    stdin: Option<Vec<u8>>,
) -> Result<Finished, ApiError> {
    let command = RunningCommand::start_program(sandbox, start, stdin).await?;
    finish(app, caller, command).await
}

/// Waits for the end of a command.
async fn finish(app: &App, caller: &Caller, command: RunningCommand) -> Result<Finished, ApiError> {
    let captured = CapturedOutput::new(OUTPUT_BYTES, app.response_memory.share(&caller.tenant));
    let cancellation = app.cancellations.subscribe(caller);
    let done = command.finish(captured, cancellation).await?;
    Ok(Finished { exit: done.exit, output: done.output })
}

/// Runs a command in a session. Its standard error is part of its output, as on a terminal.
pub(super) async fn run(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<Action>,
) -> Result<Response, SwerexError> {
    let action = body.value;
    let timeout_ms = timeout_ms(action.timeout)?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let session = existing(&sandbox, &action.session)?;
    if action.action_type == ActionType::BashInterrupt {
        // Its command has ended: with its timeout, or when the client left.
        return Ok(observed("", Some(0)));
    }
    if action.is_interactive_command || action.is_interactive_quit {
        let message = "interactive commands are not supported: run the program with its input, \
                       or use a terminal of the sandbox";
        return Err(SwerexError::unsupported(message));
    }
    if !action.expect.is_empty() {
        return Err(SwerexError::unsupported(
            "expect is not supported: run the command to its end",
        ));
    }
    check_syntax(&app, &caller, &sandbox, &action.command).await?;
    let command = ShellCommand {
        text: CommandText::parse(action.command.clone())?,
        timeout_ms: Some(timeout_ms),
        merge: true,
        ends_with_client: true,
        ..ShellCommand::default()
    };
    let Finished { exit, output } = in_session(&app, &caller, &sandbox, &session, command).await?;
    answer(&action, &exit, &output)
}

fn answer(
    action: &Action,
    exit: &CommandExit,
    output: &CapturedOutput,
) -> Result<Response, SwerexError> {
    let command = shown(&action.command);
    if exit.timed_out {
        let seconds = action.timeout.unwrap_or_default();
        let message = format!("timeout after {seconds} seconds while running command '{command}'");
        return Err(SwerexError::timeout(message));
    }
    let [text, _] = output.texts();
    if action.check == Check::Raise && exit.code != 0 {
        let code = exit.code;
        let written = shown(&text.0);
        let failed = format!(
            "Command '{command}' failed with exit code {code}. Here is the output:\n'{written}'"
        );
        return Err(SwerexError::failed(explained(&action.error_msg, failed)));
    }
    Ok(observed(&text.0, (action.check != Check::Ignore).then_some(exit.code)))
}

/// Puts the client's own words before a message.
pub(super) fn explained(error_msg: &str, message: String) -> String {
    if error_msg.is_empty() { message } else { format!("{error_msg}: {message}") }
}

fn observed(output: &str, exit_code: Option<i32>) -> Response {
    let observation = Observation {
        output: output.into(),
        exit_code,
        failure_reason: "",
        expect_string: PROMPT,
        session_type: "bash",
    };
    json_text::response(&observation, output.len())
}

/// Refuses a command that bash cannot parse, of which the shell would run the first lines. Without
/// bash in the sandbox nothing is checked.
async fn check_syntax(
    app: &App,
    caller: &Caller,
    sandbox: &Sandbox,
    command: &str,
) -> Result<(), SwerexError> {
    let words = ["bash", "-n"].map(str::to_owned).to_vec();
    let start = ProgramSpec {
        program: Program::Argv(Argv::parse(words)?),
        timeout_ms: SYNTAX_TIMEOUT_MS,
        ..ProgramSpec::default()
    };
    // bash reads the command, so that it may be longer than an argument.
    let stdin = Some(command.as_bytes().to_vec());
    let Finished { exit, output } = match program(app, caller, sandbox, start, stdin).await {
        Ok(finished) => finished,
        Err(error) if error.code == "not_found" => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // What ended bash says nothing about the command.
    if exit.code == 0 || exit.timed_out || exit.signal.is_some() {
        return Ok(());
    }
    let [stdout, stderr] = output.texts().map(|text| text.0.into_owned());
    let message = format!(
        "Error (exit code {}) while checking bash command \n'{}'\n---- Stderr ----\n{stderr}",
        exit.code,
        shown(command)
    );
    Err(SwerexError::syntax(message, stdout, stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_seconds() {
        assert_eq!(timeout_ms(None).unwrap(), 0);
        assert_eq!(timeout_ms(Some(0.0)).unwrap(), 1, "0 would stand for no timeout");
        assert_eq!(timeout_ms(Some(0.1)).unwrap(), 100);
        assert_eq!(timeout_ms(Some(86_400.0)).unwrap(), TIMEOUT_MS_MAX);
        for bad in [-1.0, 86_401.0, f64::NAN, f64::INFINITY] {
            assert!(timeout_ms(Some(bad)).is_err(), "{bad}");
        }
    }
}
