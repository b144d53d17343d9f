//! One bash a client, that stays.

use crate::{api_path, server::Server, tool_result};
use http::Method;
use rmcp::{
    RoleServer,
    handler::server::wrapper::Parameters,
    model::CallToolResult,
    schemars::{self, JsonSchema},
    service::RequestContext,
    tool, tool_router,
};
use serde::Deserialize;
use serde_json::json;

/// Kept of each stream unless told, in bytes: what a model can read.
const OUTPUT_BYTES: u64 = 64 * 1024;
/// The same at most.
const OUTPUT_BYTES_MAX: u64 = 1024 * 1024;
/// How long a command may take unless told, in ms: clients wait for about as long.
const TIMEOUT_MS: u64 = 120_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    /// The text, as it would be typed.
    command: String,
    /// The sandbox's id; the connection's own sandbox unless given.
    sandbox: Option<String>,
    /// Another shell than the connection's own: two shells run two commands at once.
    shell: Option<String>,
    /// What it reads from its standard input; end of file at once otherwise.
    stdin: Option<String>,
    /// Interrupted after so many ms; 120000 unless given, 0 never.
    timeout_ms: Option<u64>,
    /// Kept of each stream, in bytes; 65536 unless given, at most 1048576.
    max_output_bytes: Option<u64>,
}

#[tool_router(router = shell, vis = "pub(crate)")]
impl Server {
    #[tool(
        description = "Run a command in a bash that stays: directory, variables, functions and background jobs are kept for the next call. Answers with its output and exit code. A command that takes longer than its timeout is interrupted and the shell stays; servers and long work are for process_start.",
        annotations(destructive_hint = true, open_world_hint = true)
    )]
    async fn shell_run(
        &self,
        Parameters(line): Parameters<Line>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let timeout_ms = line.timeout_ms.unwrap_or(TIMEOUT_MS);
        let api = self.api_call(&context).within(timeout_ms);
        let sandbox = api.sandbox(line.sandbox);
        let shell = line.shell.unwrap_or_else(|| api.shell(&sandbox));
        let mut body = json!({
            "command": line.command,
            "timeout_ms": timeout_ms,
            "max_output_bytes": line.max_output_bytes.unwrap_or(OUTPUT_BYTES).min(OUTPUT_BYTES_MAX),
            "cancel_on_close": true,
        });
        if let Some(stdin) = line.stdin {
            body["stdin"] = stdin.into();
        }
        let path =
            format!("{}/sessions/{}/exec", api_path::sandbox(&sandbox), api_path::part(&shell));
        let answered = api.json(Method::POST, path, Some(&body)).await;
        answered.map_or_else(|refusal| refusal, tool_result::command)
    }
}
