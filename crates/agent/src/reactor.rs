//! The reactor: the poll set, timers, ids, the owners of child processes, and how a tenant's
//! process is confined. Everything that runs shares it.

pub(crate) mod clock;
mod pending;
pub(crate) mod poll;

use clock::Clock;
use isolet_sys::pty::Terminal;
use isolet_sys::spawn::{Child, Plan};
use isolet_wire::terminal::Size;
use pending::{Pending, PendingSet};
use poll::{EventSource, Poll};
use rustix::event::epoll::EventFlags;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Moby's default capabilities without `MKNOD`, `NET_RAW` and `AUDIT_WRITE`: a tenant needs no
/// devices, raw sockets or access to the host's audit log.
const CAPABILITIES: u64 = {
    let chown_overrides = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4;
    let kill_and_ids = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8;
    let bind_chroot_setfcap = 1 << 10 | 1 << 18 | 1 << 31;
    chown_overrides | kill_and_ids | bind_chroot_setfcap
};

/// Maximum number of pipes that are still drained after their program exited. The oldest one is
/// closed to make room.
const DRAINS_MAX: usize = 128;
/// Maximum size of one read, in bytes.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// Maximum number of shells that are saved at once, because each forks.
const SAVES_AT_ONCE: usize = 4;
/// How long the counter of processes killed for lack of memory is cached.
const OOM_FRESH: Duration = Duration::from_millis(2);

/// Maximum number of bytes that are read from all background processes within [`READ_BUDGET_TIME`].
/// No client waits for them, and a process like `yes` must not use up a core of the host.
const READ_BUDGET_BYTES: usize = 4 * 1024 * 1024;
/// The time that one round may spend on reads; see [`READ_BUDGET_BYTES`].
const READ_BUDGET_TIME: Duration = Duration::from_millis(50);

/// The parameters that the agent was started with.
#[derive(Debug, Default)]
pub(crate) struct AgentConfig {
    /// The tenant's user namespace.
    pub(crate) userns: Option<OwnedFd>,
    /// The tenant's cgroup, version 2.
    pub(crate) cgroup: Option<OwnedFd>,
    /// The `tasks` files of the tenant's cgroups, version 1.
    pub(crate) tasks: Vec<OwnedFd>,
    /// The kernel's counter of processes that were killed for lack of memory.
    pub(crate) oom: Option<OwnedFd>,
    /// The tenant's seccomp program.
    pub(crate) filter: Option<Vec<u64>>,
    /// How long a shell waits for clients that do not read.
    pub(crate) stall: Duration,
    /// Default user id of programs, inside the sandbox.
    pub(crate) uid: u32,
    /// Default group id of programs, inside the sandbox.
    pub(crate) gid: u32,
}

/// The owner of a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildOwner {
    /// The bash of a shell.
    Shell(u64),
    /// A program without a shell.
    Exec(u64),
    /// A worker for a file operation.
    File,
    /// The program of a terminal.
    Terminal(u64),
    Process(u64),
    /// The interpreter of a context.
    Context(u64),
}

/// The purpose of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A deadline of a shell.
    Shell(u64),
    /// A deadline of a program.
    Exec(u64),
    /// Accept connections again after descriptors had run out.
    Accept,
    /// Report changes to watchers.
    Watch,
    /// The timeout of file operations.
    Files,
    /// The timeout of saving all shells.
    Save,
    /// A deadline of a terminal.
    Terminal(u64),
    /// The timeout of a dial.
    Dial(u64),
    /// A deadline of a process.
    Process(u64),
    /// Read background processes again after the read budget was used up.
    Reads,
    /// A deadline of a context.
    Context(u64),
    /// Start a spare kernel, or end an unused one.
    Spare,
}

/// The state that everything that runs shares.
///
/// More than 12 fields: one for each kind of event that the agent waits for.
#[derive(Debug)]
pub(crate) struct Reactor {
    pub(crate) poll: Poll,
    /// The parameters that the agent was started with.
    pub(crate) config: AgentConfig,
    /// The agent's children by process id.
    pub(crate) children: HashMap<i32, ChildOwner>,
    /// The clock of all deadlines.
    pub(crate) clock: Clock,
    /// The time of this round by [`Reactor::clock`].
    pub(crate) now: Instant,
    /// What must be flushed at the end of this round.
    pub(crate) pending: Pending,
    /// Shells, terminals and contexts whose changes have not been reported to watchers yet; 0
    /// stands for the number of programs.
    pub(crate) unreported: PendingSet,
    /// One of them has opened or ended, so watchers are informed at the end of this round.
    pub(crate) notify_at_once: bool,
    /// There are watchers, which store the states of shells.
    pub(crate) has_watchers: bool,
    /// The watchers have much unread data, so no further shell is saved.
    pub(crate) watchers_behind: bool,
    /// Number of shells that are being saved.
    pub(crate) saves_running: usize,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    drains: VecDeque<(u64, OwnedFd)>,
    ids: u64,
    oom: (Option<Instant>, u64),
    reads: ReadBudget,
    scratch: Vec<u8>,
}

