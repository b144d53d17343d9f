//! The connection on which an agent reports changes of its shells and programs. It is the first
//! connection of a server to an agent, so it finds out the agent's protocol version.

use crate::agent_client::agent_version::AgentVersion;
use crate::agent_client::wire::Wire;
use crate::model::agent_error::AgentError;
use isolet_wire::activity::Activity;
use isolet_wire::request::AgentRequest;
use isolet_wire::response::AgentResponse;
use std::path::Path;
use std::sync::Arc;
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
/// with the current inventory, and stores the agent's version in `version`.
pub(crate) async fn watch_at(
    directory: &Path,
    version: &Arc<AgentVersion>,
    wait: Duration,
) -> Result<AgentReports, AgentError> {
    let open = watch(directory);
    let mut reports = timeout(wait, open).await.map_err(|_| AgentError::Silent)??;
    reports.wire.share_version(version);
    Ok(reports)
}

async fn watch(directory: &Path) -> Result<AgentReports, AgentError> {
    let mut wire = Wire::connect(directory, &Arc::default()).await?;
    wire.send(&AgentRequest::Watch).await?;
    match wire.answer().await? {
        AgentResponse::Inventory { activities, execs } => {
            Ok(AgentReports { wire, activities, execs })
        }
        _ => Err(AgentError::Turn("unexpected answer to watch")),
    }
}
