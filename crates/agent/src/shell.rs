//! One shell: a name, its bash, the commands that wait for it, and its output. It outlives its
//! bash: a session's shell gets a new one, and the offsets of its log continue.
//!
//! ```text
//!            start            exec status, first report
//!  (nothing) ─────► Opening ────────────────────────► Open ──► Dead ──► (removed)
//!                      │ cannot be executed            │ ▲      │ a command or a client comes,
//!                      └────────► Failed               │ └──────┘ and it is a session's
//!                                                      └─► closing: hang up, then kill
//! ```
//! While open, a command runs in up to three steps: the agent's own before it, its text, and the
//! agent's own after it.

mod bash;
mod bash_protocol;
mod close;
mod closing;
mod end;
mod escalation;
mod interrupt;
mod run;
mod running;
mod save;
mod saved_state;
mod saves;
mod stderr_filter;
mod tty_warning;

use crate::connection::shell_log::{CommandKey, LogCursor, LogEvent, ShellLog};
use crate::reactor::{READ_BYTES, Reactor, Timer};
use bash::{Bash, Status};
use closing::Closing;
use isolet_wire::activity::{Activity, CloseCause, ShellKey};
use isolet_wire::frame::ID_BYTES_MAX;
use isolet_wire::request::{Open, Run};
use isolet_wire::response::{Closed, Exit, RefusalReason, STDERR, STDOUT};
use running::Running;
use rustix::event::epoll::EventFlags;
use saves::SaveState;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Commands that wait.
const QUEUE_MAX: usize = 64;
/// Bytes of one command's text.
const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of text, environment and input that all waiting commands together may hold.
const QUEUE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of standard input that wait for one command before its sender is no longer read.
pub(crate) const INPUT_BYTES_MAX: usize = 1024 * 1024;
/// Half of the log: pipes are read while the fastest client is less than this behind. The other
/// half covers what a killed server took and had not yet handed on.
const WINDOW_BYTES: u64 = 512 * 1024;
/// The same window, in entries of the log.
const WINDOW_ENTRIES: u64 = 2048;
/// How long a bash may take to its first report.
const START_MAX: Duration = Duration::from_secs(30);
/// How long the log of a private shell stays after its end, for who comes back.
const DEAD_KEPT: Duration = Duration::from_secs(60);
/// Earlier texts kept for `history`, and their bytes.
const HISTORY_MAX: (usize, usize) = (1000, 256 * 1024);

/// Where a shell is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Its bash was started.
    Opening,
    /// Its bash was executed.
    Open,
    /// Its bash could not be executed.
    Failed(RefusalReason, String),
    /// Its bash has ended.
    Dead,
}

#[derive(Debug)]
struct Waiting {
    key: Rc<CommandKey>,
    run: Run,
    input: Vec<u8>,
    eof: bool,
}

/// Where the last client stood in the log when it left, and when that was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Detached {
    pub(crate) cursor: LogCursor,
    pub(crate) at: Instant,
}

/// Requests for a report after an interrupt.
#[derive(Debug, Clone, Copy)]
struct Resync {
    /// When the next request is due.
    due: Instant,
    tries: u32,
}

/// A shell, which outlives its bash.
#[derive(Debug)]
pub(crate) struct Shell {
    /// Its name, as attached.
    pub(crate) key: ShellKey,
    /// Its output and events.
    pub(crate) log: ShellLog,
    /// Connections of its clients.
    pub(crate) clients: Vec<u64>,
    /// How it is opened.
    pub(crate) open: Open,
    /// Where it is in its life.
    pub(crate) state: State,
    /// Connections that wait for its end.
    pub(crate) closers: Vec<u64>,
    /// The last client that the shell waits for and that has left.
    pub(crate) last_detached: Detached,
    /// It is over; only the clients that it still has are told.
    pub(crate) over: bool,
    id: u64,
    bash: Option<Bash>,
    running: Option<Box<Running>>,
    queue: VecDeque<Waiting>,
    step_number: u64,
    awaited_step: Option<u64>,
    /// Set after an interrupt, until bash reports again.
    resyncing: Option<Resync>,
    /// Start of the command that was interrupted last, until bash is back.
    sweep_since: Option<u64>,
    history: VecDeque<String>,
    history_bytes: usize,
    /// What was running in the background when the last command with `&` ended.
    background_jobs: Vec<crate::process_tree::Process>,
    /// A command's text contained `trap`; this bash may have a trap for interrupts.
    may_have_traps: bool,
    flowing: bool,
    stalled_until: Option<Instant>,
    closing: Option<Closing>,
    ended: Option<(Closed, Instant)>,
    close_cause: Option<CloseCause>,
    timer_at: Option<Instant>,
    sent_index: u64,
    saves: SaveState,
    /// Where its bash begins while its start directory cannot be entered: the nearest directory
    /// above that can.
    fallback_cwd: Option<String>,
    /// The same, until it was written to a command's standard error.
    cwd_notice: Option<String>,
}

