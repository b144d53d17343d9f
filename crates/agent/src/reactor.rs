//! The reactor: the poll set, timers, ids, whose child each process is, and how a tenant's process
//! is confined. Everything that runs shares it.

mod pending;
pub(crate) mod poll;

use isolet_sys::pty::Terminal;
use isolet_sys::spawn::{Child, Plan};
use isolet_wire::terminal::Size;
use pending::{Pending, PendingSet};
use poll::{Poll, Source};
use rustix::event::epoll::EventFlags;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// moby's default capabilities without `MKNOD`, `NET_RAW` and `AUDIT_WRITE`: devices, raw sockets
/// and the host's audit log are nothing for a tenant.
const CAPABILITIES: u64 = {
    let chown_overrides = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4;
    let kill_and_ids = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8;
    let bind_chroot_setfcap = 1 << 10 | 1 << 18 | 1 << 31;
    chown_overrides | kill_and_ids | bind_chroot_setfcap
};

/// Pipes of ended programs that others still hold; the oldest is closed for one more.
const DRAINS_MAX: usize = 128;
/// Bytes read at once from anything.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// How many shells are saved at once: each makes a copy of itself.
const SAVES_AT_ONCE: usize = 4;
/// How long an answer to "did the kernel kill for memory" stays good.
const OOM_FRESH: Duration = Duration::from_millis(2);

/// How many bytes of all background processes are read within [`READ_BUDGET_TIME`]. Nobody waits for
/// them, and one that writes nothing but `yes` must not take a core of the host.
const READ_BUDGET_BYTES: usize = 4 * 1024 * 1024;
/// See [`READ_BUDGET_BYTES`].
const READ_BUDGET_TIME: Duration = Duration::from_millis(50);

/// What the agent was started with.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The tenant's user namespace.
    pub(crate) userns: Option<OwnedFd>,
    /// The tenant's cgroup, version 2.
    pub(crate) cgroup: Option<OwnedFd>,
    /// `tasks` files of the tenant's cgroups, version 1.
    pub(crate) tasks: Vec<OwnedFd>,
    /// Where the kernel counts what it killed for memory.
    pub(crate) oom: Option<OwnedFd>,
    /// The tenant's seccomp program.
    pub(crate) filter: Option<Vec<u64>>,
    /// How long a shell waits for clients that do not read.
    pub(crate) stall: Duration,
    /// User of what names none, inside.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
}

/// What a child process belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildOwner {
    /// A shell's bash.
    Shell(u64),
    /// A program without a shell.
    Exec(u64),
    /// A worker for a file call.
    File,
    /// A terminal's program.
    Terminal(u64),
    /// A process in the background.
    Process(u64),
    /// A context's interpreter.
    Context(u64),
}

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Something of a shell.
    Shell(u64),
    /// Something of a program.
    Exec(u64),
    /// Taking connections again after descriptors ran out.
    Accept,
    /// Telling watchers.
    Watch,
    /// Workers that take too long.
    Files,
    /// The saving of all shells takes too long.
    Save,
    /// Something of a terminal.
    Terminal(u64),
    /// A dial takes too long.
    Dial(u64),
    /// Something of a process.
    Process(u64),
    /// Reading what processes say again, after a moment of much.
    Reads,
    /// Something of a context.
    Context(u64),
    /// A kernel is to be begun ahead, or was not taken.
    Spare,
}

/// The state that everything that runs shares.
#[derive(Debug)]
pub(crate) struct Reactor {
    /// The poll set.
    pub(crate) poll: Poll,
    /// What the agent was started with.
    pub(crate) config: Config,
    /// The agent's children by process id.
    pub(crate) children: HashMap<i32, ChildOwner>,
    /// The time of this round.
    pub(crate) now: Instant,
    /// What something happened to in this round.
    pub(crate) pending: Pending,
    /// Shells, terminals and contexts whose state watchers have not been told yet; 0 stands for
    /// the number of programs.
    pub(crate) unreported: PendingSet,
    /// One of them has opened or ended: watchers are told at the end of this round.
    pub(crate) notify_at_once: bool,
    /// Somebody watches, and keeps what shells hold.
    pub(crate) has_watchers: bool,
    /// Watchers have much to read; no more shells are saved.
    pub(crate) watchers_behind: bool,
    /// Shells that are being saved.
    pub(crate) saves_running: usize,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    drains: VecDeque<(u64, OwnedFd)>,
    ids: u64,
    oom: (Option<Instant>, u64),
    reads: ReadBudget,
    scratch: Vec<u8>,
}

/// How much of processes was read in this moment.
#[derive(Debug, Default)]
struct ReadBudget {
    until: Option<Instant>,
    bytes: usize,
    /// A timer is set for the moment's end.
    waiting: bool,
}

