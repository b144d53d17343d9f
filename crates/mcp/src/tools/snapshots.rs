//! Tools for snapshots and forks, and for pausing sandboxes.

use crate::api_path;
use crate::server::McpServer;
use crate::tool_result::{self, ToolResult, success};
use crate::tools::sandboxes::SandboxArgs;
use http::Method;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::CallToolResult;
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotCreateArgs {
    /// Id of the sandbox; the connection's default sandbox if omitted.
    #[serde(skip_serializing)]
    sandbox: Option<String>,
    /// A name that can stand for the id, [A-Za-z0-9][A-Za-z0-9._-]{0,127}; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Lifetime in seconds, after which the server deletes the snapshot; 0 means unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_s: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotListArgs {
    /// Only the snapshots of the sandbox with this id; all by default.
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotArgs {
    /// Id or name of the snapshot.
    snapshot: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotRestoreArgs {
    /// Id or name of the snapshot.
    snapshot: String,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkArgs {
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
    /// How many copies to create, 1 to 100; 1 by default.
    count: Option<u32>,
}

#[tool_router(router = snapshots, vis = "pub(crate)")]
impl McpServer {
    #[tool(
        description = "Take a snapshot of a sandbox: its files and the state of its shells. Create sandboxes from it with `sandbox_create`, or go back to it with `snapshot_restore`. `lost` lists what it does not contain.",
        annotations(destructive_hint = false, open_world_hint = false)
    )]
    async fn snapshot_create(
        &self,
        Parameters(args): Parameters<SnapshotCreateArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let body = json!(args);
        let path = format!("{}/snapshots", api_path::sandbox(&api.sandbox(args.sandbox)));
        api.json(Method::POST, path, Some(&body))
            .await
            .map_or_else(|error| error, tool_result::data)
    }

    #[tool(
        description = "List snapshots, with the sandbox that each was taken of.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn snapshot_list(
        &self,
        Parameters(args): Parameters<SnapshotListArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let query = args.sandbox.map(|id| format!("?sandbox={}", api_path::part(&id)));
        let path = format!("/v1/snapshots{}", query.unwrap_or_default());
        let list = self.api_call(&context).json(Method::GET, path, None).await;
        list.map_or_else(|error| error, tool_result::data)
    }

    #[tool(
        description = "Delete a snapshot. Sandboxes that were created from it keep their files.",
        annotations(destructive_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn snapshot_delete(
        &self,
        Parameters(args): Parameters<SnapshotArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let path = format!("/v1/snapshots/{}", api_path::part(&args.snapshot));
        let done: ToolResult = async {
            self.api_call(&context).json(Method::DELETE, path, None).await?;
            Ok(success(format!("deleted snapshot {}", args.snapshot)))
        }
        .await;
        done.unwrap_or_else(|error| error)
    }

    #[tool(
        description = "Replace all files, sessions and shell state of a sandbox by those of a snapshot. Ends everything that runs in it; changes since the snapshot are lost. Id, links and network stay.",
        annotations(destructive_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn snapshot_restore(
        &self,
        Parameters(args): Parameters<SnapshotRestoreArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = format!("{}/restore", api_path::sandbox(&api.sandbox(args.sandbox)));
        let body = json!({"snapshot": args.snapshot});
        api.json(Method::POST, path, Some(&body))
            .await
            .map_or_else(|error| error, tool_result::data)
    }

    #[tool(
        description = "Create copies of a sandbox with new ids: its files, shell state and settings, without its processes. Creates all of them or none.",
        annotations(destructive_hint = false, open_world_hint = false)
    )]
    async fn sandbox_fork(
        &self,
        Parameters(args): Parameters<ForkArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = format!("{}/fork", api_path::sandbox(&api.sandbox(args.sandbox)));
        let body = json!({"count": args.count.unwrap_or(1)});
        api.json(Method::POST, path, Some(&body))
            .await
            .map_or_else(|error| error, tool_result::data)
    }

    #[tool(
        description = "Freeze all processes of a sandbox; they keep their memory. Other tools are refused until `sandbox_resume`.",
        annotations(destructive_hint = false, idempotent_hint = true, open_world_hint = false)
    )]
    async fn sandbox_pause(
        &self,
        Parameters(args): Parameters<SandboxArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        self.change_state(args, context, "pause").await
    }

    #[tool(
        description = "Let the processes of a paused sandbox continue.",
        annotations(destructive_hint = false, idempotent_hint = true, open_world_hint = false)
    )]
    async fn sandbox_resume(
        &self,
        Parameters(args): Parameters<SandboxArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        self.change_state(args, context, "resume").await
    }
}

impl McpServer {
    async fn change_state(
        &self,
        args: SandboxArgs,
        context: RequestContext<RoleServer>,
        change: &str,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = format!("{}/{change}", api_path::sandbox(&api.sandbox(args.sandbox)));
        api.json(Method::POST, path, None).await.map_or_else(|error| error, tool_result::data)
    }
}
