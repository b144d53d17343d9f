//! The agent's loop: connections, shells, programs, and what is ready next. It has one thread, and
//! nothing in it blocks. Each round handles the events that are ready and the timers that are due,
//! and then flushes what is pending. Output is sent only there, so that everything that a round
//! produced leaves together.

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
use crate::reactor::poll::{Ready, Source};
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

/// Connections at once.
const CONNS_MAX: usize = 4096;
/// How long connections wait when descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Frames of one connection that are done before others have their turn.
const FRAMES_MAX: usize = 64;

/// A connection that waits until all shells are saved, and until when it waits.
type Saver = (u64, Instant);

/// All connections and everything that runs.
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
    /// By process: when it must have ended; `None` of a watch.
    file_workers: HashMap<i32, Option<Instant>>,
    watchers: Vec<u64>,
    watch_timer_set: bool,
    savers: Vec<Saver>,
    /// Shells of which only the start of a command is to be sent, and until when that waits for its
    /// first output.
    delayed: Vec<u64>,
    delayed_until: Option<Instant>,
    scratch: Vec<u8>,
}

impl Agent {
    /// Begins to listen.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn new(reactor: Reactor, listen: OwnedFd) -> std::io::Result<Self> {
        let child_signals = isolet_sys::signal::sigchld_fd()?;
        rustix::io::ioctl_fionbio(&listen, true)?;
        reactor.poll.add(&listen, Source::Listen, 0, EventFlags::IN)?;
        reactor.poll.add(&child_signals, Source::Children, 0, EventFlags::IN)?;
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

    /// Serves for good.
    pub(crate) fn serve(&mut self) -> ! {
        let mut ready = Vec::new();
        // Of those that the launcher left to process 1, some have ended before it could hear of it.
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
            self.reactor.now = Instant::now();
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
            Source::Listen => self.accept(),
            Source::Children => self.reap(),
            Source::Conn => self.on_connection_ready(id, ready.gone),
            Source::Drain => self.reactor.drain_ready(id),
            Source::Clock => {}
            Source::Dial => self.check_dial(id, false),
            Source::Pty | Source::PtyExecStatus => {
                let Some(terminal) = self.terminals.get_mut(&id) else { return };
                match ready.source {
                    Source::Pty => terminal.on_ready(&mut self.reactor),
                    _ => terminal.on_exec_status(&mut self.reactor),
                }
            }
            Source::ProcessOut
            | Source::ProcessErr
            | Source::ProcessStdin
            | Source::ProcessExecStatus
            | Source::ProcessGroup => self.process_event(ready),
            Source::ProgramOut
            | Source::ProgramErr
            | Source::ProgramStdin
            | Source::ProgramExecStatus => self.exec_event(ready),
            Source::ContextOut
            | Source::ContextErr
            | Source::ContextControl
            | Source::ContextExecStatus => {
                self.context_event(ready);
            }
            source => {
                let own = self.contexts.get_mut(&id).and_then(Context::shell);
                let Some(shell) = own.or(self.shells.get_mut(&id)) else { return };
                match source {
                    Source::Status => shell.on_status(&mut self.reactor),
                    Source::Out => shell.on_output(&mut self.reactor, STDOUT),
                    Source::Err => shell.on_output(&mut self.reactor, STDERR),
                    Source::ExecStatus => shell.on_exec_status(&mut self.reactor),
                    Source::Control => shell.on_control_writable(&mut self.reactor),
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
            Source::ProgramOut => exec.on_output(&mut self.reactor, conn, STDOUT),
            Source::ProgramErr => exec.on_output(&mut self.reactor, conn, STDERR),
            Source::ProgramStdin => exec.write_stdin(&self.reactor),
            _ => {
                if let Some((why, message)) = exec.on_exec_status(&mut self.reactor) {
                    self.exec_refused(ready.id, why, message);
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
                self.reactor.poll.modify(&self.listen, Source::Listen, 0, EventFlags::IN);
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
            // Only a reason to settle.
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
                    // readable, so it is not looked at for a while.
                    let none = EventFlags::empty();
                    self.reactor.poll.modify(&self.listen, Source::Listen, 0, none);
                    self.reactor.set_timer(self.reactor.now + ACCEPT_PAUSE, Timer::Accept);
                    return;
                }
            }
        }
    }

    fn add_connection(&mut self, fd: OwnedFd) {
        // A tenant is inside the process namespace, the server is not.
        let inside =
            self.reactor.config.userns.is_some() && !matches!(isolet_sys::peer::pid(&fd), Ok(0));
        if inside || self.conns.len() >= CONNS_MAX {
            return;
        }
        let id = self.reactor.next_id();
        if self.reactor.poll.add(&fd, Source::Conn, id, EventFlags::IN).is_ok() {
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

    /// Takes the frames that have come.
    fn handle_frames(&mut self, id: u64) {
        for _ in 0..FRAMES_MAX {
            let Some(conn) = self.conns.get_mut(&id) else { return };
            let ask = match conn.next_frame() {
                Ok(None) => return,
                Ok(Some(Frame::Message(body))) => frame::decode::<AgentRequest>(&body),
                Ok(Some(Frame::Data(_))) => Err(frame::FrameError::Body),
                Err(error) => Err(error),
            };
            match ask {
                Ok(ask) => self.handle_request(id, ask),
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
        why: RefusalReason,
        message: impl Into<String>,
    ) {
        self.send(id, &AgentResponse::Refused { id: of, why, message: message.into() });
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
                // An orphan that came to us as to process 1.
                None => {}
            }
        }
    }

    fn exec_died(&mut self, id: u64, pid: i32, code: Option<i32>, signal: Option<i32>) {
        let Some(exec) = self.execs.get_mut(&id).filter(|exec| exec.is(pid)) else { return };
        // Whether it was executed at all is told by another descriptor, perhaps not yet read.
        if let Some((why, message)) = exec.on_exec_status(&mut self.reactor) {
            return self.exec_refused(id, why, message);
        }
        if exec.is(pid) {
            exec.on_exit(code, signal);
            self.reactor.pending.execs.mark(id);
        }
    }

    /// Closes a connection. What it had asked for goes on.
    fn close_connection(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if std::mem::replace(&mut conn.closing, true) {
            return;
        }
        // A server that has gone may have said something first, a cancel above all; and that it
        // has gone may have been noticed while something was sent to it.
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
