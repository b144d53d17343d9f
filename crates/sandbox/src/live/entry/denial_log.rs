//! The last connections that a sandbox was refused, in a ring, for the answers of its commands.
//!
//! The process that tried is not known: the answer of a command contains everything that was
//! refused between its start and its end. The end of a command requests all denials that are not
//! reported yet, waits a moment, and reads from where the ring stood when the command began.

use crate::model::network::denied::{DENIED_MAX, Denied};
use isolet_wire::network::NetworkDenial;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of denials that are kept for one sandbox.
const HELD_MAX: usize = 1024;
/// How long a denial may take to be reported, in ms.
const LATE_MS: i64 = 1000;
/// Maximum number of denial events per second of one sandbox, so that a loop in it does not
/// displace other events.
const EVENTS_PER_S: u32 = 10;

/// The network denials of one sandbox since the start of the server.
#[derive(Debug, Default)]
pub(crate) struct DenialLog {
    ring: Mutex<DenialRing>,
}

#[derive(Debug, Default)]
struct DenialRing {
    held: VecDeque<(i64, NetworkDenial)>,
    /// Number of the next denial.
    next: u64,
    /// The second in which events were last published, and their number.
    published: (i64, u32),
}

impl DenialRing {
    fn first(&self) -> u64 {
        self.next - self.held.len() as u64
    }
}

impl DenialLog {
    fn lock(&self) -> MutexGuard<'_, DenialRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a denial. Returns whether to publish an event.
    pub(crate) fn push(&self, refused: NetworkDenial, at_ms: i64) -> bool {
        let mut ring = self.lock();
        if ring.held.len() >= HELD_MAX {
            ring.held.pop_front();
        }
        ring.held.push_back((at_ms, refused));
        ring.next += 1;
        let second = at_ms / 1000;
        ring.published =
            if ring.published.0 == second { (second, ring.published.1 + 1) } else { (second, 1) };
        ring.published.1 <= EVENTS_PER_S
    }

    pub(crate) fn at(&self) -> u64 {
        self.lock().next
    }

    /// The denials from a position on.
    pub(crate) fn since(&self, from: u64) -> Denied {
        let ring = self.lock();
        let first = ring.first();
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut denied = gathered(ring.held.iter().skip(skip).map(|(_, refused)| refused));
        denied.lost += first.saturating_sub(from);
        denied
    }

    /// The denials within a period, in ms since 1970, extended by [`LATE_MS`]. Both ends are
    /// inclusive.
    pub(crate) fn within(&self, from_ms: i64, to_ms: Option<i64>) -> Denied {
        let ring = self.lock();
        let within =
            |at: i64| at >= from_ms && to_ms.is_none_or(|to| at <= to.saturating_add(LATE_MS));
        gathered(ring.held.iter().filter(|(at, _)| within(*at)).map(|(_, refused)| refused))
    }
}

fn gathered<'a>(all: impl Iterator<Item = &'a NetworkDenial>) -> Denied {
    let mut denied = Denied::default();
    for refused in all {
        let key =
            |it: &NetworkDenial| (it.port, it.host.clone(), it.protocol.clone(), it.rule.clone());
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

    fn refused(host: &str, times: u32) -> NetworkDenial {
        let protocol = "tcp".to_owned();
        let rule = "default".to_owned();
        NetworkDenial { host: host.to_owned(), port: Some(443), protocol, rule, times }
    }

    #[test]
    fn equal_refusals_are_told_once_with_their_number() {
        let all = DenialLog::default();
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
        let all = DenialLog::default();
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
        let all = DenialLog::default();
        let published =
            |at: i64| (0..100).filter(|_| all.push(refused("a.example", 1), at)).count();
        assert_eq!((published(1_500), published(1_900), published(2_000)), (10, 0, 10));
    }
}
