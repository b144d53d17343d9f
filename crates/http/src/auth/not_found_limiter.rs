//! Who asks for too much that is not there is told to wait: ids and keys cannot be found by trying
//! them all.
//!
//! A key that is not known counts against the address it came from, and a valid key is never
//! refused for what its neighbours do. An id that is not there counts against the caller.

use crate::{auth::caller::Caller, foundation::error::ApiError};
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
pub const NOT_FOUND_LIMIT: u32 = 10_000;
/// Callers and addresses that are counted apart; all beyond are counted together.
const REQUESTERS_MAX: usize = 4096;

/// Who missed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Requester {
    /// A key, by its tenant and id.
    Key(String),
    /// Somebody without a key that is known.
    Address(IpAddr),
    /// All for whom there is no room.
    Others,
}

/// Misses of the last seconds.
#[derive(Debug)]
pub(crate) struct NotFoundLimiter {
    all: Mutex<HashMap<Requester, (Instant, u32)>>,
    most: u32,
}

impl Requester {
    pub(crate) fn of(caller: &Caller) -> Self {
        let key = caller.key.as_deref().unwrap_or_default();
        Self::Key(format!("{}/{key}", caller.tenant))
    }
}

impl NotFoundLimiter {
    /// With at most `most` of one in the time; 0 for no bound.
    pub(crate) fn new(most: u32) -> Self {
        Self { all: Mutex::default(), most }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Requester, (Instant, u32)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one.
    pub(crate) fn record(&self, who: Requester, now: Instant) {
        if self.most == 0 {
            return;
        }
        let mut all = self.lock();
        if !all.contains_key(&who) && all.len() >= REQUESTERS_MAX {
            all.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
        }
        let who = if all.len() < REQUESTERS_MAX || all.contains_key(&who) {
            who
        } else {
            Requester::Others
        };
        let (since, count) = all.entry(who).or_insert((now, 0));
        if now.duration_since(*since) >= WINDOW {
            *since = now;
            *count = 0;
        }
        *count = count.saturating_add(1);
    }

    /// Whether they may ask now.
    ///
    /// # Errors
    /// 429 with how long to wait.
    pub(crate) fn check(&self, who: &Requester, now: Instant) -> Result<(), ApiError> {
        let all = self.lock();
        let seen = all.get(who).or_else(|| {
            // Not counted apart: among the others, when there are any.
            (all.len() > REQUESTERS_MAX).then(|| all.get(&Requester::Others)).flatten()
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
        Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_misses", &message, &hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Requester {
        Requester::Key(name.to_owned())
    }

    #[test]
    fn who_misses_too_often_waits_and_nobody_else() {
        let limiter = NotFoundLimiter::new(NOT_FOUND_LIMIT);
        let now = Instant::now();
        for _ in 0..NOT_FOUND_LIMIT {
            assert!(limiter.check(&key("a"), now).is_ok());
            limiter.record(key("a"), now);
        }
        let refused = limiter.check(&key("a"), now).unwrap_err();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(limiter.check(&key("b"), now).is_ok());
        assert!(limiter.check(&key("a"), now + WINDOW).is_ok(), "its time is over");
        limiter.record(key("a"), now + WINDOW);
        assert!(limiter.check(&key("a"), now + WINDOW).is_ok(), "counted anew");
    }

    #[test]
    fn what_is_counted_is_bounded() {
        let limiter = NotFoundLimiter::new(NOT_FOUND_LIMIT);
        let now = Instant::now();
        for n in 0..2 * REQUESTERS_MAX {
            limiter.record(key(&n.to_string()), now);
        }
        assert_eq!(limiter.lock().len(), REQUESTERS_MAX + 1);
        limiter.record(key("later"), now + WINDOW);
        assert_eq!(limiter.lock().len(), 1, "those whose time is over made room");
    }
}
