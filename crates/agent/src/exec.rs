//! A program without a shell. It belongs to one connection; when that closes, the program runs on to
//! its end or its timeout, and its output is discarded.

use crate::connection::Conn;
use crate::launch::{self, Pipes, Refusal};
use crate::process_tree;
use crate::reactor::poll::Source;
use crate::reactor::{ChildOwner, READ_BYTES, Reactor, SpawnRequest, Timer};
use isolet_sys::signal;
use isolet_sys::spawn::{Child, Stage};
use isolet_wire::request::Exec as AgentRequest;
use isolet_wire::response::{AgentResponse, Exit, RefusalReason, STDERR, STDOUT};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const TERM_TO_KILL: Duration = Duration::from_millis(500);
/// The highest id that a program may run as; the one above is nobody's.
const UID_MAX: u32 = 65_533;
/// Input that waits for a program before its sender is no longer read.
pub(crate) const INPUT_BYTES_MAX: usize = 1024 * 1024;

/// A program without a shell, from its start to its exit.
#[derive(Debug)]
pub(crate) struct Exec {
    /// Its connection, while that is there.
    pub(crate) conn: Option<u64>,
    id: u64,
    ask: AgentRequest,
    pid: i32,
    child: Option<Child>,
    started_at: Instant,
    pipes: [Option<OwnedFd>; 2],
    stdin: Option<OwnedFd>,
    input: Vec<u8>,
    eof: bool,
    output_bytes: [u64; 2],
    oom_kills_before: u64,
    timed_out: bool,
    cancelled: bool,
    kill_at: Option<Instant>,
    listening: bool,
    /// Its end was told.
    pub(crate) exit_reported: bool,
    /// How it ended, once it did; its last bytes may still be read.
    ended: Option<(i32, Option<i32>)>,
    unread: [usize; 2],
    /// It runs without a shell to save its start; where that fails `bash -c` says what and why.
    without_shell: bool,
}

