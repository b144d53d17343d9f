//! Who asks for too much that is not there is told to wait: ids and keys cannot be found by trying
//! them all.
//!
//! A key that is not known counts against the address it came from, and a valid key is never
//! refused for what its neighbours do. An id that is not there counts against the caller.

use crate::{auth::caller::Caller, foundation::error::Failure};
use axum::http::StatusCode;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long misses are counted together.
const WINDOW: Duration = Duration::from_secs(10);
/// The most of one caller, or one address, in that time, unless told: no client asks for a thousand
/// things a second, for ten seconds, that are not there.
pub const MISSES_MAX: u32 = 10_000;
/// Callers and addresses that are counted apart; all beyond are counted together.
const COUNTED_MAX: usize = 4096;

/// Who missed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// A key, by its tenant and id.
    Key(String),
    /// Somebody without a key that is known.
    Address(IpAddr),
    /// All for whom there is no room.
    Others,
}

/// Misses of the last seconds.
#[derive(Debug)]
pub(crate) struct Misses {
    all: Mutex<HashMap<Who, (Instant, u32)>>,
    most: u32,
}

impl Who {
    pub(crate) fn of(caller: &Caller) -> Self {
        let key = caller.key.as_deref().unwrap_or_default();
        Self::Key(format!("{}/{key}", caller.tenant))
    }
}

impl Misses {
    /// With at most `most` of one in the time; 0 for no bound.
    pub(crate) fn new(most: u32) -> Self {
        Self { all: Mutex::default(), most }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Who, (Instant, u32)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one.
    pub(crate) fn count(&self, who: Who, now: Instant) {
        if self.most == 0 {
            return;
        }
        let mut all = self.lock();
        if !all.contains_key(&who) && all.len() >= COUNTED_MAX {
            all.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
        }
        let who = if all.len() < COUNTED_MAX || all.contains_key(&who) { who } else { Who::Others };
        let (since, count) = all.entry(who).or_insert((now, 0));
        if now.duration_since(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
    }

    /// Whether they may ask now.
    ///
    /// # Errors
    /// 429 with how long to wait.
    pub(crate) fn admit(&self, who: &Who, now: Instant) -> Result<(), Failure> {
        let all = self.lock();
        let seen = all.get(who).or_else(|| {
            // Not counted apart: among the others, when there are any.
            (all.len() > COUNTED_MAX).then(|| all.get(&Who::Others)).flatten()
        });
        let Some((since, count)) = seen else { return Ok(()) };
        let left = WINDOW.saturating_sub(now.duration_since(*since));
        if *count < self.most || left.is_zero() {
            return Ok(());
        }
        let message = format!(
            "{} requests for what is not there, or with keys that are not known, within {} s",
            self.most,
            WINDOW.as_secs()
        );
        let hint =
            format!("wait {} s; look at the ids and keys that are asked with", left.as_secs() + 1);
        Err(Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_misses", &message, &hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Who {
        Who::Key(name.to_owned())
    }

    #[test]
    fn who_misses_too_often_waits_and_nobody_else() {
        let (misses, now) = (Misses::new(MISSES_MAX), Instant::now());
        for _ in 0..MISSES_MAX {
            assert!(misses.admit(&key("a"), now).is_ok());
            misses.count(key("a"), now);
        }
        let refused = misses.admit(&key("a"), now).unwrap_err();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(misses.admit(&key("b"), now).is_ok());
        assert!(misses.admit(&key("a"), now + WINDOW).is_ok(), "its time is over");
        misses.count(key("a"), now + WINDOW);
        assert!(misses.admit(&key("a"), now + WINDOW).is_ok(), "counted anew");
    }

    #[test]
    fn what_is_counted_is_bounded() {
        let (misses, now) = (Misses::new(MISSES_MAX), Instant::now());
        for n in 0..2 * COUNTED_MAX {
            misses.count(key(&n.to_string()), now);
        }
        assert_eq!(misses.lock().len(), COUNTED_MAX + 1);
        misses.count(key("later"), now + WINDOW);
        assert_eq!(misses.lock().len(), 1, "those whose time is over made room");
    }
}
