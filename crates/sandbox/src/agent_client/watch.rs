//! The connection that reports changes of an agent's shells and programs.

use crate::{agent_client::wire::Wire, model::agent_error::LinkError};
use isolet_wire::{
    ask::Ask,
    tell::{Shell, Tell},
};
use std::{path::Path, time::Duration};
use tokio::time::timeout;

/// Connects for news of the agent that listens in a directory: its shells and programs now, and
/// the connection that tells of changes.
pub(crate) async fn watch_at(
    directory: &Path,
    wait: Duration,
) -> Result<(Wire, Vec<Shell>, u32), LinkError> {
    let open = async {
        let mut wire = Wire::connect(directory).await?;
        wire.send(&Ask::Watch).await?;
        match wire.answer().await? {
            Tell::Census { shells, execs } => Ok((wire, shells, execs)),
            _ => Err(LinkError::Turn("another answer to watch")),
        }
    };
    timeout(wait, open).await.map_err(|_| LinkError::Silent)?
}
