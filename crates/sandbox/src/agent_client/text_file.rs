//! Reading and writing small text files inside a sandbox, through its agent.

use crate::agent_client::agent_version::AgentAddress;
use crate::agent_client::wire::{AgentEvent, Wire};
use crate::model::agent_error::AgentError;
use crate::model::error::Error;
use isolet_wire::frame::{DATA_BYTES_MAX, DataFrame};
use isolet_wire::request::{AgentRequest, ByteRange, FileRequest, WriteOptions};
use isolet_wire::response::AgentResponse;

async fn file(agent: AgentAddress<'_>, call: FileRequest) -> Result<Wire, AgentError> {
    let mut wire = Wire::connect(agent.directory, agent.version).await?;
    wire.send(&AgentRequest::File(call)).await?;
    Ok(wire)
}

/// Reads a text file of the sandbox; `None` if it does not exist, is larger than `bytes_max` or is no
/// text.
pub(super) async fn fetch(
    agent: AgentAddress<'_>,
    path: &str,
    bytes_max: usize,
) -> Result<Option<String>, Error> {
    let limit = Some(bytes_max as u64);
    let range = ByteRange::From { offset: 0, limit };
    let mut wire = file(agent, FileRequest::Read { path: path.as_bytes().to_vec(), range }).await?;
    let mut bytes = Vec::new();
    loop {
        match wire.next().await? {
            AgentEvent::Response(AgentResponse::FileStat(stat))
                if stat.size <= bytes_max as u64 => {}
            AgentEvent::Data(body) => {
                bytes.extend_from_slice(&DataFrame::parse(body).map_err(AgentError::from)?.bytes);
                if bytes.len() > bytes_max {
                    return Ok(None);
                }
            }
            AgentEvent::Response(AgentResponse::Done) => return Ok(String::from_utf8(bytes).ok()),
            AgentEvent::Response(_) => return Ok(None),
        }
    }
}

/// Writes a file as the sandbox's user. A file that the user may not write stays unchanged.
pub(super) async fn save(agent: AgentAddress<'_>, path: &str, bytes: &[u8]) -> Result<(), Error> {
    let shown = path;
    let path = path.as_bytes().to_vec();
    let options = WriteOptions::default();
    let mut wire = file(agent, FileRequest::Write { path, options, expected: None }).await?;
    let mut at = 0;
    for part in bytes.chunks(DATA_BYTES_MAX) {
        wire.send_data(at, part).await?;
        at += part.len() as u64;
    }
    wire.send(&AgentRequest::File(FileRequest::End)).await?;
    loop {
        match wire.next().await? {
            AgentEvent::Response(AgentResponse::Done) => return Ok(()),
            AgentEvent::Response(AgentResponse::FileSaved { .. }) => {}
            AgentEvent::Response(AgentResponse::Refused { message, .. }) => {
                tracing::info!(message, path = shown, "file of a sandbox could not be written");
                return Ok(());
            }
            _ => return Err(AgentError::Turn("unexpected answer to a file call").into()),
        }
    }
}
