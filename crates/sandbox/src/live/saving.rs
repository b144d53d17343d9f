//! Stores the state of shells that an agent sends: whenever the agent reports a new one, and all of
//! them before a sleep.

use crate::{
    agent_client::wire::{AgentEvent, Wire},
    live::entry::Entry,
    model::{
        agent_error::AgentError,
        error::Error,
        ids::SessionId,
        info::{Lost, LostState, WhyLost},
    },
};
use isolet_wire::{
    activity::{Activity, ShellKey},
    request::AgentRequest,
    response::{AgentResponse, STATE_BYTES_MAX, Saved, Unsaved},
};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
use tracing::warn;

/// How long an agent may be silent while it saves all shells; it gives up after 3 s.
const SAVE_WAIT: Duration = Duration::from_secs(10);

/// What one agent tells, as far as it has come.
pub(crate) struct Saving {
    entry: Arc<Entry>,
    /// The one session that the agent has; `None`: all that have no scope.
    only: Option<SessionId>,
    /// The state that is being told, and whose it is: shells are told of one after the other.
    parts: Option<(SessionId, Vec<u8>)>,
}

impl Saving {
    pub(crate) fn new(entry: &Arc<Entry>, only: Option<SessionId>) -> Self {
        Self { entry: Arc::clone(entry), only, parts: None }
    }

    /// The session whose shell it is, where this agent may speak of it and it is kept.
    fn session(&self, shell: &ShellKey) -> Option<SessionId> {
        let ShellKey::Session(id) = shell else { return None };
        let id = SessionId::parse(id).ok()?;
        let own = self.only.as_ref().map_or(!self.entry.sessions.scoped(&id), |only| *only == id);
        let kept = self.entry.view.borrow().record.body.persistent;
        (own && kept && self.entry.sessions.info(&id).is_ok()).then_some(id)
    }

    /// The agent told something of what a shell holds. `Some`: it is not kept as it is.
    pub(crate) async fn told(
        &mut self,
        wire: &mut Wire,
        shell: ShellKey,
        what: Saved,
    ) -> Option<LostState> {
        let session = self.session(&shell)?;
        let why = match what {
            Saved::Part(part) => {
                self.part(session, &part);
                return None;
            }
            Saved::Whole { number } => {
                let (_, state) = self.parts.take().filter(|(of, _)| *of == session)?;
                let known = || self.entry.sessions.info(&session).is_ok();
                match self.entry.shell_states.keep(&session, state, known).await {
                    Ok(()) => {
                        // When it cannot be said, it is told again.
                        let _ = wire.push(&AgentRequest::Kept { shell, number });
                        return None;
                    }
                    Err(error) => {
                        warn!(sandbox = %self.entry.id, %session, %error, "a shell is not saved");
                        WhyLost::NotKept
                    }
                }
            }
            Saved::Gone => {
                self.entry.shell_states.forget(&session).await;
                return None;
            }
            Saved::Not(Unsaved::TooLarge) => WhyLost::TooLarge,
            Saved::Not(Unsaved::NoAnswer) => WhyLost::NoAnswer,
            Saved::Unrestored => {
                self.unrestored(session);
                return None;
            }
        };
        Some(self.lost(session, why))
    }

    fn part(&mut self, session: SessionId, part: &[u8]) {
        let own = self.parts.take().filter(|(of, _)| *of == session);
        let (_, mut bytes) = own.unwrap_or((session.clone(), Vec::new()));
        if bytes.len() + part.len() <= STATE_BYTES_MAX {
            bytes.extend_from_slice(part);
            self.parts = Some((session, bytes));
        }
    }

    fn lost(&self, session: SessionId, why: WhyLost) -> LostState {
        let saved_at_ms = self.entry.shell_states.saved_at_ms().get(&session).copied();
        LostState { session, why, saved_at_ms }
    }

    /// The next answer tells it.
    fn unrestored(&self, session: SessionId) {
        warn!(sandbox = %self.entry.id, %session, "a shell did not take over all that was saved");
        let lost = self.lost(session, WhyLost::NotRestored);
        let mut told = self.entry.lost();
        let told = told.get_or_insert_default();
        told.retain(|of| !matches!(of, Lost::ShellState(of) if of.session == lost.session));
        told.push(Lost::ShellState(lost));
    }

    /// Has all saved that shells hold; what could not be. `changed` hears what else is told.
    pub(crate) async fn all(
        &mut self,
        wire: &mut Wire,
        mut changed: impl FnMut(Option<Activity>, u32),
    ) -> Result<Vec<Lost>, Error> {
        let mut lost = Vec::new();
        wire.send(&AgentRequest::Save).await?;
        loop {
            match timeout(SAVE_WAIT, wire.next()).await.map_err(|_| AgentError::Silent)?? {
                AgentEvent::Response(AgentResponse::Done) => return Ok(lost),
                AgentEvent::Response(AgentResponse::Changed { activity, execs }) => {
                    changed(activity, execs)
                }
                AgentEvent::Response(AgentResponse::Saved { shell, what }) => {
                    lost.extend(self.told(wire, shell, what).await.map(Lost::ShellState));
                }
                _ => return Err(AgentError::Turn("another answer to save").into()),
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
