//! One shell: its name, the bash process behind it, its queue of commands and the log of its
//! output. A shell outlives its bash: a session's shell gets a new one, and the log continues.
//!
//! [`state`] draws the states of a shell. A command runs in up to three steps: the agent's setup step, the command's text, and the agent's
//! cleanup step.

mod bash;
mod bash_protocol;
mod close;
mod close_state;
mod command_steps;
mod escalation;
mod interrupt;
mod parts;
mod running_command;
mod save_and_restore;
mod save_progress;
mod state;
mod state_text;
mod stderr_filter;
mod stop_command;
mod tty_warning;

use crate::connection::shell_log::{CommandKey, EndedCommand, LogCursor, LogEvent, ShellLog};
use crate::reactor::{READ_BYTES, Reactor, Timer};
use bash::{Bash, Status};
use isolet_wire::activity::{Activity, CloseCause, ShellKey};
use isolet_wire::frame::ID_BYTES_MAX;
use isolet_wire::request::{OpenShell, RunCommand};
use isolet_wire::response::{CommandExit, RefusalReason, STDERR, STDOUT};
use parts::{FlowControl, History, StartDirectory, StepCounter};
use running_command::RunningCommand;
use rustix::event::epoll::EventFlags;
use save_progress::SaveState;
use state::CloseProgress;
pub(crate) use state::ShellState;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Maximum number of queued commands.
const QUEUE_MAX: usize = 64;
/// Maximum length of a command's text, in bytes.
const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Maximum size of the text, environment and input of all queued commands together, in bytes.
const QUEUE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Unread standard input of one command, in bytes, above which its sender is no longer read.
pub(crate) const INPUT_BYTES_MAX: usize = 1024 * 1024;
/// Half of the log: the pipes are read while the fastest client is less than this behind. The other
/// half covers what a killed server received and had not forwarded yet.
const WINDOW_BYTES: u64 = 512 * 1024;
/// The same window, in entries of the log.
const WINDOW_ENTRIES: u64 = 2048;
/// Timeout of the first report of a new bash.
const START_MAX: Duration = Duration::from_secs(30);
/// How long the log of an ended private shell is kept for a reconnecting client.
const DEAD_KEPT: Duration = Duration::from_secs(60);
/// Maximum number of earlier commands for `history`, and their total size in bytes.
const HISTORY_MAX: (usize, usize) = (1000, 256 * 1024);

#[derive(Debug)]
struct Waiting {
    key: Rc<CommandKey>,
    run: RunCommand,
    input: Vec<u8>,
    eof: bool,
}

/// Position and time at which the last client left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Detached {
    pub(crate) cursor: LogCursor,
    pub(crate) at: Instant,
}

/// A shell, which outlives its bash. It has many fields because most of them survive from one bash
/// to the next and belong to no single command.
#[derive(Debug)]
pub(crate) struct Shell {
    /// The name of the shell.
    pub(crate) key: ShellKey,
    /// The output and events of the shell.
    pub(crate) log: ShellLog,
    /// Connections of the clients.
    pub(crate) clients: Vec<u64>,
    /// The parameters for the next bash.
    pub(crate) open: OpenShell,
    /// The state of the shell, which holds its bash; `enter` changes it.
    pub(crate) state: ShellState,
    /// Connections that wait for the end of the shell.
    pub(crate) closers: Vec<u64>,
    /// The last client whose output the shell waits for and that has left.
    pub(crate) last_detached: Detached,
    id: u64,
    running: Option<Box<RunningCommand>>,
    queue: VecDeque<Waiting>,
    steps: StepCounter,
    history: History,
    /// Background processes at the end of the last command with `&`.
    background_jobs: Vec<crate::process_tree::ProcessHandle>,
    /// A command's text contained `trap`, so this bash may have a trap for interrupts.
    may_have_traps: bool,
    flow: FlowControl,
    close_progress: CloseProgress,
    /// Why the agent kills bash.
    kill_cause: Option<CloseCause>,
    timer_at: Option<Instant>,
    saves: SaveState,
    start_dir: StartDirectory,
}

