//! The scopes of sessions with `file_access`. Each of these sessions has an agent of its own.

use crate::agent_client::agent_activity::AgentActivity;
use crate::agent_client::pool::Pool;
use crate::model::ids::SessionId;
use isolet_wire::activity::ShellKey;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinSet;

/// The running agent of one session.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) directory: PathBuf,
    pub(crate) pool: Arc<Pool>,
    pub(crate) seen: Mutex<AgentActivity>,
}

/// The scopes of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    running: Mutex<BTreeMap<SessionId, Arc<Scope>>>,
    /// Serialises starts and ends.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// Sessions whose shell was lost with its agent and whose clients have not learned of it yet.
    lost: Mutex<BTreeSet<SessionId>>,
    /// One task for each agent, which handles its reports.
    pub(crate) news: Mutex<JoinSet<()>>,
}

/// Takes the fact that a session's shell was lost with its agent, and puts it back on drop unless a
/// new shell has reported it. A start may fail because an agent is ending.
#[derive(Debug)]
pub(crate) struct Again<'a> {
    scopes: &'a Scopes,
    lost: Option<SessionId>,
}

impl Again<'_> {
    pub(crate) fn lost(&self) -> bool {
        self.lost.is_some()
    }

    /// A new shell is open and reports the loss.
    pub(crate) fn reported(mut self) {
        self.lost = None;
    }
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.lost.take() {
            self.scopes.lost().insert(id);
        }
    }
}

impl Scope {
    /// Records that a shell is open. It counts as lost if the agent ends before reporting it.
    pub(crate) fn opened(&self, shell: &ShellKey) {
        self.seen().opened(shell);
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, AgentActivity> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scopes {
    pub(crate) fn running(&self) -> MutexGuard<'_, BTreeMap<SessionId, Arc<Scope>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<Scope>> {
        self.running().get(id).cloned()
    }

    fn lost(&self) -> MutexGuard<'_, BTreeSet<SessionId>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the loss: the shell was not lost, or no client is left to report it to.
    pub(crate) fn forgive(&self, id: &SessionId) {
        self.lost().remove(id);
    }

    /// Whether the session's next shell in this scope must report the loss of the one before. Only
    /// one caller receives it.
    pub(crate) fn again(&self, id: &SessionId, scope: Option<&Arc<Scope>>) -> Again<'_> {
        // A shell cannot be opened in a scope that has ended, so the loss stays for the next scope.
        let runs = scope.is_some_and(|scope| self.runs(id, scope));
        Again { scopes: self, lost: if runs { self.lost().take(id) } else { None } }
    }

    fn runs(&self, id: &SessionId, scope: &Arc<Scope>) -> bool {
        self.running().get(id).is_some_and(|now| Arc::ptr_eq(now, scope))
    }

    /// Whether a command or a program runs in any scope.
    pub(crate) fn busy(&self) -> bool {
        self.running().values().any(|scope| scope.seen().busy())
    }

    pub(crate) fn all(&self) -> Vec<(SessionId, Arc<Scope>)> {
        let running = self.running();
        running.iter().map(|(id, scope)| (id.clone(), Arc::clone(scope))).collect()
    }

    /// Disconnects from all agents, whether or not they continue to run.
    pub(crate) fn clear(&self) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        for scope in std::mem::take(&mut *self.running()).into_values() {
            scope.pool.drop_links(None);
        }
        self.lost().clear();
    }

    /// Removes a scope unless another has replaced it. `shell` says whether the session's shell was
    /// lost with it.
    pub(crate) fn remove(&self, id: &SessionId, scope: &Arc<Scope>, shell: bool) -> bool {
        let mut running = self.running();
        let same = running.get(id).is_some_and(|now| Arc::ptr_eq(now, scope));
        if same {
            running.remove(id);
        }
        // Under the same lock, so that the start of the next scope sees it.
        if same && shell {
            self.lost().insert(id.clone());
        }
        drop(running);
        scope.pool.drop_links(None);
        same
    }
}
