//! The agent's clock, by which all its deadlines are set.
//!
//! A server stops it before it freezes the sandbox. The clock stands until every connection that
//! stopped it has closed, and continues from there, so that a pause brings no deadline nearer.

use std::time::{Duration, Instant};

/// A monotonic clock that can be stopped.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// How long the clock stood in total.
    stood: Duration,
    /// The time at which the clock stands; `None` while it runs.
    stopped_at: Option<Instant>,
    /// The connections that stopped the clock.
    holders: Vec<u64>,
}

impl Clock {
    /// The current time of this clock.
    pub(crate) fn now(&self) -> Instant {
        self.at(Instant::now())
    }

    /// Stops the clock until this connection closes.
    pub(crate) fn stop(&mut self, connection: u64) {
        self.stop_at(connection, Instant::now());
    }

    /// A connection has closed. Returns whether the clock continues because of that.
    pub(crate) fn release(&mut self, connection: u64) -> bool {
        self.release_at(connection, Instant::now())
    }

    fn at(&self, real: Instant) -> Instant {
        // The clock stood for a part of the time since the boot, so the difference exists.
        self.stopped_at.unwrap_or_else(|| real.checked_sub(self.stood).unwrap_or(real))
    }

    fn stop_at(&mut self, connection: u64, real: Instant) {
        self.stopped_at = Some(self.at(real));
        if !self.holders.contains(&connection) {
            self.holders.push(connection);
        }
    }

    fn release_at(&mut self, connection: u64, real: Instant) -> bool {
        self.holders.retain(|holder| *holder != connection);
        if !self.holders.is_empty() {
            return false;
        }
        let Some(stopped_at) = self.stopped_at.take() else { return false };
        self.stood = real.duration_since(stopped_at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_stands_until_all_that_stopped_it_are_gone() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut clock = Clock::default();
        assert_eq!(clock.at(start), start);
        clock.stop_at(1, start);
        clock.stop_at(2, start + second);
        assert_eq!(clock.at(start + second), start);
        assert!(!clock.release_at(1, start + 2 * second));
        assert!(!clock.release_at(7, start + 2 * second), "another connection");
        assert_eq!(clock.at(start + 2 * second), start);
        assert!(clock.release_at(2, start + 3 * second));
        assert_eq!(clock.at(start + 3 * second), start);
        assert_eq!(clock.at(start + 4 * second), start + second);
        assert!(!clock.release_at(2, start + 4 * second), "it runs already");
    }

    #[test]
    fn several_pauses_add_up() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut clock = Clock::default();
        for pause in 0..3 {
            let begun = start + second * (2 * pause + 1);
            clock.stop_at(1, begun);
            assert!(clock.release_at(1, begun + second));
        }
        assert_eq!(clock.at(start + 10 * second), start + 7 * second);
    }
}
