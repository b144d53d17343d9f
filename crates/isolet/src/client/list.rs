//! `isolet ls` and `info`.

use super::args::filter::{Filter, filter, passes};
use super::args::format::OutputFormat;
use super::output::{print_message, sanitize, supports_color, write};
use super::{ApiClient, id};
use crate::client::args::complete;
use anyhow::Result;
use clap::Parser;
use hyper::Method;
use isolet_clock::now_ms;
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;

/// Arguments of `isolet ls`.
#[derive(Parser)]
#[command(after_help = "\
Colours are written to a terminal only, and never if NO_COLOR is set.

  isolet ls
  isolet ls --filter state=running --filter 'id=build-*'
  isolet ls -q --filter state=failed | xargs -r isolet recover
  isolet ls --output json | jq -r '.[] | select(.memory_mib > 1024).id'")]
pub(crate) struct ListArgs {
    /// Print ids only
    #[arg(long, short)]
    quiet: bool,
    /// List only sandboxes that match: id=, state=, image=, network=, class= or metadata.NAME=, with *
    /// for any text. Repeatable: filters of one name are alternatives, those of several must all match
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = filter)]
    filter: Vec<Filter>,
    #[command(flatten)]
    format: OutputFormat,
}

/// Arguments of `isolet info`.
#[derive(Parser)]
#[command(after_help = "\
Shows its limits, its usage and its sessions.

  isolet info demo
  isolet info demo --output json | jq .usage.memory_bytes")]
pub(crate) struct InfoArgs {
    /// Id of the sandbox
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    #[command(flatten)]
    format: OutputFormat,
}

pub(crate) async fn list(args: ListArgs) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let all = sandboxes(&server, &args.filter).await?;
    if args.quiet {
        let ids: Vec<String> = all.iter().map(|one| text(&one["id"])).collect();
        if args.format.is_json() {
            return pretty(&ids);
        }
        let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
        write(true, lines.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.format.is_json() {
        return pretty(&all);
    }
    if all.is_empty() && !args.filter.is_empty() {
        print_message("no sandbox matches the filter; `isolet ls` lists all");
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        print_message("no sandboxes; create one with `isolet shell demo`");
        return Ok(ExitCode::SUCCESS);
    }
    write(true, table(&all, supports_color(&std::io::stdout())).as_bytes())?;
    if all.iter().any(outdated) {
        print_message(format_args!(
            "{OUTDATED}: the agent of an earlier version; it is replaced when the sandbox sleeps and wakes"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The sandboxes of the tenant that pass the filters.
pub(super) async fn sandboxes(server: &ApiClient, filters: &[Filter]) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    let mut next = Some("/v1/sandboxes?limit=1000".to_owned());
    while let Some(path) = next {
        let (page, link) = server.json(Method::GET, &path).await?;
        let page = page.as_array().cloned().unwrap_or_default();
        all.extend(page.into_iter().filter(|one| passes(filters, one)));
        next = link;
    }
    Ok(all)
}

/// Prints a value as JSON.
pub(crate) fn pretty<T: serde::Serialize>(value: &T) -> Result<ExitCode> {
    write(true, format!("{}\n", serde_json::to_string_pretty(value)?).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// All sandboxes as a table.
fn table(all: &[Value], colours: bool) -> String {
    let paint = |text: String, colour: &str| match colours {
        true => format!("\x1b[{colour}m{text}\x1b[0m"),
        false => text,
    };
    let width = all.iter().filter_map(|one| one["id"].as_str()).map(str::len).max();
    let width = width.unwrap_or(0).max(2);
    let head = format!(
        "{:<width$}  {:<9} {:>6} {:>10} {:>6}  IMAGE",
        "ID", "STATE", "AGE", "MEMORY", "CPU"
    );
    let mut table = paint(head, "1") + "\n";
    for one in all {
        let state = text(&one["state"]);
        let colour = match state.as_str() {
            "running" => "32",
            "failed" => "31",
            _ => "33",
        };
        let _ = writeln!(
            table,
            "{:<width$}  {} {:>6} {:>6} MiB {:>6}  {}{}",
            text(&one["id"]),
            paint(format!("{state:<9}"), colour),
            age(one["created_at_ms"].as_i64()),
            one["memory_mib"],
            one["cpu_millis"].as_f64().unwrap_or_default() / 1000.0,
            text(&one["image"]),
            if outdated(one) { format!("  {OUTDATED}") } else { String::new() },
        );
    }
    table
}

/// The mark of a sandbox whose agent is older than the server.
const OUTDATED: &str = "(old agent)";

fn outdated(sandbox: &Value) -> bool {
    sandbox["agent_outdated"] == true
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), sanitize)
}

fn age(created_ms: Option<i64>) -> String {
    let age_ms = now_ms().saturating_sub(created_ms.unwrap_or_default().max(0));
    span(u64::try_from(age_ms / 1000).unwrap_or(0))
}

/// Formats seconds for people.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

pub(crate) async fn info(args: InfoArgs) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let (info, _) = server.json(Method::GET, &format!("/v1/sandboxes/{}", args.id)).await?;
    if args.format.is_json() {
        return pretty(&info);
    }
    let (sessions, _) =
        server.json(Method::GET, &format!("/v1/sandboxes/{}/sessions", args.id)).await?;
    let mut lines = String::new();
    show(&mut lines, "", &info);
    for session in sessions.as_array().into_iter().flatten() {
        let state = if session["busy"] == true { "busy" } else { "idle" };
        let id = text(&session["id"]);
        let cwd = text(&session["cwd"]);
        let _ = writeln!(lines, "{:<18} {id} ({state}, {cwd})", "session");
    }
    write(true, lines.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn show(lines: &mut String, before: &str, value: &Value) {
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                show(lines, &format!("{before}{name}."), value);
            }
            Value::Object(_) | Value::Null => {}
            other => {
                let name = format!("{before}{name}");
                let _ = writeln!(lines, "{name:<18} {}", text(other));
            }
        }
    }
}
