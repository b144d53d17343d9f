//! The handler of the protocol: the description of this server, and its tools.

use crate::api::Api;
use crate::server::Server;
use crate::tools;
use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};
use rmcp::{ServerHandler, tool_handler};
use std::sync::Arc;

const INSTRUCTIONS: &str = "\
Sandboxes: isolated Linux machines for running commands and programs. `shell_run` types a command into \
one bash that stays: directory, variables, functions and background jobs are kept from call to call. \
Servers and long work are processes: `process_start`, then `process_wait` for a port or a line, \
`process_logs`. What listens in a sandbox is asked by `port_fetch`, and shown to people by `port_link`. \
Files are those of the sandbox, relative to /workspace. Nothing has to be created first: a sandbox is \
made when it is first used.";

impl Server {
    /// For one client; `sandbox` is meant where it names none.
    ///
    /// # Panics
    /// When the kernel gives no random bytes, which Linux does not do after boot.
    #[must_use]
    pub fn new(api: Arc<dyn Api>, sandbox: Option<String>) -> Self {
        Self::with_tools(api, sandbox, tools::router())
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
