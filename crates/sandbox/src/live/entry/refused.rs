//! The last connections that a sandbox was refused, in a ring, for the answers of its commands.
//!
//! The process that tried is not known: the answer of a command contains everything that was
//! refused between its start and its end. The end of a command requests all denials that are not
//! reported yet, waits a moment, and reads from where the ring stood when the command began.

use crate::model::network::denied::{DENIED_MAX, Denied};
use isolet_wire::network::Refused;
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Refusals that are held of one sandbox.
const HELD_MAX: usize = 1024;
/// How long after something was refused it may be told, in ms.
const LATE_MS: i64 = 1000;
/// Events of refusals in one second of one sandbox: a loop in it must not crowd out the rest.
const EVENTS_PER_S: u32 = 10;

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
    pub(crate) fn push(&self, refused: Refused, at_ms: i64) -> bool {
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

    pub(crate) fn at(&self) -> u64 {
        self.lock().next
    }

    /// From a position on.
    pub(crate) fn since(&self, from: u64) -> Denied {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, times: u32) -> Refused {
        let protocol = "tcp".to_owned();
        let rule = "default".to_owned();
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

    /// Promises: Q13.
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

    /// Promises: Q13.
    #[test]
    fn a_loop_of_refusals_makes_few_events() {
        let all = Refusals::default();
        let told = |at: i64| (0..100).filter(|_| all.push(refused("a.example", 1), at)).count();
        assert_eq!((told(1_500), told(1_900), told(2_000)), (10, 0, 10));
    }
}
