//! The connection that reports changes of an agent's shells and programs.

use crate::{agent_client::wire::Wire, model::agent_error::AgentError};
use isolet_wire::{activity::Activity, request::AgentRequest, response::AgentResponse};
use std::{path::Path, time::Duration};
use tokio::time::timeout;

/// Connects for news of the agent that listens in a directory: its shells and programs now, and
/// the connection that tells of changes.
pub(crate) async fn watch_at(
    directory: &Path,
    wait: Duration,
) -> Result<(Wire, Vec<Activity>, u32), AgentError> {
    let open = async {
        let mut wire = Wire::connect(directory).await?;
        wire.send(&AgentRequest::Watch).await?;
        match wire.answer().await? {
            AgentResponse::Inventory { activities, execs } => Ok((wire, activities, execs)),
            _ => Err(AgentError::Turn("another answer to watch")),
        }
    };
    timeout(wait, open).await.map_err(|_| AgentError::Silent)?
}
