//! The last reported activity of a sandbox's agent: whether anything runs that prevents sleep, and
//! what an end of the sandbox would lose.

use crate::model::ids::SessionId;
use isolet_wire::activity::{Activity, ShellKey};
use std::collections::BTreeMap;

/// More shells than any agent opens: what a lying one says beyond is not kept.
const SHELLS_MAX: usize = 8192;

/// Shells and terminals that are open, and how many programs run without one.
#[derive(Debug, Default)]
pub(crate) struct AgentActivity {
    /// Everything that is open, and whether it is busy.
    open: BTreeMap<ShellKey, bool>,
    /// Threads of the interpreter of each context, and of the spare kernel.
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

    /// A command or a program runs.
    pub(crate) fn busy(&self) -> bool {
        self.execs > 0 || self.open.values().any(|busy| *busy)
    }

    /// Open shells that belong to no session.
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

    /// Open shells.
    pub(crate) fn shells(&self) -> usize {
        self.count(ShellKey::is_shell)
    }

    /// Code contexts.
    pub(crate) fn contexts(&self) -> usize {
        self.count(|key| matches!(key, ShellKey::Context(_)))
    }

    /// Threads of their interpreters, as far as they were told.
    pub(crate) fn context_tasks(&self) -> usize {
        self.threads.values().map(|count| *count as usize).sum()
    }

    /// Terminals that run.
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
