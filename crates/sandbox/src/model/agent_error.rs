//! Errors of connections to agents.

use crate::model::ids::SandboxId;
use isolet_wire::frame::FrameError;
use isolet_wire::version::{OLDEST_AGENT, VERSION};

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
    /// The agent answered the greeting with a protocol version that this server does not support.
    #[error(
        "its agent speaks protocol version {theirs}, and this server supports {OLDEST_AGENT} to {VERSION}"
    )]
    Version {
        /// The version of the agent.
        theirs: u16,
    },
    /// The agent is older than the message that the call needs. Nothing was sent.
    #[error(
        "the sandbox's agent speaks protocol version {has}, and this call needs version {needs}"
    )]
    TooOld {
        /// The version of the agent.
        has: u16,
        /// The first version that knows the message.
        needs: u16,
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
    /// The sandbox was put to sleep while something ran or waited in it.
    #[error("sandbox {0} was put to sleep while this call was in it")]
    Slept(SandboxId),
    /// The sandbox was deleted while something ran or waited in it.
    #[error("sandbox {0} was deleted while this call was in it")]
    Destroyed(SandboxId),
    /// The sandbox left this node while something ran or waited in it.
    #[error("sandbox {0} left its node while this call was in it")]
    Departed(SandboxId),
}

impl AgentError {
    /// Whether the agent runs, but no version is left that both sides speak. Such an agent is left
    /// alone: a server of another release can still work with it.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Version { .. })
    }
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
