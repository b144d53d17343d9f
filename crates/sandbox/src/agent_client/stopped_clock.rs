//! The clock of an agent, stopped for a pause.

use crate::agent_client::agent_version::AgentVersion;
use crate::agent_client::wire::Wire;
use crate::model::agent_error::AgentError;
use isolet_wire::request::AgentRequest;
use isolet_wire::response::AgentResponse;
use std::path::Path;
use std::sync::Arc;

/// A connection that keeps the clock of an agent stopped until it is dropped. No timeout or stall
/// counts the time in between.
pub(crate) struct StoppedClock {
    _wire: Wire,
}

impl StoppedClock {
    /// Stops the clock of the agent that listens in a directory.
    ///
    /// # Errors
    /// [`AgentError`].
    pub(crate) async fn stop(
        directory: &Path,
        version: &Arc<AgentVersion>,
    ) -> Result<Self, AgentError> {
        let mut wire = Wire::connect(directory, version).await?;
        wire.send(&AgentRequest::StopClock).await?;
        match wire.answer().await? {
            AgentResponse::Done => Ok(Self { _wire: wire }),
            _ => Err(AgentError::Turn("unexpected answer to stopping the clock")),
        }
    }
}