/// How much was read from background processes in the current interval.
#[derive(Debug, Default)]
struct ReadBudget {
    until: Option<Instant>,
    bytes: usize,
    /// A timer is set for the end of the interval.
    waiting: bool,
}

impl Reactor {
    #[must_use]
    pub(crate) fn new(poll: Poll, config: AgentConfig) -> Self {
        Self {
            poll,
            config,
            children: HashMap::new(),
            clock: Clock::default(),
            now: Instant::now(),
            pending: Pending::default(),
            unreported: PendingSet::default(),
            notify_at_once: false,
            has_watchers: false,
            watchers_behind: false,
            saves_running: 0,
            timers: BinaryHeap::new(),
            drains: VecDeque::new(),
            ids: 0,
            oom: (None, 0),
            reads: ReadBudget::default(),
            scratch: Vec::with_capacity(READ_BYTES),
        }
    }

    /// A new number, which was never used before.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Schedules a report about this shell, terminal or context, together with others.
    pub(crate) fn notify_watchers(&mut self, id: u64) {
        self.unreported.mark(id);
    }

    /// Reports to watchers at the end of this round, before the answer to clients, because a shell
    /// or terminal has opened or ended.
    pub(crate) fn notify_watchers_now(&mut self, id: u64) {
        self.unreported.mark(id);
        self.notify_at_once = true;
    }

    /// Whether no further shell may be saved at the moment.
    pub(crate) fn save_limit_reached(&self) -> bool {
        self.watchers_behind || self.saves_running >= SAVES_AT_ONCE
    }

    pub(crate) fn set_timer(&mut self, when: Instant, timer: Timer) {
        self.timers.push(Reverse((when, timer)));
    }

    /// A connection has closed. If it stopped the clock, the clock continues.
    pub(crate) fn release_clock(&mut self, connection: u64) {
        if self.clock.release(connection) {
            self.poll.clock_continues();
        }
    }

