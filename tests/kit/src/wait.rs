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

/// Calls `attempt` with a limit of time, which is `first` and then four times as much with each
/// further call, until it returns a value. For what happens only within such a limit, on a machine
/// of any speed: an attempt returns `None` if its steps have taken longer than the limit allows,
/// which it measures itself.
///
/// # Panics
/// When the steps take longer than 64 times the first limit.
#[track_caller]
pub fn with_growing_limit<T>(first: u64, mut attempt: impl FnMut(u64) -> Option<T>) -> T {
    for limit in [1, 4, 16, 64].map(|factor| factor * first) {
        if let Some(value) = attempt(limit) {
            return value;
        }
        eprintln!("this machine is too slow for a limit of {limit}");
    }
    panic!("this machine is too slow for 64 times a limit of {first}");
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
