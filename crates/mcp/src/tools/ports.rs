//! Ports of a sandbox: who listens, what it answers, and links for people.

use crate::{
    api_path,
    server::Server,
    tool_result::{self, ToolResult, data, failure, success},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Response, header};
use rmcp::{
    RoleServer,
    handler::server::wrapper::Parameters,
    model::{CallToolResult, ContentBlock},
    schemars::{self, JsonSchema},
    service::RequestContext,
    tool, tool_router,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write, time::Duration};
use tokio::time::timeout;

/// Of an answer unless told, in bytes: what a model can read.
const BODY_BYTES: usize = 64 * 1024;
/// The same at most.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// How long an answer may take unless told, in ms, and at most.
const TIMEOUT_MS: u64 = 30_000;
const TIMEOUT_MS_MAX: u64 = 600_000;
/// What a program may be asked by.
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
pub(crate) struct Where {
    /// The sandbox's id; the connection's own sandbox unless given.
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fetch {
    /// Where it listens, 1 to 65535.
    port: u16,
    /// Path and query; / unless given.
    path: Option<String>,
    /// The sandbox's id; the connection's own sandbox unless given.
    sandbox: Option<String>,
    /// GET unless given.
    method: Option<String>,
    /// What is sent with it.
    body: Option<String>,
    /// What the body is; application/json unless given.
    content_type: Option<String>,
    /// The first so many bytes of the answer; 65536 unless given, at most 1048576.
    max_bytes: Option<usize>,
    /// How long the whole answer may take, in ms; 30000 unless given, at most 600000.
    timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    /// 1 to 65535. Nothing needs to listen there yet.
    port: u16,
    /// The sandbox's id; the connection's own sandbox unless given.
    #[serde(skip_serializing)]
    sandbox: Option<String>,
    /// Seconds that it lives; 3600 unless given, at most 2592000 (30 days).
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_s: Option<u64>,
    /// What the port is called in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Withdrawn {
    /// Which port.
    port: u16,
    /// The sandbox's id; the connection's own sandbox unless given.
    sandbox: Option<String>,
}

#[tool_router(router = ports, vis = "pub(crate)")]
impl Server {
    #[tool(
        description = "List the ports on which something listens in a sandbox, and those that links lead to.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn port_list(
        &self,
        Parameters(wanted): Parameters<Where>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let sandbox = api_path::sandbox(&api.sandbox(wanted.sandbox));
        let done: ToolResult = async {
            let ports = api.json(Method::GET, format!("{sandbox}/ports"), None).await?;
            let links = api.json(Method::GET, format!("{sandbox}/links"), None).await?;
            Ok(data(json!({ "ports": ports, "links": links })))
        }
        .await;
        done.unwrap_or_else(|refusal| refusal)
    }

    #[tool(
        description = "Send an HTTP request to a program that listens in a sandbox, also on 127.0.0.1 there. Answers with status, headers and body; images come as images. No redirect is followed. Requests with headers of their own: curl in shell_run.",
        annotations(destructive_hint = true, open_world_hint = true)
    )]
    async fn port_fetch(
        &self,
        Parameters(fetch): Parameters<Fetch>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let timeout_ms = fetch.timeout_ms.unwrap_or(TIMEOUT_MS).clamp(1, TIMEOUT_MS_MAX);
        let api = self.api_call(&context).within(timeout_ms);
        let done: ToolResult = async {
            let name = fetch.method.as_deref().unwrap_or("GET").to_ascii_uppercase();
            let method = METHODS.into_iter().find(|method| method.as_str() == name);
            let method = method.ok_or_else(|| failure(format!("{name} is no method to ask by")))?;
            let sandbox = api.sandbox(fetch.sandbox);
            let path = api_path::port(&sandbox, fetch.port, fetch.path.as_deref().unwrap_or("/"));
            let kind = fetch.content_type.as_deref().unwrap_or("application/json");
            let kind = fetch.body.is_some().then_some(("content-type", kind));
            let headers: Vec<_> = kind.into_iter().chain([("accept", "*/*")]).collect();
            let body = Bytes::from(fetch.body.unwrap_or_default());
            let sent = api.send(method, path, &headers, body);
            let answered =
                timeout(Duration::from_millis(timeout_ms), sent).await.map_err(|_| {
                    failure(format!("port {} gave no whole answer in {timeout_ms} ms", fetch.port))
                })??;
            let most = fetch.max_bytes.unwrap_or(BODY_BYTES).clamp(1, BODY_BYTES_MAX);
            shown(answered, most)
        }
        .await;
        done.unwrap_or_else(|refusal| refusal)
    }

    #[tool(
        description = "Make a link to a port, for a person's browser or a webhook: who has its `url` has the right to that port until its time is over or port_withdraw.",
        annotations(destructive_hint = false, open_world_hint = true)
    )]
    async fn port_link(
        &self,
        Parameters(link): Parameters<Link>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = format!("{}/links", api_path::sandbox(&api.sandbox(link.sandbox.clone())));
        api.json(Method::POST, path, Some(&json!(link))).await.map_or_else(|refusal| refusal, data)
    }

    #[tool(
        description = "Withdraw a port: no link leads there any more.",
        annotations(destructive_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn port_withdraw(
        &self,
        Parameters(gone): Parameters<Withdrawn>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let sandbox = api_path::sandbox(&api.sandbox(gone.sandbox));
        let path = format!("{sandbox}/links/{}", gone.port);
        let withdrawn = api.json(Method::DELETE, path, None).await;
        let text = format!("no link leads to port {} any more", gone.port);
        withdrawn.map_or_else(|refusal| refusal, |_| success(text))
    }
}

/// What a program answered. A refusal of the server's own reads like any other.
fn shown(response: Response<Bytes>, most: usize) -> ToolResult {
    let response =
        if of_the_server(&response) { tool_result::require_success(response)? } else { response };
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
    if body.len() > most {
        let _ = write!(note, "; bytes 0 to {most} of {}", body.len());
    }
    note.push(']');
    let block = match tool_result::image_media_type(&body).filter(|_| body.len() <= BODY_BYTES_MAX)
    {
        Some(kind) => ContentBlock::image(STANDARD.encode(&body), kind),
        None => ContentBlock::text(text(&body, most)),
    };
    let mut result = CallToolResult::success(vec![block, ContentBlock::text(note)]);
    let status = head.status.as_u16();
    let size = body.len();
    result.structured_content =
        Some(json!({ "status": status, "headers": headers, "body_bytes": size }));
    Ok(result)
}

/// The first bytes as text, or how many they are.
fn text(body: &Bytes, most: usize) -> String {
    let part = &body[..body.len().min(most)];
    match std::str::from_utf8(part) {
        Ok(text) => text.to_owned(),
        // It may end within a character.
        Err(error) if error.error_len().is_none() && part.len() < body.len() => {
            String::from_utf8_lossy(&part[..error.valid_up_to()]).into_owned()
        }
        Err(_) => format!("({} bytes that are no text)", body.len()),
    }
}

/// Whether an answer looks like a refusal of the server, by its three words.
fn of_the_server(response: &Response<Bytes>) -> bool {
    let status = response.status();
    let body: Value = match status.is_client_error() || status.is_server_error() {
        true => serde_json::from_slice(response.body()).unwrap_or_default(),
        false => Value::Null,
    };
    ["error", "message", "hint"].iter().all(|name| body.get(name).is_some_and(Value::is_string))
}
