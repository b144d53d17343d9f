//! When a failed delivery is tried again, and when the server gives up.

use std::time::Duration;

/// The default waits after the first, second, … failure in a row, in seconds. The last one repeats.
pub const RETRY_AFTER: [u64; 6] = [5, 30, 120, 600, 1800, 3600];
/// The default time of nothing but failures after which a webhook is disabled, in seconds: 3 days.
pub const GIVE_UP_AFTER: u64 = 3 * 24 * 3600;
/// The share of a wait by which it is lengthened at most, so that receivers that come back are not met
/// by all webhooks at once.
const JITTER: f64 = 0.1;

/// When deliveries are tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrySchedule {
    /// The waits after each failure in a row; the last one repeats.
    pub waits: Vec<Duration>,
    /// How long deliveries may fail before the webhook is disabled.
    pub give_up_after: Duration,
}

impl Default for RetrySchedule {
    fn default() -> Self {
        Self {
            waits: RETRY_AFTER.map(Duration::from_secs).to_vec(),
            give_up_after: Duration::from_secs(GIVE_UP_AFTER),
        }
    }
}

impl RetrySchedule {
    /// The wait after this many failures in a row; `chance` is a random number from 0 to 1.
    pub(crate) fn wait(&self, failures: u32, chance: f64) -> Duration {
        let at = usize::try_from(failures).unwrap_or(usize::MAX).saturating_sub(1);
        let wait = self.waits.get(at).or(self.waits.last()).copied().unwrap_or_default();
        wait.mul_f64(1.0 + JITTER * chance.clamp(0.0, 1.0))
    }

    /// Whether deliveries have failed for too long.
    pub(crate) fn gives_up(&self, first_failure_ms: i64, now_ms: i64) -> bool {
        let failing = u128::try_from(now_ms.saturating_sub(first_failure_ms)).unwrap_or(0);
        failing >= self.give_up_after.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_an_hour_and_stay_there() {
        let schedule = RetrySchedule::default();
        let waits: Vec<u64> = (1..=8).map(|n| schedule.wait(n, 0.0).as_secs()).collect();
        assert_eq!(waits, [5, 30, 120, 600, 1800, 3600, 3600, 3600]);
        assert_eq!(schedule.wait(u32::MAX, 1.0), Duration::from_secs(3960));
        assert_eq!(schedule.wait(1, 0.5), Duration::from_millis(5250));
    }

    #[test]
    fn three_days_of_failures_are_enough() {
        let schedule = RetrySchedule::default();
        let day = 24 * 3600 * 1000;
        assert!(!schedule.gives_up(1000, 1000 + 3 * day - 1));
        assert!(schedule.gives_up(1000, 1000 + 3 * day));
        assert!(!schedule.gives_up(5000, 1000), "the clock was set back");
    }
}
