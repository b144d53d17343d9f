//! The tools, one file per resource.

mod files;
mod ports;
mod processes;
mod sandboxes;
mod shell;

use crate::server::Server;
use rmcp::handler::server::router::tool::ToolRouter;

/// Router with all tools.
pub(crate) fn router() -> ToolRouter<Server> {
    Server::sandboxes() + Server::shell() + Server::processes() + Server::ports() + Server::files()
}
