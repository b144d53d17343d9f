//! The DNS answers that one sandbox was given: the addresses of a name, and the names of an
//! address. Bounded; the least recently queried name is evicted first.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Names in the cache of one sandbox.
const NAMES_MAX: usize = 1024;
/// Addresses of one name that are answered and cached.
pub(crate) const ADDRESSES_MAX: usize = 16;
/// Addresses of one name, with those of earlier answers: programs reuse them, and load balancers
/// rotate them.
const KNOWN_ADDRESSES_MAX: usize = 64;
/// How long an address counts as one of its name after the last answer, at least: programs use
/// answers for longer than their TTL.
const BINDING_TTL: Duration = Duration::from_secs(60 * 60);

/// An answer that is still fresh.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CachedAnswer {
    pub(crate) addresses: Vec<Ipv4Addr>,
    /// What is left of its TTL.
    pub(crate) ttl: Duration,
}

#[derive(Debug)]
struct CacheEntry {
    answer: Vec<Ipv4Addr>,
    fresh_until: Instant,
    queried_at: Instant,
    /// Addresses of this and earlier answers, and until when each counts as one of the name.
    bindings: Vec<Binding>,
}

#[derive(Debug)]
struct Binding {
    address: Ipv4Addr,
    valid_until: Instant,
}

/// The names of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct DnsCache {
    names: HashMap<String, CacheEntry>,
}

impl DnsCache {
    pub(crate) fn get(&mut self, name: &str, now: Instant) -> Option<CachedAnswer> {
        let entry = self.names.get_mut(name)?;
        let ttl = entry.fresh_until.checked_duration_since(now).filter(|ttl| !ttl.is_zero())?;
        entry.queried_at = now;
        Some(CachedAnswer { addresses: entry.answer.clone(), ttl })
    }

    pub(crate) fn insert(
        &mut self,
        name: &str,
        answer: Vec<Ipv4Addr>,
        ttl: Duration,
        now: Instant,
    ) {
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(name) {
            self.evict_oldest();
        }
        let earlier = self.names.remove(name).map(|entry| entry.bindings).unwrap_or_default();
        let valid_until = now + ttl.max(BINDING_TTL);
        let binding = |address: &Ipv4Addr| Binding { address: *address, valid_until };
        let mut bindings: Vec<_> = answer.iter().map(binding).collect();
        let still_valid =
            |binding: &Binding| binding.valid_until > now && !answer.contains(&binding.address);
        bindings.extend(earlier.into_iter().filter(still_valid));
        bindings.truncate(KNOWN_ADDRESSES_MAX);
        let entry = CacheEntry { answer, fresh_until: now + ttl, queried_at: now, bindings };
        self.names.insert(name.to_owned(), entry);
    }

    fn evict_oldest(&mut self) {
        let oldest = self.names.iter().min_by_key(|(_, entry)| entry.queried_at);
        if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
            self.names.remove(&oldest);
        }
    }

    /// Whether this name was resolved to this address.
    pub(crate) fn was_resolved_to(&self, name: &str, address: Ipv4Addr, now: Instant) -> bool {
        self.names.get(name).is_some_and(|entry| entry.has(address, now))
    }

    /// The names that were resolved to this address.
    pub(crate) fn names_of(&self, address: Ipv4Addr, now: Instant) -> Vec<String> {
        let matching = self.names.iter().filter(|(_, entry)| entry.has(address, now));
        matching.map(|(name, _)| name.clone()).collect()
    }
}

impl CacheEntry {
    fn has(&self, address: Ipv4Addr, now: Instant) -> bool {
        self.bindings.iter().any(|it| it.address == address && it.valid_until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(1, 0, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(1, 0, 0, 2);

    #[test]
    fn an_answer_is_reused_while_fresh_and_its_addresses_stay_bound_for_longer() {
        let start = Instant::now();
        let mut cache = DnsCache::default();
        cache.insert("a.example", vec![A], Duration::from_secs(5), start);
        let then = start + Duration::from_secs(4);
        let expected = CachedAnswer { addresses: vec![A], ttl: Duration::from_secs(1) };
        assert_eq!(cache.get("a.example", then), Some(expected));
        let later = start + Duration::from_secs(6);
        assert_eq!(cache.get("a.example", later), None);
        cache.insert("a.example", vec![B], Duration::from_secs(5), later);
        assert!(cache.was_resolved_to("a.example", A, later));
        assert!(cache.was_resolved_to("a.example", B, later));
        assert_eq!(cache.names_of(A, later), ["a.example"]);
        assert!(!cache.was_resolved_to("b.example", A, later));
        let much_later = start + BINDING_TTL + Duration::from_secs(1);
        assert!(!cache.was_resolved_to("a.example", A, much_later));
        assert!(cache.was_resolved_to("a.example", B, much_later));
    }

    #[test]
    fn the_cache_is_bounded() {
        let start = Instant::now();
        let mut cache = DnsCache::default();
        for number in 0..2_000_u32 {
            let now = start + Duration::from_millis(number.into());
            cache.insert(&format!("{number}.example"), vec![A], Duration::from_secs(5), now);
            cache.insert("a.example", vec![number.into()], Duration::from_secs(5), now);
        }
        assert_eq!(cache.names.len(), NAMES_MAX);
        assert!(cache.names["a.example"].bindings.len() <= KNOWN_ADDRESSES_MAX);
        assert!(cache.names.contains_key("1999.example") && !cache.names.contains_key("0.example"));
    }
}
