//! A token bucket: a burst at once, then a steady rate.

use std::time::Instant;

#[derive(Debug)]
pub(crate) struct TokenBucket {
    tokens: f64,
    burst_max: f64,
    per_second: f64,
    refilled_at: Instant,
}

impl TokenBucket {
    pub(crate) fn new(burst_max: u32, per_second: u32, now: Instant) -> Self {
        let burst_max = f64::from(burst_max);
        Self { tokens: burst_max, burst_max, per_second: f64::from(per_second), refilled_at: now }
    }

    /// Takes a token; `false`: none is left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed_s = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.tokens = (self.tokens + passed_s * self.per_second).min(self.burst_max);
        self.refilled_at = now;
        let available = self.tokens >= 1.0;
        if available {
            self.tokens -= 1.0;
        }
        available
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn tokens_come_back_with_time() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(2, 10, start);
        assert!(bucket.take(start) && bucket.take(start) && !bucket.take(start));
        let later = start + Duration::from_millis(100);
        assert!(bucket.take(later) && !bucket.take(later));
        let much_later = start + Duration::from_secs(60);
        assert!(bucket.take(much_later) && bucket.take(much_later) && !bucket.take(much_later));
    }
}
