//! `isolet ls`, `rm` and `info`.

use super::{Server, id, plain};
use anyhow::Result;
use clap::Parser;
use hyper::Method;
use serde_json::Value;
use std::{
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

/// Flags of `isolet ls`.
#[derive(Parser)]
pub(crate) struct ListArgs {
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// Flags of `isolet rm`.
#[derive(Parser)]
#[command(after_help = "  isolet rm demo build-7")]
pub(crate) struct RemoveArgs {
    /// Which sandboxes
    #[arg(required = true, value_parser = id)]
    ids: Vec<String>,
}

/// Flags of `isolet info`.
#[derive(Parser)]
pub(crate) struct InfoArgs {
    /// Which sandbox
    #[arg(value_parser = id)]
    id: String,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// Lists all sandboxes.
pub(crate) async fn list(args: ListArgs) -> Result<ExitCode> {
    let server = Server::find()?;
    let (mut all, mut next) = (Vec::new(), Some("/v1/sandboxes?limit=1000".to_owned()));
    while let Some(path) = next {
        let (page, link) = server.json(Method::GET, &path).await?;
        all.extend(page.as_array().cloned().unwrap_or_default());
        next = link;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        eprintln!("no sandboxes; `isolet shell demo` makes one");
        return Ok(ExitCode::SUCCESS);
    }
    let width = all.iter().filter_map(|one| one["id"].as_str()).map(str::len).max().unwrap_or(2);
    println!("{:<width$}  {:<9} {:>6} {:>10} {:>6}  IMAGE", "ID", "STATE", "AGE", "MEMORY", "CPU");
    for one in &all {
        println!(
            "{:<width$}  {:<9} {:>6} {:>6} MiB {:>6}  {}",
            text(&one["id"]),
            text(&one["state"]),
            age(one["created_at_ms"].as_i64()),
            one["memory_mib"],
            one["cpu_millis"].as_f64().unwrap_or_default() / 1000.0,
            text(&one["image"]),
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), plain)
}

fn age(created_ms: Option<i64>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
    let created = u128::try_from(created_ms.unwrap_or_default()).unwrap_or_default();
    let seconds = now.saturating_sub(created) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Ends sandboxes; goes on with the next when one cannot be ended.
pub(crate) async fn remove(args: RemoveArgs) -> Result<ExitCode> {
    let server = Server::find()?;
    let mut code = ExitCode::SUCCESS;
    for id in args.ids {
        if let Err(error) = server.json(Method::DELETE, &format!("/v1/sandboxes/{id}")).await {
            eprintln!("isolet: {id}: {error:#}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Shows one sandbox.
pub(crate) async fn info(args: InfoArgs) -> Result<ExitCode> {
    let server = Server::find()?;
    let (info, _) = server.json(Method::GET, &format!("/v1/sandboxes/{}", args.id)).await?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&info)?);
        return Ok(ExitCode::SUCCESS);
    }
    let (sessions, _) =
        server.json(Method::GET, &format!("/v1/sandboxes/{}/sessions", args.id)).await?;
    show("", &info);
    for session in sessions.as_array().into_iter().flatten() {
        let state = if session["busy"] == true { "busy" } else { "idle" };
        println!("{:<18} {} ({state}, {})", "session", text(&session["id"]), text(&session["cwd"]));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(before: &str, value: &Value) {
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Object(inner) if !inner.is_empty() => show(&format!("{before}{name}."), value),
            Value::Object(_) | Value::Null => {}
            other => println!("{:<18} {}", format!("{before}{name}"), text(other)),
        }
    }
}
