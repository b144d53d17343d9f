//! The driver of a Jupyter kernel that is begun ahead: it has read all that a kernel needs, which
//! takes most of its start, and waits for the word to begin one.
//!
//! There is at most one, once kernels were begun twice: where one context is all there is, none is
//! held for it. It is nobody's context; it ends when it was not taken for a while.

use super::interpreter::Interpreter;
use crate::process_tree;
use crate::reactor::{ChildOwner, Reactor, Timer};
use crate::signals::KILL;
use isolet_sys::signal;
use isolet_wire::context::Open;
use isolet_wire::tell;
use std::time::{Duration, Instant};

/// Kernels that have begun before one is begun ahead.
const BEGUN_MIN: u32 = 2;
/// After a kernel's begin, or while something runs: what is used now has the processor first.
const PAUSE: Duration = Duration::from_millis(500);
/// How long one waits: it holds 34 MiB.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    begun: u32,
    /// What the next is to be for.
    wanted: Option<Open>,
    one: Option<Spare>,
}

#[derive(Debug)]
struct Spare {
    id: u64,
    life: Interpreter,
    open: Open,
    until: Instant,
}

impl Spare {
    /// Whether it has not ended, which nobody else hears of.
    fn lives(&self, reactor: &Reactor) -> bool {
        reactor.children.get(&self.life.pid) == Some(&ChildOwner::Context(self.id))
    }
}

impl Spares {
    /// A kernel has begun, in a context that may have one begun ahead.
    pub(super) fn begun(&mut self, reactor: &mut Reactor, open: &Open) {
        self.begun = self.begun.saturating_add(1);
        if self.begun >= BEGUN_MIN {
            self.wanted = Some(open.clone());
            reactor.set_timer(reactor.now + PAUSE, Timer::Spare);
        }
    }

    /// One that was begun with the same program, environment and directory.
    pub(super) fn take(&mut self, reactor: &Reactor, open: &Open) -> Option<Interpreter> {
        let same = |one: &mut Spare| {
            let own = (one.open.language, &one.open.cwd, &one.open.env);
            own == (open.language, &open.cwd, &open.env)
        };
        let spare = self.one.take_if(same)?;
        spare.lives(reactor).then_some(spare.life)
    }

    /// What watchers are told of it: how much runs that is nobody's.
    pub(crate) fn census(&self, reactor: &Reactor) -> Option<tell::Shell> {
        let one = self.one.as_ref().filter(|one| one.lives(reactor))?;
        let pid = one.life.pid;
        let (name, clients) = ("k/".to_owned(), process_tree::thread_count(pid));
        Some(tell::Shell { name, pid, busy: false, queued: 0, clients, closed: None })
    }

    /// Its timer went off; `busy`: something runs in a context.
    pub(crate) fn tick(&mut self, reactor: &mut Reactor, busy: bool) {
        if self.one.as_ref().is_some_and(|one| reactor.now >= one.until || !one.lives(reactor)) {
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
            // Kernels of two kinds in turn would otherwise end one another.
            return;
        }
        let id = reactor.next_id();
        // Where there is no room for it, the next kernel begins without.
        if let Ok(life) = Interpreter::begin(reactor, id, &open) {
            let until = reactor.now + IDLE_MAX;
            self.one = Some(Spare { id, life, open, until });
            reactor.set_timer(until, Timer::Spare);
        }
    }

    fn end(&mut self, reactor: &Reactor) {
        let Some(spare) = self.one.take() else { return };
        if spare.lives(reactor) {
            let _ = signal::send(spare.life.pid, KILL);
        }
    }
}
