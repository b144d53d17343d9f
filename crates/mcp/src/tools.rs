//! The tools, one file per resource.

mod code;
mod edit;
mod files;
mod ports;
mod processes;
mod sandboxes;
mod shell;
mod snapshots;

use crate::server::McpServer;
use rmcp::handler::server::router::tool::ToolRouter;

/// Router with all tools.
pub(crate) fn router() -> ToolRouter<McpServer> {
    McpServer::sandboxes()
        + McpServer::snapshots()
        + McpServer::shell()
        + McpServer::code()
        + McpServer::processes()
        + McpServer::ports()
        + McpServer::files()
        + McpServer::edit()
}
