//! `isolet wake`: starts sleeping sandboxes, and says what the sleep ended.

use crate::client::args::complete;
use crate::client::args::format::OutputFormat;
use crate::client::list::pretty;
use crate::client::output::{print_message, write};
use crate::client::server_error::ServerError;
use crate::client::{ApiClient, id};
use anyhow::{Context, Result};
use clap::Parser;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Arguments of `isolet wake`.
#[derive(Parser)]
#[command(after_help = "\
Any command wakes a sleeping sandbox; `wake` does only that, and names what the sleep ended. A running
sandbox stays as it is. `isolet resume` continues a paused one. Continues if one sandbox cannot be woken,
and exits with 1 then.

  isolet wake demo
  isolet ls -q --filter state=sleeping | xargs -r isolet wake")]
pub(crate) struct Args {
    /// Ids of the sandboxes
    #[arg(required = true, value_parser = id, add = complete::sandboxes())]
    ids: Vec<String>,
    #[command(flatten)]
    format: OutputFormat,
}

/// Continues if one sandbox cannot be woken.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let mut all = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for id in args.ids {
        match wake(&server, &id).await {
            Ok(woken) => all.push(woken),
            Err(error) if error.is::<ServerError>() => {
                print_message(error);
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error.context(format!("sandbox {id} was not woken"))),
        }
    }
    if args.format.is_json() {
        pretty(&all)?;
    } else {
        let lines: String = all.iter().map(super::recover::describe).collect();
        write(true, lines.as_bytes())?;
    }
    Ok(code)
}

/// Runs an empty command: the API wakes a sandbox when a call works in it. Returns its record, with what the
/// sleep ended in `lost`.
async fn wake(server: &ApiClient, id: &str) -> Result<Value> {
    let path = format!("/v1/sandboxes/{id}");
    // A missing sandbox must not be created.
    let (record, _) = server.json(Method::GET, &path).await?;
    if record["state"] == "running" {
        return Ok(record);
    }
    let exec = format!("{path}/exec");
    let body = json!({"command": ":"});
    let answer = server.send(Method::POST, &exec, "application/json", Some(&body)).await?;
    let bytes = answer.into_body().collect().await?.to_bytes();
    let ran: Value = serde_json::from_slice(&bytes).context("the server's response is not JSON")?;
    let (mut record, _) = server.json(Method::GET, &path).await?;
    for name in ["lost", "lost_state"] {
        if ran[name].is_array() {
            record[name] = ran[name].clone();
        }
    }
    Ok(record)
}
