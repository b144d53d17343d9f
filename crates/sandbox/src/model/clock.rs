//! Two clocks: the wall clock for timestamps, and a clock without jumps for durations.

use std::sync::LazyLock;
use std::time::Instant;

pub(crate) use isolet_clock::now_ms;

/// Milliseconds since 1970 by a clock without jumps: the wall clock at the server's start plus the
/// time since then. It serves to measure usage, and a restart of the server synchronises it again.
pub(crate) fn steady_ms() -> i64 {
    static START: LazyLock<(i64, Instant)> = LazyLock::new(|| (now_ms(), Instant::now()));
    let (date, start) = *START;
    date.saturating_add(i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX))
}