impl Shell {
    /// A shell without a bash; see [`Shell::start`].
    #[must_use]
    pub(crate) fn new(id: u64, key: ShellKey, open: OpenShell, now: Instant) -> Self {
        let log = ShellLog::default();
        Self {
            last_detached: Detached { cursor: log.cursor_at_end(), at: now },
            key,
            log,
            clients: Vec::new(),
            open,
            state: ShellState::NotStarted,
            closers: Vec::new(),
            id,
            running: None,
            queue: VecDeque::new(),
            steps: StepCounter::default(),
            history: History::default(),
            background_jobs: Vec::new(),
            may_have_traps: false,
            flow: FlowControl { reading: true, stalled_until: None, sent_index: 0 },
            close_progress: CloseProgress::NotRequested,
            kill_cause: None,
            timer_at: None,
            saves: SaveState::new(now),
            start_dir: StartDirectory::default(),
        }
    }

    /// Whether the shell belongs to a session, so that an ended bash is replaced.
    #[must_use]
    pub(crate) fn is_session(&self) -> bool {
        matches!(self.key, ShellKey::Session(_))
    }

    /// Starts a new bash.
    pub(crate) fn start(&mut self, reactor: &mut Reactor) {
        let replaces_ended = matches!(self.state, ShellState::Ended(_));
        let again = std::mem::take(&mut self.open.replaces_lost) || replaces_ended;
        self.start_dir = StartDirectory::default();
        self.launch(reactor, again);
    }

    fn launch(&mut self, reactor: &mut Reactor, again: bool) {
        reactor.pending.shells.mark(self.id);
        reactor.notify_watchers(self.id);
        let elsewhere =
            self.start_dir.fallback.clone().map(|cwd| OpenShell { cwd, ..self.open.clone() });
        match Bash::start(reactor, self.id, elsewhere.as_ref().unwrap_or(&self.open)) {
            Ok(mut bash) => {
                bash.fresh = again;
                bash.write(reactor, self.id, bash_protocol::INIT.as_bytes());
                self.steps.awaited = Some(0);
                self.steps.resync = None;
                self.steps.sweep_since = None;
                self.may_have_traps = false;
                self.kill_cause = None;
                self.enter(ShellState::Opening(bash));
            }
            Err((reason, message)) => self.fail(reason, &message),
        }
    }

    /// The exec status of bash may be available.
    pub(crate) fn on_exec_status(&mut self, reactor: &mut Reactor) {
        let ShellState::Opening(bash) = &mut self.state else { return };
        let Some(result) = bash.exec_result() else { return };
        let again = bash.fresh;
        reactor.pending.shells.mark(self.id);
        reactor.notify_watchers_now(self.id);
        match result {
            Ok(()) => {
                self.mark_executed();
                self.start_dir.notice.clone_from(&self.start_dir.fallback);
            }
            // A session outlives the directory that it was created in.
            Err((RefusalReason::BadCwd, _)) if self.is_session() && self.use_parent_directory() => {
                self.launch(reactor, again);
            }
            Err((reason, message)) => {
                self.fail(reason, &message);
            }
        }
    }

    /// Falls back to the parent of a directory that cannot be entered. Returns `false` if there is
    /// none.
    fn use_parent_directory(&mut self) -> bool {
        let at = self.start_dir.fallback.as_deref().unwrap_or(&self.open.cwd);
        let above = Path::new(at).parent().and_then(Path::to_str).filter(|above| !above.is_empty());
        let Some(above) = above.map(str::to_owned) else { return false };
        self.start_dir.fallback = Some(above);
        true
    }

    fn fail(&mut self, reason: RefusalReason, message: &str) {
        self.refuse_queue(reason, message);
        self.steps.awaited = None;
        self.enter(ShellState::Failed(reason, message.to_owned()));
    }

    /// The description for watchers.
    #[must_use]
    pub(crate) fn activity(&self) -> Activity {
        Activity::Shell {
            key: self.key.clone(),
            pid: self.pid(),
            busy: self.running.is_some(),
            queued: self.queue.len() as u32,
            clients: self.clients.len() as u32,
            closed: self.state.ended().map(|ended| ended.closed.clone()),
        }
    }

