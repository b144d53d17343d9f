//! Publishes the background processes and terminals of a sandbox as events. Starts, and ends that a
//! call causes, are published at once. Other ends are detected by the next query, which only
//! happens while a client follows the events.

use crate::live::entry::background::{Background, Known};
use crate::model::events::{EventKind, Exit};
use crate::model::ids::{ProcessId, SessionId};
use crate::model::process::ProcessInfo;
use crate::model::state::State;
use crate::sandbox::Sandbox;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Timeout of one agent's answer.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Maximum number of known processes and of known terminals. The ends of further ones are not
/// published.
const KNOWN_MAX: usize = 1024;
/// Maximum number of changes of one sandbox per query. Further changes follow with the next query.
const CHANGES_MAX: usize = 64;

impl Background {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the start of a process.
    pub(crate) fn started(&self, sandbox: &Sandbox, info: &ProcessInfo) {
        self.known().started(sandbox, info);
    }

    /// Publishes the end of a process if its status says so.
    pub(crate) fn seen(&self, sandbox: &Sandbox, info: &ProcessInfo) {
        self.known().seen(sandbox, info);
    }

    /// Publishes the end of a process that was forgotten.
    pub(crate) fn forgotten(&self, sandbox: &Sandbox, id: &ProcessId) {
        let mut known = self.known();
        let keys: Vec<_> = known.processes.keys().filter(|(own, _)| own == id).cloned().collect();
        keys.iter().for_each(|key| known.exited(sandbox, key, None));
    }

    /// Publishes a new terminal of a session.
    pub(crate) fn opened(&self, sandbox: &Sandbox, session: &SessionId, id: &str) {
        self.known().opened(sandbox, session, id);
    }

    /// Queries the agent and publishes what has changed.
    pub(crate) async fn look(&self, sandbox: &Sandbox) {
        // A process that starts during the query must not count as missing in the answer.
        let before = self.known().clone();
        if before.looked && before.processes.is_empty() && before.terminals.is_empty() {
            return;
        }
        let gone = match sandbox.entry.state() {
            State::Running | State::Sleeping => false,
            State::Failed => true,
            _ => return,
        };
        let asked = async { (sandbox.processes().await, sandbox.terminals().await) };
        let (processes, terminals) = match timeout(ANSWER_WAIT, asked).await {
            _ if gone => (Vec::new(), Vec::new()),
            Ok((Ok(processes), Ok(terminals))) => (processes, terminals),
            // The state is unknown.
            _ => return,
        };
        let mut left = CHANGES_MAX;
        let mut known = self.known();
        for info in &processes {
            let key = (info.id.clone(), info.process.started_at_ms);
            let fresh = !before.looked && runs(info) && !known.processes.contains_key(&key);
            let over = !runs(info) && known.processes.contains_key(&key);
            if fresh || over {
                let Some(fewer) = left.checked_sub(1) else { return };
                left = fewer;
            }
            if fresh {
                known.started(sandbox, info);
            }
            known.seen(sandbox, info);
        }
        let listed = |key: &(ProcessId, i64)| {
            let mut all = processes.iter();
            all.any(|info| info.id == key.0 && info.process.started_at_ms == key.1)
        };
        for key in before.processes.keys().filter(|key| !listed(key)).take(left) {
            known.exited(sandbox, key, None);
        }
        for (session, id) in before.terminals.iter() {
            let runs = terminals.iter().any(|(of, one)| of == session && one.id == *id);
            if !runs && known.terminals.get(session) == Some(id) {
                known.ended(sandbox, session);
            }
        }
        if !before.looked {
            terminals.iter().for_each(|(session, one)| known.opened(sandbox, session, &one.id));
        }
        known.looked = true;
    }
}

impl Known {
    fn started(&mut self, sandbox: &Sandbox, info: &ProcessInfo) {
        let process = info.id.clone();
        let session = info.session.clone();
        if self.processes.len() < KNOWN_MAX {
            let key = (process.clone(), info.process.started_at_ms);
            self.processes.insert(key, session.clone());
        }
        sandbox.emit(EventKind::ProcessStarted { process, session });
    }

    pub(crate) fn seen(&mut self, sandbox: &Sandbox, info: &ProcessInfo) {
        if !runs(info) {
            let end = info.process.end.as_ref();
            let exit = end.map(|end| Exit { code: end.code, signal: end.signal });
            self.exited(sandbox, &(info.id.clone(), info.process.started_at_ms), exit);
        }
    }

    /// Publishes the end of a process once.
    fn exited(&mut self, sandbox: &Sandbox, key: &(ProcessId, i64), exit: Option<Exit>) {
        if let Some(session) = self.processes.remove(key) {
            sandbox.emit(EventKind::ProcessExited { process: key.0.clone(), session, exit });
        }
    }

    fn opened(&mut self, sandbox: &Sandbox, session: &SessionId, id: &str) {
        if self.terminals.get(session).is_some_and(|known| known == id) {
            return;
        }
        self.ended(sandbox, session);
        if self.terminals.len() < KNOWN_MAX {
            self.terminals.insert(session.clone(), id.to_owned());
        }
        sandbox.emit(EventKind::TerminalOpened(session.clone()));
    }

    fn ended(&mut self, sandbox: &Sandbox, session: &SessionId) {
        if self.terminals.remove(session).is_some() {
            sandbox.emit(EventKind::TerminalEnded(session.clone()));
        }
    }
}

fn runs(info: &ProcessInfo) -> bool {
    info.process.end.is_none() && !info.lost
}
