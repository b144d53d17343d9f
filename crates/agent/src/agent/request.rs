//! Dispatches the requests of a server.

use super::Agent;
use crate::connection::{Conn, Role};
use crate::context::Context;
use crate::exec::{self, Exec};
use crate::reactor::{Reactor, Timer};
use crate::shell::{self, Shell};
use crate::terminal::Terminal;
use isolet_wire::activity::{Activity, CloseCause, ShellKey};
use isolet_wire::request::AgentRequest;
use isolet_wire::response::{AgentResponse, RefusalReason};
use isolet_wire::version;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

/// Maximum number of programs.
const EXECS_MAX: usize = 1024;
/// Maximum number of file operations.
const FILES_MAX: usize = 256;
/// Maximum amount of unsent data for a watcher, in bytes: the states of some shells and many
/// reports.
const UNREAD_BYTES_MAX: usize = 8 << 20;
/// Maximum number of watches among the file operations, because they have no end of their own.
const WATCHES_MAX: usize = 32;
/// Timeout of a file operation.
const FILE_MAX: Duration = Duration::from_secs(15 * 60);

impl Agent {
    pub(super) fn handle_request(&mut self, id: u64, request: AgentRequest) {
        let new = self.conns.get(&id).is_none_or(|conn| matches!(conn.role, Role::New));
        match request {
            AgentRequest::Hello { version } if new => self.hello(id, version),
            _ if new => {
                self.refuse(id, None, RefusalReason::BadRequest, "hello comes first");
                self.close_connection(id);
            }
            AgentRequest::Hello { .. } => {
                self.refuse(id, None, RefusalReason::BadRequest, "hello comes once")
            }
            AgentRequest::Ping(number) => self.send(id, &AgentResponse::Pong(number)),
            AgentRequest::Watch => self.watch(id),
            AgentRequest::Attach(attach) => self.attach(id, attach),
            AgentRequest::Run(run) => {
                let of = Some(run.id.clone());
                let result =
                    self.with_shell(id, |shell, reactor, owner| shell.run(reactor, owner, run));
                if let Some(Err((reason, message))) = result {
                    self.refuse(id, of, reason, message);
                } else if result.is_none() {
                    self.refuse(id, of, RefusalReason::NoShell, "no shell is attached here");
                }
            }
            AgentRequest::Stdin { id: of, data, eof } => self.stdin(id, of, &data, eof),
            AgentRequest::Signal { id: of, signal } => self.signal(id, of, signal),
            AgentRequest::Cancel { id: of } => self.cancel(id, of),
            AgentRequest::Close { key: ShellKey::Terminal(session) } => {
                self.close_terminal(id, &session)
            }
            AgentRequest::Close { key } => self.close(id, &key),
            AgentRequest::Exec(exec) => self.exec(id, exec),
            AgentRequest::File(file) => self.file(id, file),
            AgentRequest::SaveStates => self.save(id),
            AgentRequest::StateStored { shell, number } => self.state_stored(&shell, number),
            AgentRequest::Terminal(attach) => self.attach_terminal(id, attach),
            AgentRequest::Type(bytes) => self.typed(id, &bytes),
            AgentRequest::Resize(size) => self.resized(id, size),
            AgentRequest::Terminals => self.list_terminals(id),
            AgentRequest::Dial { port } => self.dial(id, port),
            AgentRequest::Listening => self.listening(id),
            AgentRequest::Process(request) => self.process(id, request),
            AgentRequest::Context(request) => self.context(id, request),
            AgentRequest::StopClock => {
                self.reactor.clock.stop(id);
                self.send(id, &AgentResponse::Done);
            }
        }
    }

    pub(super) fn hello(&mut self, id: u64, offered: u16) {
        let version = version::answer(offered);
        self.send(id, &AgentResponse::Hello { version });
        if version > offered {
            self.close_connection(id);
        } else if let Some(conn) = self.conns.get_mut(&id) {
            conn.role = Role::Ready;
        }
    }

    /// Calls a function on the shell that this connection is a client of.
    pub(super) fn with_shell<T>(
        &mut self,
        id: u64,
        work: impl FnOnce(&mut Shell, &mut Reactor, &str) -> T,
    ) -> Option<T> {
        let Role::Shell(client) = &self.conns.get(&id)?.role else { return None };
        let shell = self.shells.get_mut(&client.shell)?;
        self.reactor.pending.shells.mark(client.shell);
        Some(work(shell, &mut self.reactor, &client.view.owner))
    }

