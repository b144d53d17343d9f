//! `isolet kill`: processes are ended with everything they started, or get a signal.

use super::{path, state};
use crate::client::{Server, id, output::print_message, server_error::ServerError};
use anyhow::{Result, bail};
use clap::Parser;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// The longest grace, in seconds.
const GRACE_S_MAX: f64 = 60.0;

/// Flags of `isolet kill`.
#[derive(Parser)]
#[command(after_help = "\
Everything that a process started gets the signal; what still runs after the grace is killed, and
the command ends when nothing is left. Goes on when one cannot be ended, and ends with 1 then.

  isolet kill demo web
  isolet kill demo web build --signal KILL
  isolet kill demo web --rm             and free its id: its log goes too
  isolet kill demo web --only --signal HUP    send the signal, end nothing")]
pub(crate) struct Args {
    /// Which sandbox
    #[arg(value_parser = id)]
    id: String,
    /// Which processes
    #[arg(required = true, value_parser = super::id, value_name = "PROCESS")]
    processes: Vec<String>,
    /// What they get first: a name or a number
    #[arg(long, short, default_value = "TERM")]
    signal: String,
    /// What still runs after so many seconds is killed
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    grace: f64,
    /// Send the signal to their process groups, and no more
    #[arg(long, conflicts_with_all = ["grace", "rm"])]
    only: bool,
    /// Forget them: their ids are free, their logs go
    #[arg(long)]
    rm: bool,
}

/// Carries out `isolet kill`; goes on with the next when one cannot be ended.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if !(0.0..=GRACE_S_MAX).contains(&args.grace) {
        bail!("--grace: 0 to {GRACE_S_MAX} seconds");
    }
    let server = Server::find()?;
    let mut code = ExitCode::SUCCESS;
    for process in &args.processes {
        if let Err(error) = one(&server, &args, process).await {
            if !error.is::<ServerError>() {
                return Err(error.context(format!("process {process} of {} is not ended", args.id)));
            }
            print_message(error);
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

async fn one(server: &Server, args: &Args, process: &str) -> Result<()> {
    let which = (args.id.as_str(), process);
    // A number stays one.
    let signal = args.signal.parse::<i32>().map_or_else(|_| json!(args.signal), |n| json!(n));
    if args.only {
        let body = json!({ "signal": signal });
        server.send(Method::POST, &path(which, "/signal"), "*/*", Some(&body)).await?;
        return Ok(());
    }
    let body = json!({ "signal": signal, "grace_ms": (args.grace * 1000.0).ceil() as u64 });
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