impl Exec {
    /// Starts it.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn start(
        reactor: &mut Reactor,
        id: u64,
        conn: u64,
        ask: AgentRequest,
    ) -> Result<Self, Refusal> {
        if ask.uid > UID_MAX {
            return Err((RefusalReason::BadAsk, format!("user id {} is above {UID_MAX}", ask.uid)));
        }
        let words = launch::words_without_shell(&ask);
        let without_shell = words.is_some();
        let mut exec = Self {
            conn: Some(conn),
            id,
            ask,
            pid: 0,
            child: None,
            started_at: reactor.now,
            pipes: [None, None],
            stdin: None,
            input: Vec::new(),
            eof: false,
            output_bytes: [0; 2],
            oom_kills_before: reactor.oom_kills(true),
            timed_out: false,
            cancelled: false,
            kill_at: None,
            listening: false,
            exit_reported: false,
            ended: None,
            unread: [0; 2],
            without_shell,
        };
        exec.launch(reactor, words)?;
        if exec.ask.timeout_ms > 0 {
            exec.arm(reactor);
        }
        Ok(exec)
    }

    fn launch(&mut self, reactor: &mut Reactor, words: Option<Vec<String>>) -> Result<(), Refusal> {
        let order = launch::spawn_request(&self.ask, words)?;
        self.spawn(reactor, order).map_err(|error| launch::no_process(&error))
    }

    fn spawn(&mut self, reactor: &mut Reactor, mut order: SpawnRequest) -> std::io::Result<()> {
        let pipes = Pipes::new(self.ask.stdin)?;
        order.fds = pipes.fds();
        let child = reactor.spawn(order, ChildOwner::Exec(self.id))?;
        reactor.poll.add(&child.started, Source::ProgramExecStatus, self.id, EventFlags::IN)?;
        self.pid = child.pid;
        self.child = Some(child);
        self.pipes = pipes.out.map(Some);
        self.stdin = pipes.stdin_pipe;
        self.listening = false;
        self.set_listening(reactor, true);
        Ok(())
    }

    /// Whether it was executed. `Some(refusal)`: it was not, and its connection is to be told.
    pub(crate) fn on_exec_status(&mut self, reactor: &mut Reactor) -> Option<Refusal> {
        let result = self.child.as_mut()?.exec_result()?;
        self.child = None;
        let failed = match result {
            Ok(()) => {
                self.write_stdin(reactor);
                return None;
            }
            Err(failed) => failed,
        };
        if failed.0 == Stage::Exec && self.without_shell {
            self.without_shell = false;
            return self.launch(reactor, None).err();
        }
        Some(launch::refusal(launch::program_name(&self.ask), failed))
    }

    /// Is this its process (and not one that it replaced)?
    #[must_use]
    pub(crate) fn is(&self, pid: i32) -> bool {
        self.pid == pid
    }

    fn set_listening(&mut self, reactor: &Reactor, on: bool) {
        if self.listening == on {
            return;
        }
        self.listening = on;
        for (fd, what) in self.pipes.iter().zip([Source::ProgramOut, Source::ProgramErr]) {
            match fd {
                Some(fd) if on => drop(reactor.poll.add(fd, what, self.id, EventFlags::IN)),
                Some(fd) => reactor.poll.remove(fd),
                None => {}
            }
        }
    }

    /// Reads one of its pipes once and hands the bytes to its connection.
    pub(crate) fn on_output(&mut self, reactor: &mut Reactor, conn: Option<&mut Conn>, stream: u8) {
        if self.ended.is_none() {
            self.pull(reactor, conn, stream, READ_BYTES);
        }
    }

    fn pull(
        &mut self,
        reactor: &mut Reactor,
        conn: Option<&mut Conn>,
        stream: u8,
        limit: usize,
    ) -> usize {
        let slot = usize::from(stream == STDERR);
        let Some(fd) = &self.pipes[slot] else { return 0 };
        match reactor.read(fd, limit) {
            Ok(bytes) => {
                let offset = self.output_bytes[slot];
                self.output_bytes[slot] += bytes.len() as u64;
                if let Some(conn) = conn.filter(|_| !bytes.is_empty()) {
                    // A connection that has gone is found out by its own event.
                    let _ = conn.send_data(stream, offset, bytes);
                }
                bytes.len()
            }
            Err(()) => {
                self.pipes[slot] = None;
                0
            }
        }
    }

    /// After every round: reads on what an ended program left, as its connection takes it, and
    /// stops reading while it takes nothing. `Some`: it is over, and this is to be told.
    pub(crate) fn forward_output(
        &mut self,
        reactor: &mut Reactor,
        mut conn: Option<&mut Conn>,
    ) -> Option<AgentResponse> {
        let room =
            |conn: &Option<&mut Conn>| conn.as_ref().is_none_or(|conn| conn.queued_bytes() == 0);
        if self.ended.is_none() {
            self.set_listening(reactor, room(&conn));
            return None;
        }
        self.set_listening(reactor, false);
        for (slot, stream) in [(0, STDOUT), (1, STDERR)] {
            while self.unread[slot] > 0 && room(&conn) {
                let limit = self.unread[slot].min(READ_BYTES);
                let count = self.pull(reactor, conn.as_deref_mut(), stream, limit);
                self.unread[slot] = if count == 0 { 0 } else { self.unread[slot] - count };
            }
        }
        (self.unread == [0, 0] && !self.exit_reported).then(|| self.exit(reactor))
    }

    /// Its end was told and nothing of it is left to be killed.
    #[must_use]
    pub(crate) fn is_finished(&self) -> bool {
        self.exit_reported && self.kill_at.is_none()
    }

    fn exit(&mut self, reactor: &mut Reactor) -> AgentResponse {
        self.exit_reported = true;
        for fd in self.pipes.iter_mut().filter_map(Option::take) {
            reactor.drain(fd);
        }
        let (code, signal) = self.ended.unwrap_or_default();
        AgentResponse::Exit(Exit {
            code,
            signal,
            timed_out: self.timed_out,
            cancelled: self.cancelled,
            oom: reactor.oom_kills(false) > self.oom_kills_before,
            out: self.output_bytes[0],
            err: self.output_bytes[1],
            micros: Instant::now().duration_since(self.started_at).as_micros() as u64,
            ..Exit::default()
        })
    }

    /// Its process has ended.
    pub(crate) fn on_exit(&mut self, code: Option<i32>, signal: Option<i32>) {
        let number = code.unwrap_or_else(|| 128 + signal.unwrap_or(0));
        self.ended = Some((number, signal));
        self.unread = [&self.pipes[0], &self.pipes[1]].map(|fd| {
            let count = fd.as_ref().and_then(|fd| rustix::io::ioctl_fionread(fd).ok());
            count.map_or(0, |count| count as usize)
        });
    }

    /// Takes input; gives how many bytes wait now, `None` when it asked for none.
    pub(crate) fn push_stdin(
        &mut self,
        reactor: &mut Reactor,
        data: &[u8],
        eof: bool,
    ) -> Option<usize> {
        if !self.ask.stdin {
            return None;
        }
        self.input.extend_from_slice(data);
        self.eof |= eof;
        self.write_stdin(reactor);
        Some(self.input.len())
    }

    /// Its connection has gone: no more input can come.
    pub(crate) fn detach(&mut self, reactor: &Reactor) {
        self.conn = None;
        self.eof = true;
        self.write_stdin(reactor);
    }

    /// Whether there is room for more input.
    #[must_use]
    pub(crate) fn has_stdin_room(&self) -> bool {
        self.input.len() <= INPUT_BYTES_MAX
    }

    /// Writes what it takes of its input.
    pub(crate) fn write_stdin(&mut self, reactor: &Reactor) {
        let Some(fd) = self.stdin.as_ref().filter(|_| self.child.is_none()) else {
            return self.drop_input_if_closed();
        };
        match rustix::io::write(fd, &self.input) {
            Ok(count) => drop(self.input.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.stdin = None,
        }
        let Some(fd) = &self.stdin else { return self.drop_input_if_closed() };
        if self.input.is_empty() && self.eof {
            self.stdin = None;
            return;
        }
        reactor.poll.remove(fd);
        if !self.input.is_empty() {
            let _ = reactor.poll.add(fd, Source::ProgramStdin, self.id, EventFlags::OUT);
        }
    }

    /// Nobody reads it any more.
    fn drop_input_if_closed(&mut self) {
        if self.child.is_none() {
            self.input.clear();
        }
    }

    /// Sends a signal to its group.
    pub(crate) fn signal(&self, number: i32) {
        if self.ended.is_none() {
            self.signal_group(number);
        }
    }

    /// A process that was only just started may not have its own group yet.
    fn signal_group(&self, number: i32) {
        if signal::send(-self.pid, number).is_err() {
            let _ = signal::send(self.pid, number);
        }
    }

    /// Kills it and everything it started.
    pub(crate) fn cancel(&mut self, reactor: &Reactor) {
        self.cancelled = true;
        self.kill(reactor);
    }

    fn kill(&self, reactor: &Reactor) {
        let below = process_tree::descendants(self.pid, |pid| reactor.children.contains_key(&pid));
        // Once it was reaped its number may be another's; its orphans are known by their session.
        if self.ended.is_none() {
            self.signal_group(9);
        }
        below.iter().for_each(|process| process.send(9));
    }

    fn due(&self) -> Option<Instant> {
        if self.timed_out {
            return self.kill_at;
        }
        if self.ended.is_some() || self.ask.timeout_ms == 0 {
            return None;
        }
        self.started_at.checked_add(Duration::from_millis(self.ask.timeout_ms))
    }

    fn arm(&self, reactor: &mut Reactor) {
        if let Some(due) = self.due() {
            reactor.set_timer(due, Timer::Exec(self.id));
        }
    }

    /// Its timer went off.
    pub(crate) fn on_timer(&mut self, reactor: &mut Reactor) {
        if self.due().is_none_or(|due| reactor.now < due) {
            return;
        }
        if self.timed_out {
            self.kill_at = None;
            self.kill(reactor);
            return;
        }
        self.timed_out = true;
        self.kill_at = Some(reactor.now + TERM_TO_KILL);
        self.signal_group(15);
        self.arm(reactor);
    }
}
