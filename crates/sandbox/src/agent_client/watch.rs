//! The connection on which an agent reports changes of its shells and programs.

use crate::agent_client::wire::Wire;
use crate::model::agent_error::AgentError;
use isolet_wire::activity::Activity;
use isolet_wire::request::AgentRequest;
use isolet_wire::response::AgentResponse;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// A connection on which an agent reports changes, with its inventory.
pub(crate) struct AgentReports {
    /// The connection for further reports.
    pub(crate) wire: Wire,
    /// Everything that runs in the sandbox under a name.
    pub(crate) activities: Vec<Activity>,
    /// Number of programs without a shell.
    pub(crate) execs: u32,
}

/// Connects to the agent that listens in a directory and requests reports. Returns the connection
/// with the current inventory.
pub(crate) async fn watch_at(directory: &Path, wait: Duration) -> Result<AgentReports, AgentError> {
    let open = async {
        let mut wire = Wire::connect(directory).await?;
        wire.send(&AgentRequest::Watch).await?;
        match wire.answer().await? {
            AgentResponse::Inventory { activities, execs } => {
                Ok(AgentReports { wire, activities, execs })
            }
            _ => Err(AgentError::Turn("unexpected answer to watch")),
        }
    };
    timeout(wait, open).await.map_err(|_| AgentError::Silent)?
}
