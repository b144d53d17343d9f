//! Tools for ports of a sandbox: listing, HTTP requests, and links for people.

use crate::api_path;
use crate::server::McpServer;
use crate::tool_result::{self, ToolResult, data, failure, success};
use crate::tools::sandboxes::SandboxArgs;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Response, header};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;
use tokio::time::timeout;

/// Default limit on a response body, in bytes: as much as a model can read.
const BODY_BYTES: usize = 64 * 1024;
/// Maximum of that limit.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Default and maximum timeout of a response, in ms.
const TIMEOUT_MS: u64 = 30_000;
const TIMEOUT_MS_MAX: u64 = 600_000;
/// The HTTP methods that the tool accepts.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FetchArgs {
    /// Port of the program, 1 to 65535.
    port: u16,
    /// Path and query; / by default.
    path: Option<String>,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
    /// HTTP method; GET by default.
    method: Option<String>,
    /// Request body.
    content: Option<String>,
    /// Media type of the content; application/json by default.
    content_type: Option<String>,
    /// Limit on the returned body in bytes; 65536 by default, at most 1048576.
    max_bytes: Option<usize>,
    /// Timeout of the whole response in ms; 30000 by default, at most 600000.
    timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkArgs {
    /// Port, 1 to 65535. A program may start to listen later.
    port: u16,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    #[serde(skip_serializing)]
    sandbox: Option<String>,
    /// Lifetime of the link in seconds; 3600 by default, at most 2592000 (30 days).
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_s: Option<u64>,
    /// Name of the port in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WithdrawArgs {
    /// Port, 1 to 65535.
    port: u16,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
}

#[tool_router(router = ports, vis = "pub(crate)")]
impl McpServer {
    #[tool(
        description = "List ports on which programs in a sandbox listen, and ports that have links.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn port_list(
        &self,
        Parameters(args): Parameters<SandboxArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let sandbox = api_path::sandbox(&api.sandbox(args.sandbox));
        let done: ToolResult = async {
            let ports = api.json(Method::GET, format!("{sandbox}/ports"), None).await?;
            let links = api.json(Method::GET, format!("{sandbox}/links"), None).await?;
            Ok(data(json!({ "ports": ports, "links": links })))
        }
        .await;
        done.unwrap_or_else(|error| error)
    }

    #[tool(
        description = "Send an HTTP request to a program that listens in a sandbox, including on its 127.0.0.1. Returns status, headers and body; images are returned as images. Redirects are not followed. To send other headers, use curl in shell_run.",
        annotations(destructive_hint = true, open_world_hint = true)
    )]
    async fn port_fetch(
        &self,
        Parameters(fetch): Parameters<FetchArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let timeout_ms = fetch.timeout_ms.unwrap_or(TIMEOUT_MS).clamp(1, TIMEOUT_MS_MAX);
        let api = self.api_call(&context).within(timeout_ms);
        let done: ToolResult = async {
            let name = fetch.method.as_deref().unwrap_or("GET").to_ascii_uppercase();
            let method = METHODS.into_iter().find(|method| method.as_str() == name);
            let method =
                method.ok_or_else(|| failure(format!("method {name} is not supported")))?;
            let sandbox = api.sandbox(fetch.sandbox);
            let path = api_path::port(&sandbox, fetch.port, fetch.path.as_deref().unwrap_or("/"));
            let kind = fetch.content_type.as_deref().unwrap_or("application/json");
            let kind = fetch.content.is_some().then_some(("content-type", kind));
            let headers: Vec<_> = kind.into_iter().chain([("accept", "*/*")]).collect();
            let body = Bytes::from(fetch.content.unwrap_or_default());
            let sent = api.send(method, path, &headers, body);
            let answered =
                timeout(Duration::from_millis(timeout_ms), sent).await.map_err(|_| {
                    failure(format!(
                        "port {} did not send a complete response within {timeout_ms} ms",
                        fetch.port
                    ))
                })??;
            let max_bytes = fetch.max_bytes.unwrap_or(BODY_BYTES).clamp(1, BODY_BYTES_MAX);
            response_result(answered, max_bytes)
        }
        .await;
        done.unwrap_or_else(|error| error)
    }

    #[tool(
        description = "Create a signed link to a port for a person's browser or a webhook. Everyone who has its `url` can use the port until the link expires or port_withdraw revokes it.",
        annotations(destructive_hint = false, open_world_hint = true)
    )]
    async fn port_link(
        &self,
        Parameters(link): Parameters<LinkArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = format!("{}/links", api_path::sandbox(&api.sandbox(link.sandbox.clone())));
        api.json(Method::POST, path, Some(&json!(link))).await.map_or_else(|error| error, data)
    }

    #[tool(
        description = "Revoke all links to a port.",
        annotations(destructive_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn port_withdraw(
        &self,
        Parameters(args): Parameters<WithdrawArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let sandbox = api_path::sandbox(&api.sandbox(args.sandbox));
        let path = format!("{sandbox}/links/{}", args.port);
        let withdrawn = api.json(Method::DELETE, path, None).await;
        let text = format!("revoked all links to port {}", args.port);
        withdrawn.map_or_else(|error| error, |_| success(text))
    }
}

