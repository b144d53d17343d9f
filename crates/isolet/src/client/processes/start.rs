//! `isolet start`: starts a program in the background.

use super::{path, state};
use crate::client::args::complete;
use crate::client::args::format::OutputFormat;
use crate::client::args::units::{milliseconds, timeout_ms};
use crate::client::list::{pretty, text};
use crate::client::output::{print_message, write};
use crate::client::{ApiClient, id, variable};
use anyhow::{Result, bail};
use clap::Parser;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// The longest `--wait`, in milliseconds.
const WAIT_MS_MAX: u64 = 600_000;

/// Arguments of `isolet start`.
#[derive(Parser)]
#[command(
    override_usage = "isolet start [OPTIONS] <ID> [--] <COMMAND>...",
    after_help = "\
One word is a command line for bash. Several words are a program and its arguments. The process keeps
running after this command returns. Prints the id of the process.

  isolet start demo --id web -- python3 -m http.server 8000
  isolet start demo --id web --port 8000 'npm start'    wait until the port answers
  isolet start demo --line 'ready in' 'npm run dev'     wait for a line of output
  isolet logs demo web --follow
  isolet forward demo 8000
  isolet kill demo web

With --port or --line, exits with 1 if the condition is not met within --wait; the process keeps
running then."
)]
pub(crate) struct Args {
    /// Sandbox to use; created if it does not exist
    #[arg(value_parser = id, add = complete::sandboxes())]
    sandbox: String,
    /// Set the id of the process [default: generated]
    #[arg(long, value_parser = super::id, value_name = "PROCESS")]
    id: Option<String>,
    /// Use the directory and environment of this session
    #[arg(long, short, value_parser = crate::client::session_id, add = complete::sessions())]
    session: Option<String>,
    /// Run in this directory
    #[arg(long, short = 'w', visible_alias = "workdir", value_name = "DIR")]
    cwd: Option<String>,
    /// Set an environment variable. Repeatable
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Kill the process and its descendants after this time (90s, 10m); 0 means never
    #[arg(long, value_name = "TIME", value_parser = timeout_ms)]
    timeout: Option<u64>,
    /// Wait until a program accepts connections on this port of the sandbox
    #[arg(long, value_name = "PORT", conflicts_with = "line", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Wait for a line of output that contains this text
    #[arg(long, value_name = "TEXT")]
    line: Option<String>,
    /// Wait at most this long (30s, 2m)
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = milliseconds)]
    wait: u64,
    #[command(flatten)]
    format: OutputFormat,
    /// Command line, or program and arguments
    #[arg(
        required = true,
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<String>,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let sandbox = args.sandbox.as_str();
    let start = begin(&args)?;
    let wait = awaited(&args)?;
    let server = ApiClient::find()?;
    let all = format!("/v1/sandboxes/{sandbox}/processes");
    let mut process = post(&server, &all, &start).await?;
    let name = text(&process["id"]);
    let mut code = ExitCode::SUCCESS;
    if let Some((wait, condition)) = wait {
        print_message(format_args!("{name} has started; waiting for {condition}"));
        let waited = post(&server, &path((sandbox, &name), "/wait"), &wait).await?;
        process = waited["process"].clone();
        if waited["outcome"] != "met" {
            code = ExitCode::FAILURE;
            print_message(format_args!(
                "{condition} did not appear in time; {name} is {}; see its output with: isolet logs {sandbox} {name}",
                state(&process)
            ));
        }
    }
    match args.format.is_json() {
        true => drop(pretty(&process)?),
        false => write(true, format!("{name}\n").as_bytes())?,
    }
    Ok(code)
}

async fn post(server: &ApiClient, path: &str, body: &Value) -> Result<Value> {
    let answer = server.send(Method::POST, path, "application/json", Some(body)).await?;
    Ok(serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?)
}

/// The body of the request.
fn begin(args: &Args) -> Result<Value> {
    let mut body = Map::new();
    match args.command.as_slice() {
        [one] => body.insert("command".into(), json!(one)),
        several => body.insert("argv".into(), json!(several)),
    };
    for (name, value) in [("id", &args.id), ("session", &args.session), ("cwd", &args.cwd)] {
        if let Some(value) = value {
            body.insert(name.into(), json!(value));
        }
    }
    let env: Map<String, Value> =
        args.env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    body.insert("env".into(), env.into());
    if let Some(timeout) = args.timeout {
        body.insert("timeout_ms".into(), json!(timeout));
    }
    Ok(body.into())
}

/// The condition to wait for, and its description.
fn awaited(args: &Args) -> Result<Option<(Value, String)>> {
    if !(1..=WAIT_MS_MAX).contains(&args.wait) {
        bail!("--wait must be 1ms to {} seconds", WAIT_MS_MAX / 1000);
    }
    let timeout_ms = args.wait;
    Ok(match (args.port, &args.line) {
        (Some(port), _) => Some((
            json!({"port": {"port": port}, "timeout_ms": timeout_ms}),
            format!("port {port}"),
        )),
        (None, Some(line)) => Some((
            json!({"log": {"text": line}, "timeout_ms": timeout_ms}),
            format!("a line with {line:?}"),
        )),
        (None, None) => None,
    })
}
