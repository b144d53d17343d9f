//! Tools for files of a sandbox.

use crate::api_path;
use crate::server::McpServer;
use crate::tool_result::{self, ToolResult, data, failure, success};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, StatusCode, header};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use serde::Deserialize;
use serde_json::json;

/// Default number of bytes to read.
const READ_BYTES: u64 = 64 * 1024;
/// Maximum number of bytes to read.
const READ_BYTES_MAX: u64 = 1024 * 1024;
/// Limit on the entries of a directory and the lines of a search.
const LINES: u32 = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadArgs {
    /// Relative to /workspace, or absolute.
    path: String,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
    /// Offset of the first byte.
    offset: Option<u64>,
    /// Limit on the returned bytes; 65536 by default, at most 1048576.
    max_bytes: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteArgs {
    /// Relative to /workspace, or absolute. Parent directories are created.
    path: String,
    /// Content of the file.
    content: String,
    /// Encoding of the content: "utf-8" (default), or "base64" for binary data.
    encoding: Option<Encoding>,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
    /// Append to the file instead of replacing it.
    append: Option<bool>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(crate) enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListArgs {
    /// Directory; /workspace by default.
    path: Option<String>,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
    /// Include subdirectories.
    recursive: Option<bool>,
    /// List only matching names, such as `*.rs`.
    glob: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchArgs {
    /// Regular expression, matched within lines.
    pattern: String,
    /// File or directory to search; /workspace by default.
    path: Option<String>,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
    /// Search only files with matching names, such as `*.rs`.
    glob: Option<String>,
    /// Treat the pattern as plain text.
    literal: Option<bool>,
    /// Ignore upper and lower case.
    ignore_case: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteArgs {
    /// Relative to /workspace, or absolute.
    path: String,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
    /// Delete a directory with its content.
    recursive: Option<bool>,
}

#[tool_router(router = files, vis = "pub(crate)")]
impl McpServer {
    #[tool(
        description = "Read a text file or an image. A note at the end states which bytes were omitted.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn file_read(
        &self,
        Parameters(read): Parameters<ReadArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = api_path::file(&api.sandbox(read.sandbox), &read.path);
        let from = read.offset.unwrap_or(0);
        let max_bytes = read.max_bytes.unwrap_or(READ_BYTES).clamp(1, READ_BYTES_MAX);
        let range = format!("bytes={from}-{}", from.saturating_add(max_bytes - 1));
        let done: ToolResult = async {
            let ranged = [("range", range.as_str())];
            let response = api.send(Method::GET, path, &ranged, Bytes::new()).await?;
            let header = |name| response.headers().get(name)?.to_str().ok();
            let size = header(header::CONTENT_RANGE)
                .and_then(|range| range.rsplit_once('/')?.1.parse().ok());
            if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
                // The offset is at or after the end of the file; an empty file has no valid range at all.
                return Ok(content(&Bytes::new(), from, size));
            }
            if header(header::CONTENT_TYPE) == Some("application/json")
                && response.status().is_success()
            {
                return Err(failure(format!("{} is a directory: use file_list", read.path)));
            }
            let body = tool_result::require_success(response)?.into_body();
            Ok(content(&body.slice(..body.len().min(max_bytes as usize)), from, size))
        }
        .await;
        done.unwrap_or_else(|error| error)
    }

    #[tool(
        description = "Write or append to a file. Replacing a file is atomic. To change a part of a file, use file_edit.",
        annotations(destructive_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn file_write(
        &self,
        Parameters(write): Parameters<WriteArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let done: ToolResult = async {
            let bytes = match write.encoding {
                None | Some(Encoding::Utf8) => Bytes::from(write.content),
                Some(Encoding::Base64) => {
                    let decoded = STANDARD.decode(write.content);
                    Bytes::from(decoded.map_err(|error| {
                        failure(format!("content is not valid base64: {error}"))
                    })?)
                }
            };
            let count = bytes.len();
            let mut path = api_path::file(&api.sandbox(write.sandbox), &write.path);
            if write.append == Some(true) {
                path.push_str("?append=1");
            }
            api.call(Method::PUT, path, &[], bytes).await?;
            Ok(success(format!("wrote {count} bytes to {}", write.path)))
        }
        .await;
        done.unwrap_or_else(|error| error)
    }

    #[tool(
        description = "List a directory, sorted, without hidden files. At most 200 entries.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn file_list(
        &self,
        Parameters(list): Parameters<ListArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let sandbox = api_path::sandbox(&api.sandbox(list.sandbox));
        let mut path = format!("{sandbox}/files?limit={LINES}");
        path.push_str(&query("path", list.path.as_deref()));
        path.push_str(&query("glob", list.glob.as_deref()));
        path.push_str(&query("recursive", list.recursive.filter(|on| *on).map(|_| "1")));
        let listed = api.call(Method::GET, path, &[], Bytes::new()).await;
        let done: ToolResult = listed.and_then(|response| {
            let more = response.headers().contains_key(header::LINK);
            Ok(data(json!({ "entries": tool_result::json(&response)?, "more": more })))
        });
        done.unwrap_or_else(|error| error)
    }

    #[tool(
        description = "Search files for lines that match a regular expression. Files excluded by .gitignore are skipped. At most 200 lines.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn file_search(
        &self,
        Parameters(search): Parameters<SearchArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let flag = |on: Option<bool>| on.filter(|on| *on).map(|_| "1");
        let base = match &search.path {
            Some(path) => api_path::file(&api.sandbox(search.sandbox), path),
            None => format!("{}/files", api_path::sandbox(&api.sandbox(search.sandbox))),
        };
        let mut path = format!("{base}?limit={LINES}");
        path.push_str(&query("search", Some(&search.pattern)));
        path.push_str(&query("glob", search.glob.as_deref()));
        path.push_str(&query("literal", flag(search.literal)));
        path.push_str(&query("ignore_case", flag(search.ignore_case)));
        api.json(Method::GET, path, None).await.map_or_else(|error| error, data)
    }

    #[tool(
        description = "Delete a file, or a directory with its content.",
        annotations(destructive_hint = true, open_world_hint = false)
    )]
    async fn file_delete(
        &self,
        Parameters(args): Parameters<DeleteArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let mut path = api_path::file(&api.sandbox(args.sandbox), &args.path);
        if args.recursive == Some(true) {
            path.push_str("?recursive=1");
        }
        let removed = api.json(Method::DELETE, path, None).await;
        removed.map_or_else(|error| error, |_| success(format!("deleted {}", args.path)))
    }
}

fn query(name: &str, value: Option<&str>) -> String {
    value.map(|value| format!("&{name}={}", api_path::part(value))).unwrap_or_default()
}

/// Result with bytes of a file that start at `from`; `whole` is the file's size, if known.
fn content(bytes: &Bytes, from: u64, whole: Option<u64>) -> CallToolResult {
    let to = from + bytes.len() as u64;
    let rest = whole.filter(|whole| to < *whole || from > 0);
    let note = rest.map(|whole| format!("[bytes {from} to {to} of {whole}]"));
    if let Some(kind) = tool_result::image_media_type(bytes).filter(|_| rest.is_none()) {
        return CallToolResult::success(vec![ContentBlock::image(STANDARD.encode(bytes), kind)]);
    }
    // A range may end within a character.
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && rest.is_some() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let Some(text) = valid else {
        let size = whole.unwrap_or(to);
        return failure(format!(
            "the file is not text ({size} bytes); inspect it with shell_run, for example with xxd or file"
        ));
    };
    let mut blocks = vec![ContentBlock::text(text)];
    blocks.extend(note.map(ContentBlock::text));
    CallToolResult::success(blocks)
}
