//! Waits for a state instead of a time.

use std::time::{Duration, Instant};

/// Pause between two checks of a state.
const LOOK: Duration = Duration::from_millis(5);

/// Calls `state` until it returns a value.
///
/// # Panics
/// After `within`, with `what`.
#[track_caller]
pub fn wait_until<T>(what: &str, within: Duration, mut state: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(value) = state() {
            return value;
        }
        assert!(Instant::now() < end, "waited {within:?} for: {what}");
        std::thread::park_timeout(LOOK);
    }
}

/// Runs `work`, which must not take longer than `within`.
///
/// # Panics
/// With `what`, when it took longer.
#[track_caller]
pub fn quickly<T>(what: &str, within: Duration, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let value = work();
    let took = begin.elapsed();
    assert!(took <= within, "{what} took {took:?}, at most {within:?}");
    value
}
