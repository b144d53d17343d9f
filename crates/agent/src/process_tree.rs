//! Parents, children and descendants of processes, from `/proc`.

use isolet_sys::signal;
use std::collections::HashSet;
use std::time::Duration;

/// Maximum number of processes in one walk, so that a fork bomb cannot block the agent.
const WALK_MAX: usize = 8192;

/// A process at the time when it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessHandle {
    pub(crate) pid: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Start time, in hundredths of a second since boot. Together with the process id, it
    /// identifies the process.
    pub(crate) start: u64,
    state: u8,
    /// Processor time of all of its threads, in hundredths of a second.
    ticks: u64,
}

/// How a process came to a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    /// The time that it ran.
    pub(crate) ran: Duration,
    /// The time that it wanted to run and did not, without its present wait.
    pub(crate) waited: Duration,
}

impl ProcessorTime {
    /// Reads the times of the first thread, which handles signals. A kernel that does not count
    /// them has the processor time of all threads, in hundredths of a second.
    #[must_use]
    pub(crate) fn read(process: &ProcessHandle) -> Self {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", process.pid));
        let text = text.unwrap_or_default();
        let mut nanos = text.split_ascii_whitespace().map_while(|word| word.parse().ok());
        let ran = nanos.next().map_or(Duration::ZERO, Duration::from_nanos);
        let waited = nanos.next().map_or(Duration::ZERO, Duration::from_nanos);
        if (ran, waited) == (Duration::ZERO, Duration::ZERO) {
            return Self { ran: Duration::from_millis(10 * process.ticks), waited };
        }
        Self { ran, waited }
    }
}

impl ProcessHandle {
    /// Reads one process; `None` if it is gone.
    #[must_use]
    pub(crate) fn read(pid: i32) -> Option<Self> {
        let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name may contain anything, including parentheses, so the other fields follow the last
        // one.
        let after = text.iter().rposition(|b| *b == b')')? + 1;
        let mut fields = std::str::from_utf8(&text[after..]).ok()?.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let _parent = fields.next()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let user: u64 = fields.nth(7)?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let start = fields.nth(6)?.parse().ok()?;
        Some(Self { pid, group, session, start, state, ticks: user + system })
    }

    /// The signal masks of the process.
    #[must_use]
    pub(crate) fn signals(&self) -> Signals {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        let text = text.unwrap_or_default();
        let mask = |name: &str| {
            let mask = text.lines().find_map(|line| line.strip_prefix(name));
            mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
        };
        let pending = mask("SigPnd:") | mask("ShdPnd:");
        Signals {
            ignored: mask("SigIgn:"),
            caught: mask("SigCgt:"),
            blocked: mask("SigBlk:"),
            pending,
        }
    }

    /// Whether the process was started within the last three hundredths of a second.
    #[must_use]
    pub(crate) fn is_young(&self) -> bool {
        ticks().saturating_sub(self.start) <= 2
    }

    /// Whether the process is stopped until SIGCONT.
    #[must_use]
    pub(crate) fn is_stopped(&self) -> bool {
        self.state == b'T'
    }

    /// Whether the process waits for something.
    #[must_use]
    pub(crate) fn is_sleeping(&self) -> bool {
        self.state == b'S'
    }

    /// Whether the process runs or waits for a processor.
    #[must_use]
    pub(crate) fn wants_to_run(&self) -> bool {
        self.state == b'R'
    }

    /// Whether the process waits for something that no signal ends, like a disk or the end of a
    /// freeze.
    #[must_use]
    pub(crate) fn is_uninterruptible(&self) -> bool {
        self.state == b'D'
    }

    /// Whether both describe the same process.
    #[must_use]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.pid, self.start) == (other.pid, other.start)
    }

    /// Whether the process has ended and its parent has not reaped it.
    #[must_use]
    pub(crate) fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Whether this process still exists and has not ended.
    #[must_use]
    pub(crate) fn is_alive(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.start == self.start && !now.is_zombie())
    }

    /// Sends a signal unless another process has the id by now.
    pub(crate) fn send(&self, number: i32) {
        if self.is_alive() {
            let _ = signal::send(self.pid, number);
        }
    }
}

/// The signal masks of a process, with the lowest bit for signal 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signals {
    pub(crate) ignored: u64,
    /// Signals with a handler.
    pub(crate) caught: u64,
    pub(crate) blocked: u64,
    /// Signals that were sent and not delivered yet.
    pub(crate) pending: u64,
}

impl Signals {
    /// SIGINT is ignored, as in a background job.
    #[must_use]
    pub(crate) fn ignore_interrupt(self) -> bool {
        self.ignored & 2 != 0
    }

    /// SIGINT has a handler.
    #[must_use]
    pub(crate) fn catches_interrupt(self) -> bool {
        self.caught & 2 != 0
    }

    /// A SIGINT was sent and not delivered yet.
    #[must_use]
    pub(crate) fn interrupt_pending(self) -> bool {
        self.pending & 2 != 0
    }

    /// A signal was sent that the process does not block and that was not delivered yet.
    #[must_use]
    pub(crate) fn is_held_back(self) -> bool {
        self.pending & !self.blocked != 0
    }
}

fn children(pid: i32, into: &mut Vec<i32>) {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for task in tasks.flatten().take(WALK_MAX) {
        let Ok(list) = std::fs::read_to_string(task.path().join("children")) else { continue };
        into.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
}

/// Resident memory of a process in MiB; 0 if it is gone.
#[must_use]
pub(crate) fn resident_mib(pid: i32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|count| count.parse::<usize>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() / (1024 * 1024)
}

/// Number of threads of a process; 0 if it is gone.
#[must_use]
pub(crate) fn thread_count(pid: i32) -> u32 {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |tasks| tasks.count() as u32)
}

/// The direct children of a process.
#[must_use]
pub(crate) fn children_of(pid: i32) -> Vec<ProcessHandle> {
    let mut found = Vec::new();
    children(pid, &mut found);
    found.into_iter().filter_map(ProcessHandle::read).collect()
}

/// Whether a process waits for one of its children. False if the kernel does not say.
#[must_use]
pub(crate) fn waits_for_child(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/wchan")).is_ok_and(|place| place == b"do_wait")
}

/// All descendants of `root` without itself, and orphans of its session that this process
/// inherited. `own` says which children of this process are not orphans.
#[must_use]
pub(crate) fn descendants(root: i32, own: impl Fn(i32) -> bool) -> Vec<ProcessHandle> {
    let mut open = Vec::new();
    children(std::process::id() as i32, &mut open);
    open.retain(|pid| !own(*pid) && ProcessHandle::read(*pid).is_some_and(|p| p.session == root));
    children(root, &mut open);
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    while let Some(pid) = open.pop() {
        if seen.len() >= WALK_MAX || !seen.insert(pid) {
            continue;
        }
        children(pid, &mut open);
        found.extend(ProcessHandle::read(pid).filter(|process| !process.is_zombie()));
    }
    found
}

/// The current time, in the unit of [`ProcessHandle::start`].
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
            let found = descendants(child.id() as i32, |_| true);
            if let Some(sleep) = found.first().filter(|p| p.signals().ignore_interrupt()) {
                break *sleep;
            }
        };
        assert!(found.is_alive() && found.start <= ticks());
        found.send(9);
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
}
