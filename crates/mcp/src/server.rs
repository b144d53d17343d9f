//! One client: whose it is, which sandbox it means, and which shell is its own.

use crate::{
    answer::{self, refused},
    api::Api,
    clients, place, progress, tools,
};
use bytes::Bytes;
use http::{Extensions, Method, Request, Response, request::Parts};
use rmcp::{
    RoleServer, ServerHandler,
    handler::server::router::tool::ToolRouter,
    model::{CallToolResult, Implementation, ServerCapabilities, ServerConfig},
    service::RequestContext,
    tool_handler,
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The sandbox that is meant where none is named.
const SANDBOX: &str = "default";
/// The shell of clients that cannot be told apart: their protocol has no sessions.
const SHARED: &str = "mcp";
/// Headers of a client's request that say what the server is called.
const NAMES: [&str; 2] = ["host", "x-forwarded-proto"];
/// Letters of a client's id in the name of its shell.
const NAME_LETTERS: usize = 12;
/// Sandboxes in which a client's shells are remembered, to end them with it.
const SHELLS_MAX: usize = 64;

const INSTRUCTIONS: &str = "\
Sandboxes: isolated Linux machines for running commands and programs. `shell_run` types a command into \
one bash that stays: directory, variables, functions and background jobs are kept from call to call. \
Servers and long work are processes: `process_start`, then `process_wait` for a port or a line, \
`process_logs`. What listens in a sandbox is asked by `port_fetch`, and shown to people by `port_link`. \
Files are those of the sandbox, relative to /workspace. Nothing has to be created first: a sandbox is \
made when it is first used.";

/// A server of tools for one client. Clones are the same client.
#[derive(Clone)]
pub struct Server {
    api: Arc<dyn Api>,
    router: Arc<ToolRouter<Self>>,
    sandbox: Option<String>,
    shells: Arc<Shells>,
}

/// What is to be ended when the client goes.
struct Shells {
    api: Arc<dyn Api>,
    /// The name of this client's shell where the client came by no HTTP request.
    name: String,
    /// Its sandboxes and shells, with whose they are.
    open: Mutex<BTreeMap<(String, String), Extensions>>,
}

/// A call of a tool, on its way to the API.
pub(crate) struct Asked<'a> {
    server: &'a Server,
    context: &'a RequestContext<RoleServer>,
    /// How long it may take, in ms, where that is known.
    most_ms: Option<u64>,
}

impl Server {
    /// For one client; `sandbox` is meant where it names none.
    ///
    /// # Panics
    /// When the kernel gives no random bytes, which Linux does not do after boot.
    #[must_use]
    pub fn new(api: Arc<dyn Api>, sandbox: Option<String>) -> Self {
        let mut bytes = [0_u8; NAME_LETTERS / 2];
        getrandom::fill(&mut bytes).expect("random bytes");
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{SHARED}-{digits}");
        let shells = Shells { api: Arc::clone(&api), name, open: Mutex::default() };
        Self { api, router: Arc::new(tools::router()), sandbox, shells: Arc::new(shells) }
    }

    pub(crate) fn asked<'a>(&'a self, context: &'a RequestContext<RoleServer>) -> Asked<'a> {
        Asked { server: self, context, most_ms: None }
    }

    /// Ends the shells that are this client's alone; to be called when it has gone.
    pub async fn leave(&self) {
        self.shells.end().await;
    }
}

impl Shells {
    async fn end(&self) {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        for ((sandbox, name), caller) in open {
            let path = format!("{}/sessions/{name}", place::sandbox(&sandbox));
            if let Ok(request) = Request::delete(path).body(Bytes::new()) {
                // A sandbox that has ended took its shells with it.
                let _ = self.api.call(request, caller).await;
            }
        }
    }
}

impl Drop for Shells {
    fn drop(&mut self) {
        let open = std::mem::take(self.open.get_mut().unwrap_or_else(PoisonError::into_inner));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if open.is_empty() {
            return;
        }
        let left = Self { api: Arc::clone(&self.api), name: String::new(), open: Mutex::new(open) };
        runtime.spawn(async move { left.end().await });
    }
}

impl Asked<'_> {
    /// Says how long it may take at most, in ms; 0 has no end.
    pub(crate) fn within(mut self, most_ms: u64) -> Self {
        self.most_ms = Some(most_ms).filter(|ms| *ms > 0);
        self
    }

    fn parts(&self) -> Option<&Parts> {
        self.context.extensions.get::<Parts>()
    }

    /// The sandbox that is meant: named in the call, in the address, or by who started the server.
    pub(crate) fn sandbox(&self, named: Option<String>) -> String {
        let address = || {
            let query = self.parts()?.uri.query()?;
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let value = pairs.find(|(name, _)| *name == "sandbox")?.1;
            percent_encoding::percent_decode_str(value).decode_utf8().ok().map(String::from)
        };
        let own = || self.server.sandbox.clone();
        named.or_else(address).or_else(own).unwrap_or_else(|| SANDBOX.to_owned())
    }

    /// The client's shell in this sandbox.
    pub(crate) fn shell(&self, sandbox: &str) -> String {
        let (name, caller) = match self.parts() {
            None => (self.server.shells.name.clone(), Extensions::new()),
            Some(parts) => {
                let id = parts.headers.get(clients::ID).and_then(|id| id.to_str().ok());
                let Some(id) = id else { return SHARED.to_owned() };
                let letters = id.chars().filter(char::is_ascii_alphanumeric).take(NAME_LETTERS);
                (format!("{SHARED}-{}", letters.collect::<String>()), parts.extensions.clone())
            }
        };
        let mut open = self.server.shells.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() < SHELLS_MAX {
            open.insert((sandbox.to_owned(), name.clone()), caller);
        }
        name
    }

    /// The API's good answer to a call.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: String,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response<Bytes>, CallToolResult> {
        answer::good(self.send(method, path, headers, body).await?)
    }

    /// The API's answer to a call, whatever it is.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: String,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response<Bytes>, CallToolResult> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        // The name by which the client knows the server: addresses in answers are made of it.
        for name in NAMES {
            if let Some(value) = self.parts().and_then(|parts| parts.headers.get(name)) {
                request = request.header(name, value);
            }
        }
        let request = request.body(body).map_err(|error| refused(error.to_string()))?;
        let caller = self.parts().map(|parts| parts.extensions.clone()).unwrap_or_default();
        tokio::select! {
            answered = self.server.api.call(request, caller) => answered.map_err(refused),
            () = self.context.ct.cancelled() => Err(refused("cancelled")),
            never = progress::tell(self.context, self.most_ms) => match never {},
        }
    }

    /// As [`Self::call`], with JSON both ways.
    pub(crate) async fn json(
        &self,
        method: Method,
        path: String,
        body: Option<&Value>,
    ) -> Result<Value, CallToolResult> {
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let headers = [("content-type", "application/json"), ("accept", "application/json")];
        let headers = if body.is_some() { &headers[..] } else { &headers[1..] };
        let response = self.call(method, path, headers, bytes).await?;
        if response.body().is_empty() { Ok(Value::Null) } else { answer::json(&response) }
    }
}

#[tool_handler(router = self.router)]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("isolet", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }
}
