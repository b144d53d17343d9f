//! A background process: a program under a name, its log, and everything that it started. It belongs
//! to no connection, and its output is logged whether or not anyone follows it.
//!
//! ```text
//! opening ──executed──▶ running ──its program ended──▶ ended ──nothing of it is left──▶ over
//!    └──not executed──▶ refused: never reported again
//! ```

mod end;
mod follow;
mod group;
mod journal;
mod killing;

use crate::launch::{self, Pipes, Refusal};
use crate::reactor::poll::Source;
use crate::reactor::{ChildOwner, READ_BYTES, Reactor, SpawnRequest};
use group::Group;
use isolet_clock::now_ms;
use isolet_sys::spawn::{Child, Stage};
use isolet_wire::process::{
    COMMAND_BYTES_TOLD, End, INPUT_BYTES_MAX, LOG_BYTES, Process as Told, Start,
};
use isolet_wire::request::{Exec as AgentRequest, What};
use isolet_wire::response::{STDERR, STDOUT};
use journal::Journal;
use killing::Killing;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Bytes of all logs together, where each still has [`LOG_BYTES_MIN`].
const LOGS_BYTES: usize = 64 * 1024 * 1024;
/// The least that a log holds, in bytes, however many processes there are.
const LOG_BYTES_MIN: usize = 128 * 1024;
/// What is read of an ended program: the kernel holds less, and somebody else may still write.
const LAST_BYTES_MAX: usize = 1024 * 1024;

/// A background process, from its start until nothing of it is left.
#[derive(Debug)]
pub(crate) struct Process {
    /// Its id, as its owner knows it.
    pub(crate) name: String,
    /// The connection that started it, until that was answered.
    pub(crate) starter: Option<u64>,
    /// Connections that wait until nothing of it is left.
    pub(crate) exit_waiters: Vec<u64>,
    /// Connections that wait until nothing of it is left, after which it is forgotten.
    pub(crate) forget_waiters: Vec<u64>,
    /// Connections that follow it.
    pub(crate) followers: Vec<u64>,
    /// Nobody is to be told of it any more.
    pub(crate) forgotten: bool,
    /// How it ended, once it has.
    pub(crate) end: Option<End>,
    id: u64,
    session: Option<String>,
    command: String,
    ask: AgentRequest,
    pid: i32,
    child: Option<Child>,
    /// It runs without a shell to save its start; where that fails `bash -c` says what and why.
    without_shell: bool,
    group: Option<Group>,
    started_at: Instant,
    started_at_ms: i64,
    pipes: [Option<OwnedFd>; 2],
    listening: bool,
    stdin: Option<OwnedFd>,
    input: Vec<u8>,
    eof: bool,
    journal: Journal,
    log_limit: usize,
    /// Where its own output ends; others may write more.
    own_output_end: u64,
    oom_kills_before: u64,
    timed_out: bool,
    killed: bool,
    killing: Option<Killing>,
    /// A timer is set for this moment.
    timer_at: Option<Instant>,
}