impl Shell {
    /// A shell without a bash; see [`Shell::start`].
    #[must_use]
    pub(crate) fn new(id: u64, key: ShellKey, open: Open, now: Instant) -> Self {
        let log = ShellLog::default();
        Self {
            last_detached: Detached { cursor: log.cursor_at_end(), at: now },
            key,
            log,
            clients: Vec::new(),
            open,
            state: State::Dead,
            closers: Vec::new(),
            over: false,
            id,
            bash: None,
            running: None,
            queue: VecDeque::new(),
            step_number: 0,
            awaited_step: None,
            resyncing: None,
            sweep_since: None,
            history: VecDeque::new(),
            history_bytes: 0,
            background_jobs: Vec::new(),
            may_have_traps: false,
            flowing: true,
            stalled_until: None,
            closing: None,
            ended: None,
            close_cause: None,
            timer_at: None,
            sent_index: 0,
            saves: SaveState::new(now),
            fallback_cwd: None,
            cwd_notice: None,
        }
    }

    /// Belongs to a session: its bash is replaced when it ends.
    #[must_use]
    pub(crate) fn is_session(&self) -> bool {
        matches!(self.key, ShellKey::Session(_))
    }

    /// Gives it a bash.
    pub(crate) fn start(&mut self, reactor: &mut Reactor) {
        let again = self.ended.take().is_some() | std::mem::take(&mut self.open.again);
        (self.fallback_cwd, self.cwd_notice) = (None, None);
        self.launch(reactor, again);
    }

    fn launch(&mut self, reactor: &mut Reactor, again: bool) {
        reactor.pending.shells.mark(self.id);
        reactor.notify_watchers(self.id);
        let elsewhere = self.fallback_cwd.clone().map(|cwd| Open { cwd, ..self.open.clone() });
        match Bash::start(reactor, self.id, elsewhere.as_ref().unwrap_or(&self.open)) {
            Ok(mut bash) => {
                bash.fresh = again;
                bash.write(reactor, self.id, bash_protocol::INIT.as_bytes());
                self.bash = Some(bash);
                self.awaited_step = Some(0);
                self.resyncing = None;
                self.sweep_since = None;
                self.may_have_traps = false;
                self.close_cause = None;
                self.state = State::Opening;
            }
            Err((why, message)) => self.fail(why, &message),
        }
    }

    /// Its bash told whether it was executed.
    pub(crate) fn on_exec_status(&mut self, reactor: &mut Reactor) {
        let Some(result) = self.bash.as_mut().and_then(Bash::exec_result) else { return };
        reactor.pending.shells.mark(self.id);
        reactor.notify_watchers_now(self.id);
        match result {
            Ok(()) => {
                self.state = State::Open;
                self.cwd_notice.clone_from(&self.fallback_cwd);
            }
            // A session outlives the directory that it was made in.
            Err((RefusalReason::BadCwd, _)) if self.is_session() && self.use_parent_directory() => {
                let again = self.bash.take().is_some_and(|bash| bash.fresh);
                self.launch(reactor, again);
            }
            Err((why, message)) => {
                self.bash = None;
                self.fail(why, &message);
            }
        }
    }

    /// Turns to the directory above the one that cannot be entered; `false`: there is none.
    fn use_parent_directory(&mut self) -> bool {
        let at = self.fallback_cwd.as_deref().unwrap_or(&self.open.cwd);
        let above = Path::new(at).parent().and_then(Path::to_str).filter(|above| !above.is_empty());
        let Some(above) = above.map(str::to_owned) else { return false };
        self.fallback_cwd = Some(above);
        true
    }

    fn fail(&mut self, why: RefusalReason, message: &str) {
        self.refuse_queue(why, message);
        self.awaited_step = None;
        self.state = State::Failed(why, message.to_owned());
    }

    /// For the census.
    #[must_use]
    pub(crate) fn activity(&self) -> Activity {
        Activity::Shell {
            key: self.key.clone(),
            pid: self.pid(),
            busy: self.running.is_some(),
            queued: self.queue.len() as u32,
            clients: self.clients.len() as u32,
            closed: self.ended.as_ref().map(|(closed, _)| closed.clone()),
        }
    }

    /// Whether it has a bash that takes commands.
    #[must_use]
    pub(crate) fn ready(&self) -> bool {
        self.bash.as_ref().is_some_and(|bash| bash.ready)
    }

    /// Process id of its bash, 0 without.
    #[must_use]
    pub(crate) fn pid(&self) -> i32 {
        self.bash.as_ref().map_or(0, |bash| bash.pid)
    }

