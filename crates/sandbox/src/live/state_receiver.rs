//! Receives the states of shells from an agent and stores them: whenever the agent reports one, and
//! all of them before a sleep.

use crate::agent_client::wire::{AgentEvent, Wire};
use crate::live::entry::SandboxEntry;
use crate::model::agent_error::AgentError;
use crate::model::error::Error;
use crate::model::ids::SessionId;
use crate::model::info::{LossReason, Lost, LostState};
use isolet_wire::activity::{Activity, ShellKey};
use isolet_wire::request::AgentRequest;
use isolet_wire::response::{AgentResponse, STATE_BYTES_MAX, SaveFailure, SavedState};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tracing::warn;

/// How long an agent may be silent while it saves all shells. The agent itself gives up after 3 s.
const SAVE_WAIT: Duration = Duration::from_secs(10);

/// How long an agent may take in all, also if it keeps reporting something.
const SAVE_MAX: Duration = Duration::from_secs(60);

/// Assembles the parts of the states that one agent sends.
pub(crate) struct StateReceiver {
    entry: Arc<SandboxEntry>,
    /// The session of an agent with a scope; `None` for the sandbox's own agent, which may report
    /// every session without a scope.
    only: Option<SessionId>,
    /// The session and the parts received so far. Agents send the states one after the other.
    parts: Option<(SessionId, Vec<u8>)>,
}

impl StateReceiver {
    pub(crate) fn new(entry: &Arc<SandboxEntry>, only: Option<SessionId>) -> Self {
        Self { entry: Arc::clone(entry), only, parts: None }
    }

    /// The session of a shell, if this agent may report it and the sandbox is persistent.
    fn session(&self, shell: &ShellKey) -> Option<SessionId> {
        let ShellKey::Session(id) = shell else { return None };
        let id = SessionId::parse(id).ok()?;
        let own = self.only.as_ref().map_or(!self.entry.sessions.scoped(&id), |only| *only == id);
        let kept = self.entry.view.borrow().record.body.persistent;
        (own && kept && self.entry.sessions.info(&id).is_ok()).then_some(id)
    }

    /// Handles a message about a shell's state. `Some` means that the latest state is not stored.
    pub(crate) async fn on_update(
        &mut self,
        wire: &mut Wire,
        shell: ShellKey,
        update: SavedState,
    ) -> Option<LostState> {
        let session = self.session(&shell)?;
        let reason = match update {
            SavedState::Part(part) => {
                self.part(session, &part);
                return None;
            }
            SavedState::Complete { number } => {
                let (_, state) = self.parts.take().filter(|(of, _)| *of == session)?;
                let known = || self.entry.sessions.info(&session).is_ok();
                match self.entry.shell_states.keep(&session, state, known).await {
                    Ok(()) => {
                        // If the acknowledgement cannot be sent, the agent sends the state again.
                        let _ = wire.push(&AgentRequest::StateStored { shell, number });
                        return None;
                    }
                    Err(error) => {
                        warn!(sandbox = %self.entry.id, %session, %error, "state of a shell is not stored");
                        LossReason::NotKept
                    }
                }
            }
            SavedState::Gone => {
                self.entry.shell_states.forget(&session).await;
                return None;
            }
            SavedState::Failed(SaveFailure::TooLarge) => LossReason::TooLarge,
            SavedState::Failed(SaveFailure::NoAnswer) => LossReason::NoAnswer,
            SavedState::NotRestored => {
                self.unrestored(session);
                return None;
            }
        };
        Some(self.lost(session, reason))
    }

    fn part(&mut self, session: SessionId, part: &[u8]) {
        let own = self.parts.take().filter(|(of, _)| *of == session);
        let (_, mut bytes) = own.unwrap_or((session.clone(), Vec::new()));
        if bytes.len() + part.len() <= STATE_BYTES_MAX {
            bytes.extend_from_slice(part);
            self.parts = Some((session, bytes));
        }
    }

    fn lost(&self, session: SessionId, reason: LossReason) -> LostState {
        let saved_at_ms = self.entry.shell_states.saved_at_ms().get(&session).copied();
        LostState { session, reason, saved_at_ms }
    }

    /// Records the loss, which the next answer reports.
    fn unrestored(&self, session: SessionId) {
        warn!(sandbox = %self.entry.id, %session, "state of a shell was not restored completely");
        let lost = self.lost(session, LossReason::NotRestored);
        let mut losses = self.entry.lost();
        let losses = losses.get_or_insert_default();
        losses.retain(|of| !matches!(of, Lost::ShellState(of) if of.session == lost.session));
        losses.push(Lost::ShellState(lost));
    }

    /// Asks the agent to save all shells and returns what could not be saved. `changed` receives
    /// the other reports that arrive in between.
    ///
    /// # Errors
    /// [`AgentError::Silent`] when that takes too long, and other errors of the connection.
    pub(crate) async fn all(
        &mut self,
        wire: &mut Wire,
        changed: impl FnMut(Option<Activity>, u32),
    ) -> Result<Vec<Lost>, Error> {
        timeout(SAVE_MAX, self.receive_all(wire, changed)).await.map_err(|_| AgentError::Silent)?
    }

    async fn receive_all(
        &mut self,
        wire: &mut Wire,
        mut changed: impl FnMut(Option<Activity>, u32),
    ) -> Result<Vec<Lost>, Error> {
        let mut lost = Vec::new();
        wire.send(&AgentRequest::SaveStates).await?;
        loop {
            match timeout(SAVE_WAIT, wire.next()).await.map_err(|_| AgentError::Silent)?? {
                AgentEvent::Response(AgentResponse::Done) => return Ok(lost),
                AgentEvent::Response(AgentResponse::Changed { activity, execs }) => {
                    changed(activity, execs)
                }
                AgentEvent::Response(AgentResponse::ShellState { shell, update }) => {
                    lost.extend(self.on_update(wire, shell, update).await.map(Lost::ShellState));
                }
                _ => return Err(AgentError::Turn("unexpected answer to save").into()),
            }
        }
    }
}

/// The sessions of an inventory whose shells have ended.
pub(crate) fn ended(activities: &[Activity]) -> Vec<SessionId> {
    let ended = activities.iter().filter_map(|activity| match activity {
        Activity::Shell { key: ShellKey::Session(id), closed: Some(_), .. } => Some(id),
        _ => None,
    });
    ended.filter_map(|id| SessionId::parse(id).ok()).collect()
}
