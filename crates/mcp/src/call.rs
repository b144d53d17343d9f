//! A call of a tool, on its way to the API.

use crate::progress;
use crate::server::{McpServer, NAME_LETTERS, SHARED_SHELL};
use crate::tool_result::{self, failure};
use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, Method, Request, Response};
use rmcp::RoleServer;
use rmcp::model::CallToolResult;
use rmcp::service::RequestContext;
use serde_json::Value;
use std::sync::PoisonError;

/// The header with a client's session id.
pub(crate) const CLIENT_ID_HEADER: &str = "mcp-session-id";
/// The sandbox of calls without a `sandbox` argument.
const DEFAULT_SANDBOX: &str = "default";
/// The header of the client's request that is forwarded: the API builds URLs with it.
const HOST: &str = "host";
/// Limit on the number of shells that are recorded, so that they end together with their client.
const SHELLS_MAX: usize = 64;

/// A call of a tool, on its way to the API.
pub(crate) struct ApiCall<'a> {
    server: &'a McpServer,
    context: &'a RequestContext<RoleServer>,
    /// Longest duration in ms, if known.
    max_ms: Option<u64>,
}

impl McpServer {
    pub(crate) fn api_call<'a>(&'a self, context: &'a RequestContext<RoleServer>) -> ApiCall<'a> {
        ApiCall { server: self, context, max_ms: None }
    }
}

impl ApiCall<'_> {
    /// Sets the longest duration, in ms, for progress notifications; 0: none.
    pub(crate) fn within(mut self, max_ms: u64) -> Self {
        self.max_ms = Some(max_ms).filter(|ms| *ms > 0);
        self
    }

    fn parts(&self) -> Option<&Parts> {
        self.context.extensions.get::<Parts>()
    }

    /// The sandbox of this call: from the argument, the URL, or the command line of the server.
    pub(crate) fn sandbox(&self, named: Option<String>) -> String {
        let address = || {
            let query = self.parts()?.uri.query()?;
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let value = pairs.find(|(name, _)| *name == "sandbox")?.1;
            percent_encoding::percent_decode_str(value).decode_utf8().ok().map(String::from)
        };
        let own = || self.server.sandbox.clone();
        named.or_else(address).or_else(own).unwrap_or_else(|| DEFAULT_SANDBOX.to_owned())
    }

    /// The client's shell in this sandbox.
    pub(crate) fn shell(&self, sandbox: &str) -> String {
        let (name, caller) = match self.parts() {
            None => (self.server.shells.name.clone(), Extensions::new()),
            Some(parts) => {
                let id = parts.headers.get(CLIENT_ID_HEADER).and_then(|id| id.to_str().ok());
                let Some(id) = id else { return SHARED_SHELL.to_owned() };
                let letters = id.chars().filter(char::is_ascii_alphanumeric).take(NAME_LETTERS);
                (
                    format!("{SHARED_SHELL}-{}", letters.collect::<String>()),
                    parts.extensions.clone(),
                )
            }
        };
        let mut open = self.server.shells.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() < SHELLS_MAX {
            open.insert((sandbox.to_owned(), name.clone()), caller);
        }
        name
    }

    /// Calls the API; a response without success is a failure.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: String,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response<Bytes>, CallToolResult> {
        tool_result::require_success(self.send(method, path, headers, body).await?)
    }

    /// Calls the API, and returns its response whatever the status.
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
        if let Some(host) = self.parts().and_then(|parts| parts.headers.get(HOST)) {
            request = request.header(HOST, host);
        }
        let request = request.body(body).map_err(|error| failure(error.to_string()))?;
        let caller = self.parts().map(|parts| parts.extensions.clone()).unwrap_or_default();
        tokio::select! {
            answered = self.server.api.call(request, caller) => answered.map_err(failure),
            () = self.context.ct.cancelled() => Err(failure("cancelled")),
            never = progress::notify(self.context, self.max_ms) => match never {},
        }
    }

    /// As [`Self::call`], with a JSON body and response.
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
        if response.body().is_empty() { Ok(Value::Null) } else { tool_result::json(&response) }
    }
}
