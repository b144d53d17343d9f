//! What a sandbox's agent has reported about its shells and programs. The driver uses it to decide
//! whether the sandbox may sleep and what a sleep would lose.

use crate::model::ids::SessionId;
use isolet_wire::activity::{Activity, ShellKey};
use std::collections::BTreeMap;

/// Limit on the number of remembered activities, above what any honest agent opens.
const SHELLS_MAX: usize = 8192;

/// The open shells, terminals, contexts and spare kernels of an agent, and the number of its
/// programs.
#[derive(Debug, Default)]
pub(crate) struct AgentActivity {
    /// Every open activity, and whether it is busy.
    open: BTreeMap<ShellKey, bool>,
    /// Number of threads of each context's interpreter and of the spare kernel.
    threads: BTreeMap<ShellKey, u32>,
    execs: u32,
}

impl AgentActivity {
    /// The activity that an agent's inventory lists.
    pub(crate) fn inventory(activities: &[Activity], execs: u32) -> Self {
        let mut seen = Self::default();
        seen.changed(None, execs);
        activities.iter().for_each(|activity| seen.changed(Some(activity), execs));
        seen
    }

    /// Applies a change of one activity, or of the number of programs alone.
    pub(crate) fn changed(&mut self, activity: Option<&Activity>, execs: u32) {
        self.execs = execs;
        let Some(activity) = activity else { return };
        let key = activity.key();
        if activity.has_ended() {
            self.open.remove(&key);
            self.threads.remove(&key);
        } else if self.open.len() < SHELLS_MAX || self.open.contains_key(&key) {
            if let Activity::Context { threads, .. } | Activity::SpareKernel { threads, .. } =
                activity
            {
                self.threads.insert(key.clone(), *threads);
            }
            self.open.insert(key, activity.is_busy());
        }
    }

    /// A client has attached to this shell. The agent reports the shell a little later.
    pub(crate) fn opened(&mut self, shell: &ShellKey) {
        if self.open.len() < SHELLS_MAX && !self.open.contains_key(shell) {
            self.open.insert(shell.clone(), false);
        }
    }

    /// Whether a command, a run or a program is in progress.
    pub(crate) fn busy(&self) -> bool {
        self.execs > 0 || self.open.values().any(|busy| *busy)
    }

    /// Number of open shells that belong to no session.
    pub(crate) fn private(&self) -> usize {
        self.count(|key| matches!(key, ShellKey::Private(_)))
    }

    fn count(&self, fits: impl Fn(&ShellKey) -> bool) -> usize {
        self.open.keys().filter(|key| fits(key)).count()
    }

    /// Whether the session's shell is open.
    pub(crate) fn open(&self, session: &SessionId) -> bool {
        self.open.contains_key(&ShellKey::Session(session.to_string()))
    }

    /// Number of open shells.
    pub(crate) fn shells(&self) -> usize {
        self.count(ShellKey::is_shell)
    }

    /// Number of code contexts.
    pub(crate) fn contexts(&self) -> usize {
        self.count(|key| matches!(key, ShellKey::Context(_)))
    }

    /// Number of threads of all interpreters, as the agent reported them.
    pub(crate) fn context_tasks(&self) -> usize {
        self.threads.values().map(|count| *count as usize).sum()
    }

    /// Number of running terminals.
    pub(crate) fn terminals(&self) -> usize {
        self.count(|key| matches!(key, ShellKey::Terminal(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::response::Closed;

    fn shell(name: &str, busy: bool, queued: u32, closed: bool) -> Activity {
        let closed = closed.then(Closed::default);
        Activity::Shell { key: name.parse().unwrap(), pid: 7, busy, queued, clients: 0, closed }
    }

    #[test]
    fn it_is_busy_while_any_command_or_program_runs() {
        let mut seen = AgentActivity::inventory(&[shell("s/a", false, 0, false)], 1);
        assert!(seen.busy(), "a program runs");
        seen.changed(None, 0);
        assert!(!seen.busy());
        seen.changed(Some(&shell("p/b", false, 1, false)), 0);
        assert!(seen.busy() && seen.shells() == 2, "a command waits for its turn");
        seen.changed(Some(&shell("p/b", true, 0, true)), 0);
        assert!(!seen.busy() && seen.shells() == 1, "a shell that ended runs nothing");
        seen.opened(&ShellKey::Private("c".into()));
        seen.changed(Some(&shell("p/c", false, 0, true)), 0);
        let session = "a".to_owned();
        let terminal = Activity::Terminal { session, pid: 7, clients: 0, closed: None };
        seen.changed(Some(&terminal), 0);
        assert_eq!((seen.shells(), seen.private(), seen.terminals()), (1, 0, 1));
        let id = "notebook".to_owned();
        let context =
            Activity::Context { id, pid: 8, busy: true, queued: 0, threads: 5, ended: false };
        seen.changed(Some(&context), 0);
        seen.changed(Some(&Activity::SpareKernel { pid: 9, threads: 2 }), 0);
        assert_eq!((seen.shells(), seen.contexts(), seen.context_tasks()), (1, 1, 7));
    }
}
