//! `isolet kill`: ends processes with all their descendants, or sends them a signal.

use super::{path, state};
use crate::client::args::complete;
use crate::client::args::units::milliseconds;
use crate::client::output::print_message;
use crate::client::server_error::ServerError;
use crate::client::{ApiClient, id};
use anyhow::{Result, bail};
use clap::Parser;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// The longest grace period, in milliseconds.
const GRACE_MS_MAX: u64 = 60_000;

/// Arguments of `isolet kill`.
#[derive(Parser)]
#[command(after_help = "\
All descendants of a process get the signal; those that still run after the grace period are killed, and
the command returns when nothing is left. Continues if one process cannot be ended, and exits with 1 then.

  isolet kill demo web
  isolet kill demo web build --signal KILL
  isolet kill demo web --rm                   also free its id and delete its log
  isolet kill demo web --only --signal HUP    only send the signal")]
pub(crate) struct Args {
    /// Id of the sandbox
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    /// Ids of the processes to end
    #[arg(required = true, value_parser = super::id, value_name = "PROCESS", add = complete::processes())]
    processes: Vec<String>,
    /// Send this signal first: a name or a number
    #[arg(long, short, default_value = "TERM")]
    signal: String,
    /// Kill what still runs after this time (500ms, 10s)
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = milliseconds)]
    grace: u64,
    /// Only send the signal to their process groups
    #[arg(long, conflicts_with_all = ["grace", "rm"])]
    only: bool,
    /// Also free their ids and delete their logs
    #[arg(long)]
    rm: bool,
}

/// Runs `isolet kill`. Continues if one process cannot be ended.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if args.grace > GRACE_MS_MAX {
        bail!("--grace must be at most {} seconds", GRACE_MS_MAX / 1000);
    }
    let server = ApiClient::find()?;
    let mut code = ExitCode::SUCCESS;
    for process in &args.processes {
        if let Err(error) = one(&server, &args, process).await {
            if !error.is::<ServerError>() {
                return Err(error
                    .context(format!("process {process} of sandbox {} was not ended", args.id)));
            }
            print_message(error);
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

async fn one(server: &ApiClient, args: &Args, process: &str) -> Result<()> {
    let which = (args.id.as_str(), process);
    // A number is sent as a number.
    let signal = args.signal.parse::<i32>().map_or_else(|_| json!(args.signal), |n| json!(n));
    if args.only {
        let body = json!({ "signal": signal });
        server.send(Method::POST, &path(which, "/signal"), "*/*", Some(&body)).await?;
        return Ok(());
    }
    let body = json!({ "signal": signal, "grace_ms": args.grace });
    let path_of_kill = path(which, "/kill");
    let answer = server.send(Method::POST, &path_of_kill, "application/json", Some(&body)).await?;
    let bytes = answer.into_body().collect().await?.to_bytes();
    let ended: Value = serde_json::from_slice(&bytes)?;
    if args.rm {
        server.send(Method::DELETE, &path(which, ""), "*/*", None).await?;
    }
    print_message(format_args!("{process}: {}", state(&ended)));
    Ok(())
}
