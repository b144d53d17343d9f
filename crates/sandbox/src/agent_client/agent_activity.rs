//! The last reported activity of a sandbox's agent: whether anything runs that prevents sleep, and
//! what an end of the sandbox would lose.

use crate::model::ids::SessionId;
use isolet_wire::response;
use std::collections::BTreeMap;

/// More shells than any agent opens: what a lying one says beyond is not kept.
const SHELLS_MAX: usize = 8192;

/// The name of a kernel that is begun ahead, which is no context and nobody's.
const KERNEL: &str = "k/";

/// Shells and terminals that are open, and how many programs run without one.
#[derive(Debug, Default)]
pub(crate) struct AgentActivity {
    /// Whether each is busy.
    shells: BTreeMap<String, bool>,
    /// Threads of each context's interpreter, and of a kernel that is begun ahead.
    tasks: BTreeMap<String, u32>,
    execs: u32,
}

impl AgentActivity {
    /// As the agent counted.
    pub(crate) fn inventory(shells: &[response::Shell], execs: u32) -> Self {
        let mut seen = Self::default();
        seen.changed(None, execs);
        shells.iter().for_each(|shell| seen.changed(Some(shell), execs));
        seen
    }

    /// One has changed, or the number of programs.
    pub(crate) fn changed(&mut self, shell: Option<&response::Shell>, execs: u32) {
        self.execs = execs;
        let Some(shell) = shell else { return };
        if shell.closed.is_some() {
            self.shells.remove(&shell.name);
            self.tasks.remove(&shell.name);
        } else if self.shells.len() < SHELLS_MAX || self.shells.contains_key(&shell.name) {
            if shell.name.starts_with("c/") || shell.name == KERNEL {
                self.tasks.insert(shell.name.clone(), shell.clients);
            }
            self.shells.insert(shell.name.clone(), shell.busy || shell.queued > 0);
        }
    }

    /// A client was let into a shell; of what it does its agent tells a little later.
    pub(crate) fn opened(&mut self, name: &str) {
        if self.shells.len() < SHELLS_MAX && !self.shells.contains_key(name) {
            self.shells.insert(name.to_owned(), false);
        }
    }

    /// A command or a program runs.
    pub(crate) fn busy(&self) -> bool {
        self.execs > 0 || self.shells.values().any(|busy| *busy)
    }

    /// Open shells that belong to no session.
    pub(crate) fn private(&self) -> usize {
        self.named("p/")
    }

    fn named(&self, prefix: &str) -> usize {
        self.shells.keys().filter(|name| name.starts_with(prefix)).count()
    }

    /// Whether the session's shell is open.
    pub(crate) fn open(&self, session: &SessionId) -> bool {
        self.shells.contains_key(&format!("s/{session}"))
    }

    /// Open shells.
    pub(crate) fn shells(&self) -> usize {
        self.shells.len() - self.terminals() - self.contexts() - self.named(KERNEL)
    }

    /// Code contexts.
    pub(crate) fn contexts(&self) -> usize {
        self.named("c/")
    }

    /// Threads of their interpreters, as far as they were told.
    pub(crate) fn context_tasks(&self) -> usize {
        self.tasks.values().map(|count| *count as usize).sum()
    }

    /// Terminals that run.
    pub(crate) fn terminals(&self) -> usize {
        self.named("t/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, busy: bool, queued: u32, closed: bool) -> response::Shell {
        let closed = closed.then(response::Closed::default);
        response::Shell { name: name.into(), pid: 7, busy, queued, clients: 0, closed }
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
        seen.opened("p/c");
        seen.changed(Some(&shell("p/c", false, 0, true)), 0);
        seen.changed(Some(&shell("t/a", false, 0, false)), 0);
        assert_eq!((seen.shells(), seen.private(), seen.terminals()), (1, 0, 1));
    }
}
