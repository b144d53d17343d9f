//! Clients over HTTP, and the owner of each. A session id is valid only for the owner that created it,
//! and no owner can use up the limit of clients alone.

use crate::api::Api;
use crate::call::CLIENT_ID_HEADER;
use crate::server::Server;
use crate::transport;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::{
    StreamableHttpService,
    session::{SessionManager, local::LocalSessionManager},
};
use std::{
    collections::HashMap,
    convert::Infallible,
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio_util::sync::CancellationToken;

/// Connected clients.
pub const CLIENTS_MAX: usize = 1000;
/// Connected clients of one owner: a quarter, so that others can connect.
pub const CLIENTS_PER_OWNER_MAX: usize = 250;
/// Header of the protocol's version.
const VERSION: &str = "mcp-protocol-version";
/// The first version whose clients have no ids.
const VERSION_WITHOUT_IDS: &str = "2026-07-28";

/// A response to a client: one message, or a stream of events.
pub type Reply = Response<BoxBody<Bytes, Infallible>>;

/// Why a request was not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRefused {
    /// The owner has no client of this id.
    Unknown,
    /// There are as many clients as there may be, of this owner or of all.
    Full,
}

/// The service for requests of many clients.
#[derive(Clone)]
pub struct Clients {
    service: StreamableHttpService<Server, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    /// Clients' ids, and whose they are; those that went by themselves stand until a place is needed.
    owners: Arc<Mutex<HashMap<String, String>>>,
}

impl Clients {
    /// Clients whose tools call `api`; all are disconnected when `stop` is cancelled.
    pub fn new(api: Arc<dyn Api>, stop: CancellationToken) -> Self {
        let (service, manager) = transport::http_service(api, stop);
        Self { service, manager, owners: Arc::default() }
    }

    /// Answers a request of `owner`'s. Whose it is, and whether its `Host` and `Origin` are right, was
    /// looked at before; tools find the caller again in the request's extensions.
    ///
    /// # Errors
    /// [`Refused`]: nothing was done.
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
                // It fails where the session has closed already.
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
        let place = own < CLIENTS_PER_OWNER_MAX && owners.len() < CLIENTS_MAX;
        if place {
            owners.insert(id.to_owned(), owner.to_owned());
        }
        place
    }

    async fn remove_closed(&self) {
        let there = self.manager.sessions.read().await;
        self.owners().retain(|id, _| there.contains_key(id.as_str()));
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a request without an id may be the first of a client that is given one.
fn may_initialize(headers: &HeaderMap) -> bool {
    headers.get(VERSION).is_none_or(|version| version.as_bytes() < VERSION_WITHOUT_IDS.as_bytes())
}
