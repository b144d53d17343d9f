//! Named points at which a test makes the server fail: `ISOLET_FAILPOINTS="create.recorded=abort"`.
//!
//! Several points are separated by `;`. An action is `off`, `error`, `panic`, `abort` or
//! `delay(ms)`. `2*abort` acts at the second pass. Without the variable, a pass costs one atomic
//! load. A few points are limits that a test shortens: `hold.max=delay(500)`.

use crate::model::error::Error;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Off,
    Error,
    Panic,
    Abort,
    Delay(u64),
}

struct Point {
    action: Action,
    from: u64,
    passed: AtomicU64,
}

static POINTS: OnceLock<Option<HashMap<String, Point>>> = OnceLock::new();

fn parse(text: &str) -> HashMap<String, Point> {
    text.split(';').filter_map(|part| point(part.trim())).collect()
}

fn point(text: &str) -> Option<(String, Point)> {
    let (name, action) = text.split_once('=')?;
    let (from, action) =
        action.split_once('*').map_or((1, action), |(n, rest)| (n.parse().unwrap_or(1), rest));
    let action = match action {
        "off" => Action::Off,
        "error" => Action::Error,
        "panic" => Action::Panic,
        "abort" => Action::Abort,
        other => Action::Delay(other.strip_prefix("delay(")?.strip_suffix(')')?.parse().ok()?),
    };
    Some((name.to_owned(), Point { action, from, passed: AtomicU64::new(0) }))
}

fn find(name: &str) -> Option<&'static Point> {
    let points =
        POINTS.get_or_init(|| std::env::var("ISOLET_FAILPOINTS").ok().map(|text| parse(&text)));
    points.as_ref()?.get(name)
}

/// A limit of time, or the shorter one that a test sets for it.
pub(crate) fn limit(name: &'static str, usual: Duration) -> Duration {
    match find(name) {
        Some(Point { action: Action::Delay(ms), .. }) => usual.min(Duration::from_millis(*ms)),
        _ => usual,
    }
}

/// Passes a named point.
///
/// # Errors
/// [`Error::Fault`] if the test requests it.
pub(crate) async fn pass(name: &'static str) -> Result<(), Error> {
    let Some(point) = find(name) else { return Ok(()) };
    if point.passed.fetch_add(1, Ordering::Relaxed) + 1 < point.from {
        return Ok(());
    }
    match point.action {
        Action::Off => {}
        Action::Error => return Err(Error::Fault(format!("failpoint {name}"))),
        Action::Panic => panic!("failpoint {name}"),
        Action::Abort => std::process::abort(),
        Action::Delay(ms) => {
            // Tests wait for this line in the log.
            tracing::info!(name, ms, "failpoint: delayed");
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_reads_as_documented() {
        let points = parse("create.recorded=abort; a=2*delay(30);b=error;nonsense;c=what");
        assert_eq!(points.len(), 3);
        assert_eq!(points["create.recorded"].action, Action::Abort);
        assert_eq!((points["a"].action, points["a"].from), (Action::Delay(30), 2));
    }
}
