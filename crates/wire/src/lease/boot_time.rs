//! A clock that neither jumps nor stops while the machine is suspended, and the end of a lease on it.

use crate::lease::Epoch;
use rustix::time::ClockId;
use rustix::time::clock_gettime;
use serde::Deserialize;
use serde::Serialize;
use std::time::Duration;

/// Time since the machine's start, with the time in which it was suspended (`CLOCK_BOOTTIME`). All
/// processes of the machine read the same, whatever the wall clock does.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct BootTime {
    millis: u64,
}

impl BootTime {
    /// The current time.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
        Self { millis: seconds * 1000 + nanos / 1_000_000 }
    }

    /// A time in milliseconds since the machine's start.
    #[must_use]
    pub fn from_millis(millis: u64) -> Self {
        Self { millis }
    }

    /// Milliseconds since the machine's start.
    #[must_use]
    pub fn as_millis(self) -> u64 {
        self.millis
    }

    /// This time later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let added = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self { millis: self.millis.saturating_add(added) }
    }

    /// The time from `earlier` to this one; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.millis.saturating_sub(earlier.millis))
    }
}

/// Until when a node certainly holds its lease, measured on its own clock.
///
/// etcd counts the lease from when it received a renewal; the node counts from before it sent it, and
/// subtracts a margin for clocks that run at different speeds and for the time that freezing takes.
/// So `at` has passed before another node can take a sandbox over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseDeadline {
    /// The registration that holds the lease. Permission that was given under one registration is
    /// void under the next.
    pub registration: Epoch,
    /// The end.
    pub at: BootTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_a_later_time_is_zero() {
        let early = BootTime::from_millis(1000);
        let late = early.after(Duration::from_millis(500));
        assert_eq!(late.since(early), Duration::from_millis(500));
        assert_eq!(early.since(late), Duration::ZERO);
        assert!(BootTime::now() > BootTime::default());
    }
}
