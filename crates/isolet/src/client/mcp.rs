//! `isolet mcp`: an MCP server for one agent, on standard input and output.

use super::{ApiClient, id};
use anyhow::Result;
use bytes::Bytes;
use clap::Parser;
use hyper::http::Extensions;
use hyper::{Request, Response};
use isolet_mcp::{Api, ApiFuture};
use std::process::ExitCode;
use std::sync::Arc;

/// The largest response that a tool reads, in bytes: several outputs of 1 MiB, as JSON.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Arguments of `isolet mcp`.
#[derive(Parser)]
#[command(after_help = "\
An agent starts this command and exchanges messages with it. The shell stays open while the agent
keeps the connection open; the sandbox and its files stay afterwards.

  claude mcp add isolet -- isolet mcp --sandbox demo

  {\"mcpServers\": {\"isolet\": {\"command\": \"isolet\", \"args\": [\"mcp\", \"--sandbox\", \"demo\"],
    \"env\": {\"ISOLET_API_KEY\": \"...\"}}}}

The server offers the same tools over HTTP at /mcp (and /mcp?sandbox=demo).")]
pub(crate) struct Args {
    /// Use this sandbox if the agent names none
    #[arg(long, default_value = "default", value_parser = id)]
    sandbox: String,
}

/// The API of a server, called over HTTP.
struct Outside(ApiClient);

impl Api for Outside {
    fn call<'a>(&'a self, request: Request<Bytes>, _: Extensions) -> ApiFuture<'a> {
        Box::pin(async move {
            let response: Result<Response<Bytes>> = self.0.pass(request, ANSWER_BYTES_MAX).await;
            response.map_err(|error| format!("{error:#}"))
        })
    }
}

/// Runs `isolet mcp` until standard input ends.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let api = Arc::new(Outside(ApiClient::find()?));
    isolet_mcp::serve(api, Some(args.sandbox)).await?;
    Ok(ExitCode::SUCCESS)
}
