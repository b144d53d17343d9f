//! `isolet exec`: a command, its output as it happens, its exit code.
//!
//! Exit codes as `docker exec` and `timeout` have them: 124 its time was over, 125 refused by this
//! program or the server, 126 cannot be executed, 127 not found, 128 and the signal that ended it.

use super::{
    Server,
    events::{Event, Events},
    id,
    network::refusals,
    output::{print_message, write},
    server_error::{ServerError, exit_code_of_unstarted},
    to_exit_code, variable,
};
use anyhow::{Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Parser;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::{io::Read, process::ExitCode};

/// The most standard input that a command can be given, in bytes.
const STDIN_BYTES_MAX: u64 = 1024 * 1024;

/// What it ends with when the command's time was over.
const TIMED_OUT: i64 = 124;

/// Flags of `isolet exec`.
#[derive(Parser)]
#[command(
    override_usage = "isolet exec [OPTIONS] <ID> [--] <COMMAND>...",
    after_help = "\
One word is a command line for bash; several are a program and its arguments. What follows the
command's first word belongs to it, dashes and all.

  isolet exec demo 'cd /tmp && ls | wc -l'
  isolet exec demo ls -la /workspace
  isolet exec demo --session build 'make -j2'      in a shell that stays
  echo hello | isolet exec demo --stdin cat

It ends with the command's exit code; 124: its time was over, 125: refused by the server or by this
program, 126: cannot be executed, 127: not found, 128+N: ended by signal N."
)]
pub(crate) struct Args {
    /// Which sandbox; made where it is not there
    #[arg(value_parser = id)]
    id: String,
    /// In this session's shell, with its directory and variables
    #[arg(long, short, value_parser = crate::client::session_id)]
    session: Option<String>,
    /// Where it runs
    #[arg(long, short = 'w', visible_alias = "workdir", value_name = "DIR")]
    cwd: Option<String>,
    /// A variable for it; may be given again
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Ended after so many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Give it this command's standard input (at most 1 MiB)
    #[arg(long, short = 'i')]
    stdin: bool,
    /// A terminal, which is not to be had
    #[arg(long, short, hide = true)]
    tty: bool,
    /// What to run
    #[arg(
        required = true,
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<String>,
}

/// Carries out `isolet exec`.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let Some(word) = args.command.first().cloned() else { bail!("name a command") };
    let id = args.id.clone();
    if args.tty {
        bail!("exec gives no terminal; without -t it runs, and `isolet attach {id}` is a terminal");
    }
    if word.starts_with('-') && !escaped(&args.command) {
        bail!(
            "unknown option {word}; if it is the command, write: isolet exec {id} -- {word}; see `isolet exec --help`"
        );
    }
    let session = args.session.clone();
    let (path, body) = request(args)?;
    match answered(&path, &body, &id, session.as_deref()).await {
        Ok(code) => Ok(to_exit_code(code)),
        Err(error) => exit_code_of_unstarted(error),
    }
}

/// Whether a `--` stood before the command: then its first word is what it is.
fn escaped(command: &[String]) -> bool {
    let count = std::env::args_os().filter(|arg| arg == "--").count();
    count > command.iter().filter(|word| *word == "--").count()
}

/// Sends the request and writes what comes on, up to the exit code.
async fn answered(path: &str, body: &Value, id: &str, session: Option<&str>) -> Result<i64> {
    let server = Server::find()?;
    let accept = "text/event-stream; encoding=base64";
    let answer = server.send(Method::POST, path, accept, Some(body)).await?;
    let mut events = Events::new(answer.into_body());
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

/// What is not known when the connection ends before the command does.
fn lost(id: &str, session: Option<&str>) -> String {
    let end = "the command has not ended; its exit code is not known";
    match session {
        None => format!("sandbox {id}: {end}"),
        Some(session) => format!(
            "sandbox {id}: {end}; it goes on, and `isolet logs {id} --session {session}` shows what it says"
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
    if let Some(seconds) = args.timeout {
        if !(0.0..=86_400.0).contains(&seconds) {
            bail!("--timeout: 0 (never) to 86400 seconds");
        }
        body.insert("timeout_ms".into(), json!((seconds * 1000.0).ceil() as u64));
    }
    if args.stdin {
        let mut bytes = Vec::new();
        std::io::stdin().take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > STDIN_BYTES_MAX {
            bail!("--stdin takes at most 1 MiB; write a file in the sandbox instead");
        }
        body.insert("stdin_b64".into(), json!(STANDARD.encode(bytes)));
    }
    if args.session.is_some() {
        // Who presses Ctrl-C, or stops reading, means the command.
        body.insert("cancel_on_close".into(), json!(true));
    }
    let path = match args.session {
        None => format!("/v1/sandboxes/{}/exec", args.id),
        Some(session) => format!("/v1/sandboxes/{}/sessions/{session}/exec", args.id),
    };
    Ok((path, body.into()))
}

/// Words as one command line.
fn quoted(words: &[String]) -> String {
    let words: Vec<String> =
        words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    words.join(" ")
}

/// Writes one event on; the exit code when it was the last.
fn heard(event: &Event, id: &str) -> Result<Option<i64>> {
    let name = event.name.as_str();
    let data = &event.data;
    match name {
        "stdout" | "stderr" => {
            let bytes = STANDARD.decode(data["data_b64"].as_str().unwrap_or_default())?;
            write(name == "stdout", &bytes)?;
        }
        "gap" => print_message(format_args!(
            "{} bytes of {} were not read in time and are lost",
            data["to"].as_u64().unwrap_or(0).saturating_sub(data["from"].as_u64().unwrap_or(0)),
            data["stream"].as_str().unwrap_or("output")
        )),
        "error" => return Err(ServerError::from_event(data, id).into()),
        "exit" => {
            refusals(data, id);
            if data["oom"] == true {
                print_message(format_args!(
                    "sandbox {id} ran out of memory (memory_mib sets its limit when it is made)"
                ));
            }
            if data["timed_out"] == true {
                print_message(format_args!(
                    "sandbox {id}: the command's time was over (see --timeout)"
                ));
                return Ok(Some(TIMED_OUT));
            }
            return Ok(Some(data["exit_code"].as_i64().unwrap_or(1)));
        }
        _ => {}
    }
    Ok(None)
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
