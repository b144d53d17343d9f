//! One code context: a persistent interpreter, which executes runs one after the other.
//!
//! Its driver uses a socket of its own, never the interpreter's standard streams, which are the
//! tenant's. In both directions a frame is `u32 length | u8 kind | body`, in network order. The
//! driver's messages are bounded and passed on without being parsed: it runs as the tenant and is not
//! trusted. A context of [`bash`] has no driver; it is a shell.
//!
//! ```text
//!             ready               run                 done
//!  Starting ─────────▶ Idle ──────────────▶ Running ─────────▶ Idle
//!     │ ended            │ ended               │ ended
//!     ▼                  ▼                     ▼
//!   Gone ◀────────────  Gone ◀───────────────  Gone ── the next run starts another
//! ```
//!
//! The agent owns the interpreter, so it outlives the server, and the server stores nothing about
//! it. The driver is read from a file in memory and never lies on the tenant's disk. Both standard
//! streams are read by count before each frame of the driver, so that printed output and displayed
//! results keep the order in which they were written. At most 64 runs wait, and they run one after
//! the other. A run is ended by SIGINT, a second SIGINT after one second, and then SIGKILL to the
//! interpreter and all that it started; the next run gets a new interpreter and reports `fresh`.
//!
//! Python, JavaScript and TypeScript have drivers of their own. A Bash context is one of the
//! agent's shells. A Jupyter kernel has a driver beside it that speaks its protocol. All report the
//! same frames. A Python context first looks for `ipykernel` and then takes one of two drivers
//! (`jupyter/choose.py`). IPython's kernel is a forked copy of the process that speaks with it, so
//! what both import is loaded and held once.

mod bash;
mod bash_shell;
mod end;
mod flow;
mod interpreter;
mod killing;
mod spare_kernel;
mod start;

pub(crate) use spare_kernel::SpareKernels;

use crate::launch::Refusal;
use crate::process_tree;
use crate::reactor::{Reactor, Timer};
use bash_shell::{BashShell, Code};
use interpreter::{Interpreter, RUN};
use isolet_wire::activity::Activity;
use isolet_wire::context::{self, ContextResponse, Language, Open, QUEUE_MAX, TIMEOUT_MS_MAX};
use isolet_wire::response::RefusalReason;
use killing::Killing;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What a run may not do: more words than a code of 1 MiB, its input, and their escapes.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Where it stands; the module's page has the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Starting,
    Idle,
    Running,
    /// Its interpreter has ended.
    Gone,
}

/// A code context: its interpreter, and the runs that wait for it.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) id: u64,
    pub(crate) open: Open,
    pub(crate) state: State,
    /// Its end was asked for; nothing is started any more.
    pub(crate) closing: bool,
    /// Connections that wait until it is ready.
    pub(crate) openers: Vec<u64>,
    /// Connections that wait for its end.
    pub(crate) closers: Vec<u64>,
    /// Answers for others than who runs something: connection and refusal.
    pub(crate) refusals: Vec<(u64, Refusal)>,
    announced: bool,
    /// It was never ready: whoever opened it is refused, and it is forgotten.
    pub(crate) failed: Option<Refusal>,
    queue: VecDeque<Waiting>,
    run: Option<Run>,
    interpreter: Option<Interpreter>,
    /// Instead of an interpreter, where it is one of bash.
    bash: Option<Box<BashShell>>,
    killing: Option<Killing>,
    number: u64,
    restarts: u64,
    /// The process of the Jupyter kernel that is ready, beside what speaks with it; 0: not told.
    kernel: Option<i32>,
    /// Kernels may be begun ahead for others as this one.
    spare: bool,
    /// Its interpreter replaced one that had ended, and no run has begun in it.
    fresh: bool,
    /// What was written between runs, by stream, and how much of it is not held.
    late: [Vec<u8>; 2],
    late_lost: u64,
}

#[derive(Debug)]
struct Waiting {
    conn: u64,
    body: Vec<u8>,
    timeout_ms: u64,
}

/// What runs.
#[derive(Debug)]
struct Run {
    /// The connection that is told, while it is open.
    conn: Option<u64>,
    began: Instant,
    due: Instant,
    /// When it is killed, once it was interrupted.
    kill_at: Option<Instant>,
    end: context::End,
    oom: u64,
    /// Its driver has said that it is done; the streams may hold more.
    done: bool,
}

