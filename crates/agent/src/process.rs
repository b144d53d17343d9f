//! A background process: a program with an id, its log, and everything that it started. It belongs
//! to no connection, and its output is logged whether or not a client follows it.
//!
//! [`phase`] draws the phases of a process.

mod end;
pub(crate) mod follow;
mod group;
mod journal;
mod kill_state;
mod phase;

use crate::launch::{self, Pipes, Refusal};
use crate::reactor::poll::EventSource;
use crate::reactor::{ChildOwner, READ_BYTES, Reactor, SpawnRequest};
use group::Group;
use isolet_clock::now_ms;
use isolet_sys::spawn::{Child, Stage};
use isolet_wire::process::{
    COMMAND_BYTES_TOLD, INPUT_BYTES_MAX, LOG_BYTES, ProcessStatus, StartProcess,
};
use isolet_wire::request::{Invocation, StartExec};
use isolet_wire::response::{STDERR, STDOUT};
use journal::Journal;
use kill_state::KillState;
use phase::Phase;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Size of all logs together, in bytes, as long as each has at least [`LOG_BYTES_MIN`].
const LOGS_BYTES: usize = 64 * 1024 * 1024;
/// Minimum size of a log, in bytes, however many processes there are.
const LOG_BYTES_MIN: usize = 128 * 1024;
/// Maximum amount read from an ended program's pipes, in bytes. The kernel holds less, but other
/// processes may still write.
const LAST_BYTES_MAX: usize = 1024 * 1024;

/// A background process, from its start until nothing of it is left. It has many fields because its
/// log, its input and its end continue independently of each other.
#[derive(Debug)]
pub(crate) struct Process {
    /// The id of the process, as clients know it.
    pub(crate) name: String,
    /// The connection that started the process, until it has its answer.
    pub(crate) starter: Option<u64>,
    /// Connections that wait until nothing of the process is left.
    pub(crate) exit_waiters: Vec<u64>,
    /// Connections that wait until nothing of the process is left, after which it is forgotten.
    pub(crate) forget_waiters: Vec<u64>,
    /// Connections that follow the log.
    pub(crate) followers: Vec<u64>,
    /// The process is no longer reported.
    pub(crate) forgotten: bool,
    id: u64,
    session: Option<String>,
    command: String,
    request: StartExec,
    pid: i32,
    phase: Phase,
    /// The program was started without a shell to save time. If that fails, `bash -c` reports the
    /// error.
    without_shell: bool,
    /// The cgroup, until the process is over; `None` on a machine without cgroups.
    group: Option<Group>,
    started_at: Instant,
    started_at_ms: i64,
    io: ProcessIo,
    output: ProcessOutput,
    causes: EndCauses,
    kill_state: Option<KillState>,
    /// The moment for which a timer is set.
    timer_at: Option<Instant>,
}

/// The standard streams of a process.
#[derive(Debug, Default)]
struct ProcessIo {
    pipes: [Option<OwnedFd>; 2],
    /// The output pipes are polled.
    listening: bool,
    stdin: Option<OwnedFd>,
    /// Input that the process has not read yet.
    input: Vec<u8>,
    eof: bool,
}

/// The logged output of a process.
#[derive(Debug)]
struct ProcessOutput {
    journal: Journal,
    /// Size limit of the log, in bytes.
    limit: usize,
}

/// Facts that the description of the end will contain.
#[derive(Debug)]
struct EndCauses {
    oom_kills_before: u64,
    timed_out: bool,
    killed: bool,
}

/// A program that was started and that may not be executed yet.
struct SpawnedProgram {
    child: Child,
    pipes: Pipes,
}

/// The size limit of each of `count` logs, in bytes.
#[must_use]
pub(crate) fn log_bytes(count: usize) -> usize {
    (LOGS_BYTES / count.max(1)).clamp(LOG_BYTES_MIN, LOG_BYTES)
}

