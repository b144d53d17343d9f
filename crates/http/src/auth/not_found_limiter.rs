//! Limits 404 and 401 answers per caller, so that a client cannot find ids or keys by trying many.
//!
//! An unknown id counts against the key of the caller, and only against it: a key shares no counter
//! with anybody. A wrong key, link or token counts against the address that sent it. The credential is
//! checked first and the counter only after it was wrong, so no number of wrong ones of an address, or
//! of all addresses, refuses a right one.

use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::extensions::Peer;
use axum::http::StatusCode;
use isolet_metrics::Counter;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The window in which answers are counted together.
const WINDOW: Duration = Duration::from_secs(10);
/// The default limit for one caller or address per window. A correct client never sends a thousand
/// requests for unknown ids per second for ten seconds.
pub const NOT_FOUND_LIMIT: u32 = 10_000;
/// How many wrong tokens that clients have chosen for links an address may send per window.
pub(crate) const LINK_GUESSES: u32 = 100;
/// How many addresses have a counter of their own; the rest share one.
const ADDRESSES_MAX: usize = 4096;
/// How many keys are counted at once. Of more, those with the fewest answers are forgotten.
const KEYS_MAX: usize = 16_384;
/// How many credentials of addresses above the limit may be looked up in the fleet at once; the others
/// wait for their turn.
const LOOKUPS_MAX: usize = 4;
/// The bits of an IPv6 address that identify a network. One client usually has all addresses of it.
const IPV6_NETWORK: u128 = !0 << 64;

/// Whose answers are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A key, as `TENANT/ID`.
    Key(String),
    Stranger(Network),
}

/// A client without a valid credential: an IPv4 address, or the /64 network of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Network(IpAddr);

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => Self(IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & IPV6_NETWORK))),
            v4 => Self(v4),
        }
    }

    /// The network of the client that sent a request.
    pub(crate) fn of_client(peer: Option<&Peer>) -> Self {
        Self::of(peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0))
    }
}

/// Counts the 404 and 401 answers of the current window.
#[derive(Debug)]
pub(crate) struct NotFoundLimiter {
    counters: Mutex<Counters>,
    most: u32,
    refused: Counter,
    lookups: Semaphore,
}

#[derive(Debug, Default)]
struct Counters {
    keys: HashMap<String, Count>,
    networks: HashMap<Network, Count>,
    /// That of all networks without a counter of their own.
    other_networks: Option<Count>,
}

/// The answers of one window.
#[derive(Debug, Clone, Copy)]
struct Count {
    since: Instant,
    answers: u32,
}

impl Count {
    fn new(since: Instant) -> Self {
        Self { since, answers: 0 }
    }

    fn is_current(&self, now: Instant) -> bool {
        now.duration_since(self.since) < WINDOW
    }

    fn add(&mut self, now: Instant) {
        if !self.is_current(now) {
            *self = Self::new(now);
        }
        self.answers = self.answers.saturating_add(1);
    }
}

impl Counters {
    fn find(&self, requester: &Requester) -> Option<&Count> {
        match requester {
            Requester::Key(key) => self.keys.get(key),
            Requester::Stranger(network) => {
                let own = self.networks.get(network);
                // Without a counter of its own, and when there is no room for one.
                let shared = || {
                    let is_full = self.networks.len() >= ADDRESSES_MAX;
                    self.other_networks.as_ref().filter(|_| is_full)
                };
                own.or_else(shared)
            }
        }
    }

    fn counter(&mut self, requester: Requester, now: Instant) -> &mut Count {
        let new = Count::new(now);
        match requester {
            Requester::Key(key) => {
                if !self.keys.contains_key(&key) {
                    make_room(&mut self.keys, now);
                }
                self.keys.entry(key).or_insert(new)
            }
            Requester::Stranger(network) => {
                let has_own = self.networks.contains_key(&network);
                if !has_own && self.networks.len() >= ADDRESSES_MAX {
                    self.networks.retain(|_, count| count.is_current(now));
                }
                if has_own || self.networks.len() < ADDRESSES_MAX {
                    self.networks.entry(network).or_insert(new)
                } else {
                    self.other_networks.get_or_insert(new)
                }
            }
        }
    }
}

