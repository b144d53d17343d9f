//! The agent's main loop. It has one thread, and nothing in it blocks. Each round handles the
//! events that are ready and the timers that are due, and then flushes what is pending. Output is
//! sent only during the flush, so that everything that a round produced is sent together.

mod context;
mod flush;
mod port;
mod process;
mod request;
mod save;
mod shell;
mod terminal;

use crate::connection::{Conn, Role};
use crate::context::{Context, SpareKernels};
use crate::exec::Exec;
use crate::port::Dial;
use crate::process::Process;
use crate::reactor::poll::{EventSource, Ready};
use crate::reactor::{ChildOwner, READ_BYTES, Reactor, Timer};
use crate::shell::Shell;
use crate::terminal::Terminal;
use isolet_wire::activity::ShellKey;
use isolet_wire::frame::{self, Frame};
use isolet_wire::request::AgentRequest;
use isolet_wire::response::{AgentResponse, RefusalReason, STDERR, STDOUT};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Maximum number of connections.
const CONNS_MAX: usize = 4096;
/// Pause before further connections are accepted when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Number of frames of one connection per round, so that other connections get their turn.
const FRAMES_MAX: usize = 64;

/// A connection that waits until all shells are saved, with its deadline.
type Saver = (u64, Instant);

/// All connections, shells, programs, terminals, processes and contexts. It has one field for each
/// of them.
#[derive(Debug)]
pub(crate) struct Agent {
    reactor: Reactor,
    listen: OwnedFd,
    child_signals: OwnedFd,
    conns: HashMap<u64, Conn>,
    shells: HashMap<u64, Shell>,
    shells_by_key: HashMap<ShellKey, u64>,
    execs: HashMap<u64, Exec>,
    terminals: HashMap<u64, Terminal>,
    dials: HashMap<u64, Dial>,
    processes: BTreeMap<u64, Process>,
    contexts: HashMap<u64, Context>,
    spares: SpareKernels,
    /// Worker processes with their deadlines; `None` for a watch.
    file_workers: HashMap<i32, Option<Instant>>,
    watchers: Vec<u64>,
    watch_timer_set: bool,
    savers: Vec<Saver>,
    /// Shells that have only the start of a command to send, which waits for its first output until
    /// the deadline below.
    delayed: Vec<u64>,
    delayed_until: Option<Instant>,
    scratch: Vec<u8>,
}

