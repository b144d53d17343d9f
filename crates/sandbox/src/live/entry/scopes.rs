//! The agents of sessions with `file_access`, each of which has an agent of its own.

use crate::{
    agent_client::{agent_activity::AgentActivity, pool::Pool},
    model::ids::SessionId,
};
use isolet_wire::activity::ShellKey;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::task::JoinSet;

/// A session's own agent, that runs.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) directory: PathBuf,
    pub(crate) pool: Arc<Pool>,
    pub(crate) seen: Mutex<AgentActivity>,
}

/// Those of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    running: Mutex<BTreeMap<SessionId, Arc<Scope>>>,
    /// Starts and ends go one after the other.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// Sessions whose shells ended with their agents, and were not told of it.
    lost: Mutex<BTreeSet<SessionId>>,
    /// One task an agent that hears its news.
    pub(crate) news: Mutex<JoinSet<()>>,
}

/// Whether a session's shell was lost with its agent: kept for the next who asks, unless it was
/// told. A start may fail just because an agent is ending.
#[derive(Debug)]
pub(crate) struct Again<'a> {
    scopes: &'a Scopes,
    lost: Option<SessionId>,
}

impl Again<'_> {
    pub(crate) fn lost(&self) -> bool {
        self.lost.is_some()
    }

    /// A shell that says it is open.
    pub(crate) fn told(mut self) {
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
    /// A shell is open in it: lost when the agent ends before it has told so itself.
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

    /// The session's shell was not lost with its agent, or nobody is left to be told.
    pub(crate) fn forgive(&self, id: &SessionId) {
        self.lost().remove(id);
    }

    /// What the session's next shell, in this scope, says of the one before; asked by one at a time.
    pub(crate) fn again(&self, id: &SessionId, scope: Option<&Arc<Scope>>) -> Again<'_> {
        // Nothing is opened in one that has ended: whoever starts another says it.
        let runs = scope.is_some_and(|scope| self.runs(id, scope));
        Again { scopes: self, lost: if runs { self.lost().take(id) } else { None } }
    }

    fn runs(&self, id: &SessionId, scope: &Arc<Scope>) -> bool {
        self.running().get(id).is_some_and(|now| Arc::ptr_eq(now, scope))
    }

    /// A command or a program runs in one of them.
    pub(crate) fn busy(&self) -> bool {
        self.running().values().any(|scope| scope.seen().busy())
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<(SessionId, Arc<Scope>)> {
        let running = self.running();
        running.iter().map(|(id, scope)| (id.clone(), Arc::clone(scope))).collect()
    }

    /// Lets go of all agents; whether they live on is somebody else's business.
    pub(crate) fn clear(&self) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        for scope in std::mem::take(&mut *self.running()).into_values() {
            scope.pool.drop_links(None);
        }
        self.lost().clear();
    }

    /// Lets go of one, unless another has taken its place: with the `shell` that was lost, where it
    /// has ended by itself.
    pub(crate) fn remove(&self, id: &SessionId, scope: &Arc<Scope>, shell: bool) -> bool {
        let mut running = self.running();
        let same = running.get(id).is_some_and(|now| Arc::ptr_eq(now, scope));
        if same {
            running.remove(id);
        }
        // Under the same lock: whoever starts the next one knows of it.
        if same && shell {
            self.lost().insert(id.clone());
        }
        drop(running);
        scope.pool.drop_links(None);
        same
    }
}
