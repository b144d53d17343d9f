//! Limits 404 and 401 answers per caller, so that a client cannot find ids or keys by trying many.
//!
//! An unknown key counts against the address that sent it, so that a valid key is never refused
//! because of its neighbours. An unknown id counts against the caller.

use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use axum::http::StatusCode;
use isolet_metrics::Counter;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The window in which answers are counted together.
const WINDOW: Duration = Duration::from_secs(10);
/// The default limit for one caller or address per window. A correct client never sends a thousand
/// requests for unknown ids per second for ten seconds.
pub const NOT_FOUND_LIMIT: u32 = 10_000;
/// How many wrong tokens that clients have chosen for links an address may send per window.
pub(crate) const LINK_GUESSES: u32 = 100;
/// How many callers and addresses have a counter of their own; the rest share one.
const REQUESTERS_MAX: usize = 4096;

/// Whose answers are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Requester {
    /// A key, as `TENANT/ID`.
    Key(String),
    /// An address that sent an unknown key.
    Address(IpAddr),
    /// All callers and addresses that have no counter of their own.
    Others,
}

/// Counts the 404 and 401 answers of the current window.
#[derive(Debug)]
pub(crate) struct NotFoundLimiter {
    all: Mutex<HashMap<Requester, (Instant, u32)>>,
    most: u32,
    refused: Counter,
}

impl Requester {
    pub(crate) fn of(caller: &Caller) -> Self {
        let key = caller.key.as_deref().unwrap_or_default();
        Self::Key(format!("{}/{key}", caller.tenant))
    }
}

impl NotFoundLimiter {
    /// Allows at most `most` answers per requester and window; 0 stands for no limit.
    /// `refused` counts the requests above the limit.
    pub(crate) fn new(most: u32, refused: Counter) -> Self {
        Self { all: Mutex::default(), most, refused }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Requester, (Instant, u32)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one 404 or 401 answer.
    pub(crate) fn record(&self, requester: Requester, now: Instant) {
        if self.most == 0 {
            return;
        }
        let mut all = self.lock();
        if !all.contains_key(&requester) && all.len() >= REQUESTERS_MAX {
            all.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
        }
        let requester = if all.len() < REQUESTERS_MAX || all.contains_key(&requester) {
            requester
        } else {
            Requester::Others
        };
        let (since, count) = all.entry(requester).or_insert((now, 0));
        if now.duration_since(*since) >= WINDOW {
            *since = now;
            *count = 0;
        }
        *count = count.saturating_add(1);
    }

    /// Checks whether the requester is below the limit.
    ///
    /// # Errors
    /// 429 with the time to wait.
    pub(crate) fn check(&self, requester: &Requester, now: Instant) -> Result<(), ApiError> {
        let all = self.lock();
        let seen = all.get(requester).or_else(|| {
            // A requester without a counter of its own uses the shared one, if it exists.
            (all.len() > REQUESTERS_MAX).then(|| all.get(&Requester::Others)).flatten()
        });
        let Some((since, count)) = seen else { return Ok(()) };
        let left = WINDOW.saturating_sub(now.duration_since(*since));
        if *count < self.most || left.is_zero() {
            return Ok(());
        }
        self.refused.inc();
        let message = format!(
            "more than {} requests got 401 or 404 within {} s",
            self.most,
            WINDOW.as_secs()
        );
        let hint = format!(
            "wait {} s, and check the ids and the key that the client uses",
            left.as_secs() + 1
        );
        Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_not_found", &message, &hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Requester {
        Requester::Key(name.to_owned())
    }

    /// Promises: T3.
    #[test]
    fn who_misses_too_often_waits_and_nobody_else() {
        let limiter = NotFoundLimiter::new(NOT_FOUND_LIMIT, Counter::default());
        let now = Instant::now();
        for _ in 0..NOT_FOUND_LIMIT {
            assert!(limiter.check(&key("a"), now).is_ok());
            limiter.record(key("a"), now);
        }
        let refused = limiter.check(&key("a"), now).unwrap_err();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(limiter.check(&key("b"), now).is_ok());
        assert!(limiter.check(&key("a"), now + WINDOW).is_ok(), "its window has ended");
        limiter.record(key("a"), now + WINDOW);
        assert!(limiter.check(&key("a"), now + WINDOW).is_ok(), "a new count");
    }

    #[test]
    fn the_number_of_counters_is_bounded() {
        let limiter = NotFoundLimiter::new(NOT_FOUND_LIMIT, Counter::default());
        let now = Instant::now();
        for n in 0..2 * REQUESTERS_MAX {
            limiter.record(key(&n.to_string()), now);
        }
        assert_eq!(limiter.lock().len(), REQUESTERS_MAX + 1);
        limiter.record(key("later"), now + WINDOW);
        assert_eq!(limiter.lock().len(), 1, "counters whose window has ended were removed");
    }
}