/// Forgets counters of keys when there are too many: first those whose window has ended, then the half
/// with the fewest answers. All of them belong to valid keys, so this takes thousands of keys at once.
fn make_room(keys: &mut HashMap<String, Count>, now: Instant) {
    if keys.len() < KEYS_MAX {
        return;
    }
    keys.retain(|_, count| count.is_current(now));
    if keys.len() < KEYS_MAX {
        return;
    }
    let mut answers: Vec<u32> = keys.values().map(|count| count.answers).collect();
    let half = answers.len() / 2;
    let (_, median, _) = answers.select_nth_unstable(half);
    let median = *median;
    keys.retain(|_, count| count.answers > median);
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
        let lookups = Semaphore::new(LOOKUPS_MAX);
        Self { counters: Mutex::default(), most, refused, lookups }
    }

    fn lock(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one 404 or 401 answer.
    pub(crate) fn record(&self, requester: Requester, now: Instant) {
        if self.most > 0 {
            self.lock().counter(requester, now).add(now);
        }
    }

    /// The time until the requester is below the limit again; `None`: it is.
    fn wait(&self, requester: &Requester, now: Instant) -> Option<Duration> {
        let counters = self.lock();
        let count = counters.find(requester)?;
        let left = WINDOW.saturating_sub(now.duration_since(count.since));
        (self.most > 0 && count.answers >= self.most && !left.is_zero()).then_some(left)
    }

    /// Checks whether the requester is below the limit.
    ///
    /// # Errors
    /// 429 with the time to wait.
    pub(crate) fn check(&self, requester: &Requester, now: Instant) -> Result<(), ApiError> {
        let Some(left) = self.wait(requester, now) else { return Ok(()) };
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

    /// Counts a credential that was wrong. Call it only after the credential was checked.
    ///
    /// # Errors
    /// 429 above the limit.
    pub(crate) fn record_wrong(&self, network: Network, now: Instant) -> Result<(), ApiError> {
        let stranger = Requester::Stranger(network);
        self.check(&stranger, now)?;
        self.record(stranger, now);
        Ok(())
    }

    /// Call this before a credential is looked up in the fleet, which anyone can cause, and hold the
    /// result during the lookup. Below the limit it does nothing. Lookups of networks above the limit
    /// wait for each other: a right credential is answered there too, but etcd and the other nodes are
    /// not asked as fast as strangers can guess.
    pub(crate) async fn lookup_turn(&self, network: Network) -> Option<SemaphorePermit<'_>> {
        self.wait(&Requester::Stranger(network), Instant::now())?;
        self.lookups.acquire().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Requester {
        Requester::Key(name.to_owned())
    }

    fn stranger(address: &str) -> Requester {
        Requester::Stranger(Network::of(address.parse().unwrap()))
    }

    /// The `n`th IPv4 address.
    fn nth(n: usize) -> Requester {
        let bits = u32::try_from(n).unwrap();
        Requester::Stranger(Network::of(Ipv4Addr::from_bits(bits).into()))
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

    /// Promises: T30.
    #[test]
    fn t20_a_key_shares_no_counter_with_addresses() {
        let limiter = NotFoundLimiter::new(NOT_FOUND_LIMIT, Counter::default());
        let now = Instant::now();
        (0..ADDRESSES_MAX).for_each(|n| limiter.record(nth(n), now));
        for _ in 0..=NOT_FOUND_LIMIT {
            limiter.record(nth(ADDRESSES_MAX), now);
        }
        assert!(limiter.check(&nth(ADDRESSES_MAX), now).is_err(), "guessing stays slow");
        assert!(limiter.check(&nth(ADDRESSES_MAX + 1), now).is_err(), "with other addresses too");
        assert!(limiter.check(&nth(0), now).is_ok(), "it has a counter of its own");
        assert!(limiter.check(&key("valid"), now).is_ok());
        limiter.record(key("valid"), now);
        assert!(limiter.check(&key("valid"), now).is_ok());
    }

    /// Promises: T30.
    #[test]
    fn t20_all_addresses_of_an_ipv6_network_share_one_counter() {
        let limiter = NotFoundLimiter::new(3, Counter::default());
        let now = Instant::now();
        for host in 1..=3 {
            limiter.record(stranger(&format!("2001:db8:1:2:{host}::{host}")), now);
        }
        assert!(limiter.check(&stranger("2001:db8:1:2:ffff::7"), now).is_err());
        assert!(limiter.check(&stranger("2001:db8:1:3::1"), now).is_ok(), "another network");
        (0..3).for_each(|_| limiter.record(stranger("192.0.2.7"), now));
        assert!(limiter.check(&stranger("::ffff:192.0.2.7"), now).is_err(), "the same address");
        assert!(limiter.check(&stranger("192.0.2.8"), now).is_ok());
    }

    /// Promises: T30.
    #[tokio::test]
    async fn t20_lookups_of_strangers_above_the_limit_wait_for_each_other() {
        let limiter = NotFoundLimiter::new(1, Counter::default());
        let network = Network::of(Ipv4Addr::LOCALHOST.into());
        assert!(limiter.lookup_turn(network).await.is_none(), "below the limit nobody waits");
        limiter.record_wrong(network, Instant::now()).unwrap();
        let mut turns = Vec::new();
        for _ in 0..LOOKUPS_MAX {
            turns.push(limiter.lookup_turn(network).await.expect("a turn"));
        }
        let mut next = Box::pin(limiter.lookup_turn(network));
        assert!(futures_util::poll!(&mut next).is_pending());
        turns.pop();
        assert!(next.await.is_some(), "its turn comes");
    }

    #[test]
    fn the_number_of_counters_is_bounded() {
        let limiter = NotFoundLimiter::new(NOT_FOUND_LIMIT, Counter::default());
        let now = Instant::now();
        (0..2 * ADDRESSES_MAX).for_each(|n| limiter.record(nth(n), now));
        assert_eq!(limiter.lock().networks.len(), ADDRESSES_MAX);
        limiter.record(nth(0), now + WINDOW);
        limiter.record(nth(3 * ADDRESSES_MAX), now + WINDOW);
        assert_eq!(limiter.lock().networks.len(), 2, "counters whose window has ended are gone");
        (0..NOT_FOUND_LIMIT).for_each(|_| limiter.record(key("guesses"), now));
        (0..3 * KEYS_MAX).for_each(|n| limiter.record(key(&n.to_string()), now));
        assert!(limiter.lock().keys.len() <= KEYS_MAX);
        assert!(limiter.check(&key("guesses"), now).is_err(), "the largest counts stay");
    }
}
