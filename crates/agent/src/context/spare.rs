//! The driver of a Jupyter kernel that is begun ahead: it has read all that a kernel needs, which
//! takes most of its start, and waits for the word to begin one.
//!
//! There is at most one, once kernels were begun twice: where one context is all there is, none is
//! held for it. It is nobody's context; it ends when it was not taken for a while.

use super::{Context, Life};
use crate::hub::{Hub, Parent, Timer};
use crate::tree;
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
const KILL: i32 = 9;

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
    life: Life,
    open: Open,
    until: Instant,
}

impl Spare {
    /// Whether it has not ended, which nobody else hears of.
    fn lives(&self, hub: &Hub) -> bool {
        hub.parents.get(&self.life.pid) == Some(&Parent::Context(self.id))
    }
}

impl Spares {
    /// A kernel has begun, in a context that may have one begun ahead.
    pub(super) fn begun(hub: &mut Hub, open: &Open) {
        hub.spares.begun = hub.spares.begun.saturating_add(1);
        if hub.spares.begun >= BEGUN_MIN {
            hub.spares.wanted = Some(open.clone());
            hub.at(hub.now + PAUSE, Timer::Spare);
        }
    }

    /// One that was begun with the same program, environment and directory.
    pub(super) fn take(hub: &mut Hub, open: &Open) -> Option<Life> {
        let same = |one: &mut Spare| {
            let own = (one.open.language, &one.open.cwd, &one.open.env);
            own == (open.language, &open.cwd, &open.env)
        };
        let spare = hub.spares.one.take_if(same)?;
        spare.lives(hub).then_some(spare.life)
    }

    /// What watchers are told of it: how much runs that is nobody's.
    pub(crate) fn census(hub: &Hub) -> Option<tell::Shell> {
        let one = hub.spares.one.as_ref().filter(|one| one.lives(hub))?;
        let pid = one.life.pid;
        let (name, clients) = ("k/".to_owned(), tree::tasks(pid));
        Some(tell::Shell { name, pid, busy: false, queued: 0, clients, closed: None })
    }

    /// Its timer went off; `busy`: something runs in a context.
    pub(crate) fn tick(hub: &mut Hub, busy: bool) {
        if hub.spares.one.as_ref().is_some_and(|one| hub.now >= one.until || !one.lives(hub)) {
            Self::end(hub);
        }
        if hub.spares.wanted.is_none() {
            return;
        }
        if busy {
            return hub.at(hub.now + PAUSE, Timer::Spare);
        }
        let Some(open) = hub.spares.wanted.take() else { return };
        if hub.spares.one.is_some() {
            // Who begins kernels of two kinds in turn would have the one end the other.
            return;
        }
        let id = hub.id();
        // Where there is no room for it, the next kernel begins without.
        if let Ok(life) = Context::begin(hub, id, &open) {
            let until = hub.now + IDLE_MAX;
            hub.spares.one = Some(Spare { id, life, open, until });
            hub.at(until, Timer::Spare);
        }
    }

    fn end(hub: &mut Hub) {
        let Some(spare) = hub.spares.one.take() else { return };
        if spare.lives(hub) {
            let _ = signal::send(spare.life.pid, KILL);
        }
    }
}
