//! A program without a shell. It belongs to one connection. If the connection closes, the program
//! continues until its end or its timeout, and its output is discarded.

use crate::connection::Conn;
use crate::launch::{self, Pipes, Refusal};
use crate::process_tree;
use crate::reactor::poll::EventSource;
use crate::reactor::{ChildOwner, READ_BYTES, Reactor, SpawnRequest, Timer};
use isolet_sys::signal;
use isolet_sys::spawn::{Child, Stage};
use isolet_wire::request::StartExec;
use isolet_wire::response::{AgentResponse, CommandExit, RefusalReason, STDERR, STDOUT};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const TERM_TO_KILL: Duration = Duration::from_millis(500);
/// Maximum user id of a program; the next one means nobody.
const UID_MAX: u32 = 65_533;
/// Unread input of a program, in bytes, above which its sender is no longer read.
pub(crate) const INPUT_BYTES_MAX: usize = 1024 * 1024;

/// A program without a shell, from its start to its exit.
///
/// More than 12 fields: an exec has no phases, and its pipes, its exit and its timers change
/// independently of each other.
#[derive(Debug)]
pub(crate) struct Exec {
    /// The connection of the program, while it is open.
    pub(crate) conn: Option<u64>,
    id: u64,
    request: StartExec,
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
    /// The exit was reported.
    pub(crate) exit_reported: bool,
    /// The exit code and signal, once the program has ended. Its last output may still be unread.
    ended: Option<(i32, Option<i32>)>,
    unread: [usize; 2],
    /// The program was started without a shell to save time. If that fails, `bash -c` reports the
    /// error.
    without_shell: bool,
}

impl Exec {
    /// Starts a program.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub(crate) fn start(
        reactor: &mut Reactor,
        id: u64,
        conn: u64,
        request: StartExec,
    ) -> Result<Self, Refusal> {
        if request.uid > UID_MAX {
            return Err((
                RefusalReason::BadRequest,
                format!("user id {} is above {UID_MAX}", request.uid),
            ));
        }
        let words = launch::words_without_shell(&request);
        let without_shell = words.is_some();
        let mut exec = Self {
            conn: Some(conn),
            id,
            request,
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
        if exec.request.timeout_ms > 0 {
            exec.arm(reactor);
        }
        Ok(exec)
    }

    fn launch(&mut self, reactor: &mut Reactor, words: Option<Vec<String>>) -> Result<(), Refusal> {
        let request = launch::spawn_request(&self.request, words)?;
        self.spawn(reactor, request).map_err(|error| launch::no_process(&error))
    }

    fn spawn(&mut self, reactor: &mut Reactor, mut request: SpawnRequest) -> std::io::Result<()> {
        let pipes = Pipes::new(self.request.stdin)?;
        request.fds = pipes.fds();
        let child = reactor.spawn(request, ChildOwner::Exec(self.id))?;
        reactor.poll.add(
            &child.started,
            EventSource::ProgramExecStatus,
            self.id,
            EventFlags::IN,
        )?;
        self.pid = child.pid;
        self.child = Some(child);
        self.pipes = pipes.out.map(Some);
        self.stdin = pipes.stdin_pipe;
        self.listening = false;
        self.set_listening(reactor, true);
        Ok(())
    }

    /// The exec status is available. `Some(refusal)` means that the program did not start, and
    /// its connection must receive the reason.
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
        Some(launch::refusal(launch::program_name(&self.request), failed.0, failed.1))
    }

    /// Whether this is the process id of the current program.
    #[must_use]
    pub(crate) fn is(&self, pid: i32) -> bool {
        self.pid == pid
    }

    fn set_listening(&mut self, reactor: &Reactor, on: bool) {
        if self.listening == on {
            return;
        }
        self.listening = on;
        for (fd, source) in
            self.pipes.iter().zip([EventSource::ProgramOut, EventSource::ProgramErr])
        {
            match fd {
                Some(fd) if on => drop(reactor.poll.add(fd, source, self.id, EventFlags::IN)),
                Some(fd) => reactor.poll.remove(fd),
                None => {}
            }
        }
    }

    /// Reads an output pipe once and forwards the bytes to the connection.
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
                    // A disconnected peer is detected by its own event.
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

    /// Continues to read an ended program's output after every round, as its connection accepts it,
    /// and pauses reading otherwise. `Some` means that the program is over, with the message for
    /// its client.
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

    /// Whether the exit was reported and no process is left to kill.
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
        AgentResponse::Exit(CommandExit {
            code,
            signal,
            timed_out: self.timed_out,
            cancelled: self.cancelled,
            oom: reactor.oom_kills(false) > self.oom_kills_before,
            out: self.output_bytes[0],
            err: self.output_bytes[1],
            micros: reactor.clock.now().duration_since(self.started_at).as_micros() as u64,
            ..CommandExit::default()
        })
    }

    /// The program has ended.
    pub(crate) fn on_exit(&mut self, code: Option<i32>, signal: Option<i32>) {
        let number = code.unwrap_or_else(|| 128 + signal.unwrap_or(0));
        self.ended = Some((number, signal));
        self.unread = [&self.pipes[0], &self.pipes[1]].map(|fd| {
            let count = fd.as_ref().and_then(|fd| rustix::io::ioctl_fionread(fd).ok());
            count.map_or(0, |count| count as usize)
        });
    }

    /// Adds input. Returns the number of waiting bytes, or `None` if the program accepts no input.
    pub(crate) fn push_stdin(
        &mut self,
        reactor: &mut Reactor,
        data: &[u8],
        eof: bool,
    ) -> Option<usize> {
        if !self.request.stdin {
            return None;
        }
        self.input.extend_from_slice(data);
        self.eof |= eof;
        self.write_stdin(reactor);
        Some(self.input.len())
    }

    /// The connection has closed, so no more input can come.
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

    /// Writes as much input as the program accepts.
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
            let _ = reactor.poll.add(fd, EventSource::ProgramStdin, self.id, EventFlags::OUT);
        }
    }

    /// Discards input if no process reads it any more.
    fn drop_input_if_closed(&mut self) {
        if self.child.is_none() {
            self.input.clear();
        }
    }

    /// Sends a signal to the process group.
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

    /// Kills the program and everything that it started.
    pub(crate) fn cancel(&mut self, reactor: &Reactor) {
        self.cancelled = true;
        self.kill(reactor);
    }

    fn kill(&self, reactor: &Reactor) {
        let below = process_tree::descendants(self.pid, |pid| reactor.children.contains_key(&pid));
        // After the program was reaped, another process may have its id. Its orphans are recognised
        // by their session.
        if self.ended.is_none() {
            self.signal_group(9);
        }
        below.iter().for_each(|process| process.send(9));
    }

    fn due(&self) -> Option<Instant> {
        if self.timed_out {
            return self.kill_at;
        }
        if self.ended.is_some() || self.request.timeout_ms == 0 {
            return None;
        }
        self.started_at.checked_add(Duration::from_millis(self.request.timeout_ms))
    }

    fn arm(&self, reactor: &mut Reactor) {
        if let Some(due) = self.due() {
            reactor.set_timer(due, Timer::Exec(self.id));
        }
    }

    /// The timer has expired.
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
