//! Facts about processes, read from `/proc`.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;

/// Sends a signal to one process; a process that no longer exists is not an error.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Sends SIGKILL to one process.
pub fn kill(pid: i32) {
    signal(pid, Signal::KILL);
}

/// Whether the process exists and is not a zombie.
#[must_use]
pub fn alive(pid: i32) -> bool {
    !matches!(stat(pid, 0).as_deref(), None | Some("Z" | "X"))
}

/// The start time in ticks since boot; together with the pid it identifies a process uniquely.
#[must_use]
pub fn started(pid: i32) -> Option<u64> {
    stat(pid, 19)?.parse().ok()
}

/// The pid of the parent process.
#[must_use]
pub fn parent(pid: i32) -> Option<i32> {
    stat(pid, 1)?.parse().ok()
}

/// A field of `/proc/PID/stat`, counted from the one after the name; 0 is the state.
fn stat(pid: i32, field: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(field).map(str::to_owned)
}

/// The short name (`comm`) of the process.
#[must_use]
pub fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Resident memory without pages shared with files, in KiB.
#[must_use]
pub fn memory_kib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    field.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// The processor time that the process has used, in ms; the kernel counts it in steps of 10 ms.
#[must_use]
pub fn cpu_ms(pid: i32) -> u64 {
    let ticks = |field: usize| stat(pid, field).and_then(|text| text.parse::<u64>().ok());
    (ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0)) * 10
}

/// The number of open descriptors.
#[must_use]
pub fn descriptors(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// The arguments, separated by spaces.
#[must_use]
pub fn arguments(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// The pids of all processes.
#[must_use]
pub fn all() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The number of unfinished atomic writes of an agent's workers: files without a name, or with a
/// temporary name of the agent.
#[must_use]
pub fn atomic_writes(agent: i32) -> usize {
    let workers = all().into_iter().filter(|pid| parent(*pid) == Some(agent));
    let open = workers.filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok()).flatten();
    let paths = open.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let own = |path: String| path.contains("/#") || path.contains("/.isolet-");
    paths.filter(|path| own(path.to_string_lossy().into_owned())).count()
}

/// The signal that asks a program to end.
pub const TERM: Signal = Signal::TERM;