/// Result with a program's response. An error of Isolet's server becomes a failure, as in other tools.
fn response_result(response: Response<Bytes>, max_bytes: usize) -> ToolResult {
    let response =
        if is_server_error(&response) { tool_result::require_success(response)? } else { response };
    let (head, body) = response.into_parts();
    let names = head.headers.keys().filter(|name| *name != header::CONTENT_SECURITY_POLICY);
    let headers: BTreeMap<&str, String> = names
        .map(|name| {
            let all = head.headers.get_all(name).iter();
            let all: Vec<_> = all.map(|one| String::from_utf8_lossy(one.as_bytes())).collect();
            (name.as_str(), all.join(", "))
        })
        .collect();
    let mut note = format!("[{}", head.status.as_u16());
    for name in ["content-type", "location"] {
        if let Some(value) = headers.get(name) {
            let _ = write!(note, "; {name}: {value}");
        }
    }
    if body.len() > max_bytes {
        let _ = write!(note, "; bytes 0 to {max_bytes} of {}", body.len());
    }
    note.push(']');
    let block = match tool_result::image_media_type(&body).filter(|_| body.len() <= BODY_BYTES_MAX)
    {
        Some(kind) => ContentBlock::image(STANDARD.encode(&body), kind),
        None => ContentBlock::text(text(&body, max_bytes)),
    };
    let mut result = CallToolResult::success(vec![block, ContentBlock::text(note)]);
    let status = head.status.as_u16();
    let size = body.len();
    result.structured_content =
        Some(json!({ "status": status, "headers": headers, "body_bytes": size }));
    Ok(result)
}

/// The first bytes as text; for binary data, its size.
fn text(body: &Bytes, max_bytes: usize) -> String {
    let part = &body[..body.len().min(max_bytes)];
    match std::str::from_utf8(part) {
        Ok(text) => text.to_owned(),
        // The limit may fall within a character.
        Err(error) if error.error_len().is_none() && part.len() < body.len() => {
            String::from_utf8_lossy(&part[..error.valid_up_to()]).into_owned()
        }
        Err(_) => format!("({} bytes of binary data)", body.len()),
    }
}

/// Whether a response looks like an error of Isolet's server: JSON with `error`, `message` and `hint`.
fn is_server_error(response: &Response<Bytes>) -> bool {
    let status = response.status();
    let body: Value = match status.is_client_error() || status.is_server_error() {
        true => tool_result::error_body(response.body()),
        false => Value::Null,
    };
    ["error", "message", "hint"].iter().all(|name| body.get(name).is_some_and(Value::is_string))
}
