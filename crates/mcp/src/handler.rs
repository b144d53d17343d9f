//! The handler of the protocol: the description of this server, and its tools.

use crate::answer_memory::AnswerMemory;
use crate::api::Api;
use crate::server::McpServer;
use crate::tools;
use rmcp::handler::server::tool::ToolCallContext;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, tool_handler};
use std::sync::Arc;

const INSTRUCTIONS: &str = "\
Sandboxes: isolated Linux machines for running commands and programs. `shell_run` runs a command in a \
persistent bash: working directory, variables, functions and background jobs persist between calls. Run \
servers and long tasks as background processes: call `process_start`, then `process_wait` for a port or a \
log line, and `process_logs`. `code_run` runs Python, \
JavaScript, TypeScript or bash in an interpreter that keeps its variables, and returns charts as images. \
`file_edit` replaces text in a file. `port_fetch` sends an HTTP request to a program that listens in a sandbox; \
`port_link` creates a link to it for people. File paths are relative to /workspace in the sandbox. You need \
not create anything first: the first use of a sandbox creates it.";

impl McpServer {
    /// Creates a server for one client. `sandbox` is used by calls that name no sandbox.
    ///
    /// # Panics
    /// If the kernel returns no random bytes, which does not happen on Linux after boot.
    #[must_use]
    pub fn new(api: Arc<dyn Api>, sandbox: Option<String>) -> Self {
        Self::with_tools(api, sandbox, tools::router())
    }
}

#[tool_handler(router = self.router)]
impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("isolet", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let memory = AnswerMemory::of_call(&context);
        let answer = self.router.call(ToolCallContext::new(self, request, context)).await?;
        Ok(match memory {
            Some(memory) => memory.hold(answer),
            None => answer,
        })
    }
}