    /// Takes a command.
    ///
    /// # Errors
    /// Why not, and in words.
    pub(crate) fn run(
        &mut self,
        reactor: &mut Reactor,
        owner: &str,
        run: Run,
    ) -> Result<(), (RefusalReason, String)> {
        self.check(owner, &run)?;
        let key = Rc::new(CommandKey { owner: owner.to_owned(), id: run.id.clone() });
        self.queue.push_back(Waiting { key, run, input: Vec::new(), eof: false });
        self.saves.command_waits(reactor.now);
        reactor.pending.shells.mark(self.id);
        if matches!(self.state, State::Dead | State::Failed(..)) {
            self.start(reactor);
        }
        self.start_next(reactor);
        Ok(())
    }

    fn check(&self, owner: &str, run: &Run) -> Result<(), (RefusalReason, String)> {
        let refuse = |why, message: &str| Err((why, message.to_owned()));
        if run.id.is_empty() || owner.len() + 1 + run.id.len() > ID_BYTES_MAX {
            return refuse(RefusalReason::BadAsk, "a command needs an id, of at most 128 bytes");
        }
        let values = run.env.values().flatten().chain(&run.cwd);
        if run.text.contains('\0') || values.into_iter().any(|value| value.contains('\0')) {
            return refuse(RefusalReason::BadAsk, "a command cannot hold a NUL byte");
        }
        if let Some(name) = run.env.keys().find(|name| !bash_protocol::is_name(name)) {
            return Err((RefusalReason::BadAsk, format!("{name:?} cannot be a variable's name")));
        }
        if run.text.len() > TEXT_BYTES_MAX {
            return refuse(RefusalReason::TooLarge, "a command's text has at most 1 MiB");
        }
        if self.over || self.closing.is_some() || (!self.is_session() && self.ended.is_some()) {
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

    fn refuse_queue(&mut self, why: RefusalReason, message: &str) {
        for waiting in self.queue.drain(..) {
            self.log.push_event(LogEvent::Refused(waiting.key, why, message.to_owned()));
        }
    }

    /// Bytes for a command. `Some` tells how many wait now, `None` that there is no such command.
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
            running.input.extend_from_slice(data);
            running.eof |= eof;
            self.write_stdin(reactor);
            return Some(self.running.as_ref().map_or(0, |r| r.input.len()));
        }
        let waiting = self.queue.iter_mut().find(|w| same(&w.key)).filter(|w| w.run.stdin)?;
        waiting.input.extend_from_slice(data);
        waiting.eof |= eof;
        Some(waiting.input.len())
    }

    /// Whether input for this command has room again (also when there is no such command).
    #[must_use]
    pub(crate) fn has_stdin_room(&self, owner: &str) -> bool {
        let running = self.running.iter().map(|r| (&r.key, r.input.len()));
        let waiting = self.queue.iter().map(|w| (&w.key, w.input.len()));
        !running.chain(waiting).any(|(who, held)| who.owner == owner && held > INPUT_BYTES_MAX)
    }

    /// Takes a command out of the queue, or begins to interrupt it. `false`: no such command.
    pub(crate) fn cancel(&mut self, reactor: &mut Reactor, owner: &str, id: &str) -> bool {
        let same = |who: &CommandKey| who.owner == owner && who.id == id;
        reactor.pending.shells.mark(self.id);
        if let Some(at) = self.queue.iter().position(|waiting| same(&waiting.key)) {
            if let Some(waiting) = self.queue.remove(at) {
                let id = waiting.key.id.clone();
                let exit = Exit { id, code: 130, cancelled: true, ..Exit::default() };
                self.log.push_event(LogEvent::Exit(waiting.key, exit, self.log.end()));
            }
            return true;
        }
        if !self.running.as_ref().is_some_and(|running| same(&running.key)) {
            return false;
        }
        self.interrupt(reactor, false);
        true
    }

    /// One of its output pipes is readable.
    pub(crate) fn on_output(&mut self, reactor: &mut Reactor, stream: u8) {
        reactor.pending.shells.mark(self.id);
        if self.running.as_ref().is_some_and(|running| running.unread.is_some()) {
            return;
        }
        self.pull(reactor, stream, READ_BYTES);
    }

