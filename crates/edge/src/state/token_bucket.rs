//! How often something may happen: so many at once, so many a second.

use std::time::Instant;

/// Tokens that come back with time.
#[derive(Debug)]
pub(crate) struct Bucket {
    tokens: f64,
    most: f64,
    each_second: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(most: u32, each_second: u32, now: Instant) -> Self {
        let most = f64::from(most);
        Self { tokens: most, most, each_second: f64::from(each_second), filled: now }
    }

    /// Whether it may happen once more now.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * self.each_second).min(self.most);
        self.filled = now;
        let some = self.tokens >= 1.0;
        if some {
            self.tokens -= 1.0;
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_taken_comes_back_with_time() {
        let start = Instant::now();
        let mut bucket = Bucket::new(2, 10, start);
        assert!(bucket.take(start) && bucket.take(start) && !bucket.take(start));
        let later = start + Duration::from_millis(100);
        assert!(bucket.take(later) && !bucket.take(later));
        let much_later = start + Duration::from_secs(60);
        assert!(bucket.take(much_later) && bucket.take(much_later) && !bucket.take(much_later));
    }
}
