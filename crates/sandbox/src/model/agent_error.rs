//! Errors of connections to agents.

use crate::model::ids::SandboxId;
use isolet_wire::frame::FrameError;

/// An error of a connection to an agent. The connection must be dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The agent cannot be reached, or the connection broke.
    #[error("agent: {0}")]
    Io(std::io::ErrorKind),
    /// The agent closed the connection.
    #[error("agent closed the connection")]
    Ended,
    /// The agent sent an invalid frame or message.
    #[error("agent sent a bad frame: {0}")]
    Frame(String),
    /// The agent or the caller sent a message that is not allowed at this point.
    #[error("out of turn: {0}")]
    Turn(&'static str),
    /// The agent speaks another protocol version.
    #[error("agent speaks version {theirs}, this server {ours}")]
    Version {
        /// The version of the agent.
        theirs: u16,
        /// The version of this server.
        ours: u16,
    },
    /// The agent did not answer in time.
    #[error("agent does not answer")]
    Silent,
    /// This server has no descriptors or memory left for the connection or for a passed descriptor.
    #[error("this server is short of descriptors or memory")]
    Short,
    /// The session was deleted while a command or program ran or waited in it.
    #[error("the session has ended, and the command with it")]
    SessionEnded,
    /// The sandbox was deleted while something ran or waited in it.
    #[error("sandbox {0} was deleted while this call was in it")]
    Destroyed(SandboxId),
}

impl From<FrameError> for AgentError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error.to_string())
    }
}

impl From<std::io::Error> for AgentError {
    fn from(error: std::io::Error) -> Self {
        use rustix::io::Errno;
        match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Self::Short,
            _ => Self::Io(error.kind()),
        }
    }
}
