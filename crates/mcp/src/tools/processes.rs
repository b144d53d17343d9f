//! Processes in the background: started, waited for, read, given input, ended.

use crate::{
    api_path,
    call::ApiCall,
    server::Server,
    tool_result::{self, ToolResult, data, failure, success},
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
use serde_json::{Value, json};

/// Of a log unless told, in bytes: what a model can read.
const LOG_BYTES: u64 = 64 * 1024;
/// The same at most: more is not held.
const LOG_BYTES_MAX: u64 = 1024 * 1024;
/// A wait unless told, in ms, and the longest.
const WAIT_MS: u64 = 30_000;
const WAIT_MS_MAX: u64 = 600_000;
/// Until what does not end by itself is killed, unless told, in ms, and the longest.
const GRACE_MS: u64 = 5_000;
const GRACE_MS_MAX: u64 = 60_000;

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Begin {
    /// A command line for `bash -c`.
    command: String,
    /// The sandbox's id; the connection's own sandbox unless given.
    #[serde(skip_serializing)]
    sandbox: Option<String>,
    /// What it is called, [A-Za-z0-9][A-Za-z0-9._-]{0,127}; an id is made unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Where it runs; /workspace unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    /// Over the sandbox's environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<std::collections::BTreeMap<String, String>>,
    /// Its standard input stays open for process_input; end of file at once otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdin: Option<bool>,
    /// Ended after so many ms; never unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Where {
    /// The sandbox's id; the connection's own sandbox unless given.
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Read {
    /// The process's id.
    process: String,
    /// The sandbox's id; the connection's own sandbox unless given.
    sandbox: Option<String>,
    /// Go on at the position that the call before told; the log's end unless given.
    since: Option<u64>,
    /// The last so many bytes; 65536 unless given, at most 1048576.
    max_bytes: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The process's id.
    process: String,
    /// The sandbox's id; the connection's own sandbox unless given.
    sandbox: Option<String>,
    /// What it reads; a line ends with a line feed.
    text: Option<String>,
    /// Behind that nothing more will come.
    eof: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Signal {
    /// The process's id.
    process: String,
    /// The sandbox's id; the connection's own sandbox unless given.
    sandbox: Option<String>,
    /// Such as INT, HUP or USR1.
    signal: String,
    /// To everything that it started, rather than to its process group.
    all: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kill {
    /// The process's id.
    process: String,
    /// The sandbox's id; the connection's own sandbox unless given.
    sandbox: Option<String>,
    /// What it gets first; TERM unless given, KILL waits for nothing.
    signal: Option<String>,
    /// What still runs after so many ms is killed; 5000 unless given, at most 60000.
    grace_ms: Option<u64>,
    /// Its log and its id go too.
    forget: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    /// The process's id.
    process: String,
    /// The sandbox's id; the connection's own sandbox unless given.
    sandbox: Option<String>,
    /// For a line of its output that holds this text.
    text: Option<String>,
    /// For a line that matches this regular expression.
    regex: Option<String>,
    /// Only lines behind this position of its log.
    since: Option<u64>,
    /// Until something takes connections on this port.
    port: Option<u16>,
    /// And until a GET of this path on the port is answered with 200 to 399.
    path: Option<String>,
    /// How long, in ms; 30000 unless given, at most 600000.
    timeout_ms: Option<u64>,
}

impl Wait {
    fn body(&self, timeout_ms: u64) -> Result<Value, CallToolResult> {
        let mut body = json!({ "timeout_ms": timeout_ms });
        match (&self.text, &self.regex, self.port) {
            (None, None, None) => body["exit"] = true.into(),
            (None, None, Some(port)) => {
                body["port"] = json!({ "port": port });
                if let Some(path) = &self.path {
                    body["port"]["path"] = path.as_str().into();
                }
            }
            (Some(text), None, None) => body["log"] = json!({ "text": text }),
            (None, Some(regex), None) => body["log"] = json!({ "regex": regex }),
            _ => {
                return Err(failure(
                    "give text, regex or port, one of them; none waits for its end",
                ));
            }
        }
        if let (Some(since), Some(log)) = (self.since, body.get_mut("log")) {
            log["since"] = since.into();
        }
        Ok(body)
    }
}

#[tool_router(router = processes, vis = "pub(crate)")]
impl Server {
    #[tool(
        description = "Start a program in the background: a server, a build, a watcher. It runs until it ends or is ended, whoever goes, and its output is kept (the last MiB). Follow with process_wait for a port or a line, and process_logs.",
        annotations(destructive_hint = true, open_world_hint = true)
    )]
    async fn process_start(
        &self,
        Parameters(begin): Parameters<Begin>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = format!("{}/processes", api_path::sandbox(&api.sandbox(begin.sandbox.clone())));
        api.json(Method::POST, path, Some(&json!(begin))).await.map_or_else(|refusal| refusal, data)
    }

    #[tool(
        description = "List the processes of a sandbox with their state, the oldest first; also those that have ended.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn process_list(
        &self,
        Parameters(wanted): Parameters<Where>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = format!("{}/processes", api_path::sandbox(&api.sandbox(wanted.sandbox)));
        let list = api.json(Method::GET, path, None).await;
        list.map_or_else(|refusal| refusal, |list| data(json!({ "processes": list })))
    }

    #[tool(
        description = "Read what a process has said: the end of its log, or what came since a position. Tells its state, and the position to go on from.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn process_logs(
        &self,
        Parameters(read): Parameters<Read>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        logs(&api, read).await.unwrap_or_else(|refusal| refusal)
    }

    #[tool(
        description = "Write to the standard input of a process that was started with `stdin`.",
        annotations(destructive_hint = true, open_world_hint = false)
    )]
    async fn process_input(
        &self,
        Parameters(input): Parameters<Input>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = api_path::process(&api.sandbox(input.sandbox), &input.process, "/stdin");
        let text = input.text.unwrap_or_default();
        let body = json!({ "data": text, "eof": input.eof.unwrap_or_default() });
        let written = api.json(Method::POST, path, Some(&body)).await;
        written.map_or_else(|refusal| refusal, |_| success(format!("wrote {} bytes", text.len())))
    }

    #[tool(
        description = "Send a signal to a process. To end it, use process_kill: that ends everything it started.",
        annotations(destructive_hint = true, open_world_hint = false)
    )]
    async fn process_signal(
        &self,
        Parameters(signal): Parameters<Signal>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        let path = api_path::process(&api.sandbox(signal.sandbox), &signal.process, "/signal");
        let body = json!({ "signal": signal.signal, "all": signal.all.unwrap_or_default() });
        let sent = api.json(Method::POST, path, Some(&body)).await;
        let text = format!("sent {} to {}", signal.signal, signal.process);
        sent.map_or_else(|refusal| refusal, |_| success(text))
    }

    #[tool(
        description = "End a process with everything it started, and wait until nothing of it is left. It stays listed, with its log, unless `forget` is set.",
        annotations(destructive_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn process_kill(
        &self,
        Parameters(kill): Parameters<Kill>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let grace_ms = kill.grace_ms.unwrap_or(GRACE_MS).min(GRACE_MS_MAX);
        let api = self.api_call(&context).within(grace_ms);
        let sandbox = api.sandbox(kill.sandbox);
        let body =
            json!({ "signal": kill.signal.as_deref().unwrap_or("TERM"), "grace_ms": grace_ms });
        let done: ToolResult = async {
            let path = api_path::process(&sandbox, &kill.process, "/kill");
            let ended = api.json(Method::POST, path, Some(&body)).await?;
            if kill.forget == Some(true) {
                let path = api_path::process(&sandbox, &kill.process, "");
                api.json(Method::DELETE, path, None).await?;
            }
            Ok(data(ended))
        }
        .await;
        done.unwrap_or_else(|refusal| refusal)
    }

    #[tool(
        description = "Wait for a process: for its end, or with `text` or `regex` for a line of its output, or with `port` until something listens there. Answers `met`, `timeout`, or `ended` (it has ended without that).",
        annotations(destructive_hint = false, open_world_hint = false)
    )]
    async fn process_wait(
        &self,
        Parameters(wait): Parameters<Wait>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let timeout_ms = wait.timeout_ms.unwrap_or(WAIT_MS).clamp(1, WAIT_MS_MAX);
        let api = self.api_call(&context).within(timeout_ms);
        let done: ToolResult = async {
            let body = wait.body(timeout_ms)?;
            let path = api_path::process(&api.sandbox(wait.sandbox), &wait.process, "/wait");
            Ok(data(api.json(Method::POST, path, Some(&body)).await?))
        }
        .await;
        done.unwrap_or_else(|refusal| refusal)
    }
}

/// The end of a log: what of it is more than a model can read is left out in front.
async fn logs(api: &ApiCall<'_>, read: Read) -> ToolResult {
    let sandbox = api.sandbox(read.sandbox);
    let most = read.max_bytes.unwrap_or(LOG_BYTES).clamp(1, LOG_BYTES_MAX);
    let process =
        api.json(Method::GET, api_path::process(&sandbox, &read.process, ""), None).await?;
    let at = |name: &str| process.get(name).and_then(Value::as_u64).unwrap_or_default();
    let asked_from = read.since.unwrap_or_else(|| at("held_from"));
    let from = asked_from.max(at("position").saturating_sub(most));
    let path = api_path::process(&sandbox, &read.process, &format!("/logs?since={from}"));
    let log = api.json(Method::GET, path, None).await?;
    Ok(tool_result::log(log, from - asked_from, most))
}