/// What each of `count` logs may hold, in bytes.
#[must_use]
pub(crate) fn log_bytes(count: usize) -> usize {
    (LOGS_BYTES / count.max(1)).clamp(LOG_BYTES_MIN, LOG_BYTES)
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// Why not; nothing is left of it.
    pub(crate) fn start(
        reactor: &mut Reactor,
        id: u64,
        conn: u64,
        start: Start,
    ) -> Result<Self, Refusal> {
        let Start { id: name, session, what, cwd, env, stdin, timeout_ms } = start;
        let command = told(&what);
        let ask = AgentRequest { what, cwd, env, stdin, timeout_ms, uid: 0 };
        let words = launch::words_without_shell(&ask);
        let without_shell = words.is_some();
        let mut process = Self {
            name,
            starter: Some(conn),
            exit_waiters: Vec::new(),
            forget_waiters: Vec::new(),
            followers: Vec::new(),
            forgotten: false,
            end: None,
            id,
            session,
            command,
            ask,
            pid: 0,
            child: None,
            without_shell,
            group: None,
            started_at: reactor.now,
            started_at_ms: now_ms(),
            pipes: [None, None],
            listening: false,
            stdin: None,
            input: Vec::new(),
            eof: false,
            journal: Journal::default(),
            log_limit: LOG_BYTES,
            own_output_end: 0,
            oom_kills_before: reactor.oom_kills(true),
            timed_out: false,
            killed: false,
            killing: None,
            timer_at: None,
        };
        let order = launch::spawn_request(&process.ask, words)?;
        let (group, dir) =
            Group::make(reactor, id).map_err(|errno| launch::no_process(&errno))?.unzip();
        process.group = group;
        if let Err(error) = process.spawn(reactor, SpawnRequest { group: dir, ..order }) {
            process.leave_group(reactor);
            return Err(launch::no_process(&error));
        }
        Ok(process)
    }

    fn spawn(&mut self, reactor: &mut Reactor, mut order: SpawnRequest) -> std::io::Result<()> {
        let pipes = Pipes::new(self.ask.stdin)?;
        order.fds = pipes.fds();
        let child = reactor.spawn(order, ChildOwner::Process(self.id))?;
        if let Err(errno) =
            reactor.poll.add(&child.started, Source::ProcessExecStatus, self.id, EventFlags::IN)
        {
            let _ = isolet_sys::signal::send(child.pid, 9);
            return Err(errno.into());
        }
        self.pid = child.pid;
        self.child = Some(child);
        self.pipes = pipes.out.map(Some);
        self.stdin = pipes.stdin_pipe;
        self.listening = false;
        self.set_listening(reactor, true);
        Ok(())
    }

    /// Whether it was executed may be known. `Some(refusal)`: it was not, and nothing is left of it.
    pub(crate) fn on_exec_status(&mut self, reactor: &mut Reactor) -> Option<Refusal> {
        let result = self.child.as_mut()?.exec_result()?;
        self.child = None;
        reactor.pending.processes.mark(self.id);
        let failed = match result {
            Ok(()) => {
                self.write_stdin(reactor);
                return None;
            }
            Err(failed) => failed,
        };
        let again = failed.0 == Stage::Exec && std::mem::take(&mut self.without_shell);
        if again {
            self.retry_with_shell(reactor).err()
        } else {
            Some(launch::refusal(launch::program_name(&self.ask), failed))
        }
    }

    /// The same by `bash -c`.
    fn retry_with_shell(&mut self, reactor: &mut Reactor) -> Result<(), Refusal> {
        let order = launch::spawn_request(&self.ask, None)?;
        let dir = self.group.as_ref().map(|group| group.dir(reactor)).transpose();
        let dir = dir.map_err(|errno| launch::no_process(&errno))?;
        self.spawn(reactor, SpawnRequest { group: dir, ..order })
            .map_err(|error| launch::no_process(&error))
    }

    /// Whether its program was executed.
    #[must_use]
    pub(crate) fn is_executed(&self) -> bool {
        self.child.is_none()
    }

    /// Whether it is told of: it was executed, and is not to be forgotten.
    #[must_use]
    pub(crate) fn is_visible(&self) -> bool {
        self.is_executed() && !self.forgotten
    }

    /// Those who wait for its end.
    pub(crate) fn take_waiters(&mut self) -> Vec<u64> {
        let mut all = std::mem::take(&mut self.exit_waiters);
        all.append(&mut self.forget_waiters);
        all
    }

    /// Is this its program (and not one that it replaced)?
    #[must_use]
    pub(crate) fn is(&self, pid: i32) -> bool {
        self.pid == pid
    }

    /// It has ended, and something that it started lives.
    #[must_use]
    pub(crate) fn has_survivors(&self) -> bool {
        self.end.is_some() && self.group.as_ref().is_some_and(Group::populated)
    }

    /// Nothing of it is left.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some() && self.group.is_none()
    }

    /// As it is told.
    #[must_use]
    pub(crate) fn describe(&self) -> Told {
        let [out, err] = self.journal.counts();
        Told {
            id: self.name.clone(),
            session: self.session.clone(),
            pid: self.pid,
            command: self.command.clone(),
            started_at_ms: self.started_at_ms,
            end: self.end.clone(),
            remains: self.has_survivors(),
            stdin: self.stdin.is_some() && !self.eof,
            out,
            err,
            held: self.journal.first(),
        }
    }

    /// Its log holds no more than this from now on.
    pub(crate) fn set_log_limit(&mut self, bytes: usize) {
        self.log_limit = bytes;
        self.journal.trim(bytes);
    }

    fn set_listening(&mut self, reactor: &Reactor, on: bool) {
        if self.listening == on {
            return;
        }
        self.listening = on;
        for (fd, what) in self.pipes.iter().zip([Source::ProcessOut, Source::ProcessErr]) {
            match fd {
                Some(fd) if on => drop(reactor.poll.add(fd, what, self.id, EventFlags::IN)),
                Some(fd) => reactor.poll.remove(fd),
                None => {}
            }
        }
    }

    /// Reads one of its pipes once, unless too much was read of all in this moment.
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
        let Some(fd) = &self.pipes[slot] else { return 0 };
        match reactor.read(fd, limit) {
            Ok(bytes) => {
                let count = bytes.len();
                self.journal.push(stream, bytes, self.log_limit);
                reactor.count_process_read(count);
                count
            }
            Err(()) => {
                self.pipes[slot] = None;
                0
            }
        }
    }

    /// Reads what lies in its pipes, and not what others may still say.
    fn drain_pipes(&mut self, reactor: &mut Reactor) {
        for (slot, stream) in [(0, STDOUT), (1, STDERR)] {
            let there =
                self.pipes[slot].as_ref().and_then(|fd| rustix::io::ioctl_fionread(fd).ok());
            let mut left = there.map_or(0, |count| count as usize).min(LAST_BYTES_MAX);
            while left > 0 {
                match self.pull(reactor, stream, left.min(READ_BYTES)) {
                    0 => break,
                    count => left = left.saturating_sub(count),
                }
            }
        }
    }

    /// Takes input in line.
    ///
    /// # Errors
    /// `PIPE`: it takes none; `AGAIN`: it has not read what it was given.
    pub(crate) fn push_stdin(
        &mut self,
        reactor: &Reactor,
        data: &[u8],
        eof: bool,
    ) -> Result<(), Errno> {
        if self.stdin.is_none() || self.eof {
            return Err(Errno::PIPE);
        }
        if self.input.len() + data.len() > INPUT_BYTES_MAX {
            return Err(Errno::AGAIN);
        }
        self.input.extend_from_slice(data);
        self.eof = eof;
        self.write_stdin(reactor);
        Ok(())
    }

    /// Writes what it takes of its input.
    pub(crate) fn write_stdin(&mut self, reactor: &Reactor) {
        let Some(fd) = self.stdin.as_ref().filter(|_| self.child.is_none()) else { return };
        match rustix::io::write(fd, &self.input) {
            Ok(count) => drop(self.input.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.stdin = None,
        }
        if self.input.is_empty() && self.eof {
            self.stdin = None;
        }
        let Some(fd) = &self.stdin else { return self.input = Vec::new() };
        reactor.poll.remove(fd);
        if !self.input.is_empty() {
            let _ = reactor.poll.add(fd, Source::ProcessStdin, self.id, EventFlags::OUT);
        }
    }
}

/// A command line for people.
fn told(what: &What) -> String {
    let mut text = match what {
        What::Command(text) => text.clone(),
        What::Argv(words) => words.join(" "),
    };
    text.truncate(text.floor_char_boundary(COMMAND_BYTES_TOLD));
    text
}