    pub(super) fn exec_of(&mut self, id: u64) -> Option<(&mut Exec, &mut Reactor)> {
        let Role::Exec(exec) = self.conns.get(&id)?.role else { return None };
        self.reactor.pending.execs.mark(exec);
        Some((self.execs.get_mut(&exec)?, &mut self.reactor))
    }

    pub(super) fn stdin(&mut self, id: u64, of: String, data: &[u8], eof: bool) {
        let (held, max) = match self.exec_of(id) {
            Some((exec, reactor)) => (exec.push_stdin(reactor, data, eof), exec::INPUT_BYTES_MAX),
            None => {
                let held = self.with_shell(id, |shell, reactor, owner| {
                    shell.push_stdin(reactor, (owner, &of), data, eof)
                });
                (held.flatten(), shell::INPUT_BYTES_MAX)
            }
        };
        match held {
            Some(held) if held > max => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.input_paused = true;
                    conn.update_interest(&self.reactor.poll);
                }
            }
            // Input for a command that has just ended is no error.
            _ => {}
        }
    }

    pub(super) fn signal(&mut self, id: u64, of: String, signal: i32) {
        if !(1..=64).contains(&signal) {
            self.refuse(id, Some(of), RefusalReason::BadRequest, "signals are 1 to 64");
            return;
        }
        if let Some((exec, _)) = self.exec_of(id) {
            exec.signal(signal);
            return;
        }
        let found =
            self.with_shell(id, |shell, reactor, owner| shell.signal(reactor, owner, &of, signal));
        if found != Some(true) {
            self.refuse(id, Some(of), RefusalReason::BadRequest, "no such command is running");
        }
    }

    pub(super) fn cancel(&mut self, id: u64, of: String) {
        if let Some((exec, reactor)) = self.exec_of(id) {
            exec.cancel(reactor);
            return;
        }
        if self.context_cancel(id) {
            return;
        }
        let found = self.with_shell(id, |shell, reactor, owner| shell.cancel(reactor, owner, &of));
        if found != Some(true) {
            self.refuse(
                id,
                Some(of),
                RefusalReason::BadRequest,
                "no such command is running or waiting",
            );
        }
    }

    pub(super) fn close(&mut self, id: u64, key: &ShellKey) {
        let shell = self.shells_by_key.get(key).and_then(|shell| self.shells.get_mut(shell));
        let Some(shell) = shell else { return self.send(id, &AgentResponse::Done) };
        shell.closers.push(id);
        shell.close(&mut self.reactor, CloseCause::ClosedByClient);
    }

    pub(super) fn exec(&mut self, id: u64, request: isolet_wire::request::StartExec) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready)) {
            return self.refuse(
                id,
                None,
                RefusalReason::BadRequest,
                "this connection has another use",
            );
        }
        if self.execs.len() >= EXECS_MAX {
            return self.refuse(
                id,
                None,
                RefusalReason::TooMany,
                format!("at most {EXECS_MAX} programs"),
            );
        }
        let exec_id = self.reactor.next_id();
        match Exec::start(&mut self.reactor, exec_id, id, request) {
            Ok(exec) => {
                self.execs.insert(exec_id, exec);
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.role = Role::Exec(exec_id);
                }
                self.notify_exec_count();
            }
            Err((reason, message)) => self.refuse(id, None, reason, message),
        }
    }

    pub(super) fn exec_refused(&mut self, exec: u64, reason: RefusalReason, message: String) {
        let Some(exec) = self.execs.remove(&exec) else { return };
        self.notify_exec_count();
        if let Some(id) = exec.conn {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.role = Role::Ready;
            }
            self.refuse(id, None, reason, message);
        }
    }

    pub(super) fn file(&mut self, id: u64, request: isolet_wire::request::FileRequest) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready)) {
            return self.refuse(
                id,
                None,
                RefusalReason::BadRequest,
                "this connection has another use",
            );
        }
        if self.file_workers.len() >= FILES_MAX {
            return self.refuse(
                id,
                None,
                RefusalReason::TooMany,
                format!("at most {FILES_MAX} file calls"),
            );
        }
        let endless = matches!(request, isolet_wire::request::FileRequest::Watch { .. });
        let watches = self.file_workers.values().filter(|due| due.is_none()).count();
        if endless && watches >= WATCHES_MAX {
            return self.refuse(
                id,
                None,
                RefusalReason::TooMany,
                format!("at most {WATCHES_MAX} watches"),
            );
        }
        if !matches!(self.conns.get_mut(&id).map(Conn::flush), Some(Ok(true))) {
            return self.close_connection(id);
        }
        let Some(mut conn) = self.conns.remove(&id) else { return };
        self.reactor.poll.remove(&conn.fd);
        let number = conn.fd.as_raw_fd();
        let rest = conn.take_input();
        let spare = conn.fd.try_clone();
        // The worker answers from here on. The parent's copy of the socket closes with the closure.
        let work = move || crate::file::serve(conn.fd, rest, request);
        match (self.reactor.fork(number, work), spare) {
            (Ok(pid), _) => {
                let due = self.reactor.now + FILE_MAX;
                self.file_workers.insert(pid, (!endless).then_some(due));
                self.reactor.set_timer(self.reactor.now + FILE_MAX, Timer::Files);
            }
            (Err(error), Ok(spare)) => {
                let message = format!("no process: {error}");
                let mut conn = Conn::new(id, spare);
                conn.queue_message(&AgentResponse::Refused {
                    id: None,
                    reason: RefusalReason::NoProcess,
                    message,
                });
                let _ = conn.flush();
            }
            (Err(_), Err(_)) => {}
        }
    }

    pub(super) fn watch(&mut self, id: u64) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready)) {
            return self.refuse(
                id,
                None,
                RefusalReason::BadRequest,
                "this connection has another use",
            );
        }
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.role = Role::Watch;
        }
        self.watchers.push(id);
        for (shell_id, shell) in &mut self.shells {
            shell.save_again();
            self.reactor.pending.shells.mark(*shell_id);
        }
        // A frame holds a few hundred activities. The rest is sent as changes.
        let terminals = self.terminals.values().filter(|one| one.is_running());
        let terminals = terminals.filter_map(Terminal::activity);
        let contexts = self.contexts.values().filter(|one| !one.is_over()).map(Context::activity);
        let shells = self.shells.values().map(Shell::activity);
        let mut all: Vec<_> = shells.chain(terminals).chain(contexts).collect();
        all.extend(self.spares.activity(&self.reactor));
        let rest = all.split_off(all.len().min(256));
        let execs = self.running();
        self.send(id, &AgentResponse::Inventory { activities: all, execs });
        for activity in rest {
            self.send(id, &AgentResponse::Changed { activity: Some(activity), execs });
        }
    }

    pub(super) fn running(&self) -> u32 {
        self.execs.values().filter(|exec| !exec.exit_reported).count() as u32
    }

    pub(super) fn notify_exec_count(&mut self) {
        // No shell has number 0, so only the number of programs is reported.
        self.reactor.notify_watchers(0);
    }

    /// The report about a terminal for watchers. The end of a replaced terminal is not reported.
    fn terminal_activity(&self, id: u64) -> Option<Activity> {
        let terminal = self.terminals.get(&id)?;
        let activity = terminal.activity()?;
        let replaced = |one: &Terminal| one.is_running() && one.session == terminal.session;
        let old = activity.has_ended() && self.terminals.values().any(replaced);
        (!old).then_some(activity)
    }

    pub(super) fn report_to_watchers(&mut self) {
        let execs = self.running();
        for id in self.reactor.unreported.take() {
            let activity = self.shells.get(&id).map(Shell::activity);
            let activity = activity.or_else(|| self.terminal_activity(id));
            let activity = activity.or_else(|| self.contexts.get(&id).map(Context::activity));
            if activity.is_none() && id != 0 {
                continue;
            }
            let response = AgentResponse::Changed { activity, execs };
            for watcher in self.watchers.clone() {
                // A watcher that does not read is disconnected, and its driver reconnects.
                if self
                    .conns
                    .get(&watcher)
                    .is_some_and(|conn| conn.queued_bytes() > UNREAD_BYTES_MAX)
                {
                    self.close_connection(watcher);
                } else {
                    self.send(watcher, &response);
                }
            }
        }
    }
}
