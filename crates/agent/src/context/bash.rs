//! A bash context uses one of the agent's shells, which already handles unclosed quotes,
//! interrupts, closed descriptors and the end of bash. Its log is translated into the messages of
//! contexts.
//!
//! The shell has the number of the context, so events, timers and process exits find it.

use super::bash_shell::{BashShell, Code};
use super::flow::Flow;
use super::{Context, ContextState};
use crate::connection::Conn;
use crate::connection::shell_log::{Item, LogFilter};
use crate::launch::Refusal;
use crate::reactor::Reactor;
use crate::shell::{self, Shell};
use isolet_wire::activity::ShellKey;
use isolet_wire::context::{ContextResponse, ERROR, InterpreterExit};
use isolet_wire::request;
use isolet_wire::response::{self, Closed, CommandExit, RefusalReason, STDERR};
use serde::Serialize;

/// Number of steps of one context per round, so that other contexts get their turn.
const STEPS_MAX: usize = 64;

impl Context {
    /// The shell of a bash context.
    pub(crate) fn shell(&mut self) -> Option<&mut Shell> {
        self.bash.as_mut().map(|bash| &mut bash.shell)
    }

    /// Starts the shell; there must be none.
    pub(super) fn start_bash(&mut self, reactor: &mut Reactor) {
        let cwd = self.open.cwd.clone();
        let env = self.open.env.clone();
        let open = request::OpenShell { cwd, env, ..request::OpenShell::default() };
        let key = ShellKey::Context(self.open.context.clone());
        let mut shell = Shell::new(self.id, key, open, reactor.now);
        shell.start(reactor);
        let pid = shell.pid();
        let place = shell.log.cursor_at_end();
        self.state = ContextState::Starting;
        self.bash = Some(Box::new(BashShell { shell, pid, place, exit: None }));
        reactor.pending.shells.mark(self.id);
    }

    /// Starts the current run in the shell.
    pub(super) fn run_bash(
        &mut self,
        reactor: &mut Reactor,
        body: &[u8],
        timeout_ms: u64,
    ) -> Result<(), Refusal> {
        let id = self.number.to_string();
        let Some(bash) = &mut self.bash else {
            return Err((RefusalReason::NoShell, "the shell has ended".to_owned()));
        };
        let Code { code, stdin, env } = Code::of(body)?;
        let run = request::RunCommand {
            id: id.clone(),
            text: code,
            timeout_ms,
            env,
            stdin: stdin.is_some(),
            ..request::RunCommand::default()
        };
        bash.shell.run(reactor, "", run)?;
        if let Some(stdin) = stdin {
            bash.shell.push_stdin(reactor, ("", &id), stdin.as_bytes(), true);
        }
        Ok(())
    }

    /// Interrupts the current run. The shell's own escalation ends a run that ignores the
    /// interrupt.
    pub(super) fn interrupt_bash(&mut self, reactor: &mut Reactor) {
        let id = self.number.to_string();
        if let Some(bash) = &mut self.bash {
            bash.shell.cancel(reactor, "", &id);
        }
    }

    /// Forwards the shell's output after every round, as far as `conn` accepts it.
    pub(super) fn forward_bash_output(
        &mut self,
        reactor: &mut Reactor,
        mut conn: Option<&mut Conn>,
    ) -> Flow {
        let mut flow = Flow::default();
        self.check_bash_started(reactor);
        for steps in 0.. {
            if conn.as_ref().is_some_and(|conn| conn.queued_bytes() > 0) {
                break;
            }
            if self.run.as_ref().is_some_and(|run| run.done) {
                flow.end = Some(self.finish(reactor, None));
                return flow;
            }
            if steps >= STEPS_MAX {
                flow.more = true;
                break;
            }
            if self.run.is_some() && self.deliver_late(conn.as_deref_mut()) {
                continue;
            }
            match self.deliver_log_item(reactor, conn.as_deref_mut()) {
                LogStep::Something => {}
                LogStep::Nothing => break,
                LogStep::End(end) => {
                    flow.end = end;
                    return flow;
                }
            }
        }
        if let Some(bash) = &mut self.bash {
            // A client that does not read delays only its own run, and nothing is dropped for it.
            bash.shell.apply_backpressure(reactor, bash.place, reactor.now);
            flow.more |= bash.shell.drain_ended_step(reactor);
        }
        flow
    }

