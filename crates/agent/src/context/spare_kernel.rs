//! A spare kernel: the driver of a Jupyter kernel that is started in advance. It has loaded
//! everything that a kernel needs, which takes most of a start, and waits for a context.
//!
//! There is at most one, and only after two kernels were started: a sandbox with one context does
//! not pay for a spare. It ends when no context takes it for a while.

use super::interpreter::Interpreter;
use crate::process_tree;
use crate::reactor::{ChildOwner, Reactor, Timer};
use crate::signals::KILL;
use isolet_sys::signal;
use isolet_wire::activity::Activity;
use isolet_wire::context::OpenContext;
use std::time::{Duration, Instant};

/// Kernels that must have started before a spare one is started.
const BEGUN_MIN: u32 = 2;
/// Pause before a spare kernel is started after another kernel's start, and while a run is in
/// progress, because active runs have priority.
const PAUSE: Duration = Duration::from_millis(500);
/// How long an unused spare kernel lives. It occupies 34 MiB.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// At most one spare kernel, and when to start the next.
#[derive(Debug, Default)]
pub(crate) struct SpareKernels {
    begun: u32,
    /// The parameters of the next spare kernel.
    wanted: Option<OpenContext>,
    one: Option<SpareKernel>,
}

#[derive(Debug)]
struct SpareKernel {
    id: u64,
    interpreter: Interpreter,
    open: OpenContext,
    until: Instant,
}

impl SpareKernel {
    /// Whether the kernel is still running; nothing else observes its end.
    fn is_alive(&self, reactor: &Reactor) -> bool {
        reactor.children.get(&self.interpreter.pid) == Some(&ChildOwner::Context(self.id))
    }
}

impl SpareKernels {
    /// Counts the start of a kernel in a context that allows spare kernels.
    pub(super) fn count_start(&mut self, reactor: &mut Reactor, open: &OpenContext) {
        self.begun = self.begun.saturating_add(1);
        if self.begun >= BEGUN_MIN {
            self.wanted = Some(open.clone());
            reactor.set_timer(reactor.now + PAUSE, Timer::Spare);
        }
    }

    /// Takes a spare kernel with the same program, environment and directory.
    pub(super) fn take(&mut self, reactor: &Reactor, open: &OpenContext) -> Option<Interpreter> {
        let same = |one: &mut SpareKernel| {
            let own = (one.open.language, &one.open.cwd, &one.open.env);
            own == (open.language, &open.cwd, &open.env)
        };
        let spare = self.one.take_if(same)?;
        spare.is_alive(reactor).then_some(spare.interpreter)
    }

    /// The description for watchers, which count its threads.
    pub(crate) fn activity(&self, reactor: &Reactor) -> Option<Activity> {
        let one = self.one.as_ref().filter(|one| one.is_alive(reactor))?;
        let pid = one.interpreter.pid;
        Some(Activity::SpareKernel { pid, threads: process_tree::thread_count(pid) })
    }

    /// The timer has expired. With `busy`, a run is in progress in some context.
    pub(crate) fn on_timer(&mut self, reactor: &mut Reactor, busy: bool) {
        if self.one.as_ref().is_some_and(|one| reactor.now >= one.until || !one.is_alive(reactor)) {
            self.end(reactor);
        }
        if self.wanted.is_none() {
            return;
        }
        if busy {
            return reactor.set_timer(reactor.now + PAUSE, Timer::Spare);
        }
        let Some(open) = self.wanted.take() else { return };
        if self.one.is_some() {
            // Two kinds of kernels in turn would otherwise end each other.
            return;
        }
        let id = reactor.next_id();
        // If there is no room for a spare kernel, the next kernel starts without one.
        if let Ok(interpreter) = Interpreter::launch(reactor, id, &open) {
            let until = reactor.now + IDLE_MAX;
            self.one = Some(SpareKernel { id, interpreter, open, until });
            reactor.set_timer(until, Timer::Spare);
        }
    }

    fn end(&mut self, reactor: &Reactor) {
        let Some(spare) = self.one.take() else { return };
        if spare.is_alive(reactor) {
            let _ = signal::send(spare.interpreter.pid, KILL);
        }
    }
}
