//! One code context: a long-lived interpreter and its queue of runs.
//!
//! Its driver uses a separate socket and never the standard streams, which belong to the tenant. In
//! both directions, a frame is `u32 length | u8 kind | body` in network byte order. Messages from
//! the driver are limited in size and forwarded without being parsed, because the driver runs as
//! the tenant and is not trusted. A context of [`bash`] has no driver but a shell.
//!
//! ```text
//!             ready               run                 done
//!  Starting ─────────▶ Idle ──────────────▶ Running ─────────▶ Idle
//!     │ ended            │ ended               │ ended
//!     ▼                  ▼                     ▼
//!   Gone ◀────────────  Gone ◀───────────────  Gone ── the next run restarts it
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
mod kill_state;
mod spare_kernel;
mod start;

pub(crate) use spare_kernel::SpareKernels;

use crate::launch::Refusal;
use crate::process_tree;
use crate::reaction::ReactionWait;
use crate::reactor::{Reactor, Timer};
use bash_shell::{BashShell, Code};
use interpreter::{Interpreter, RUN};
use isolet_wire::activity::Activity;
use isolet_wire::context::{
    self, ContextResponse, Language, OpenContext, QUEUE_MAX, TIMEOUT_MS_MAX,
};
use isolet_wire::response::RefusalReason;
use kill_state::KillState;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Maximum size of a run's body, in bytes: code of 1 MiB and its input, with JSON escapes.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The state of a context; see the diagram of this module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContextState {
    Starting,
    Idle,
    Running,
    /// The interpreter has ended.
    Gone,
}

/// A code context: its interpreter and its queue of runs. It has many fields because it covers both
/// kinds of interpreter and their restarts.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) id: u64,
    pub(crate) open: OpenContext,
    pub(crate) state: ContextState,
    /// The context is being deleted, so nothing is started any more.
    pub(crate) closing: bool,
    /// Connections that wait until the context is ready.
    pub(crate) openers: Vec<u64>,
    /// Connections that wait for the end of the context.
    pub(crate) closers: Vec<u64>,
    /// Refusals for other connections than the one that runs code.
    pub(crate) refusals: Vec<(u64, Refusal)>,
    announced: bool,
    /// The context never became ready. Its openers are refused, and it is removed.
    pub(crate) failed: Option<Refusal>,
    queue: VecDeque<Waiting>,
    run: Option<ActiveRun>,
    interpreter: Option<Interpreter>,
    /// The shell of a bash context, instead of an interpreter.
    bash: Option<Box<BashShell>>,
    killing: Option<KillState>,
    number: u64,
    restarts: u64,
    /// Process id of the ready Jupyter kernel, if there is one besides the driver; 0 if it is
    /// unknown.
    kernel: Option<i32>,
    /// Spare kernels may be started for other contexts like this one.
    spare: bool,
    /// The interpreter replaced one that had ended, and no run has started in it.
    fresh: bool,
    /// Output that was written between runs, by stream, and the number of dropped bytes.
    late: [Vec<u8>; 2],
    late_lost: u64,
}

#[derive(Debug)]
struct Waiting {
    conn: u64,
    body: Vec<u8>,
    timeout_ms: u64,
}

/// The run in progress.
#[derive(Debug)]
struct ActiveRun {
    /// The connection that receives the output, while it is open.
    conn: Option<u64>,
    began: Instant,
    due: Instant,
    /// The run was interrupted, and the interpreter is killed if it does not end.
    ending: Option<EndingRun>,
    end: context::ContextRunEnd,
    oom: u64,
    /// The driver has reported the end of the run, but the streams may contain more output.
    done: bool,
}

/// The signals to an interrupted run. Only time counts in which the interpreter could react.
#[derive(Debug)]
struct EndingRun {
    /// Until the interrupt is sent again; `None` after that.
    again: Option<ReactionWait>,
    /// Until the interpreter is killed.
    kill: ReactionWait,
}

impl EndingRun {
    /// When the next look is due.
    fn next_look(&self) -> Instant {
        let kill = self.kill.next_look();
        self.again.as_ref().map_or(kill, |again| again.next_look().min(kill))
    }
}

