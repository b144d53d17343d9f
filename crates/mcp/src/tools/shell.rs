//! A persistent bash per client.

use crate::server::McpServer;
use crate::{api_path, tool_result};
use http::Method;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::CallToolResult;
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use serde::Deserialize;
use serde_json::json;

/// Default limit on the output per stream, in bytes: as much as a model can read.
const OUTPUT_BYTES: u64 = 64 * 1024;
/// Maximum of that limit.
const OUTPUT_BYTES_MAX: u64 = 1024 * 1024;
/// Default timeout of a command in ms: about as long as clients wait.
const TIMEOUT_MS: u64 = 120_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunArgs {
    /// Shell command.
    command: String,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
    /// Id of another session than the connection's own. Different sessions run commands at the same
    /// time.
    session: Option<String>,
    /// Standard input; empty by default.
    stdin: Option<String>,
    /// Timeout in ms, after which the command is interrupted; 120000 by default; 0 disables it.
    timeout_ms: Option<u64>,
    /// Limit on the returned output per stream, in bytes; 65536 by default, at most 1048576.
    max_bytes: Option<u64>,
}

#[tool_router(router = shell, vis = "pub(crate)")]
impl McpServer {
    #[tool(
        description = "Run a command in a persistent bash: working directory, variables, functions and background jobs persist for the next call. Returns output and exit code. The timeout interrupts the command but not the shell. Use process_start for servers and long tasks.",
        annotations(destructive_hint = true, open_world_hint = true)
    )]
    async fn shell_run(
        &self,
        Parameters(args): Parameters<RunArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let timeout_ms = args.timeout_ms.unwrap_or(TIMEOUT_MS);
        let api = self.api_call(&context).within(timeout_ms);
        let sandbox = api.sandbox(args.sandbox);
        let session = args.session.unwrap_or_else(|| api.shell(&sandbox));
        let mut body = json!({
            "command": args.command,
            "timeout_ms": timeout_ms,
            "max_output_bytes": args.max_bytes.unwrap_or(OUTPUT_BYTES).min(OUTPUT_BYTES_MAX),
            "cancel_on_close": true,
        });
        if let Some(stdin) = args.stdin {
            body["stdin"] = stdin.into();
        }
        let path =
            format!("{}/sessions/{}/exec", api_path::sandbox(&sandbox), api_path::part(&session));
        let answered = api.json(Method::POST, path, Some(&body)).await;
        answered.map_or_else(|error| error, tool_result::command)
    }
}
