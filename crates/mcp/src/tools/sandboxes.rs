//! Sandboxes: made, listed, looked at, ended.

use crate::{
    api_path,
    server::Server,
    tool_result::{self, ToolResult, success},
};
use http::Method;
use rmcp::{
    RoleServer,
    handler::server::wrapper::Parameters,
    model::CallToolResult,
    schemars::{self, JsonSchema},
    service::RequestContext,
    tool, tool_router,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    /// The sandbox's id; the connection's own sandbox unless given.
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Doomed {
    /// The sandbox's id.
    sandbox: String,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Its id, [A-Za-z0-9][A-Za-z0-9._-]{0,127}; the server makes one unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Memory of its processes, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_mib: Option<u64>,
    /// Processor time, in thousandths of one core.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_millis: Option<u64>,
    /// Ends by itself after so many seconds; 0 never.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_s: Option<u64>,
    /// Environment of every shell and program.
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<std::collections::BTreeMap<String, String>>,
    /// Where it may connect to: "none" (loopback alone; unless configured), "open", or rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Network>,
    /// The rules of a network profile in place of `network`: "packages" allows the public
    /// registries of pip, npm, cargo and apt.
    #[serde(skip_serializing_if = "Option::is_none")]
    network_profile: Option<String>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Network {
    /// Loopback alone, or everything but what is closed to every sandbox.
    Word(Word),
    /// What no rule allows is refused.
    Rules(Rules),
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Word {
    None,
    Open,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    /// Hosts, "*." and a host, addresses, networks or "*", each with or without ":PORT".
    #[serde(default)]
    allow: Vec<String>,
    /// The same, refused also where allow has it.
    #[serde(default)]
    deny: Vec<String>,
}

#[tool_router(router = sandboxes, vis = "pub(crate)")]
impl Server {
    #[tool(
        description = "List sandboxes, with their state and use. At most 100.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn sandbox_list(&self, context: RequestContext<RoleServer>) -> CallToolResult {
        let api = self.api_call(&context);
        let done: ToolResult = async {
            let path = "/v1/sandboxes?limit=100".to_owned();
            let list = api.json(Method::GET, path, None).await?;
            Ok(tool_result::data(json!({ "sandboxes": list })))
        }
        .await;
        done.unwrap_or_else(|refusal| refusal)
    }

    #[tool(
        description = "Make a sandbox with limits of its own. Not needed before other tools: a sandbox is made when it is first used.",
        annotations(destructive_hint = false, open_world_hint = false)
    )]
    async fn sandbox_create(
        &self,
        Parameters(wanted): Parameters<Wanted>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let body = json!(wanted);
        let path = "/v1/sandboxes".to_owned();
        let made = self.api_call(&context).json(Method::POST, path, Some(&body)).await;
        made.map_or_else(|refusal| refusal, tool_result::data)
    }

    #[tool(
        description = "Show one sandbox: its state, limits and use.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn sandbox_info(
        &self,
        Parameters(named): Parameters<Named>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = api_path::sandbox(&api.sandbox(named.sandbox));
        api.json(Method::GET, path, None).await.map_or_else(|refusal| refusal, tool_result::data)
    }

    #[tool(
        description = "End a sandbox with its processes and its files. It cannot be undone.",
        annotations(destructive_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn sandbox_delete(
        &self,
        Parameters(args): Parameters<Doomed>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let path = api_path::sandbox(&args.sandbox);
        let ended = self.api_call(&context).json(Method::DELETE, path, None).await;
        let text = format!("sandbox {} has ended", args.sandbox);
        ended.map_or_else(|refusal| refusal, |_| success(text))
    }
}
