//! `isolet node drain`.

use crate::client::ApiClient;
use crate::client::args::units::seconds;
use crate::client::list::{pretty, text};
use crate::client::output::print_message;
use anyhow::{Context, Result, bail};
use clap::Parser;
use http_body_util::BodyExt;
use hyper::Method;
use isolet_wire::node::NodeName;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// The time between two looks at the progress.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Arguments of `isolet node drain`.
#[derive(Parser)]
pub(super) struct Args {
    /// Name of the node
    #[arg(value_name = "NODE")]
    node: NodeName,
    /// Begin no further move after this time (such as 10m; without a unit in seconds), and exit with 1 if
    /// sandboxes are left
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    timeout: Option<u64>,
}

pub(super) async fn run(args: &Args, is_etcd: bool, json: bool) -> Result<ExitCode> {
    if is_etcd {
        bail!("a drain needs the server of the node; leave --etcd out");
    }
    let server = ApiClient::find()?;
    let path = format!("/v1/nodes/{}/drain", args.node);
    let body = args.timeout.map_or_else(|| json!({}), |seconds| json!({"timeout_s": seconds}));
    let mut progress = ask(&server, Method::POST, &path, Some(&body)).await?;
    let is_shown = !json && std::io::stderr().is_terminal();
    let mut shown = String::new();
    while progress["running"] == true {
        let line = describe(&progress);
        if is_shown && line != shown {
            print_message(&line);
            shown = line;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        progress = ask(&server, Method::GET, &path, None).await?;
    }
    if json {
        pretty(&progress)?;
    } else {
        print_message(describe(&progress));
        for left in progress["left"].as_array().into_iter().flatten() {
            let sandbox = text(&left["sandbox"]);
            let reason = text(&left["reason"]);
            print_message(format_args!("not moved: {sandbox}: {reason}"));
        }
    }
    let is_empty = progress["remaining"].as_u64() == Some(0);
    Ok(if is_empty { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn ask(
    server: &ApiClient,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value> {
    let response = server.send(method, path, "application/json", body).await?;
    let body = response.into_body().collect().await?.to_bytes();
    serde_json::from_slice(&body).context("the server's response is not JSON")
}

fn describe(progress: &Value) -> String {
    let number = |name: &str| progress[name].as_u64().unwrap_or(0);
    format!(
        "node {}: {} of {} sandboxes moved, {} only in the object store, {} left",
        text(&progress["node"]),
        number("moved"),
        number("total"),
        number("stored"),
        number("remaining"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_names_what_is_left() {
        let progress = json!({"node": "a", "total": 5, "moved": 2, "stored": 1, "remaining": 2});
        let said = "node a: 2 of 5 sandboxes moved, 1 only in the object store, 2 left";
        assert_eq!(describe(&progress), said);
    }
}