    /// Whether bash accepts commands.
    #[must_use]
    pub(crate) fn ready(&self) -> bool {
        self.state.bash().is_some_and(|bash| bash.ready)
    }

    /// Process id of bash; 0 without one.
    #[must_use]
    pub(crate) fn pid(&self) -> i32 {
        self.state.bash().map_or(0, |bash| bash.pid)
    }

    /// Adds a command to the queue.
    ///
    /// # Errors
    /// The reason for a refusal, with a message.
    pub(crate) fn run(
        &mut self,
        reactor: &mut Reactor,
        owner: &str,
        run: RunCommand,
    ) -> Result<(), (RefusalReason, String)> {
        self.check(owner, &run)?;
        let key = Rc::new(CommandKey { owner: owner.to_owned(), id: run.id.clone() });
        self.queue.push_back(Waiting { key, run, input: Vec::new(), eof: false });
        self.saves.command_waits(reactor.now);
        reactor.pending.shells.mark(self.id);
        if self.state.can_start() {
            self.start(reactor);
        }
        self.start_next(reactor);
        Ok(())
    }

    fn check(&self, owner: &str, run: &RunCommand) -> Result<(), (RefusalReason, String)> {
        let refuse = |reason, message: &str| Err((reason, message.to_owned()));
        if run.id.is_empty() || owner.len() + 1 + run.id.len() > ID_BYTES_MAX {
            return refuse(
                RefusalReason::BadRequest,
                "a command needs an id, of at most 128 bytes",
            );
        }
        let values = run.env.values().flatten().chain(&run.cwd);
        if run.text.contains('\0') || values.into_iter().any(|value| value.contains('\0')) {
            return refuse(RefusalReason::BadRequest, "a command cannot hold a NUL byte");
        }
        if let Some(name) = run.env.keys().find(|name| !bash_protocol::is_name(name)) {
            return Err((
                RefusalReason::BadRequest,
                format!("{name:?} cannot be a variable's name"),
            ));
        }
        if run.text.len() > TEXT_BYTES_MAX {
            return refuse(RefusalReason::TooLarge, "a command's text has at most 1 MiB");
        }
        if self.is_over()
            || self.is_closing()
            || (!self.is_session() && self.state.ended().is_some())
        {
            return refuse(RefusalReason::NoShell, "the shell has ended");
        }
        let same = |who: &CommandKey| who.owner == owner && who.id == run.id;
        if self.running.as_ref().is_some_and(|r| same(&r.key))
            || self.queue.iter().any(|waiting| same(&waiting.key))
        {
            return refuse(RefusalReason::IdInUse, "a command with this id is running or waiting");
        }
        let held: usize = self.queue.iter().map(weight).sum();
        if self.queue.len() >= QUEUE_MAX || held + run.text.len() > QUEUE_BYTES_MAX {
            return refuse(RefusalReason::QueueFull, "too many commands wait for this shell");
        }
        Ok(())
    }

    fn refuse_queue(&mut self, reason: RefusalReason, message: &str) {
        for waiting in self.queue.drain(..) {
            self.log.push_event(LogEvent::Refused(waiting.key, reason, message.to_owned()));
        }
    }

    /// Adds input for a command. Returns the number of waiting bytes, or `None` if there is no such
    /// command.
    pub(crate) fn push_stdin(
        &mut self,
        reactor: &mut Reactor,
        who: (&str, &str),
        data: &[u8],
        eof: bool,
    ) -> Option<usize> {
        let same = |w: &CommandKey| (w.owner.as_str(), w.id.as_str()) == who;
        if let Some(running) = self.running.as_mut().filter(|r| same(&r.key)) {
            if !running.run.stdin {
                return None;
            }
            running.stdin.bytes.extend_from_slice(data);
            running.stdin.eof |= eof;
            self.write_stdin(reactor);
            return Some(self.running.as_ref().map_or(0, |r| r.stdin.bytes.len()));
        }
        let waiting = self.queue.iter_mut().find(|w| same(&w.key)).filter(|w| w.run.stdin)?;
        waiting.input.extend_from_slice(data);
        waiting.eof |= eof;
        Some(waiting.input.len())
    }

