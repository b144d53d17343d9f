//! `isolet mcp`: the tools of the Model Context Protocol for one agent, on standard input and output.

use super::{Server, id};
use anyhow::Result;
use bytes::Bytes;
use clap::Parser;
use hyper::{Request, Response, http::Extensions};
use isolet_mcp::{Api, ApiFuture};
use std::{process::ExitCode, sync::Arc};

/// The largest answer that a tool reads: outputs of a MiB each, written as JSON.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Flags of `isolet mcp`.
#[derive(Parser)]
#[command(after_help = "\
An agent starts it and talks to it; nothing is printed for people. Its shell stays as long as the
agent holds the connection, and ends with it; the sandbox and its files stay.

  claude mcp add isolet -- isolet mcp --sandbox demo

  {\"mcpServers\": {\"isolet\": {\"command\": \"isolet\", \"args\": [\"mcp\", \"--sandbox\", \"demo\"],
    \"env\": {\"ISOLET_API_KEY\": \"...\"}}}}

The server itself speaks the same by HTTP, at /mcp (and /mcp?sandbox=demo).")]
pub(crate) struct Args {
    /// The sandbox that is meant where the agent names none
    #[arg(long, default_value = "default", value_parser = id)]
    sandbox: String,
}

/// A server, reached by its address.
struct Outside(Server);

impl Api for Outside {
    fn call<'a>(&'a self, request: Request<Bytes>, _: Extensions) -> ApiFuture<'a> {
        Box::pin(async move {
            let response: Result<Response<Bytes>> = self.0.pass(request, ANSWER_BYTES_MAX).await;
            response.map_err(|error| format!("{error:#}"))
        })
    }
}

/// Serves until standard input ends.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let api = Arc::new(Outside(Server::find()?));
    isolet_mcp::serve(api, Some(args.sandbox)).await?;
    Ok(ExitCode::SUCCESS)
}
