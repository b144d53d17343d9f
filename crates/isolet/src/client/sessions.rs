//! `isolet sessions`: lists the sessions of a sandbox, and deletes some.

use super::args::complete;
use super::args::format::OutputFormat;
use super::list::{pretty, span, text};
use super::output::{print_message, supports_color, write};
use super::server_error::ServerError;
use super::{ApiClient, id, session_id};
use anyhow::Result;
use clap::Parser;
use hyper::Method;
use isolet_clock::now_ms;
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;

/// Arguments of `isolet sessions`.
#[derive(Parser)]
#[command(after_help = "\
A session has one persistent shell: its directory, variables, functions and background jobs stay between
commands. `exec`, `shell`, `attach` and `start` create the session that --session names.

  isolet exec demo --session dev 'cd /tmp; X=42'
  isolet sessions demo
  isolet sessions demo --rm dev           end its shell, and delete it
  isolet sessions demo -q                 print ids only")]
pub(crate) struct Args {
    /// Id of the sandbox
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    /// Delete this session with everything that runs in it. Repeatable
    #[arg(long, value_name = "SESSION", value_parser = session_id, add = complete::sessions())]
    rm: Vec<String>,
    /// Print ids only
    #[arg(long, short, conflicts_with = "rm")]
    quiet: bool,
    #[command(flatten)]
    format: OutputFormat,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let path = format!("/v1/sandboxes/{}/sessions", args.id);
    if !args.rm.is_empty() {
        return remove(&server, &path, &args.rm).await;
    }
    let (list, _) = server.json(Method::GET, &path).await?;
    if args.format.is_json() && !args.quiet {
        return pretty(&list);
    }
    let all = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let ids: Vec<String> = all.iter().map(|one| text(&one["id"])).collect();
    if args.format.is_json() {
        return pretty(&ids);
    }
    let lines = match args.quiet {
        true => ids.iter().map(|id| format!("{id}\n")).collect(),
        false => table(all, now_ms(), supports_color(&std::io::stdout())),
    };
    write(true, lines.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Continues if one session cannot be deleted.
async fn remove(server: &ApiClient, path: &str, sessions: &[String]) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for session in sessions {
        let path = format!("{path}/{session}");
        match server.send(Method::DELETE, &path, "application/json", None).await {
            Ok(_) => {}
            Err(error) if error.is::<ServerError>() => {
                print_message(error);
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error.context(format!("session {session} was not deleted"))),
        }
    }
    Ok(code)
}

fn table(all: &[Value], now_ms: i64, colours: bool) -> String {
    let width = all.iter().filter_map(|one| one["id"].as_str()).map(str::len).max();
    let width = width.unwrap_or(0).max("SESSION".len());
    let head = format!(
        "{:<width$}  {:<5}  {:>5}  {:>7}  {:<8}  DIRECTORY",
        "SESSION", "STATE", "AGE", "SHELL", "TERMINAL"
    );
    let mut table = if colours { format!("\x1b[1m{head}\x1b[0m\n") } else { head + "\n" };
    for one in all {
        let age = now_ms.saturating_sub(one["created_at_ms"].as_i64().unwrap_or(now_ms)) / 1000;
        let _ = writeln!(
            table,
            "{:<width$}  {:<5}  {:>5}  {:>7}  {:<8}  {}",
            text(&one["id"]),
            if one["busy"] == true { "busy" } else { "idle" },
            span(u64::try_from(age).unwrap_or(0)),
            one["shell_pid"].as_i64().map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            if one["terminal"] == true { "open" } else { "-" },
            text(&one["cwd"]),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::table;
    use serde_json::json;

    #[test]
    fn columns_stand_below_each_other_and_a_directory_cannot_draw() {
        let one = json!({"id": "default", "busy": false, "created_at_ms": 0, "shell_pid": null,
                         "terminal": false, "cwd": "/workspace"});
        let two = json!({"id": "dev", "busy": true, "created_at_ms": 60_000, "shell_pid": 42,
                         "terminal": true, "cwd": "/a\u{1b}b"});
        assert_eq!(
            table(&[one, two], 120_000, false),
            "SESSION  STATE    AGE    SHELL  TERMINAL  DIRECTORY\n\
             default  idle      2m        -  -         /workspace\n\
             dev      busy      1m       42  open      /a\u{FFFD}b\n"
        );
    }
}
