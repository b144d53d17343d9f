//! `isolet image commit`: makes an image from a snapshot or a sandbox.

use crate::client::ApiClient;
use crate::client::list::{pretty, text};
use crate::client::output::{print_message, write};
use anyhow::{Context, Result};
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Warnings that are printed.
const SHOWN_MAX: usize = 10;

/// What becomes part of the image besides the root file system.
pub(super) struct CommitParts {
    pub(super) workspace: bool,
    pub(super) env: bool,
    pub(super) shells: bool,
}

pub(super) async fn run(
    server: &ApiClient,
    snapshot: Option<String>,
    sandbox: Option<String>,
    name: &str,
    parts: CommitParts,
    json: bool,
) -> Result<ExitCode> {
    let (snapshot, is_temporary) = match (snapshot, sandbox) {
        (Some(snapshot), _) => (snapshot, false),
        (None, sandbox) => {
            let sandbox = sandbox.context("no sandbox")?;
            let path = format!("/v1/sandboxes/{sandbox}/snapshots");
            let taken = asked(server, &path, &json!({"ttl_s": TEMPORARY_S})).await?;
            (text(&taken["id"]), true)
        }
    };
    let body = json!({
        "snapshot": snapshot, "name": name, "workspace": parts.workspace, "env": parts.env,
        "shells": parts.shells,
    });
    let made = asked(server, "/v1/images", &body).await;
    if is_temporary {
        let path = format!("/v1/snapshots/{snapshot}");
        if let Err(error) = server.send(Method::DELETE, &path, "application/json", None).await {
            print_message(format_args!("snapshot {snapshot} is not deleted: {error}"));
        }
    }
    let made = made?;
    if json {
        return pretty(&made);
    }
    write(true, format!("{}\n", text(&made["digest"])).as_bytes())?;
    warn(&made);
    Ok(ExitCode::SUCCESS)
}

/// Lifetime of the snapshot of a sandbox in seconds, if this command cannot delete it.
const TEMPORARY_S: u64 = 3600;

async fn asked(server: &ApiClient, path: &str, body: &Value) -> Result<Value> {
    let answer = server.send(Method::POST, path, "application/json", Some(body)).await?;
    Ok(serde_json::from_slice(&answer.collect().await?.to_bytes())?)
}

/// Lists the files that usually hold secrets.
fn warn(made: &Value) {
    let total = made["warnings_total"].as_u64().unwrap_or(0);
    if total == 0 {
        return;
    }
    print_message(format_args!(
        "{total} files in the image usually hold secrets; delete them in the sandbox and commit again if they do:"
    ));
    for one in made["warnings"].as_array().into_iter().flatten().take(SHOWN_MAX) {
        print_message(format_args!("  {} ({})", text(&one["path"]), text(&one["kind"])));
    }
    if total > SHOWN_MAX as u64 {
        print_message(format_args!("  and {} more; see --json", total - SHOWN_MAX as u64));
    }
}