    /// Detects that the shell is ready, or never will be.
    fn check_bash_started(&mut self, reactor: &mut Reactor) {
        let Some(bash) = self.bash.as_ref().filter(|_| self.state == ContextState::Starting) else {
            return;
        };
        match &bash.shell.state {
            shell::ShellState::Failed(reason, message) => {
                let reason = if *reason == RefusalReason::NotFound {
                    RefusalReason::Unsupported
                } else {
                    *reason
                };
                let refusal = (reason, message.clone());
                self.bash = None;
                self.state = ContextState::Gone;
                self.fail_to_start(reactor, refusal);
            }
            shell::ShellState::Open(_) if bash.shell.ready() && self.killing.is_none() => {
                self.state = ContextState::Idle;
                reactor.notify_watchers(self.id);
            }
            _ => {}
        }
    }

    /// Handles one entry of the shell's log.
    fn deliver_log_item(&mut self, reactor: &mut Reactor, conn: Option<&mut Conn>) -> LogStep {
        let view = LogFilter { owner: String::new(), watch: false };
        let Some(bash) = &mut self.bash else { return LogStep::Nothing };
        let message = match bash.shell.log.next(&mut bash.place, &view) {
            None => return LogStep::Nothing,
            Some(Item::Output { stream, bytes, .. }) => {
                let bytes = bytes.to_vec();
                self.deliver(conn, usize::from(stream == STDERR), &bytes);
                return LogStep::Something;
            }
            Some(Item::Message(message)) => message,
        };
        match message {
            response::AgentResponse::Exit(exit) => self.exited(conn, &exit),
            response::AgentResponse::Gap { from, to, .. } => self.late_lost += to - from,
            response::AgentResponse::Closed(closed) => {
                return LogStep::End(self.on_bash_gone(reactor, conn, &closed));
            }
            _ => {}
        }
        LogStep::Something
    }

    /// A run has ended, and possibly bash with it.
    fn exited(&mut self, conn: Option<&mut Conn>, exit: &CommandExit) {
        let Some(bash) = &mut self.bash else { return };
        let Some(run) = &mut self.run else { return };
        run.end.timed_out |= exit.timed_out;
        run.end.interrupted |= exit.cancelled;
        if bash.shell.pid() == 0 {
            bash.exit = Some(exit.code);
            return;
        }
        run.done = true;
        if exit.timed_out || exit.cancelled {
            fault(conn, "Interrupted", "the run was interrupted");
        } else if exit.code != 0 {
            fault(conn, "ExitCode", &exit.code.to_string());
        }
    }

    /// Bash has ended and its output was forwarded, so the processes that it left are ended too.
    fn on_bash_gone(
        &mut self,
        reactor: &mut Reactor,
        conn: Option<&mut Conn>,
        closed: &Closed,
    ) -> Option<ContextResponse> {
        let bash = self.bash.take()?;
        if self.state == ContextState::Starting && self.killing.is_none() {
            let text = format!("bash ended before it was ready: {}", closed.cause);
            self.fail_to_start(reactor, (RefusalReason::Failed, text));
        }
        self.state = ContextState::Gone;
        self.late = [Vec::new(), Vec::new()];
        self.kill_all_of(reactor, bash.pid);
        reactor.notify_watchers(self.id);
        let run = self.run.as_ref()?;
        let killed = run.end.timed_out || run.end.interrupted || closed.signal.is_some();
        if let Some(code) = bash.exit.filter(|_| !killed) {
            fault(conn, "Exit", &code.to_string());
        }
        Some(
            self.finish(
                reactor,
                Some(InterpreterExit { code: closed.code, signal: closed.signal }),
            ),
        )
    }
}

/// The result of reading the log.
enum LogStep {
    Something,
    Nothing,
    /// Bash has ended, with the message for the run in progress if there was one.
    End(Option<ContextResponse>),
}

/// What ended a run, as the drivers of the other languages write it.
#[derive(Serialize)]
struct Fault<'a> {
    name: &'a str,
    message: &'a str,
    traceback: [&'a str; 0],
}

/// Sends the client what ended a run.
fn fault(conn: Option<&mut Conn>, name: &str, message: &str) {
    let Some(conn) = conn else { return };
    let bytes = serde_json::to_vec(&Fault { name, message, traceback: [] }).unwrap_or_default();
    let part = ContextResponse::Part { kind: ERROR, bytes, last: true };
    conn.queue_message(&response::AgentResponse::Context(part));
    let _ = conn.flush();
}