impl Reactor {
    /// With nothing in it.
    #[must_use]
    pub(crate) fn new(poll: Poll, config: Config) -> Self {
        Self {
            poll,
            config,
            children: HashMap::new(),
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

    /// A number that was never used.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Watchers are to be told how this shell, terminal or context is; soon, with other news.
    pub(crate) fn notify_watchers(&mut self, id: u64) {
        self.unreported.mark(id);
    }

    /// Watchers are to be told at the end of this round, before whoever waits for this shell or
    /// terminal: it has opened or ended.
    pub(crate) fn notify_watchers_now(&mut self, id: u64) {
        self.unreported.mark(id);
        self.notify_at_once = true;
    }

    /// No more shells are to be saved at this moment.
    pub(crate) fn save_limit_reached(&self) -> bool {
        self.watchers_behind || self.saves_running >= SAVES_AT_ONCE
    }

    /// Sets a timer.
    pub(crate) fn set_timer(&mut self, when: Instant, timer: Timer) {
        self.timers.push(Reverse((when, timer)));
    }

    /// When the next timer is due.
    #[must_use]
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((when, _))| *when)
    }

    /// The next timer that is due.
    pub(crate) fn pop_due_timer(&mut self) -> Option<(Instant, Timer)> {
        let Reverse((when, _)) = self.timers.peek()?;
        if *when > self.now {
            return None;
        }
        self.timers.pop().map(|Reverse(timer)| timer)
    }

    /// Reads at most `limit` bytes (and at most 64 KiB) and hands them out; empty when there is
    /// nothing now. `Err` at the end of file.
    ///
    /// # Errors
    /// End of file, or any error but `EAGAIN`.
    pub(crate) fn read(&mut self, fd: impl AsFd, limit: usize) -> Result<&[u8], ()> {
        loop {
            // Not filled with zeros where all of it is to be used: that alone would cost every
            // agent 64 KiB for good.
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

    /// Starts a tenant's process; the rest of the plan is filled in here.
    ///
    /// # Errors
    /// As [`isolet_sys::spawn::spawn`].
    pub(crate) fn spawn(
        &mut self,
        order: SpawnRequest,
        parent: ChildOwner,
    ) -> std::io::Result<Child> {
        let terminal = order.terminal.as_ref().map(|(handover, size)| Terminal {
            handover: handover.as_fd(),
            cols: size.cols,
            rows: size.rows,
        });
        let cgroup = order.group.as_ref().or(self.config.cgroup.as_ref());
        let plan = Plan {
            terminal,
            cgroup: cgroup.map(AsFd::as_fd),
            programs: order.programs,
            argv: order.argv,
            envp: order.envp,
            cwd: Some(order.cwd),
            ..self.plan(order.fds, order.uid)
        };
        let child = isolet_sys::spawn::spawn(plan)?;
        self.children.insert(child.pid, parent);
        Ok(child)
    }

    /// Starts a copy of the agent, confined as a tenant, for what may block.
    ///
    /// # Errors
    /// As [`isolet_sys::spawn::fork`].
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

    /// Goes on reading a pipe that nobody is interested in any more, so that its writers live.
    pub(crate) fn drain(&mut self, fd: OwnedFd) {
        self.poll.remove(&fd);
        let id = self.next_id();
        if self.poll.add(&fd, Source::Drain, id, EventFlags::IN).is_ok() {
            if self.drains.len() >= DRAINS_MAX {
                self.drains.pop_front();
            }
            self.drains.push_back((id, fd));
        }
    }

    /// One of these pipes is readable.
    pub(crate) fn drain_ready(&mut self, id: u64) {
        let Some(at) = self.drains.iter().position(|(drain, _)| *drain == id) else { return };
        let Some((_, fd)) = self.drains.remove(at) else { return };
        if self.read(&fd, READ_BYTES).is_ok() {
            self.drains.insert(at, (id, fd));
        }
    }

    /// Whether processes may be read in this moment; where not, a timer tells when they may.
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

    /// So many bytes of a process were read.
    pub(crate) fn count_process_read(&mut self, bytes: usize) {
        self.reads.bytes += bytes;
    }

    /// How many processes of the sandbox the kernel has killed for memory. With `cached` a value
    /// of the last 2 ms will do.
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

/// What to start, without how it is confined.
#[derive(Debug)]
pub(crate) struct SpawnRequest {
    /// Tried in order until one exists.
    pub(crate) programs: Vec<CString>,
    /// Arguments.
    pub(crate) argv: Vec<CString>,
    /// Environment.
    pub(crate) envp: Vec<CString>,
    /// Start directory.
    pub(crate) cwd: CString,
    /// Descriptors: ours, and the number in the child.
    pub(crate) fds: Vec<(RawFd, RawFd)>,
    /// User and group.
    pub(crate) uid: u32,
    /// It gets a terminal of this size, whose other side comes out of the other end of the socket.
    pub(crate) terminal: Option<(OwnedFd, Size)>,
    /// The version 2 group that it is born in, rather than the tenant's.
    pub(crate) group: Option<OwnedFd>,
}

/// An environment as the kernel takes it; `None` when a name or value cannot be in one.
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
