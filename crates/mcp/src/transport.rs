//! The two transports: standard input and output, and HTTP.

use crate::api::Api;
use crate::server::McpServer;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Silence after which a client counts as disconnected.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// Limit on a client's message: a file of several MiB in base64.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Protocol error of a client on standard input and output.
#[derive(Debug)]
pub struct StdioError(String);

impl std::fmt::Display for StdioError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StdioError {}

/// Serves the client on standard input and output until it closes them.
///
/// # Errors
/// The client does not speak MCP.
pub async fn serve(api: Arc<dyn Api>, sandbox: Option<String>) -> Result<(), StdioError> {
    let server = McpServer::new(api, sandbox);
    let running = match server.clone().serve(stdio()).await {
        Ok(running) => running,
        // The client has left before it said anything.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(StdioError(error.to_string())),
    };
    let ended = running.waiting().await.map_err(|error| StdioError(error.to_string()));
    server.close_shells().await;
    ended.map(|_| ())
}

/// The service for HTTP requests of many clients, and its session manager.
pub(crate) fn http_service(
    api: Arc<dyn Api>,
    stop: CancellationToken,
) -> (StreamableHttpService<McpServer, LocalSessionManager>, Arc<LocalSessionManager>) {
    let mut session = SessionConfig::default();
    session.keep_alive = Some(IDLE_TIMEOUT);
    let mut manager = LocalSessionManager::default();
    manager.session_config = session;
    let manager = Arc::new(manager);
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MESSAGE_BYTES_MAX)
        .with_cancellation_token(stop);
    let make = move || Ok(McpServer::new(Arc::clone(&api), None));
    (StreamableHttpService::new(make, Arc::clone(&manager), config), manager)
}
