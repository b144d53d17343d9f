//! `execute`: a program without a session, like Python's `subprocess.run`.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::swerex::error::SwerexError;
use crate::dialects::swerex::run::{self, Finished, explained, shown};
use crate::foundation::input::{self, PathIds};
use crate::foundation::json::{StrictJson, UniqueMap};
use crate::foundation::json_text::{self, OutputText};
use axum::extract::State;
use axum::response::Response;
use isolet_sandbox::service::Access;
use isolet_sandbox::{Argv, EnvironmentChange, Program, ProgramSpec};
use serde::{Deserialize, Serialize};

/// Runs its arguments with one stream for both outputs.
const MERGED: &str = "exec 2>&1; exec \"$@\"";

/// A command line, or a program and its arguments.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    All(Vec<String>),
}

/// A program to run.
#[derive(Debug, Deserialize)]
pub(super) struct Command {
    command: Words,
    /// In seconds.
    #[serde(default)]
    timeout: Option<f64>,
    #[serde(default)]
    shell: bool,
    #[serde(default)]
    check: bool,
    #[serde(default)]
    error_msg: String,
    #[serde(default)]
    env: Option<UniqueMap<String>>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    merge_output_streams: bool,
}

#[derive(Serialize)]
struct CommandResponse<'a> {
    stdout: OutputText<'a>,
    stderr: OutputText<'a>,
    exit_code: i32,
}

impl Command {
    /// The program and its arguments, as `subprocess.run` would start them.
    fn argv(&self) -> Vec<String> {
        let mut words = match &self.command {
            Words::One(one) => vec![one.clone()],
            Words::All(all) => all.clone(),
        };
        if self.shell {
            words.splice(0..0, ["/bin/sh", "-c"].map(str::to_owned));
        }
        if self.merge_output_streams {
            words.splice(0..0, ["/bin/sh", "-c", MERGED, "sh"].map(str::to_owned));
        }
        words
    }

    fn name(&self) -> String {
        match &self.command {
            Words::One(one) => shown(one),
            Words::All(all) => shown(&all.join(" ")),
        }
    }
}

/// Runs a program to its end.
pub(super) async fn execute(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<Command>,
) -> Result<Response, SwerexError> {
    let command = body.value;
    let name = command.name();
    let env = command.env.as_ref().map(|env| env.0.clone()).unwrap_or_default();
    let env = env.into_iter().map(|(name, value)| (name, Some(value))).collect();
    let start = ProgramSpec {
        program: Program::Argv(Argv::parse(command.argv())?),
        cwd: input::cwd(command.cwd.clone())?,
        env: EnvironmentChange::parse(env)?,
        timeout_ms: run::timeout_ms(command.timeout)?,
        ..ProgramSpec::default()
    };
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let finished = run::program(&app, &caller, &sandbox, start, None).await;
    let Finished { exit, output } = finished.map_err(|error| SwerexError::about(&name, error))?;
    if exit.timed_out {
        let seconds = command.timeout.unwrap_or_default();
        let message = format!("Timeout ({seconds}s) exceeded while running command");
        return Err(SwerexError::timeout(message));
    }
    // Python reports a signal as a negative number.
    let exit_code = exit.signal.map_or(exit.code, |signal| -signal);
    let [stdout, stderr] = output.texts();
    if command.check && exit_code != 0 {
        let out = shown(&stdout.0);
        let err = shown(&stderr.0);
        let failed = format!(
            "Command '{name}' failed with exit code {exit_code}. Stdout:\n'{out}'\nStderr:\n'{err}'"
        );
        return Err(SwerexError::failed(explained(&command.error_msg, failed)));
    }
    let length = stdout.0.len() + stderr.0.len();
    Ok(json_text::response(&CommandResponse { stdout, stderr, exit_code }, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(json: &str) -> Vec<String> {
        serde_json::from_str::<Command>(json).unwrap().argv()
    }

    #[test]
    fn commands_are_started_as_by_subprocess() {
        assert_eq!(argv(r#"{"command": ["echo", "a b"]}"#), ["echo", "a b"]);
        assert_eq!(argv(r#"{"command": "a b", "shell": true}"#), ["/bin/sh", "-c", "a b"]);
        assert_eq!(argv(r#"{"command": "a b"}"#), ["a b"], "the name of a program");
        let merged = argv(r#"{"command": ["a", "b"], "merge_output_streams": true}"#);
        assert_eq!(merged, ["/bin/sh", "-c", MERGED, "sh", "a", "b"]);
    }
}
