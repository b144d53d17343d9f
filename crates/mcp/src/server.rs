//! State of one client: its default sandbox and its own shells.

use crate::api::Api;
use crate::api_path;
use bytes::Bytes;
use http::{Extensions, Request};
use rmcp::handler::server::router::tool::ToolRouter;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Shell that all clients without a session id share.
pub(crate) const SHARED_SHELL: &str = "mcp";
/// Number of characters of the session id in the name of the client's shell.
pub(crate) const NAME_LETTERS: usize = 12;

/// Tool server of one client. Clones share its state.
#[derive(Clone)]
pub struct McpServer {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) router: Arc<ToolRouter<Self>>,
    pub(crate) sandbox: Option<String>,
    pub(crate) shells: Arc<OwnedShells>,
}

/// Shells that end together with their client.
pub(crate) struct OwnedShells {
    api: Arc<dyn Api>,
    /// Name of the client's shell over standard input and output.
    pub(crate) name: String,
    /// Sandbox and name of each shell, with the extensions that identify the caller.
    pub(crate) open: Mutex<BTreeMap<(String, String), Extensions>>,
}

impl McpServer {
    /// Creates the state of a client with these tools.
    pub(crate) fn with_tools(
        api: Arc<dyn Api>,
        sandbox: Option<String>,
        router: ToolRouter<Self>,
    ) -> Self {
        let mut bytes = [0_u8; NAME_LETTERS / 2];
        getrandom::fill(&mut bytes).expect("random bytes");
        let name = format!("{SHARED_SHELL}-{}", hex::encode(bytes));
        let shells = OwnedShells { api: Arc::clone(&api), name, open: Mutex::default() };
        Self { api, router: Arc::new(router), sandbox, shells: Arc::new(shells) }
    }

    /// Ends this client's own shells. Call this when the client has disconnected.
    pub async fn close_shells(&self) {
        self.shells.end().await;
    }
}

impl OwnedShells {
    async fn end(&self) {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        for ((sandbox, name), caller) in open {
            let path = format!("{}/sessions/{name}", api_path::sandbox(&sandbox));
            if let Ok(request) = Request::delete(path).body(Bytes::new()) {
                // Fails if the sandbox was deleted, which has ended its shells.
                let _ = self.api.call(request, caller).await;
            }
        }
    }
}

impl Drop for OwnedShells {
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
