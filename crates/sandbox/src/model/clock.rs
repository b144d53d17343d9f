//! The two clocks: the wall clock for people, and one that never steps for durations.

use std::{sync::LazyLock, time::Instant};

pub(crate) use isolet_clock::now_ms;

/// The same by a clock that nobody sets: the date of the server's start, and the time since. What is
/// counted is counted by it; after a restart it is the date again.
pub(crate) fn steady_ms() -> i64 {
    static START: LazyLock<(i64, Instant)> = LazyLock::new(|| (now_ms(), Instant::now()));
    let (date, start) = *START;
    date.saturating_add(i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX))
}
