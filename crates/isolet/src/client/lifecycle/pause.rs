//! `isolet pause` and `isolet resume`.

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
  isolet ls --json | jq -r '.[] | select(.state == \"running\").id' | xargs -r isolet pause")]
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

#[derive(Parser)]
struct Sandboxes {
    /// Ids of the sandboxes
    #[arg(required = true, value_parser = id)]
    ids: Vec<String>,
    /// Print JSON for scripts instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) async fn pause(args: PauseArgs) -> Result<ExitCode> {
    call_all(args.sandboxes, "pause").await
}

pub(crate) async fn resume(args: ResumeArgs) -> Result<ExitCode> {
    call_all(args.sandboxes, "resume").await
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
    if sandboxes.json {
        pretty(&all)?;
    } else {
        let lines: String = all.iter().map(describe).collect();
        write(true, lines.as_bytes())?;
    }
    Ok(code)
}

fn describe(sandbox: &Value) -> String {
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
        assert_eq!((args.sandboxes.ids.len(), args.sandboxes.json), (2, true));
    }

    #[test]
    fn the_text_names_the_state() {
        let paused = serde_json::json!({"id": "demo", "state": "paused"});
        assert_eq!(describe(&paused), "demo is paused\n");
    }
}