    /// When the next timer is due.
    #[must_use]
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((when, _))| *when)
    }

    /// Takes the next timer that is due.
    pub(crate) fn pop_due_timer(&mut self) -> Option<(Instant, Timer)> {
        let Reverse((when, _)) = self.timers.peek()?;
        if *when > self.now {
            return None;
        }
        self.timers.pop().map(|Reverse(timer)| timer)
    }

    /// Reads at most `limit` bytes (and at most 64 KiB); empty if nothing is available now.
    ///
    /// # Errors
    /// End of file, or any error but `EAGAIN`.
    pub(crate) fn read(&mut self, fd: impl AsFd, limit: usize) -> Result<&[u8], ()> {
        loop {
            // Not filled with zeros, because touching the whole buffer would cost every agent 64
            // KiB permanently.
            self.scratch.clear();
            let read = if limit < READ_BYTES {
                self.scratch.resize(limit, 0);
                let read = rustix::io::read(&fd, &mut self.scratch[..]);
                self.scratch.truncate(read.unwrap_or(0));
                read
            } else {
                rustix::io::read(&fd, rustix::buffer::spare_capacity(&mut self.scratch))
            };
            match read {
                Ok(0) if limit > 0 => return Err(()),
                Ok(_) => return Ok(&self.scratch),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(&[]),
                Err(_) => return Err(()),
            }
        }
    }

    /// Starts a tenant's process; fills in how it is confined.
    ///
    /// # Errors
    /// See [`isolet_sys::spawn::spawn`].
    pub(crate) fn spawn(
        &mut self,
        request: SpawnRequest,
        parent: ChildOwner,
    ) -> std::io::Result<Child> {
        let terminal = request.terminal.as_ref().map(|(handover, size)| Terminal {
            handover: handover.as_fd(),
            cols: size.cols,
            rows: size.rows,
        });
        let cgroup = request.group.as_ref().or(self.config.cgroup.as_ref());
        let plan = Plan {
            terminal,
            cgroup: cgroup.map(AsFd::as_fd),
            programs: request.programs,
            argv: request.argv,
            envp: request.envp,
            cwd: Some(request.cwd),
            ..self.plan(request.fds, request.uid)
        };
        let child = isolet_sys::spawn::spawn(plan)?;
        self.children.insert(child.pid, parent);
        Ok(child)
    }

    /// Forks the agent, confined as a tenant, for work that may block.
    ///
    /// # Errors
    /// See [`isolet_sys::spawn::fork`].
    pub(crate) fn fork(&mut self, fd: RawFd, work: impl FnOnce() -> i32) -> std::io::Result<i32> {
        let child = isolet_sys::spawn::fork(self.plan(vec![(fd, fd)], 0), work)?;
        self.children.insert(child.pid, ChildOwner::File);
        Ok(child.pid)
    }

    fn plan(&self, fds: Vec<(RawFd, RawFd)>, uid: u32) -> Plan<'_> {
        let own = (self.config.uid, self.config.gid);
        let (uid, gid) = if uid == 0 { own } else { (uid, uid) };
        Plan {
            fds,
            userns: self.config.userns.as_ref().map(AsFd::as_fd),
            uid,
            gid,
            cgroup: self.config.cgroup.as_ref().map(AsFd::as_fd),
            tasks: self.config.tasks.iter().map(AsFd::as_fd).collect(),
            capabilities: CAPABILITIES,
            filter: self.config.filter.as_deref(),
            umask: 0o022,
            ..Plan::default()
        }
    }

    /// Continues to read a pipe whose output is no longer needed, so that its writers are not
    /// blocked.
    pub(crate) fn drain(&mut self, fd: OwnedFd) {
        self.poll.remove(&fd);
        let id = self.next_id();
        if self.poll.add(&fd, EventSource::Drain, id, EventFlags::IN).is_ok() {
            if self.drains.len() >= DRAINS_MAX {
                self.drains.pop_front();
            }
            self.drains.push_back((id, fd));
        }
    }

    /// A drained pipe is readable.
    pub(crate) fn drain_ready(&mut self, id: u64) {
        let Some(at) = self.drains.iter().position(|(drain, _)| *drain == id) else { return };
        let Some((_, fd)) = self.drains.remove(at) else { return };
        if self.read(&fd, READ_BYTES).is_ok() {
            self.drains.insert(at, (id, fd));
        }
    }

    /// Whether the read budget allows reading from background processes. Otherwise, a timer is set.
    pub(crate) fn may_read_processes(&mut self) -> bool {
        if self.reads.until.is_none_or(|until| until <= self.now) {
            self.reads =
                ReadBudget { until: Some(self.now + READ_BUDGET_TIME), ..ReadBudget::default() };
        }
        let may = self.reads.bytes < READ_BUDGET_BYTES;
        if !may && !std::mem::replace(&mut self.reads.waiting, true) {
            self.set_timer(self.reads.until.unwrap_or(self.now), Timer::Reads);
        }
        may
    }

    /// Counts bytes that were read from a process.
    pub(crate) fn count_process_read(&mut self, bytes: usize) {
        self.reads.bytes += bytes;
    }

    /// Number of the sandbox's processes that the kernel has killed for lack of memory. With
    /// `cached`, a value of the last 2 ms is sufficient.
    pub(crate) fn oom_kills(&mut self, cached: bool) -> u64 {
        let Some(fd) = &self.config.oom else { return 0 };
        let fresh = self.oom.0.is_some_and(|at| self.now.duration_since(at) < OOM_FRESH);
        if !(cached && fresh) {
            let mut text = [0; 1024];
            let count = rustix::io::pread(fd, &mut text, 0).unwrap_or(0);
            let text = String::from_utf8_lossy(&text[..count]);
            let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            self.oom = (Some(self.now), line.and_then(|n| n.trim().parse().ok()).unwrap_or(0));
        }
        self.oom.1
    }
}

/// The program to start, without how it is confined.
#[derive(Debug)]
pub(crate) struct SpawnRequest {
    /// Paths to try in order until one exists.
    pub(crate) programs: Vec<CString>,
    /// Arguments, including the program's name.
    pub(crate) argv: Vec<CString>,
    /// Environment entries of the form `NAME=value`.
    pub(crate) envp: Vec<CString>,
    /// The directory in which the program starts.
    pub(crate) cwd: CString,
    /// Descriptors to pass: the agent's, and the number in the child.
    pub(crate) fds: Vec<(RawFd, RawFd)>,
    /// User id and group id inside the sandbox.
    pub(crate) uid: u32,
    /// Create a terminal of this size. The socket's other end receives its PTY master.
    pub(crate) terminal: Option<(OwnedFd, Size)>,
    /// The version 2 cgroup to start in, instead of the tenant's.
    pub(crate) group: Option<OwnedFd>,
}

/// Converts an environment for the kernel; `None` if a name or value is invalid.
#[must_use]
pub(crate) fn environment(
    env: &std::collections::BTreeMap<String, String>,
) -> Option<Vec<CString>> {
    env.iter()
        .map(|(name, value)| {
            if name.is_empty() || name.contains('=') {
                return None;
            }
            CString::new(format!("{name}={value}")).ok()
        })
        .collect()
}