impl Context {
    /// Opens a context.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub(crate) fn open(
        reactor: &mut Reactor,
        spares: &mut SpareKernels,
        id: u64,
        mut open: OpenContext,
    ) -> Result<Self, Refusal> {
        let spare = open.env.remove(context::SPARE).is_some();
        let mut context = Self {
            id,
            open,
            state: ContextState::Starting,
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

    /// The description for clients.
    #[must_use]
    pub(crate) fn describe(&self, new: bool) -> ContextResponse {
        ContextResponse::State(context::ContextStatus {
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

    /// The description for watchers.
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

    /// Whether a run is in progress or the interpreter is starting.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        self.run.is_some() || self.state == ContextState::Starting
    }

    /// Process id of the Jupyter kernel, if it runs and is known.
    fn kernel_pid(&self) -> i32 {
        self.kernel.filter(|_| self.pid() > 0).unwrap_or(0)
    }

    /// Whether this is the process id of the interpreter.
    #[must_use]
    pub(crate) fn is(&self, pid: i32) -> bool {
        self.interpreter.as_ref().is_some_and(|interpreter| interpreter.pid == pid)
    }

    /// Whether nothing of the context is left and it will not restart.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        let ended = self.interpreter.is_none() && self.bash.is_none() && self.killing.is_none();
        (self.closing || self.failed.is_some()) && ended
    }

    /// Whether the context has not been announced yet. Returns true once.
    pub(crate) fn take_unannounced(&mut self) -> bool {
        !std::mem::replace(&mut self.announced, true)
    }

    /// Whether the context is ready for its openers.
    #[must_use]
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, ContextState::Idle | ContextState::Running) && self.killing.is_none()
    }

    /// Restarts an ended interpreter if a connection waits for it.
    pub(crate) fn restart_if_wanted(&mut self, reactor: &mut Reactor, spares: &mut SpareKernels) {
        let wanted = !(self.openers.is_empty() && self.queue.is_empty());
        let may = self.killing.is_none() && !self.closing && self.failed.is_none();
        if wanted && may && self.state == ContextState::Gone {
            self.restart_gone(reactor, spares);
        }
    }

    /// The connection of the run in progress.
    #[must_use]
    pub(crate) fn client(&self) -> Option<u64> {
        self.run.as_ref().and_then(|run| run.conn)
    }

    /// Adds a run to the queue.
    ///
    /// # Errors
    /// The queue is full, or the code is too long.
    pub(crate) fn enqueue(
        &mut self,
        conn: u64,
        request: context::ContextRun,
    ) -> Result<(), Refusal> {
        if self.closing {
            return Err((RefusalReason::NoShell, "the context is being deleted".to_owned()));
        }
        if self.queue.len() >= QUEUE_MAX {
            return Err((
                RefusalReason::QueueFull,
                format!("{QUEUE_MAX} runs wait in this context"),
            ));
        }
        if request.body.len() > BODY_BYTES_MAX {
            return Err((RefusalReason::TooLarge, "the code is too long".to_owned()));
        }
        if self.open.language == Language::Bash {
            Code::of(&request.body)?;
        }
        let own = self.open.timeout_ms;
        let body = request.body;
        let timeout_ms = if request.timeout_ms == 0 { own } else { request.timeout_ms };
        self.queue.push_back(Waiting { conn, body, timeout_ms });
        Ok(())
    }

    /// Starts the next run if possible. Returns its connection and the message for it.
    pub(crate) fn start_next_run(
        &mut self,
        reactor: &mut Reactor,
    ) -> Option<(u64, ContextResponse)> {
        if self.killing.is_some() || self.closing || self.state != ContextState::Idle {
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
        let end = context::ContextRunEnd {
            number: self.number,
            lost,
            ..context::ContextRunEnd::default()
        };
        let conn_told = Some(conn);
        let began = reactor.now;
        self.run =
            Some(ActiveRun { conn: conn_told, began, due, ending: None, end, oom, done: false });
        self.state = ContextState::Running;
        reactor.set_timer(due, Timer::Context(self.id));
        reactor.notify_watchers(self.id);
        if self.open.language != Language::Bash {
            let body = [&self.number.to_be_bytes()[..], &body].concat();
            self.send_to_driver(reactor, RUN, &body);
        }
        Some((conn, ContextResponse::RunStarted { fresh: std::mem::take(&mut self.fresh) }))
    }

    /// A connection has disconnected: its queued runs are removed, and its run in progress
    /// continues.
    pub(crate) fn on_disconnect(&mut self, conn: u64) {
        self.queue.retain(|waiting| waiting.conn != conn);
        self.openers.retain(|opener| *opener != conn);
        self.closers.retain(|closer| *closer != conn);
        if let Some(run) = self.run.as_mut().filter(|run| run.conn == Some(conn)) {
            run.conn = None;
        }
    }

    /// Refuses all queued runs.
    fn refuse_queue(&mut self, reason: RefusalReason, message: &str) {
        let waiting = self.queue.drain(..).map(|one| (one.conn, (reason, message.to_owned())));
        self.refusals.extend(waiting);
    }
}
