//! A call of a tool, on its way to the API.

use crate::answer::{self, refused};
use crate::progress;
use crate::server::{NAME_LETTERS, SHARED, Server};
use bytes::Bytes;
use http::{Extensions, Method, Request, Response, request::Parts};
use rmcp::{RoleServer, model::CallToolResult, service::RequestContext};
use serde_json::Value;
use std::sync::PoisonError;

/// Header of a client's id.
pub(crate) const ID: &str = "mcp-session-id";
/// The sandbox that is meant where none is named.
const SANDBOX: &str = "default";
/// Headers of a client's request that say what the server is called.
const NAMES: [&str; 2] = ["host", "x-forwarded-proto"];
/// Sandboxes in which a client's shells are remembered, to end them with it.
const SHELLS_MAX: usize = 64;

/// A call of a tool, on its way to the API.
pub(crate) struct Asked<'a> {
    server: &'a Server,
    context: &'a RequestContext<RoleServer>,
    /// How long it may take, in ms, where that is known.
    most_ms: Option<u64>,
}

impl Server {
    pub(crate) fn asked<'a>(&'a self, context: &'a RequestContext<RoleServer>) -> Asked<'a> {
        Asked { server: self, context, most_ms: None }
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
                let id = parts.headers.get(ID).and_then(|id| id.to_str().ok());
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
