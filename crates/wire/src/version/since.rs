//! The protocol version that added each message to an agent. The matches name every message, so
//! that a new one cannot be added without its version.

use crate::context::ContextRequest;
use crate::process::ProcessRequest;
use crate::request::{AgentRequest, FileRequest};

/// The first version of the protocol.
const FIRST: u16 = 1;

impl AgentRequest {
    /// The first protocol version whose agents know this message. A server sends it to no older
    /// agent.
    #[must_use]
    pub fn since(&self) -> u16 {
        match self {
            Self::File(request) => request.since(),
            Self::Process(request) => request.since(),
            Self::Context(request) => request.since(),
            Self::Hello { .. }
            | Self::Ping(_)
            | Self::Watch
            | Self::Attach(_)
            | Self::Run(_)
            | Self::Stdin { .. }
            | Self::Signal { .. }
            | Self::Cancel { .. }
            | Self::Close { .. }
            | Self::Exec(_)
            | Self::SaveStates
            | Self::StateStored { .. }
            | Self::Terminal(_)
            | Self::Type(_)
            | Self::Resize(_)
            | Self::Terminals
            | Self::Dial { .. }
            | Self::Listening
            | Self::StopClock => FIRST,
        }
    }
}

impl FileRequest {
    fn since(&self) -> u16 {
        match self {
            Self::Read { .. }
            | Self::Write { .. }
            | Self::End
            | Self::MakeDir { .. }
            | Self::Remove { .. }
            | Self::Walk { .. }
            | Self::Metadata { .. }
            | Self::Move(_)
            | Self::Copy(_)
            | Self::Chmod { .. }
            | Self::Pack { .. }
            | Self::Unpack { .. }
            | Self::Search { .. }
            | Self::Watch { .. }
            | Self::Attributes { .. }
            | Self::SetAttributes { .. }
            | Self::Fingerprints { .. } => FIRST,
        }
    }
}

impl ProcessRequest {
    fn since(&self) -> u16 {
        match self {
            Self::Start(_)
            | Self::List
            | Self::Get(_)
            | Self::Follow { .. }
            | Self::Input { .. }
            | Self::Signal { .. }
            | Self::Kill { .. }
            | Self::Forget(_) => FIRST,
        }
    }
}

impl ContextRequest {
    fn since(&self) -> u16 {
        match self {
            Self::Open(_)
            | Self::Run(_)
            | Self::Interrupt(_)
            | Self::Restart(_)
            | Self::Close(_)
            | Self::List => FIRST,
        }
    }
}