impl Process {
    /// Starts the process.
    ///
    /// # Errors
    /// The reason for a refusal. Nothing of the process is left then.
    pub(crate) fn start(
        reactor: &mut Reactor,
        id: u64,
        conn: u64,
        start: StartProcess,
    ) -> Result<Self, Refusal> {
        let StartProcess { id: name, session, program, cwd, env, stdin, timeout_ms } = start;
        let command = display_command(&program);
        let request = StartExec { program, cwd, env, stdin, timeout_ms, uid: 0 };
        let words = launch::words_without_shell(&request);
        let without_shell = words.is_some();
        let oom_kills_before = reactor.oom_kills(true);
        let spawn = launch::spawn_request(&request, words)?;
        let (group, dir) =
            Group::make(reactor, id).map_err(|errno| launch::no_process(&errno))?.unzip();
        let spawned = spawn_program(reactor, id, stdin, SpawnRequest { group: dir, ..spawn });
        let program = spawned.map_err(|error| {
            group.as_ref().map(|group| group.remove(reactor));
            launch::no_process(&error)
        })?;
        let mut process = Self {
            name,
            starter: Some(conn),
            exit_waiters: Vec::new(),
            forget_waiters: Vec::new(),
            followers: Vec::new(),
            forgotten: false,
            id,
            session,
            command,
            request,
            pid: program.child.pid,
            phase: Phase::Opening { child: program.child },
            without_shell,
            group,
            started_at: reactor.now,
            started_at_ms: now_ms(),
            io: ProcessIo::default(),
            output: ProcessOutput { journal: Journal::default(), limit: LOG_BYTES },
            causes: EndCauses { oom_kills_before, timed_out: false, killed: false },
            kill_state: None,
            timer_at: None,
        };
        process.connect(reactor, program.pipes);
        Ok(process)
    }

    /// Connects the standard streams of the program.
    fn connect(&mut self, reactor: &Reactor, pipes: Pipes) {
        self.io.pipes = pipes.out.map(Some);
        self.io.stdin = pipes.stdin_pipe;
        self.io.listening = false;
        self.set_listening(reactor, true);
    }

    /// The exec status may be available. `Some(refusal)` means that the program was not executed
    /// and nothing of it is left.
    pub(crate) fn on_exec_status(&mut self, reactor: &mut Reactor) -> Option<Refusal> {
        let Phase::Opening { child } = &mut self.phase else { return None };
        let result = child.exec_result()?;
        reactor.pending.processes.mark(self.id);
        let refusal = match result {
            Ok(()) => {
                self.enter(Phase::Running);
                self.write_stdin(reactor);
                return None;
            }
            Err((Stage::Exec, _)) if std::mem::take(&mut self.without_shell) => {
                self.retry_with_shell(reactor).err()?
            }
            Err((stage, errno)) => {
                launch::refusal(launch::program_name(&self.request), stage, errno)
            }
        };
        self.enter(Phase::NotExecuted);
        Some(refusal)
    }

    /// Starts the same command with `bash -c`.
    fn retry_with_shell(&mut self, reactor: &mut Reactor) -> Result<(), Refusal> {
        let request = launch::spawn_request(&self.request, None)?;
        let dir = self.group.as_ref().map(|group| group.dir(reactor)).transpose();
        let dir = dir.map_err(|errno| launch::no_process(&errno))?;
        let request = SpawnRequest { group: dir, ..request };
        let program = spawn_program(reactor, self.id, self.request.stdin, request)
            .map_err(|error| launch::no_process(&error))?;
        self.pid = program.child.pid;
        self.enter(Phase::Opening { child: program.child });
        self.connect(reactor, program.pipes);
        Ok(())
    }

    /// Whether the program has been executed.
    #[must_use]
    pub(crate) fn is_executed(&self) -> bool {
        !matches!(self.phase, Phase::Opening { .. } | Phase::NotExecuted)
    }

    /// Whether the process is reported: it has been executed and is not to be forgotten.
    #[must_use]
    pub(crate) fn is_visible(&self) -> bool {
        self.is_executed() && !self.forgotten
    }

    /// Takes the connections that wait for the end.
    pub(crate) fn take_waiters(&mut self) -> Vec<u64> {
        let mut all = std::mem::take(&mut self.exit_waiters);
        all.append(&mut self.forget_waiters);
        all
    }

    /// Whether this is the process id of the current program.
    #[must_use]
    pub(crate) fn is(&self, pid: i32) -> bool {
        self.pid == pid
    }

    /// The program has ended, but a descendant is alive.
    #[must_use]
    pub(crate) fn has_survivors(&self) -> bool {
        matches!(self.phase, Phase::Ended(_)) && self.group.as_ref().is_some_and(Group::populated)
    }

    /// Nothing of the process is left.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// The description for clients.
    #[must_use]
    pub(crate) fn describe(&self) -> ProcessStatus {
        let [out, err] = self.output.journal.counts();
        ProcessStatus {
            id: self.name.clone(),
            session: self.session.clone(),
            pid: self.pid,
            command: self.command.clone(),
            started_at_ms: self.started_at_ms,
            end: self.phase.ended().map(|ended| ended.status.clone()),
            remains: self.has_survivors(),
            stdin: self.io.stdin.is_some() && !self.io.eof,
            out,
            err,
            held: self.output.journal.first(),
        }
    }