impl Context {
    /// Opens it.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn open(
        reactor: &mut Reactor,
        spares: &mut SpareKernels,
        id: u64,
        mut open: Open,
    ) -> Result<Self, Refusal> {
        let spare = open.env.remove(context::SPARE).is_some();
        let mut context = Self {
            id,
            open,
            state: State::Starting,
            closing: false,
            openers: Vec::new(),
            closers: Vec::new(),
            refusals: Vec::new(),
            announced: false,
            failed: None,
            queue: VecDeque::new(),
            run: None,
            interpreter: None,
            bash: None,
            killing: None,
            number: 0,
            restarts: 0,
            kernel: None,
            spare,
            fresh: false,
            late: [Vec::new(), Vec::new()],
            late_lost: 0,
        };
        context.start(reactor, spares)?;
        Ok(context)
    }

    /// What is told of it.
    #[must_use]
    pub(crate) fn describe(&self, new: bool) -> ContextResponse {
        ContextResponse::Is(context::Context {
            context: self.open.context.clone(),
            language: if self.kernel.is_some() { Language::Jupyter } else { self.open.language },
            label: self.open.label.clone(),
            pid: Some(self.kernel_pid()).filter(|pid| *pid > 0).unwrap_or(self.pid()),
            busy: self.run.is_some(),
            queued: self.queue.len() as u32,
            runs: self.number,
            restarts: self.restarts,
            new,
        })
    }

    /// What watchers are told of it.
    #[must_use]
    pub(crate) fn activity(&self) -> Activity {
        Activity::Context {
            id: self.open.context.clone(),
            pid: self.pid(),
            busy: self.run.is_some(),
            queued: self.queue.len() as u32,
            threads: process_tree::thread_count(self.pid())
                + process_tree::thread_count(self.kernel_pid()),
            ended: self.is_over(),
        }
    }

    fn pid(&self) -> i32 {
        let interpreter = self
            .interpreter
            .as_ref()
            .filter(|interpreter| interpreter.died.is_none())
            .map(|interpreter| interpreter.pid);
        interpreter.or(self.bash.as_ref().map(|bash| bash.shell.pid())).unwrap_or(0)
    }

    /// Whether it runs something, or begins.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        self.run.is_some() || self.state == State::Starting
    }

    /// Of the kernel, where it runs and was told.
    fn kernel_pid(&self) -> i32 {
        self.kernel.filter(|_| self.pid() > 0).unwrap_or(0)
    }

    /// Whose interpreter this is.
    #[must_use]
    pub(crate) fn is(&self, pid: i32) -> bool {
        self.interpreter.as_ref().is_some_and(|interpreter| interpreter.pid == pid)
    }

    /// Nothing of it is left, and it is not to come back.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        let ended = self.interpreter.is_none() && self.bash.is_none() && self.killing.is_none();
        (self.closing || self.failed.is_some()) && ended
    }

    /// Whether nobody was told of it yet; said once.
    pub(crate) fn take_unannounced(&mut self) -> bool {
        !std::mem::replace(&mut self.announced, true)
    }

    /// Whether it is ready for who waits for that.
    #[must_use]
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::Idle | State::Running) && self.killing.is_none()
    }

    /// Starts its interpreter anew where somebody waits for it.
    pub(crate) fn restart_if_wanted(&mut self, reactor: &mut Reactor, spares: &mut SpareKernels) {
        let wanted = !(self.openers.is_empty() && self.queue.is_empty());
        let may = self.killing.is_none() && !self.closing && self.failed.is_none();
        if wanted && may && self.state == State::Gone {
            self.restart_gone(reactor, spares);
        }
    }

    /// The connection that is told of what runs.
    #[must_use]
    pub(crate) fn client(&self) -> Option<u64> {
        self.run.as_ref().and_then(|run| run.conn)
    }

    /// Puts a run in line.
    ///
    /// # Errors
    /// The line is full, or the code too long.
    pub(crate) fn enqueue(&mut self, conn: u64, ask: context::Run) -> Result<(), Refusal> {
        if self.closing {
            return Err((RefusalReason::NoShell, "the context is being deleted".to_owned()));
        }
        if self.queue.len() >= QUEUE_MAX {
            return Err((
                RefusalReason::QueueFull,
                format!("{QUEUE_MAX} runs wait in this context"),
            ));
        }
        if ask.body.len() > BODY_BYTES_MAX {
            return Err((RefusalReason::TooLarge, "the code is too long".to_owned()));
        }
        if self.open.language == Language::Bash {
            Code::of(&ask.body)?;
        }
        let own = self.open.timeout_ms;
        let body = ask.body;
        let timeout_ms = if ask.timeout_ms == 0 { own } else { ask.timeout_ms };
        self.queue.push_back(Waiting { conn, body, timeout_ms });
        Ok(())
    }

    /// Begins the next run where one waits and nothing stands in its way; who is told so, and what.
    pub(crate) fn start_next_run(
        &mut self,
        reactor: &mut Reactor,
    ) -> Option<(u64, ContextResponse)> {
        if self.killing.is_some() || self.closing || self.state != State::Idle {
            return None;
        }
        let Waiting { conn, body, timeout_ms } = self.queue.pop_front()?;
        self.number += 1;
        let timeout_ms = timeout_ms.clamp(1, TIMEOUT_MS_MAX);
        if self.open.language == Language::Bash
            && let Err(refusal) = self.run_bash(reactor, &body, timeout_ms)
        {
            self.refusals.push((conn, refusal));
            reactor.pending.shells.mark(self.id);
            return None;
        }
        let due = reactor.now + Duration::from_millis(timeout_ms);
        let oom = reactor.oom_kills(true);
        let lost = std::mem::take(&mut self.late_lost);
        let end = context::End { number: self.number, lost, ..context::End::default() };
        let conn_told = Some(conn);
        let began = reactor.now;
        self.run = Some(Run { conn: conn_told, began, due, kill_at: None, end, oom, done: false });
        self.state = State::Running;
        reactor.set_timer(due, Timer::Context(self.id));
        reactor.notify_watchers(self.id);
        if self.open.language != Language::Bash {
            let body = [&self.number.to_be_bytes()[..], &body].concat();
            self.send_to_driver(reactor, RUN, &body);
        }
        Some((conn, ContextResponse::Began { fresh: std::mem::take(&mut self.fresh) }))
    }

    /// A connection has gone: what it waited for is not begun; what runs goes on to its end.
    pub(crate) fn on_disconnect(&mut self, conn: u64) {
        self.queue.retain(|waiting| waiting.conn != conn);
        self.openers.retain(|opener| *opener != conn);
        self.closers.retain(|closer| *closer != conn);
        if let Some(run) = self.run.as_mut().filter(|run| run.conn == Some(conn)) {
            run.conn = None;
        }
    }

    /// Refuses all runs that wait.
    fn refuse_queue(&mut self, why: RefusalReason, message: &str) {
        let waiting = self.queue.drain(..).map(|one| (one.conn, (why, message.to_owned())));
        self.refusals.extend(waiting);
    }
}
