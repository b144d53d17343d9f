//! `isolet exec`: runs a command, streams its output, and exits with its exit code.
//!
//! The exit codes follow `docker exec` and `timeout`: 124 timed out, 125 refused by this program or
//! the server, 126 cannot be executed, 127 not found, 128+N killed by signal N.

mod input;

use super::args::units::timeout_ms;
use super::events::{SseEvent, SseEvents};
use super::network::refusals;
use super::output::{print_message, write};
use super::server_error::{ServerError, exit_code_of_unstarted};
use super::{ApiClient, id, to_exit_code, variable};
use crate::client::args::complete;
use anyhow::{Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Parser;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// The exit code after a timeout.
const TIMED_OUT: i64 = 124;

/// Arguments of `isolet exec`.
#[derive(Parser)]
#[command(
    override_usage = "isolet exec [OPTIONS] <ID> [--] <COMMAND>...",
    after_help = "\
One word is a command line for bash. Several words are a program and its arguments; options after
the first word belong to the program. Each command starts in /workspace with a fresh environment, like
`docker exec`; in the shell of a --session, directory and variables stay between commands.

  isolet exec demo 'cd /tmp && ls | wc -l'
  isolet exec demo ls -la /workspace
  isolet exec demo --session dev 'cd /tmp; X=42'
  isolet exec demo --session dev 'pwd; echo $X'       prints /tmp and 42
  isolet exec demo -i 'tar -xzf -' <project.tar.gz    passes standard input

Exits with the exit code of the command; 124: timed out, 125: refused by the server or by this
program, 126: cannot be executed, 127: not found, 128+N: killed by signal N."
)]
pub(crate) struct Args {
    /// Sandbox to use; created if it does not exist
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    /// Run in the shell of this session, with its directory and variables
    #[arg(long, short, value_parser = crate::client::session_id, add = complete::sessions())]
    session: Option<String>,
    /// Run in this directory
    #[arg(long, short = 'w', visible_alias = "workdir", value_name = "DIR")]
    cwd: Option<String>,
    /// Set an environment variable. Repeatable
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Kill the command after this time (500ms, 90s, 10m); 0 means never
    #[arg(long, value_name = "TIME", value_parser = timeout_ms)]
    timeout: Option<u64>,
    /// Pass standard input to the command, as it arrives and without a limit
    #[arg(long, short = 'i', visible_alias = "interactive")]
    stdin: bool,
    /// Not supported by `exec`; use `isolet attach` for a TTY
    #[arg(long, short, hide = true)]
    tty: bool,
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
    let Some(word) = args.command.first().cloned() else { bail!("a command is missing") };
    let id = args.id.clone();
    if args.tty {
        bail!("exec does not support a TTY; leave -t out, or use `isolet attach {id}`");
    }
    if word.starts_with('-') && !escaped(&args.command) {
        bail!(
            "unknown option {word}; if it is the command, use: isolet exec {id} -- {word}; see `isolet exec --help`"
        );
    }
    if args.stdin {
        return input::run(args).await;
    }
    let session = args.session.clone();
    let (path, body) = request(args)?;
    match answered(&path, &body, &id, session.as_deref()).await {
        Ok(code) => Ok(to_exit_code(code)),
        Err(error) => exit_code_of_unstarted(error),
    }
}

/// Whether a `--` precedes the command; then its first word is never an option of `exec`.
fn escaped(command: &[String]) -> bool {
    let count = std::env::args_os().filter(|arg| arg == "--").count();
    count > command.iter().filter(|word| *word == "--").count()
}

/// Sends the request, writes the output, and returns the exit code.
async fn answered(path: &str, body: &Value, id: &str, session: Option<&str>) -> Result<i64> {
    let server = ApiClient::find()?;
    let accept = "text/event-stream; encoding=base64";
    let answer = server.send(Method::POST, path, accept, Some(body)).await?;
    let mut events = SseEvents::new(answer.into_body());
    loop {
        match events.next().await {
            Ok(Some(event)) => {
                if let Some(code) = heard(&event, id)? {
                    return Ok(code);
                }
            }
            Ok(None) => bail!("{}: the server has stopped", lost(id, session)),
            Err(error) => return Err(error.context(lost(id, session))),
        }
    }
}

/// The error for a connection that ended before the command.
fn lost(id: &str, session: Option<&str>) -> String {
    let end = "the connection ended before the command; its exit code is unknown";
    match session {
        None => format!("sandbox {id}: {end}"),
        Some(session) => format!(
            "sandbox {id}: {end}; the command keeps running, and `isolet logs {id} --session {session}` shows its output"
        ),
    }
}

fn request(args: Args) -> Result<(String, Value)> {
    let mut body = Map::new();
    let several = args.command.len() > 1;
    match &args.session {
        None if several => body.insert("argv".into(), json!(args.command)),
        None => body.insert("command".into(), json!(args.command[0])),
        Some(_) if several => body.insert("command".into(), json!(quoted(&args.command))),
        Some(_) => body.insert("command".into(), json!(args.command[0])),
    };
    if let Some(cwd) = args.cwd {
        body.insert("cwd".into(), json!(cwd));
    }
    if !args.env.is_empty() {
        let env: Map<String, Value> =
            args.env.into_iter().map(|(name, value)| (name, value.into())).collect();
        body.insert("env".into(), env.into());
    }
    if let Some(timeout) = args.timeout {
        body.insert("timeout_ms".into(), json!(timeout));
    }
    if args.session.is_some() {
        // Ctrl-C and a closed output cancel the command.
        body.insert("cancel_on_close".into(), json!(true));
    }
    let path = match args.session {
        None => format!("/v1/sandboxes/{}/exec", args.id),
        Some(session) => format!("/v1/sandboxes/{}/sessions/{session}/exec", args.id),
    };
    Ok((path, body.into()))
}

/// Quotes words as one command line.
fn quoted(words: &[String]) -> String {
    let words: Vec<String> =
        words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    words.join(" ")
}

/// Writes the output of an event. Returns the exit code after the last one.
fn heard(event: &SseEvent, id: &str) -> Result<Option<i64>> {
    let name = event.name.as_str();
    let data = &event.data;
    match name {
        "stdout" | "stderr" => {
            let bytes = STANDARD.decode(data["data_b64"].as_str().unwrap_or_default())?;
            write(name == "stdout", &bytes)?;
        }
        "gap" => print_message(format_args!(
            "{} bytes of {} were lost because they were not read in time",
            data["to"].as_u64().unwrap_or(0).saturating_sub(data["from"].as_u64().unwrap_or(0)),
            data["stream"].as_str().unwrap_or("output")
        )),
        "error" => return Err(ServerError::from_event(data, id).into()),
        "exit" => {
            return Ok(Some(ended(data, id, data["exit_code"].as_i64())));
        }
        _ => {}
    }
    Ok(None)
}

/// Reports how a command ended. Returns its exit code.
fn ended(data: &Value, id: &str, code: Option<i64>) -> i64 {
    refusals(data, id);
    if data["oom"] == true {
        print_message(format_args!(
            "sandbox {id} ran out of memory (raise memory_mib when you create it)"
        ));
    }
    if data["timed_out"] == true {
        print_message(format_args!("sandbox {id}: the command timed out (see --timeout)"));
        return TIMED_OUT;
    }
    code.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_keep_their_meaning() {
        let words = ["a b", "it's", "$x"].map(str::to_owned);
        assert_eq!(quoted(&words), r"'a b' 'it'\''s' '$x'");
    }
}
