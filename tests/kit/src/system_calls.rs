//! Counts the system calls of a process while a piece of work runs, by means of strace.

use crate::{SOON, process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// The calls by which threads wait for and wake each other, and those of the allocator: their
/// number depends on the machine's load and not on the work.
const OF_THE_RUNTIME: [&str; 12] = [
    "brk",
    "clock_nanosleep",
    "epoll_pwait",
    "epoll_wait",
    "futex",
    "madvise",
    "mmap",
    "mprotect",
    "munmap",
    "restart_syscall",
    "sched_yield",
    "timerfd_settime",
];

/// How often all threads of a process made each system call while `work` ran, by name. Calls of the
/// runtime and the allocator are left out.
///
/// # Panics
/// When strace is missing or cannot attach within [`SOON`].
pub fn system_calls(pid: i32, work: impl FnOnce()) -> BTreeMap<String, u64> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-U", "name,calls", "-p", &pid.to_string()]);
    let strace = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut tracer = strace.spawn().expect("strace is installed");
    let mut said = BufReader::new(tracer.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("strace says that it is attached");
    assert!(line.contains("attached"), "{line}");
    work();
    process::signal(i32::try_from(tracer.id()).expect("a pid"), rustix::process::Signal::INT);
    let mut summary = String::new();
    said.read_to_string(&mut summary).expect("a summary");
    crate::wait_until("strace ends", SOON, || tracer.try_wait().expect("it is our child"));
    let rows = summary.lines().filter_map(|row| {
        let (name, count) = row.trim().split_once(char::is_whitespace)?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    });
    rows.filter(|(name, _)| name != "total" && !OF_THE_RUNTIME.contains(&name.as_str())).collect()
}
