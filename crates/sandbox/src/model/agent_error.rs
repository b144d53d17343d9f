//! Why a connection to an agent failed.

use crate::model::ids::SandboxId;
use isolet_wire::frame::FrameError;

/// Why a link cannot go on. It is to be dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The agent cannot be reached, or the connection broke.
    #[error("agent: {0}")]
    Io(std::io::ErrorKind),
    /// The agent closed the connection.
    #[error("agent closed the connection")]
    Ended,
    /// The agent sent what is no frame or no message.
    #[error("agent sent a bad frame: {0}")]
    Frame(String),
    /// The agent said something that does not belong here, or the caller did.
    #[error("out of turn: {0}")]
    Turn(&'static str),
    /// The agent speaks another version.
    #[error("agent speaks version {theirs}, this server {ours}")]
    Version {
        /// The agent's.
        theirs: u16,
        /// This server's.
        ours: u16,
    },
    /// The agent did not answer in time.
    #[error("agent does not answer")]
    Silent,
    /// This server has no descriptor or memory left for a connection, or for what the agent handed over.
    #[error("this server is short of descriptors or memory")]
    Short,
    /// The session that a command or program ran or waited in has ended, and that with it.
    #[error("the session has ended, and the command with it")]
    SessionEnded,
    /// The sandbox was deleted, and with it all that ran or waited in it.
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
