//! The protocol version of an agent.

use crate::model::agent_error::AgentError;
use isolet_wire::request::AgentRequest;
use isolet_wire::version::{self, VERSION};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The version that connections to one agent use. The first connection finds it out; the others
/// offer it in their greeting, so that they need not wait for the answer.
#[derive(Debug)]
pub(crate) struct AgentVersion(AtomicU16);

impl Default for AgentVersion {
    fn default() -> Self {
        Self::offering(VERSION)
    }
}

impl AgentVersion {
    /// A version that is only offered until an agent agrees.
    pub(crate) fn offering(version: u16) -> Self {
        Self(AtomicU16::new(version))
    }

    pub(crate) fn get(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }

    /// Stores the version of the agent that was reached last.
    pub(crate) fn set(&self, version: u16) {
        self.0.store(version, Ordering::Relaxed);
    }

    /// Stores the version that the agent answered.
    ///
    /// # Errors
    /// [`AgentError::Version`] for one that this server does not support.
    pub(crate) fn agreed(&self, answered: u16) -> Result<(), AgentError> {
        if !version::is_agreed(self.get(), answered) {
            return Err(AgentError::Version { theirs: answered });
        }
        self.set(answered);
        Ok(())
    }

    /// Checks that the agent knows a message.
    ///
    /// # Errors
    /// [`AgentError::TooOld`].
    pub(crate) fn knows(&self, request: &AgentRequest) -> Result<(), AgentError> {
        let has = self.get();
        let needs = request.since();
        if needs > has { Err(AgentError::TooOld { has, needs }) } else { Ok(()) }
    }
}

/// How to reach an agent for a connection outside the pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentAddress<'a> {
    /// The directory in which the agent listens.
    pub(crate) directory: &'a Path,
    pub(crate) version: &'a Arc<AgentVersion>,
}
