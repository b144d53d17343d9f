//! `isolet ps`: lists the processes of a sandbox.

use super::state;
use crate::client::args::complete;
use crate::client::args::format::OutputFormat;
use crate::client::list::{pretty, span, text};
use crate::client::output::{print_message, supports_color, write};
use crate::client::{ApiClient, id};
use anyhow::Result;
use clap::Parser;
use hyper::Method;
use isolet_clock::now_ms;
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;

/// The longest command in the table, in characters.
const COMMAND_CHARS_MAX: usize = 40;

/// Arguments of `isolet ps`.
#[derive(Parser)]
#[command(after_help = "\
Lists running processes, the last 128 that ended, and those that were lost when the sandbox went to
sleep. Background jobs of a shell (`&`) are not included.

  isolet ps demo
  isolet ps demo --json | jq -r '.[] | select(.status == \"running\").id'
  isolet logs demo web --follow         follow the output of a process
  isolet kill demo web                  end it with all its descendants")]
pub(crate) struct Args {
    /// Id of the sandbox
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    #[command(flatten)]
    format: OutputFormat,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let id = &args.id;
    let server = ApiClient::find()?;
    let (list, _) = server.json(Method::GET, &format!("/v1/sandboxes/{id}/processes")).await?;
    if args.format.is_json() {
        return pretty(&list);
    }
    let all = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        print_message(format_args!(
            "no processes in sandbox {id}; start one with `isolet start {id} COMMAND`"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    write(true, table(all, now_ms(), supports_color(&std::io::stdout())).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn table(all: &[Value], now_ms: i64, colours: bool) -> String {
    let paint = |text: String, colour: &str| match colours {
        true => format!("\x1b[{colour}m{text}\x1b[0m"),
        false => text,
    };
    let rows: Vec<(String, String)> =
        all.iter().map(|one| (text(&one["id"]), state(one))).collect();
    let width = |of: fn(&(String, String)) -> &String, least: usize| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0).max(least)
    };
    let ids = width(|row| &row.0, 2);
    let states = width(|row| &row.1, 5);
    let head = format!(
        "{:<ids$}  {:<states$}  {:>7}  {:>5}  {:>9}  COMMAND",
        "ID", "STATE", "PID", "AGE", "OUTPUT"
    );
    let mut table = paint(head, "1") + "\n";
    for (one, (id, state)) in all.iter().zip(rows) {
        let colour = match (one["status"].as_str(), one["exit_code"].as_i64()) {
            (Some("running"), _) => "32",
            (Some("exited"), Some(0)) => "2",
            _ => "31",
        };
        let age = now_ms.saturating_sub(one["started_at_ms"].as_i64().unwrap_or(now_ms)) / 1000;
        let pid = one["pid"].as_i64().map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let _ = writeln!(
            table,
            "{id:<ids$}  {}  {pid:>7}  {:>5}  {:>9}  {}",
            paint(format!("{state:<states$}"), colour),
            span(u64::try_from(age).unwrap_or(0)),
            size(one["position"].as_u64().unwrap_or(0)),
            short(&text(&one["command"])),
        );
    }
    table
}

/// Formats bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

fn short(command: &str) -> String {
    match command.char_indices().nth(COMMAND_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::table;
    use serde_json::json;

    #[test]
    fn a_command_cannot_draw_on_the_terminal_and_columns_stand_below_each_other() {
        let one = json!({"id": "web", "status": "running", "pid": 7, "started_at_ms": 1000,
                         "position": 12_345, "command": "a\u{1b}]0;b\u{7}"});
        let two = json!({"id": "b", "status": "lost", "pid": null, "started_at_ms": 61_000,
                         "position": 0, "command": "x".repeat(100)});
        let table = table(&[one, two], 62_000, false);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[1], "web  running        7     1m      12 kB  a\u{FFFD}]0;b\u{FFFD}");
        assert!(lines[2].starts_with("b    lost           -     1s        0 B  xxxx"), "{table}");
        assert!(lines[2].ends_with('…'), "{table}");
        assert_eq!(lines[0].find("COMMAND"), lines[1].find("a\u{FFFD}"));
    }
}
