//! Tools for the code interpreter: contexts that keep their variables, and runs in them.

use crate::api_path;
use crate::call::ApiCall;
use crate::code_result;
use crate::server::McpServer;
use crate::tool_result::{self, ToolResult, data, success};
use crate::tools::sandboxes::SandboxArgs;
use bytes::Bytes;
use http::{Method, StatusCode};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::CallToolResult;
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use serde::Deserialize;
use serde_json::{Value, json};

/// Default limit on the output per stream, in bytes: as much as a model can read.
const OUTPUT_BYTES: u64 = 64 * 1024;
/// Maximum of that limit.
const OUTPUT_BYTES_MAX: u64 = 1024 * 1024;
/// Default timeout of a run in ms, as of `shell_run`.
const TIMEOUT_MS: u64 = 120_000;
/// The headers of a JSON request.
const JSON: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json")];

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunArgs {
    /// Code to run.
    code: String,
    /// Language; python by default.
    language: Option<Language>,
    /// Id of a context other than the connection's own one for `language`. If there is none, it is
    /// created with `language`. Different contexts run code at the same time.
    context: Option<String>,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
    /// Standard input; reading fails without it.
    stdin: Option<String>,
    /// Environment variables for this run.
    env: Option<std::collections::BTreeMap<String, String>>,
    /// Timeout in ms, after which the code is interrupted; 120000 by default; 0 means a day.
    timeout_ms: Option<u64>,
    /// Limit on the returned output per stream, in bytes; 65536 by default, at most 1048576.
    max_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    Python,
    JavaScript,
    TypeScript,
    Bash,
    Jupyter,
}

impl Language {
    /// The name.
    fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
            Self::Bash => "bash",
            Self::Jupyter => "jupyter",
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContextArgs {
    /// The context's id, as `code_run` returns it.
    context: String,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
}

#[tool_router(router = code, vis = "pub(crate)")]
impl McpServer {
    #[tool(
        description = "Run code in a persistent interpreter (python, javascript, typescript, bash, or jupyter): variables and imports persist for the next call. Returns output, the value of the last expression, and charts and other images as images; an exception is returned with its traceback. The timeout interrupts the code but not the interpreter.",
        annotations(destructive_hint = true, open_world_hint = true)
    )]
    async fn code_run(
        &self,
        Parameters(args): Parameters<RunArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let timeout_ms = args.timeout_ms.unwrap_or(TIMEOUT_MS);
        let api = self.api_call(&context).within(timeout_ms);
        run(&api, args, timeout_ms).await.unwrap_or_else(|error| error)
    }

    #[tool(
        description = "List the code contexts of a sandbox: language, whether code is running, and number of runs.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn context_list(
        &self,
        Parameters(args): Parameters<SandboxArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = format!("{}/contexts", api_path::sandbox(&api.sandbox(args.sandbox)));
        let list = api.json(Method::GET, path, None).await;
        list.map_or_else(|error| error, |list| data(json!({ "contexts": list })))
    }

    #[tool(
        description = "Restart the interpreter of a code context. Its variables are lost, and everything that it started ends.",
        annotations(destructive_hint = true, open_world_hint = false)
    )]
    async fn context_restart(
        &self,
        Parameters(args): Parameters<ContextArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = api_path::context(&api.sandbox(args.sandbox), &args.context, "/restart");
        api.json(Method::POST, path, None).await.map_or_else(|error| error, data)
    }

    #[tool(
        description = "Delete a code context: its interpreter and everything that it started end.",
        annotations(destructive_hint = true, open_world_hint = false)
    )]
    async fn context_delete(
        &self,
        Parameters(args): Parameters<ContextArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = api_path::context(&api.sandbox(args.sandbox), &args.context, "");
        let deleted = api.json(Method::DELETE, path, None).await;
        let text = format!("deleted context {}", args.context);
        deleted.map_or_else(|error| error, |_| success(text))
    }
}

async fn run(api: &ApiCall<'_>, args: RunArgs, timeout_ms: u64) -> ToolResult {
    let sandbox = api.sandbox(args.sandbox);
    let language = args.language.unwrap_or(Language::Python).name();
    let own = Context::own(api, &sandbox, language);
    let context = args.context.map_or(own, |id| Context { id, session: None });
    let mut body = json!({
        "code": args.code,
        "timeout_ms": timeout_ms,
        "max_output_bytes": args.max_bytes.unwrap_or(OUTPUT_BYTES).min(OUTPUT_BYTES_MAX),
        "cancel_on_close": true,
    });
    if let Some(stdin) = args.stdin {
        body["stdin"] = stdin.into();
    }
    if let Some(env) = args.env {
        body["env"] = json!(env);
    }
    let body = Bytes::from(body.to_string());
    let path = api_path::context(&sandbox, &context.id, "/run");
    let mut response = api.send(Method::POST, path.clone(), &JSON, body.clone()).await?;
    if response.status() == StatusCode::NOT_FOUND {
        create(api, &sandbox, &context, language).await?;
        response = api.send(Method::POST, path, &JSON, body).await?;
    }
    let response = tool_result::require_success(response)?;
    Ok(code_result::run(code_result::parse(response.body())?))
}

/// A context in which code runs.
struct Context {
    id: String,
    /// The session with which it ends.
    session: Option<String>,
}

impl Context {
    /// The connection's own context of a language, so that no client waits behind the code of another
    /// one. It ends with the connection's shell.
    fn own(api: &ApiCall<'_>, sandbox: &str, language: &str) -> Self {
        let session = api.shell(sandbox);
        Self { id: format!("{session}-{language}"), session: Some(session) }
    }
}

/// Creates a context, unless another call has created it at the same time.
async fn create(
    api: &ApiCall<'_>,
    sandbox: &str,
    context: &Context,
    language: &str,
) -> Result<(), CallToolResult> {
    let mut body: Value = json!({ "id": context.id, "language": language });
    if let Some(session) = &context.session {
        body["session"] = session.as_str().into();
    }
    let path = format!("{}/contexts", api_path::sandbox(sandbox));
    let response = api.send(Method::POST, path, &JSON, Bytes::from(body.to_string())).await?;
    if response.status() == StatusCode::CONFLICT {
        return Ok(());
    }
    tool_result::require_success(response).map(drop)
}
