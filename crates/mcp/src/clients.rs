//! Clients over HTTP, and the owner of each. A session id is valid only for the owner that created it,
//! and no owner can use up the limit of clients alone.

use crate::api::Api;
use crate::call::CLIENT_ID_HEADER;
use crate::server::McpServer;
use crate::transport;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Limit on connected clients.
pub const CLIENTS_MAX: usize = 1000;
/// Limit on connected clients of one owner: a quarter of all, so that others can connect.
pub const CLIENTS_PER_OWNER_MAX: usize = 250;
/// Header with the protocol version.
const VERSION: &str = "mcp-protocol-version";
/// The first protocol version without session ids.
const VERSION_WITHOUT_IDS: &str = "2026-07-28";

/// A response to a client: one message, or an event stream.
pub type Reply = Response<BoxBody<Bytes, Infallible>>;

/// Why a request was not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRefused {
    /// The owner has no client of this id.
    Unknown,
    /// The limit on clients is reached, for this owner or in total.
    Full,
}

/// Serves the HTTP requests of many clients.
#[derive(Clone)]
pub struct Clients {
    service: StreamableHttpService<McpServer, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    /// Owner of each client id. Ids of clients that disconnected without a `DELETE` stay until the limit
    /// is reached.
    owners: Arc<Mutex<HashMap<String, String>>>,
}

impl Clients {
    /// Creates the service. Its tools call `api`; cancelling `stop` disconnects all clients.
    pub fn new(api: Arc<dyn Api>, stop: CancellationToken) -> Self {
        let (service, manager) = transport::http_service(api, stop);
        Self { service, manager, owners: Arc::default() }
    }

    /// Answers a request of `owner`. The caller must have authenticated the owner and checked the `Host`
    /// and `Origin` headers; tools read the caller from the request's extensions.
    ///
    /// # Errors
    /// [`ClientRefused`]: nothing was done.
    pub async fn answer<B>(&self, owner: &str, request: Request<B>) -> Result<Reply, ClientRefused>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send + 'static,
        B::Error: Display,
    {
        if let Some(id) = request.headers().get(CLIENT_ID_HEADER) {
            let id = id.to_str().map_err(|_| ClientRefused::Unknown)?.to_owned();
            if self.owners().get(&id).is_none_or(|found| found != owner) {
                return Err(ClientRefused::Unknown);
            }
            let leaves = request.method() == Method::DELETE;
            let reply = self.service.handle(request).await;
            if leaves && reply.status().is_success() {
                self.owners().remove(&id);
            }
            return Ok(reply);
        }
        if !may_initialize(request.headers()) {
            return Ok(self.service.handle(request).await);
        }
        // Runs to its end even if the connection closes: a new session is registered or closed.
        let all = self.clone();
        let owner = owner.to_owned();
        let begun = tokio::spawn(async move { all.initialize(owner, request).await });
        begun.await.unwrap_or(Err(ClientRefused::Full))
    }

    async fn initialize<B>(
        &self,
        owner: String,
        request: Request<B>,
    ) -> Result<Reply, ClientRefused>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send + 'static,
        B::Error: Display,
    {
        let reply = self.service.handle(request).await;
        let Some(id) = reply.headers().get(CLIENT_ID_HEADER).and_then(|id| id.to_str().ok()) else {
            return Ok(reply);
        };
        if !self.register(id, &owner) {
            self.remove_closed().await;
            if !self.register(id, &owner) {
                // Fails if the session is already closed.
                let _ = self.manager.close_session(&id.into()).await;
                return Err(ClientRefused::Full);
            }
        }
        Ok(reply)
    }

    /// Registers a client; `false`: a limit is reached.
    fn register(&self, id: &str, owner: &str) -> bool {
        let mut owners = self.owners();
        let own = owners.values().filter(|other| *other == owner).count();
        let below_limits = own < CLIENTS_PER_OWNER_MAX && owners.len() < CLIENTS_MAX;
        if below_limits {
            owners.insert(id.to_owned(), owner.to_owned());
        }
        below_limits
    }

    async fn remove_closed(&self) {
        let open = self.manager.sessions.read().await;
        self.owners().retain(|id, _| open.contains_key(id.as_str()));
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a request without a session id may start a session.
fn may_initialize(headers: &HeaderMap) -> bool {
    headers.get(VERSION).is_none_or(|version| version.as_bytes() < VERSION_WITHOUT_IDS.as_bytes())
}
