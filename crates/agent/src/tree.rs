//! Who descends from whom, as `/proc` tells it.

use isolet_sys::signal;
use std::collections::HashSet;

/// The most processes that one walk looks at: a fork bomb must not stop the agent.
const WALK_MAX: usize = 8192;

/// A process as it was when seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its id.
    pub(crate) pid: i32,
    /// Its group.
    pub(crate) group: i32,
    /// Its session.
    pub(crate) session: i32,
    /// Its start, in hundredths of a second since boot; with the id it names it for good.
    pub(crate) start: u64,
    zombie: bool,
}

impl Process {
    /// Reads one process; `None` when it is gone.
    #[must_use]
    pub(crate) fn read(pid: i32) -> Option<Self> {
        let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything, also parentheses; the fields follow the last one.
        let after = text.iter().rposition(|b| *b == b')')? + 1;
        let mut fields = std::str::from_utf8(&text[after..]).ok()?.split_ascii_whitespace();
        let zombie = matches!(fields.next()?, "Z" | "X");
        let _parent = fields.next()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let start = fields.nth(15)?.parse().ok()?;
        Some(Self { pid, group, session, start, zombie })
    }

    /// What SIGINT does to it.
    #[must_use]
    pub(crate) fn on_interrupt(&self) -> OnInterrupt {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{}/status", self.pid)) else {
            return OnInterrupt::Ends;
        };
        let has = |name: &str| {
            let mask = text.lines().find_map(|line| line.strip_prefix(name));
            mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
                .is_some_and(|mask| mask & 2 != 0)
        };
        match (has("SigIgn:"), has("SigCgt:")) {
            (true, _) => OnInterrupt::Ignored,
            (_, true) => OnInterrupt::Caught,
            _ => OnInterrupt::Ends,
        }
    }

    /// Started within the last two hundredths of a second.
    #[must_use]
    pub(crate) fn young(&self) -> bool {
        ticks().saturating_sub(self.start) <= 1
    }

    /// Still the same process, and not yet ended.
    #[must_use]
    pub(crate) fn alive(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.start == self.start && !now.zombie)
    }

    /// Sends a signal, unless another process has its id by now.
    pub(crate) fn send(&self, number: i32) {
        if self.alive() {
            let _ = signal::send(self.pid, number);
        }
    }
}

/// What a signal would do to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnInterrupt {
    /// Nothing: a background job, or a program that will not be interrupted.
    Ignored,
    /// It has a handler.
    Caught,
    /// It ends.
    Ends,
}

fn children(pid: i32, into: &mut Vec<i32>) {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for task in tasks.flatten().take(WALK_MAX) {
        let Ok(list) = std::fs::read_to_string(task.path().join("children")) else { continue };
        into.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
}

/// Everything below `root`, without it, and what was orphaned from its session to this process.
/// `own` says which children of this process are not orphans.
#[must_use]
pub(crate) fn below(root: i32, own: impl Fn(i32) -> bool) -> Vec<Process> {
    let mut open = Vec::new();
    children(std::process::id() as i32, &mut open);
    open.retain(|pid| !own(*pid) && Process::read(*pid).is_some_and(|p| p.session == root));
    children(root, &mut open);
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    while let Some(pid) = open.pop() {
        if seen.len() >= WALK_MAX || !seen.insert(pid) {
            continue;
        }
        children(pid, &mut open);
        found.extend(Process::read(pid).filter(|process| !process.zombie));
    }
    found
}

/// Now, in the unit of [`Process::start`].
#[must_use]
pub(crate) fn ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 100 + now.tv_nsec as u64 / 10_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_with_its_disposition() {
        let mut child = std::process::Command::new("bash")
            .args(["-c", "trap '' INT; sleep 30 & wait"])
            .spawn()
            .expect("bash runs");
        let found = loop {
            let found = below(child.id() as i32, |_| true);
            if let Some(sleep) = found.first().filter(|p| p.on_interrupt() == OnInterrupt::Ignored) {
                break *sleep;
            }
        };
        assert!(found.alive() && found.start <= ticks());
        found.send(9);
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
}