impl Agent {
    /// Registers the listening socket.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn new(reactor: Reactor, listen: OwnedFd) -> std::io::Result<Self> {
        let child_signals = isolet_sys::signal::sigchld_fd()?;
        rustix::io::ioctl_fionbio(&listen, true)?;
        reactor.poll.add(&listen, EventSource::Listen, 0, EventFlags::IN)?;
        reactor.poll.add(&child_signals, EventSource::Children, 0, EventFlags::IN)?;
        Ok(Self {
            reactor,
            listen,
            child_signals,
            conns: HashMap::new(),
            shells: HashMap::new(),
            shells_by_key: HashMap::new(),
            execs: HashMap::new(),
            terminals: HashMap::new(),
            dials: HashMap::new(),
            processes: BTreeMap::new(),
            contexts: HashMap::new(),
            spares: SpareKernels::default(),
            file_workers: HashMap::new(),
            watchers: Vec::new(),
            watch_timer_set: false,
            savers: Vec::new(),
            delayed: Vec::new(),
            delayed_until: None,
            scratch: Vec::with_capacity(READ_BYTES),
        })
    }

    pub(crate) fn serve(&mut self) -> ! {
        let mut ready = Vec::new();
        // Processes that the launcher left to process 1 may have ended before the signal handler
        // was installed.
        self.reap();
        loop {
            let mut limit = self.reactor.next_timer();
            if let Some(due) = self.delayed_until {
                limit = Some(limit.map_or(due, |limit| limit.min(due)));
            }
            if self.reactor.pending.is_urgent() {
                limit = Some(self.reactor.now);
            }
            self.reactor.poll.wait(self.reactor.now, limit, &mut ready);
            self.reactor.now = self.reactor.clock.now();
            for event in ready.drain(..) {
                self.handle_event(event);
            }
            while let Some((when, timer)) = self.reactor.pop_due_timer() {
                self.handle_timer(when, timer);
            }
            for id in self.reactor.pending.connections.take() {
                self.handle_frames(id);
            }
            self.flush();
        }
    }

    fn handle_event(&mut self, ready: Ready) {
        let id = ready.id;
        match ready.source {
            EventSource::Listen => self.accept(),
            EventSource::Children => self.reap(),
            EventSource::Conn => self.on_connection_ready(id, ready.gone),
            EventSource::Drain => self.reactor.drain_ready(id),
            EventSource::Clock => {}
            EventSource::Dial => self.check_dial(id, false),
            EventSource::Pty | EventSource::PtyExecStatus => {
                let Some(terminal) = self.terminals.get_mut(&id) else { return };
                match ready.source {
                    EventSource::Pty => terminal.on_ready(&mut self.reactor),
                    _ => terminal.on_exec_status(&mut self.reactor),
                }
            }
            EventSource::ProcessOut
            | EventSource::ProcessErr
            | EventSource::ProcessStdin
            | EventSource::ProcessExecStatus
            | EventSource::ProcessGroup => self.process_event(ready),
            EventSource::ProgramOut
            | EventSource::ProgramErr
            | EventSource::ProgramStdin
            | EventSource::ProgramExecStatus => self.exec_event(ready),
            EventSource::ContextOut
            | EventSource::ContextErr
            | EventSource::ContextControl
            | EventSource::ContextExecStatus => {
                self.context_event(ready);
            }
            source => {
                let own = self.contexts.get_mut(&id).and_then(Context::shell);
                let Some(shell) = own.or(self.shells.get_mut(&id)) else { return };
                match source {
                    EventSource::Status => shell.on_status(&mut self.reactor),
                    EventSource::Out => shell.on_output(&mut self.reactor, STDOUT),
                    EventSource::Err => shell.on_output(&mut self.reactor, STDERR),
                    EventSource::ExecStatus => shell.on_exec_status(&mut self.reactor),
                    EventSource::Control => shell.on_control_writable(&mut self.reactor),
                    _ => shell.write_stdin(&mut self.reactor),
                }
            }
        }
    }

    fn exec_event(&mut self, ready: Ready) {
        let Some(exec) = self.execs.get_mut(&ready.id) else { return };
        self.reactor.pending.execs.mark(ready.id);
        let conn = exec.conn.and_then(|conn| self.conns.get_mut(&conn));
        match ready.source {
            EventSource::ProgramOut => exec.on_output(&mut self.reactor, conn, STDOUT),
            EventSource::ProgramErr => exec.on_output(&mut self.reactor, conn, STDERR),
            EventSource::ProgramStdin => exec.write_stdin(&self.reactor),
            _ => {
                if let Some((reason, message)) = exec.on_exec_status(&mut self.reactor) {
                    self.exec_refused(ready.id, reason, message);
                }
            }
        }
    }

    fn handle_timer(&mut self, when: Instant, timer: Timer) {
        match timer {
            Timer::Shell(id) => {
                let own = self.contexts.get_mut(&id).and_then(Context::shell);
                if let Some(shell) = own.or(self.shells.get_mut(&id)) {
                    shell.on_timer(&mut self.reactor, when);
                }
            }
            Timer::Exec(id) => {
                if let Some(exec) = self.execs.get_mut(&id) {
                    exec.on_timer(&mut self.reactor);
                    self.reactor.pending.execs.mark(id);
                }
            }
            Timer::Accept => {
                self.reactor.poll.modify(&self.listen, EventSource::Listen, 0, EventFlags::IN);
                self.accept();
            }
            Timer::Watch => {
                self.watch_timer_set = false;
                self.report_to_watchers();
            }
            Timer::Terminal(id) => {
                if let Some(terminal) = self.terminals.get_mut(&id) {
                    terminal.on_timer(&mut self.reactor);
                }
            }
            Timer::Dial(id) => self.check_dial(id, false),
            Timer::Process(id) => {
                if let Some(process) = self.processes.get_mut(&id) {
                    process.on_timer(&mut self.reactor);
                }
            }
            Timer::Reads => {
                self.processes.keys().for_each(|id| self.reactor.pending.processes.mark(*id));
            }
            Timer::Context(id) => self.context_tick(id),
            Timer::Spare => {
                let busy = self.contexts.values().any(Context::is_busy);
                self.spares.on_timer(&mut self.reactor, busy);
            }
            // The timer only triggers a flush.
            Timer::Save => {}
            Timer::Files => {
                for (pid, _) in self
                    .file_workers
                    .iter()
                    .filter(|(_, due)| due.is_some_and(|due| due <= self.reactor.now))
                {
                    let _ = isolet_sys::signal::send(*pid, 9);
                }
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..FRAMES_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.listen, flags) {
                Ok(fd) => self.add_connection(fd),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // Out of descriptors or memory: the waiting connection keeps the socket
                    // readable, so the socket is not polled for a while.
                    let none = EventFlags::empty();
                    self.reactor.poll.modify(&self.listen, EventSource::Listen, 0, none);
                    self.reactor.set_timer(self.reactor.now + ACCEPT_PAUSE, Timer::Accept);
                    return;
                }
            }
        }
    }

    fn add_connection(&mut self, fd: OwnedFd) {
        // A tenant's process is inside the process namespace, and the server is not.
        let inside =
            self.reactor.config.userns.is_some() && !matches!(isolet_sys::peer::pid(&fd), Ok(0));
        if inside || self.conns.len() >= CONNS_MAX {
            return;
        }
        let id = self.reactor.next_id();
        if self.reactor.poll.add(&fd, EventSource::Conn, id, EventFlags::IN).is_ok() {
            self.conns.insert(id, Conn::new(id, fd));
        }
    }

    fn on_connection_ready(&mut self, id: u64, gone: bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.input_paused {
            if gone {
                self.close_connection(id);
            } else {
                self.send_queued(id);
            }
            return;
        }
        if !conn.receive(&mut self.scratch) {
            self.close_connection(id);
            return;
        }
        self.handle_frames(id);
        self.send_queued(id);
    }

    /// Handles the received frames of a connection.
    fn handle_frames(&mut self, id: u64) {
        for _ in 0..FRAMES_MAX {
            let Some(conn) = self.conns.get_mut(&id) else { return };
            let request = match conn.next_frame() {
                Ok(None) => return,
                Ok(Some(Frame::Message(body))) => frame::decode::<AgentRequest>(&body),
                Ok(Some(Frame::Data(_))) => Err(frame::FrameError::Body),
                Err(error) => Err(error),
            };
            match request {
                Ok(request) => self.handle_request(id, request),
                Err(_) => self.close_connection(id),
            }
        }
        if self.conns.contains_key(&id) {
            self.reactor.pending.connections.mark(id);
        }
    }

    fn send(&mut self, id: u64, message: &AgentResponse) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.queue_message(message);
        }
        self.send_queued(id);
    }

    fn refuse(
        &mut self,
        id: u64,
        of: Option<String>,
        reason: RefusalReason,
        message: impl Into<String>,
    ) {
        self.send(id, &AgentResponse::Refused { id: of, reason, message: message.into() });
    }

    fn reap(&mut self) {
        let mut bytes = [0; 512];
        while matches!(rustix::io::read(&self.child_signals, &mut bytes), Ok(1..)) {}
        while let Ok(Some((pid, status))) =
            rustix::process::wait(rustix::process::WaitOptions::NOHANG)
        {
            let pid = pid.as_raw_nonzero().get();
            let code = status.exit_status();
            let signal = status.terminating_signal();
            match self.reactor.children.remove(&pid) {
                Some(ChildOwner::Shell(id)) => {
                    let own = self.contexts.get_mut(&id).and_then(Context::shell);
                    let shell = own.or(self.shells.get_mut(&id));
                    if let Some(shell) = shell.filter(|shell| shell.pid() == pid) {
                        shell.on_exit(&mut self.reactor, code, signal);
                    }
                }
                Some(ChildOwner::Exec(id)) => self.exec_died(id, pid, code, signal),
                Some(ChildOwner::Process(id)) => self.process_died(id, pid, code, signal),
                Some(ChildOwner::Terminal(id)) => {
                    if let Some(terminal) = self.terminals.get_mut(&id) {
                        terminal.on_exit(&mut self.reactor, code, signal);
                    }
                }
                Some(ChildOwner::Context(id)) => self.context_died(id, pid, code, signal),
                Some(ChildOwner::File) => drop(self.file_workers.remove(&pid)),
                // An orphan that process 1 inherited.
                None => {}
            }
        }
    }

    fn exec_died(&mut self, id: u64, pid: i32, code: Option<i32>, signal: Option<i32>) {
        let Some(exec) = self.execs.get_mut(&id).filter(|exec| exec.is(pid)) else { return };
        // Another descriptor, which may not have been read yet, tells whether the program was
        // executed at all.
        if let Some((reason, message)) = exec.on_exec_status(&mut self.reactor) {
            return self.exec_refused(id, reason, message);
        }
        if exec.is(pid) {
            exec.on_exit(code, signal);
            self.reactor.pending.execs.mark(id);
        }
    }

    /// Closes a connection. The operations that it requested continue.
    fn close_connection(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if std::mem::replace(&mut conn.closing, true) {
            return;
        }
        // A disconnected server may have sent a request before, such as a cancel, and a failed send
        // may have detected the disconnection first.
        conn.input_paused = false;
        if conn.receive(&mut self.scratch) {
            self.handle_frames(id);
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let _ = conn.flush();
        if let Role::Shell(client) = &conn.role {
            let shell = client.shell;
            self.detach(id, shell);
        }
        self.leave_terminal(id);
        self.leave_process(id);
        let Some(conn) = self.conns.remove(&id) else { return };
        self.reactor.release_clock(id);
        match conn.role {
            Role::Exec(exec) => {
                if let Some(exec) = self.execs.get_mut(&exec) {
                    exec.detach(&self.reactor);
                }
                self.reactor.pending.execs.mark(exec);
            }
            Role::Watch => self.watchers.retain(|watcher| *watcher != id),
            _ => self.leave_contexts(id),
        }
    }
}
