//! `isolet terminals`: lists the open terminals of a sandbox with their clients.

use crate::client::args::complete;
use crate::client::args::format::OutputFormat;
use crate::client::list::{pretty, span, text};
use crate::client::output::{print_message, supports_color, write};
use crate::client::{ApiClient, id};
use anyhow::Result;
use clap::Parser;
use hyper::Method;
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;

/// The longest command in the table, in characters.
const COMMAND_CHARS_MAX: usize = 32;

/// Arguments of `isolet terminals`.
#[derive(Parser)]
#[command(after_help = "\
A terminal runs from its first attach until its program ends, with or without attached clients.

  isolet terminals demo
  isolet terminals demo --json | jq -r '.[].session'
  isolet attach demo --session NAME     attach to one")]
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
    let (list, _) = server.json(Method::GET, &format!("/v1/sandboxes/{id}/terminals")).await?;
    if args.format.is_json() {
        return pretty(&list);
    }
    let all = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        print_message(format_args!(
            "no open terminals in sandbox {id}; open one with `isolet attach {id}`"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    write(true, table(all, supports_color(&std::io::stdout())).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn table(all: &[Value], colours: bool) -> String {
    let width = all.iter().filter_map(|one| one["session"].as_str()).map(str::len).max();
    let width = width.unwrap_or(0).max("SESSION".len());
    let head = format!(
        "{:<width$}  {:>7}  {:>9}  {:>5}  {:>6}  COMMAND",
        "SESSION", "CLIENTS", "SIZE", "AGE", "PID"
    );
    let mut table = if colours { format!("\x1b[1m{head}\x1b[0m\n") } else { head + "\n" };
    for one in all {
        let clients = match &one["clients"] {
            Value::Array(clients) => clients.len() as u64,
            other => other.as_u64().unwrap_or(0),
        };
        let command: Vec<String> =
            one["command"].as_array().into_iter().flatten().map(text).collect();
        let _ = writeln!(
            table,
            "{:<width$}  {clients:>7}  {:>9}  {:>5}  {:>6}  {}",
            text(&one["session"]),
            format!("{}x{}", one["cols"], one["rows"]),
            span(one["age_ms"].as_u64().unwrap_or(0) / 1000),
            text(&one["pid"]),
            shown(&command.join(" "), &text(&one["title"])),
        );
    }
    table
}

/// The command, and the title if a program set one.
fn shown(command: &str, title: &str) -> String {
    let mut shown: String = command.chars().take(COMMAND_CHARS_MAX).collect();
    if command.chars().count() > COMMAND_CHARS_MAX {
        shown.push('…');
    }
    if !title.is_empty() && title != "null" {
        let _ = write!(shown, " ({title})");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::table;
    use serde_json::json;

    #[test]
    fn a_title_cannot_draw_on_the_terminal() {
        let one = json!({"session": "default", "clients": [{}, {}], "cols": 80, "rows": 24,
                         "age_ms": 61_000, "pid": 7, "command": ["bash", "-l"],
                         "title": "a\u{1b}]0;b\u{7}"});
        let table = table(&[one], false);
        assert!(
            table.ends_with(
                "default        2      80x24     1m       7  bash -l (a\u{FFFD}]0;b\u{FFFD})\n"
            ),
            "{table}"
        );
    }
}