    /// Whether there is room for more input of this owner's commands, also if there is no such
    /// command.
    #[must_use]
    pub(crate) fn has_stdin_room(&self, owner: &str) -> bool {
        let running = self.running.iter().map(|r| (&r.key, r.stdin.bytes.len()));
        let waiting = self.queue.iter().map(|w| (&w.key, w.input.len()));
        !running.chain(waiting).any(|(who, held)| who.owner == owner && held > INPUT_BYTES_MAX)
    }

    /// Removes a command from the queue or starts to interrupt it. Returns `false` if there is no
    /// such command.
    pub(crate) fn cancel(&mut self, reactor: &mut Reactor, owner: &str, id: &str) -> bool {
        let same = |who: &CommandKey| who.owner == owner && who.id == id;
        reactor.pending.shells.mark(self.id);
        if let Some(at) = self.queue.iter().position(|waiting| same(&waiting.key)) {
            if let Some(waiting) = self.queue.remove(at) {
                let id = waiting.key.id.clone();
                let exit = CommandExit { id, code: 130, cancelled: true, ..CommandExit::default() };
                let ended = EndedCommand { exit, from: self.log.end() };
                self.log.push_event(LogEvent::Exit(waiting.key, ended));
            }
            return true;
        }
        if !self.running.as_ref().is_some_and(|running| same(&running.key)) {
            return false;
        }
        self.interrupt(reactor, false);
        true
    }

    /// An output pipe is readable.
    pub(crate) fn on_output(&mut self, reactor: &mut Reactor, stream: u8) {
        reactor.pending.shells.mark(self.id);
        if self.running.as_ref().is_some_and(|running| running.output.unread.is_some()) {
            return;
        }
        self.pull(reactor, stream, READ_BYTES);
    }

    /// Reads once, at most `limit` bytes, and returns the number of bytes.
    fn pull(&mut self, reactor: &mut Reactor, stream: u8, limit: usize) -> usize {
        let plain = self.is_unfiltered(stream);
        let Some(bash) = self.state.bash_mut() else { return 0 };
        let slot = if stream == STDOUT { &mut bash.out } else { &mut bash.err };
        let Some(fd) = slot.as_ref() else { return 0 };
        let ready = rustix::io::ioctl_fionread(fd).map_or(0, |count| count as usize);
        // A large read goes into the log without a copy.
        if ready.min(limit) >= READ_BYTES / 4 && plain {
            let mut bytes = Vec::with_capacity(ready.min(limit).min(READ_BYTES));
            let count = rustix::io::read(fd, rustix::buffer::spare_capacity(&mut bytes));
            let who = self.running.as_mut().map(|running| {
                running.output.counts[usize::from(stream == STDERR)] += bytes.len() as u64;
                running.key.clone()
            });
            if matches!(count, Ok(1..)) {
                self.log.push_owned(stream, who.as_ref(), bytes);
            }
            return count.unwrap_or(0);
        }
        match reactor.read(fd, limit) {
            Ok(bytes) => {
                let count = bytes.len();
                self.push_output(stream, bytes);
                count
            }
            Err(()) => {
                *slot = None;
                0
            }
        }
    }

    /// The status channel is readable.
    pub(crate) fn on_status(&mut self, reactor: &mut Reactor) {
        reactor.pending.shells.mark(self.id);
        let Some(bash) = self.state.bash_mut() else { return };
        match bash.read_end_report(reactor, self.steps.awaited) {
            Status::Nothing => {}
            Status::Report(report) => self.report(reactor, report),
            // If bash is ending, this event comes shortly before its exit.
            Status::Gone => self.schedule_status_check(reactor),
            Status::Flood => self.kill_for(reactor, CloseCause::StatusChannelFlooded),
        }
    }

    /// Bash may accept more input lines.
    pub(crate) fn on_control_writable(&mut self, reactor: &mut Reactor) {
        if let Some(bash) = self.state.bash_mut() {
            bash.write_backlog(reactor, self.id);
        }
    }