    /// Reads once, at most `limit` bytes; gives how many.
    fn pull(&mut self, reactor: &mut Reactor, stream: u8, limit: usize) -> usize {
        let plain = self.is_unfiltered(stream);
        let Some(bash) = &mut self.bash else { return 0 };
        let slot = if stream == STDOUT { &mut bash.out } else { &mut bash.err };
        let Some(fd) = slot.as_ref() else { return 0 };
        let ready = rustix::io::ioctl_fionread(fd).map_or(0, |count| count as usize);
        // What is long goes into the log without being copied.
        if ready.min(limit) >= READ_BYTES / 4 && plain {
            let mut bytes = Vec::with_capacity(ready.min(limit).min(READ_BYTES));
            let count = rustix::io::read(fd, rustix::buffer::spare_capacity(&mut bytes));
            let who = self.running.as_mut().map(|running| {
                running.output_bytes[usize::from(stream == STDERR)] += bytes.len() as u64;
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
        let Some(bash) = &mut self.bash else { return };
        match bash.read_status(reactor, self.awaited_step) {
            Status::Nothing => {}
            Status::Report(report) => self.report(reactor, report),
            // When bash is ending this comes a moment before its end.
            Status::Gone => self.schedule_status_check(reactor.now + Duration::from_millis(250)),
            Status::Flood => self.kill_for(reactor, CloseCause::StatusChannelFlooded),
        }
    }

    /// There may be room for lines to bash.
    pub(crate) fn on_control_writable(&mut self, reactor: &mut Reactor) {
        if let Some(bash) = &mut self.bash {
            bash.write_backlog(reactor, self.id);
        }
    }

    /// Writes to the running command's standard input what it takes.
    pub(crate) fn write_stdin(&mut self, reactor: &mut Reactor) {
        let Some(running) = &mut self.running else { return };
        let Some(fd) = &running.stdin_pipe else { return };
        reactor.pending.shells.mark(self.id);
        match rustix::io::write(fd, &running.input) {
            Ok(count) => drop(running.input.drain(..count)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => running.input.clear(),
        }
        if running.input.is_empty() && running.eof {
            running.stdin_pipe = None;
        } else {
            let wait = !running.input.is_empty();
            let flags = if wait { EventFlags::OUT } else { EventFlags::empty() };
            reactor.poll.modify(fd, crate::reactor::poll::Source::Stdin, self.id, flags);
        }
    }

    /// Whether reading output waits for clients of this owner: it is the output of their command, or
    /// of none. A client that only looks on, or does not see the command, neither holds it up nor
    /// lets it run ahead of its owner.
    #[must_use]
    pub(crate) fn waits_for(&self, owner: &str) -> bool {
        self.running.as_ref().is_none_or(|running| running.key.owner == owner)
    }

    /// Reads no further while the fastest client is far behind, unless no client makes progress.
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
        self.stalled_until = (full && patience > reactor.now).then_some(patience);
        self.flowing = self.stalled_until.is_none();
        let listen =
            self.flowing && self.running.as_ref().is_none_or(|running| running.unread.is_none());
        if let Some(bash) = &mut self.bash {
            let ready = bash.ready;
            bash.set_listening(reactor, self.id, listen && ready);
        }
        self.arm_timer(reactor);
    }

    /// Output that belongs to an ended command waits for room in the log, and there is some.
    pub(crate) fn drain_ended_step(&mut self, reactor: &mut Reactor) -> bool {
        let more =
            self.flowing && self.running.as_ref().is_some_and(|running| running.unread.is_some());
        if more {
            self.drain_step(reactor);
        }
        more
    }

    /// Nothing but the news that a command began, less than `pause` ago, is to be sent.
    #[must_use]
    pub(crate) fn only_start_unsent(&self, now: Instant, pause: Duration) -> bool {
        let young = self.running.as_ref().is_some_and(|r| now.duration_since(r.started_at) < pause);
        young && self.log.only_start_after(self.sent_index)
    }

    /// Everything said so far is being sent.
    pub(crate) fn mark_sent(&mut self) {
        self.sent_index = self.log.next_index();
    }

    fn arm_timer(&mut self, reactor: &mut Reactor) {
        let Some(due) = self.next_deadline(reactor) else { return };
        if self.timer_at.is_none_or(|armed| due < armed) {
            self.timer_at = Some(due);
            reactor.set_timer(due, Timer::Shell(self.id));
        }
    }

    /// A timer of this shell went off.
    pub(crate) fn on_timer(&mut self, reactor: &mut Reactor, when: Instant) {
        if self.timer_at != Some(when) {
            return;
        }
        self.timer_at = None;
        reactor.pending.shells.mark(self.id);
        self.on_deadline(reactor);
    }

    /// Whether it can be forgotten.
    #[must_use]
    pub(crate) fn can_be_forgotten(&self, now: Instant) -> bool {
        let dead = self.bash.is_none() && self.clients.is_empty() && self.closing.is_none();
        let kept = self
            .ended
            .as_ref()
            .is_some_and(|(_, at)| self.is_session() || now.duration_since(*at) < DEAD_KEPT);
        dead && self.queue.is_empty() && (self.over || !kept)
    }
}

fn weight(waiting: &Waiting) -> usize {
    let env = waiting.run.env.iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, String::len));
    waiting.run.text.len() + env.sum::<usize>()
}
