//! What a sandbox was refused, as it comes: the last of it, for the commands that ran meanwhile.
//!
//! Who in the sandbox has connected is not known: what was refused between a command's start and
//! its end is told with it, whoever it was.

use super::Mode;
use crate::{Sandbox, events::Happened, record::now_ms, registry::Entry, service::Inner};
use isolet_wire::network::Refused;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Refusals that are held of one sandbox.
const HELD_MAX: usize = 1024;
/// What one command is told of; what is more is counted.
pub const DENIED_MAX: usize = 64;
/// How long after something was refused it may be told, in ms.
const LATE_MS: i64 = 1000;
/// Events of refusals in one second of one sandbox: a loop in it must not crowd out the rest.
const EVENTS_PER_S: u32 = 10;

/// What was refused while something ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Denied {
    /// Equal ones together, in the order of their first, at most [`DENIED_MAX`].
    pub list: Vec<Refused>,
    /// How many more times something was refused.
    pub lost: u64,
}

/// Those of one sandbox since its server's start.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    held: VecDeque<(i64, Refused)>,
    /// Number of the next.
    next: u64,
    /// The second in which events were last told, and how many.
    told: (i64, u32),
}

impl Ring {
    fn first(&self) -> u64 {
        self.next - self.held.len() as u64
    }
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one; whether an event is to tell of it.
    fn push(&self, refused: Refused, at_ms: i64) -> bool {
        let mut ring = self.lock();
        if ring.held.len() >= HELD_MAX {
            ring.held.pop_front();
        }
        ring.held.push_back((at_ms, refused));
        ring.next += 1;
        let second = at_ms / 1000;
        ring.told = if ring.told.0 == second { (second, ring.told.1 + 1) } else { (second, 1) };
        ring.told.1 <= EVENTS_PER_S
    }

    fn at(&self) -> u64 {
        self.lock().next
    }

    /// From a position on.
    fn since(&self, from: u64) -> Denied {
        let ring = self.lock();
        let first = ring.first();
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut denied = gathered(ring.held.iter().skip(skip).map(|(_, refused)| refused));
        denied.lost += first.saturating_sub(from);
        denied
    }

    /// Within a time, in ms since 1970, and [`LATE_MS`] behind it; both ends belong to it.
    pub(crate) fn within(&self, from_ms: i64, to_ms: Option<i64>) -> Denied {
        let ring = self.lock();
        let within =
            |at: i64| at >= from_ms && to_ms.is_none_or(|to| at <= to.saturating_add(LATE_MS));
        gathered(ring.held.iter().filter(|(at, _)| within(*at)).map(|(_, refused)| refused))
    }
}

fn gathered<'a>(all: impl Iterator<Item = &'a Refused>) -> Denied {
    let mut denied = Denied::default();
    for refused in all {
        let key = |it: &Refused| (it.port, it.host.clone(), it.protocol.clone(), it.rule.clone());
        let own = key(refused);
        if let Some(known) = denied.list.iter_mut().find(|known| key(known) == own) {
            known.times = known.times.saturating_add(refused.times);
        } else if denied.list.len() < DENIED_MAX {
            denied.list.push(refused.clone());
        } else {
            denied.lost += u64::from(refused.times);
        }
    }
    denied
}

/// What is refused from a moment on.
#[derive(Clone)]
pub struct Denials {
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    from: u64,
}

impl std::fmt::Debug for Denials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Denials")
            .field("sandbox", &self.entry.id)
            .field("from", &self.from)
            .finish()
    }
}

impl Denials {
    /// Begins anew.
    pub fn begin(&mut self) {
        self.from = self.entry.refusals.at();
    }

    /// Whether there is anybody to wait for.
    #[must_use]
    pub fn there(&self) -> bool {
        self.entry.view.borrow().record.body.network.mode() != Mode::None
            || self.entry.refusals.at() != self.from
    }

    /// What was refused until now. Waits a moment for what is just being told; cancel-safe.
    pub async fn told(&self) -> Denied {
        self.settle().await;
        self.now()
    }

    /// Waits a moment for what is just being told; cancel-safe.
    pub async fn settle(&self) {
        if self.there() {
            self.inner.way.settle().await;
        }
    }

    /// What is known of it, without a wait.
    #[must_use]
    pub fn now(&self) -> Denied {
        self.entry.refusals.since(self.from)
    }
}

impl Sandbox {
    /// What is refused to it from now on.
    #[must_use]
    pub fn denials(&self) -> Denials {
        let (inner, entry) = (Arc::clone(&self.inner), Arc::clone(&self.entry));
        Denials { from: entry.refusals.at(), inner, entry }
    }

    /// What was refused to it within a time, in ms since 1970, as far as it is held.
    #[must_use]
    pub fn denied_within(&self, from_ms: i64, to_ms: Option<i64>) -> Denied {
        self.entry.refusals.within(from_ms, to_ms)
    }
}

impl Inner {
    /// A sandbox was refused something.
    pub(crate) fn refused(&self, entry: &Entry, refused: Refused) {
        if entry.refusals.push(refused.clone(), now_ms()) {
            self.events.say(entry, Happened::NetworkDenied(refused));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, times: u32) -> Refused {
        let (protocol, rule) = ("tcp".to_owned(), "default".to_owned());
        Refused { host: host.to_owned(), port: Some(443), protocol, rule, times }
    }

    #[test]
    fn equal_refusals_are_told_once_with_their_number() {
        let all = Refusals::default();
        all.push(refused("before.example", 1), 1);
        let from = all.at();
        for (host, times) in [("a.example", 1), ("b.example", 2), ("a.example", 3)] {
            all.push(refused(host, times), 2 + LATE_MS);
        }
        let denied = all.since(from);
        assert_eq!(denied.list, [refused("a.example", 4), refused("b.example", 2)]);
        assert_eq!((denied.lost, all.since(all.at())), (0, Denied::default()));
        assert_eq!(all.within(1, Some(1)).list, [refused("before.example", 1)]);
        assert_eq!(all.within(2, None).list.len(), 2);
        assert_eq!(all.within(2, Some(2)).list.len(), 2, "told a moment late");
    }

    #[test]
    fn what_is_told_is_bounded_and_the_rest_counted() {
        let all = Refusals::default();
        for n in 0..HELD_MAX + 10 {
            all.push(refused(&format!("h{n}.example"), 2), 1);
        }
        assert_eq!(all.lock().held.len(), HELD_MAX);
        let denied = all.since(0);
        assert_eq!(denied.list.len(), DENIED_MAX);
        assert_eq!(denied.lost, 2 * (HELD_MAX - DENIED_MAX) as u64 + 10);
    }

    #[test]
    fn a_loop_of_refusals_makes_few_events() {
        let all = Refusals::default();
        let told = |at: i64| (0..100).filter(|_| all.push(refused("a.example", 1), at)).count();
        assert_eq!((told(1_500), told(1_900), told(2_000)), (10, 0, 10));
    }
}
