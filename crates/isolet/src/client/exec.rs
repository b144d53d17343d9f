//! `isolet exec`: a command, its output as it happens, its exit code.

use super::{Server, exit, id, variable};
use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Parser;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::{
    io::{Read, Write},
    process::ExitCode,
};

/// The most standard input that a command can be given, in bytes.
const STDIN_BYTES_MAX: u64 = 1024 * 1024;

/// Flags of `isolet exec`.
#[derive(Parser)]
#[command(after_help = "\
One word behind `--` is a command line for bash; several are a program and its arguments.

  isolet exec demo -- 'cd /tmp && ls | wc -l'
  isolet exec demo -- python3 -c 'print(1)'
  isolet exec demo --session build -- 'make -j2'    in a shell that stays
  echo hello | isolet exec demo --stdin -- cat")]
pub(crate) struct Args {
    /// Which sandbox; made where it is not there
    #[arg(value_parser = id)]
    id: String,
    /// In this session's shell, with its directory and variables
    #[arg(long, short, value_parser = id)]
    session: Option<String>,
    /// Where it runs
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// A variable for it; may be given again
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Ended after so many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Give it this command's standard input (at most 1 MiB)
    #[arg(long)]
    stdin: bool,
    /// What to run
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Carries out `isolet exec`.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let (path, body) = request(args)?;
    let server = Server::find()?;
    let accept = "text/event-stream; encoding=base64";
    let mut answer = server.send(Method::POST, &path, accept, Some(&body)).await?.into_body();
    let mut held = Vec::new();
    while let Some(frame) = answer.frame().await {
        let frame = frame.context("the connection is lost; the exit code is not known")?;
        let Ok(bytes) = frame.into_data() else { continue };
        held.extend_from_slice(&bytes);
        let mut from = 0;
        while let Some(end) = held[from..].windows(2).position(|two| two == b"\n\n") {
            let event = String::from_utf8_lossy(&held[from..from + end]).into_owned();
            from += end + 2;
            if let Some(code) = heard(&event)? {
                return Ok(exit(code));
            }
        }
        held.drain(..from);
    }
    bail!("the server stopped before the command ended; the exit code is not known")
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
fn heard(event: &str) -> Result<Option<i64>> {
    let (mut name, mut data) = ("", "");
    for line in event.lines() {
        match line.split_once(": ") {
            Some(("event", value)) => name = value,
            Some(("data", value)) => data = value,
            _ => {}
        }
    }
    if name.is_empty() {
        return Ok(None);
    }
    let data: Value = serde_json::from_str(data).context("the server sent a malformed event")?;
    match name {
        "stdout" | "stderr" => {
            let bytes = STANDARD.decode(data["data_b64"].as_str().unwrap_or_default())?;
            write(name == "stdout", &bytes)?;
        }
        "gap" => eprintln!(
            "isolet: {} bytes of {} were not read in time and are lost",
            data["to"].as_u64().unwrap_or(0).saturating_sub(data["from"].as_u64().unwrap_or(0)),
            data["stream"].as_str().unwrap_or("output")
        ),
        "error" => bail!(
            "{} ({})",
            data["message"].as_str().unwrap_or("it failed"),
            data["hint"].as_str().unwrap_or("try again")
        ),
        "exit" => {
            if data["timed_out"] == true {
                eprintln!("isolet: its time was over");
            }
            if data["oom"] == true {
                eprintln!("isolet: the sandbox ran out of memory");
            }
            return Ok(Some(data["exit_code"].as_i64().unwrap_or(1)));
        }
        _ => {}
    }
    Ok(None)
}

/// To one of our own streams, at once.
pub(super) fn write(out: bool, bytes: &[u8]) -> Result<()> {
    if out {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()?;
    } else {
        std::io::stderr().lock().write_all(bytes)?;
    }
    Ok(())
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