    /// Changes the size limit of the log.
    pub(crate) fn set_log_limit(&mut self, bytes: usize) {
        self.output.limit = bytes;
        self.output.journal.trim(bytes);
    }

    fn set_listening(&mut self, reactor: &Reactor, on: bool) {
        if self.io.listening == on {
            return;
        }
        self.io.listening = on;
        for (fd, source) in
            self.io.pipes.iter().zip([EventSource::ProcessOut, EventSource::ProcessErr])
        {
            match fd {
                Some(fd) if on => drop(reactor.poll.add(fd, source, self.id, EventFlags::IN)),
                Some(fd) => reactor.poll.remove(fd),
                None => {}
            }
        }
    }

    /// Reads an output pipe once, unless too much was read in this round.
    pub(crate) fn on_output(&mut self, reactor: &mut Reactor, stream: u8) {
        if reactor.may_read_processes() {
            self.pull(reactor, stream, READ_BYTES);
            reactor.pending.processes.mark(self.id);
        } else {
            self.set_listening(reactor, false);
        }
    }

    fn pull(&mut self, reactor: &mut Reactor, stream: u8, limit: usize) -> usize {
        let slot = usize::from(stream == STDERR);
        let Some(fd) = &self.io.pipes[slot] else { return 0 };
        match reactor.read(fd, limit) {
            Ok(bytes) => {
                let count = bytes.len();
                self.output.journal.push(stream, bytes, self.output.limit);
                reactor.count_process_read(count);
                count
            }
            Err(()) => {
                self.io.pipes[slot] = None;
                0
            }
        }
    }

    /// Reads what is already in the pipes, but not what other processes may still write.
    fn drain_pipes(&mut self, reactor: &mut Reactor) {
        for (slot, stream) in [(0, STDOUT), (1, STDERR)] {
            let there =
                self.io.pipes[slot].as_ref().and_then(|fd| rustix::io::ioctl_fionread(fd).ok());
            let mut left = there.map_or(0, |count| count as usize).min(LAST_BYTES_MAX);
            while left > 0 {
                match self.pull(reactor, stream, left.min(READ_BYTES)) {
                    0 => break,
                    count => left = left.saturating_sub(count),
                }
            }
        }
    }

    /// Adds input to the queue.
    ///
    /// # Errors
    /// `PIPE` if the process accepts no input, `AGAIN` if it has too much unread input.
    pub(crate) fn push_stdin(
        &mut self,
        reactor: &Reactor,
        data: &[u8],
        eof: bool,
    ) -> Result<(), Errno> {
        if self.io.stdin.is_none() || self.io.eof {
            return Err(Errno::PIPE);
        }
        if self.io.input.len() + data.len() > INPUT_BYTES_MAX {
            return Err(Errno::AGAIN);
        }
        self.io.input.extend_from_slice(data);
        self.io.eof = eof;
        self.write_stdin(reactor);
        Ok(())
    }

    /// Writes as much input as the process accepts.
    pub(crate) fn write_stdin(&mut self, reactor: &Reactor) {
        let Some(fd) = self.io.stdin.as_ref().filter(|_| self.is_executed()) else { return };
        match rustix::io::write(fd, &self.io.input) {
            Ok(count) => drop(self.io.input.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.io.stdin = None,
        }
        if self.io.input.is_empty() && self.io.eof {
            self.io.stdin = None;
        }
        let Some(fd) = &self.io.stdin else { return self.io.input = Vec::new() };
        reactor.poll.remove(fd);
        if !self.io.input.is_empty() {
            let _ = reactor.poll.add(fd, EventSource::ProcessStdin, self.id, EventFlags::OUT);
        }
    }
}

/// Starts a program. Its exec status is reported as an event of the process `id`.
fn spawn_program(
    reactor: &mut Reactor,
    id: u64,
    stdin: bool,
    mut request: SpawnRequest,
) -> std::io::Result<SpawnedProgram> {
    let pipes = Pipes::new(stdin)?;
    request.fds = pipes.fds();
    let child = reactor.spawn(request, ChildOwner::Process(id))?;
    let polled =
        reactor.poll.add(&child.started, EventSource::ProcessExecStatus, id, EventFlags::IN);
    if let Err(errno) = polled {
        let _ = isolet_sys::signal::send(child.pid, 9);
        return Err(errno.into());
    }
    Ok(SpawnedProgram { child, pipes })
}

/// The command line in a form for people.
fn display_command(program: &Invocation) -> String {
    let mut text = match program {
        Invocation::Command(text) => text.clone(),
        Invocation::Argv(words) => words.join(" "),
    };
    text.truncate(text.floor_char_boundary(COMMAND_BYTES_TOLD));
    text
}