    /// Writes as much standard input to the running command as it accepts.
    pub(crate) fn write_stdin(&mut self, reactor: &mut Reactor) {
        let Some(running) = &mut self.running else { return };
        let Some(fd) = &running.stdin.pipe else { return };
        reactor.pending.shells.mark(self.id);
        match rustix::io::write(fd, &running.stdin.bytes) {
            Ok(count) => drop(running.stdin.bytes.drain(..count)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => running.stdin.bytes.clear(),
        }
        if running.stdin.bytes.is_empty() && running.stdin.eof {
            running.stdin.pipe = None;
        } else {
            let wait = !running.stdin.bytes.is_empty();
            let flags = if wait { EventFlags::OUT } else { EventFlags::empty() };
            reactor.poll.modify(fd, crate::reactor::poll::EventSource::Stdin, self.id, flags);
        }
    }

    /// Whether reading output waits for the clients of this owner, because the output belongs to
    /// its command or to none. A client that only watches neither delays the output nor lets it run
    /// ahead of the owner.
    #[must_use]
    pub(crate) fn waits_for(&self, owner: &str) -> bool {
        self.running.as_ref().is_none_or(|running| running.key.owner == owner)
    }

    /// Stops reading while the fastest client is far behind, unless no client makes progress.
    /// Called after every round; also arms the timer.
    pub(crate) fn apply_backpressure(
        &mut self,
        reactor: &mut Reactor,
        fastest: LogCursor,
        last_progress: Instant,
    ) {
        let (bytes, entries) = self.log.lag(&fastest);
        let full = bytes >= WINDOW_BYTES || entries >= WINDOW_ENTRIES;
        let patience = last_progress + reactor.config.stall;
        self.flow.stalled_until = (full && patience > reactor.now).then_some(patience);
        self.flow.reading = self.flow.stalled_until.is_none();
        let listen = self.flow.reading
            && self.running.as_ref().is_none_or(|running| running.output.unread.is_none());
        if let Some(bash) = self.state.bash_mut() {
            let ready = bash.ready;
            bash.set_listening(reactor, self.id, listen && ready);
        }
        self.arm_timer(reactor);
    }

    /// Continues to read the output of an ended command when the log has room.
    pub(crate) fn drain_ended_step(&mut self, reactor: &mut Reactor) -> bool {
        let more = self.flow.reading
            && self.running.as_ref().is_some_and(|running| running.output.unread.is_some());
        if more {
            self.drain_step(reactor);
        }
        more
    }

    /// Whether only the start of a command, less than `pause` ago, waits to be sent.
    #[must_use]
    pub(crate) fn only_start_unsent(&self, now: Instant, pause: Duration) -> bool {
        let young = self.running.as_ref().is_some_and(|r| now.duration_since(r.started_at) < pause);
        young && self.log.only_start_after(self.flow.sent_index)
    }

    /// Marks all output so far as being sent.
    pub(crate) fn mark_sent(&mut self) {
        self.flow.sent_index = self.log.next_index();
    }

    fn arm_timer(&mut self, reactor: &mut Reactor) {
        let Some(due) = self.next_deadline(reactor) else { return };
        if self.timer_at.is_none_or(|armed| due < armed) {
            self.timer_at = Some(due);
            reactor.set_timer(due, Timer::Shell(self.id));
        }
    }

    /// A timer of this shell has expired.
    pub(crate) fn on_timer(&mut self, reactor: &mut Reactor, when: Instant) {
        if self.timer_at != Some(when) {
            return;
        }
        self.timer_at = None;
        reactor.pending.shells.mark(self.id);
        self.on_deadline(reactor);
    }

    /// Whether the shell can be removed.
    #[must_use]
    pub(crate) fn can_be_forgotten(&self, now: Instant) -> bool {
        let dead = self.state.bash().is_none() && self.clients.is_empty() && !self.is_closing();
        let kept = self
            .state
            .ended()
            .is_some_and(|ended| self.is_session() || now.duration_since(ended.at) < DEAD_KEPT);
        dead && self.queue.is_empty() && (self.is_over() || !kept)
    }
}

fn weight(waiting: &Waiting) -> usize {
    let env = waiting.run.env.iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, String::len));
    waiting.run.text.len() + env.sum::<usize>()
}
