//! `isolet pause`, `isolet resume` and `isolet sleep`.

use crate::client::args::complete;
use crate::client::args::format::OutputFormat;
use crate::client::list::{pretty, text};
use crate::client::output::{print_message, write};
use crate::client::server_error::ServerError;
use crate::client::{ApiClient, id};
use anyhow::Result;
use clap::Parser;
use hyper::Method;
use serde_json::Value;
use std::process::ExitCode;

/// Arguments of `isolet pause`.
#[derive(Parser)]
#[command(after_help = "\
All processes are frozen and keep their memory until the sandbox is resumed. Timeouts of commands do
not count the pause. Continues if one sandbox cannot be paused, and exits with 1 then.

  isolet pause demo
  isolet resume demo
  isolet ls -q --filter state=running | xargs -r isolet pause")]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    sandboxes: Sandboxes,
}

/// Arguments of `isolet resume`.
#[derive(Parser)]
#[command(after_help = "\
The processes continue where they were frozen. A running or sleeping sandbox stays as it is.
Continues if one sandbox cannot be resumed, and exits with 1 then.

  isolet resume demo
  isolet resume demo other --json | jq -r '.[].state'")]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    sandboxes: Sandboxes,
}

/// Arguments of `isolet sleep`.
#[derive(Parser)]
#[command(after_help = "\
Sleep ends all processes and frees their memory. Files and the state of shells (directory, variables,
functions) stay, and the next command wakes the sandbox. It is refused while a command runs or a client
is attached. To keep processes and their memory, use `isolet pause`. Continues if one sandbox cannot
sleep, and exits with 1 then.

  isolet sleep demo
  isolet wake demo
  isolet ls -q --filter state=running | xargs -r isolet sleep")]
pub(crate) struct SleepArgs {
    #[command(flatten)]
    sandboxes: Sandboxes,
}

#[derive(Parser)]
struct Sandboxes {
    /// Ids of the sandboxes
    #[arg(required = true, value_parser = id, add = complete::sandboxes())]
    ids: Vec<String>,
    #[command(flatten)]
    format: OutputFormat,
}

pub(crate) async fn pause(args: PauseArgs) -> Result<ExitCode> {
    call_all(args.sandboxes, "pause").await
}

pub(crate) async fn resume(args: ResumeArgs) -> Result<ExitCode> {
    call_all(args.sandboxes, "resume").await
}

pub(crate) async fn sleep(args: SleepArgs) -> Result<ExitCode> {
    call_all(args.sandboxes, "sleep").await
}

/// Continues if the call is refused for one sandbox.
async fn call_all(sandboxes: Sandboxes, call: &str) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let mut all = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for id in sandboxes.ids {
        match server.json(Method::POST, &format!("/v1/sandboxes/{id}/{call}")).await {
            Ok((sandbox, _)) => all.push(sandbox),
            Err(error) if error.is::<ServerError>() => {
                print_message(error);
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error.context(format!("{call} of sandbox {id} failed"))),
        }
    }
    if sandboxes.format.is_json() {
        pretty(&all)?;
    } else {
        let lines: String = all.iter().map(describe).collect();
        write(true, lines.as_bytes())?;
    }
    Ok(code)
}

pub(super) fn describe(sandbox: &Value) -> String {
    format!("{} is {}\n", text(&sandbox["id"]), text(&sandbox["state"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_one_id_is_needed() {
        assert!(PauseArgs::try_parse_from(["pause"]).is_err());
        assert!(ResumeArgs::try_parse_from(["resume", "a/b"]).is_err());
        let args = PauseArgs::try_parse_from(["pause", "a", "b", "--json"]).unwrap();
        assert_eq!((args.sandboxes.ids.len(), args.sandboxes.format.is_json()), (2, true));
    }

    #[test]
    fn the_text_names_the_state() {
        let paused = serde_json::json!({"id": "demo", "state": "paused"});
        assert_eq!(describe(&paused), "demo is paused\n");
    }
}
