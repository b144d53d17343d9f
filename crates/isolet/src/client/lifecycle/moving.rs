//! `isolet move`.

use crate::client::args::complete;
use crate::client::args::format::OutputFormat;
use crate::client::list::{pretty, text};
use crate::client::output::write;
use crate::client::{ApiClient, id};
use anyhow::{Context, Result};
use clap::Parser;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Arguments of `isolet move`.
#[derive(Parser)]
#[command(after_help = "\
In a fleet with an object store. The sandbox is copied while it runs, ends on its node, and continues on the
other one with its files, sessions, settings, links and credentials. Its processes end, and the next command
reports what is lost. A sandbox that is there already stays as it is.

  isolet move demo --node node-2
  isolet move demo --region eu")]
pub(crate) struct Args {
    /// Id of the sandbox
    #[arg(value_parser = id, add = complete::sandboxes())]
    id: String,
    /// Move it to this node
    #[arg(
        long,
        value_name = "NODE",
        required_unless_present = "region",
        conflicts_with = "region"
    )]
    node: Option<String>,
    /// Move it to a node of this region
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    #[command(flatten)]
    format: OutputFormat,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let body = match (&args.node, &args.region) {
        (Some(node), _) => json!({"node": node}),
        (None, region) => json!({"region": region}),
    };
    let path = format!("/v1/sandboxes/{}/move", args.id);
    let response = server.send(Method::POST, &path, "application/json", Some(&body)).await?;
    let body = response.into_body().collect().await?.to_bytes();
    let moved: Value =
        serde_json::from_slice(&body).context("the server's response is not JSON")?;
    if args.format.is_json() {
        return pretty(&moved);
    }
    let line = format!("{} is on node {}\n", text(&moved["id"]), text(&moved["node"]));
    write(true, line.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_target_is_needed() {
        let parse = |words: &[&str]| {
            let all = std::iter::once(&"move").chain(words);
            Args::try_parse_from(all).is_ok()
        };
        assert!(parse(&["demo", "--node", "b"]) && parse(&["demo", "--region", "eu"]));
        assert!(!parse(&["demo"]) && !parse(&["demo", "--node", "b", "--region", "eu"]));
    }
}
