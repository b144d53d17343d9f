//! What was answered to one link: which addresses a name has, and which names an address was
//! given for. Bounded; the name that was asked for longest ago goes first.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Names that are held for a link.
const NAMES_MAX: usize = 1024;
/// Addresses of a name that are answered and held.
pub(crate) const ADDRESSES_MAX: usize = 16;
/// Addresses of a name of earlier answers: programs keep them, and balancers turn them.
const EARLIER_MAX: usize = 64;
/// How long an address stands for a name after its last answer: programs keep answers for longer
/// than they were told to.
const STANDS: Duration = Duration::from_secs(60 * 60);

#[derive(Debug)]
struct Pin {
    answer: Vec<Ipv4Addr>,
    fresh_until: Instant,
    asked: Instant,
    earlier: Vec<(Ipv4Addr, Instant)>,
}

/// The names of one link.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    names: HashMap<String, Pin>,
}

impl Pins {
    /// The addresses that were answered for a name, and how long they may still be answered.
    pub(crate) fn fresh(&mut self, name: &str, now: Instant) -> Option<(Vec<Ipv4Addr>, Duration)> {
        let pin = self.names.get_mut(name)?;
        let left = pin.fresh_until.checked_duration_since(now).filter(|left| !left.is_zero())?;
        pin.asked = now;
        Some((pin.answer.clone(), left))
    }

    /// Notes an answer.
    pub(crate) fn pin(&mut self, name: &str, answer: Vec<Ipv4Addr>, ttl: Duration, now: Instant) {
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(name) {
            let oldest = self.names.iter().min_by_key(|(_, pin)| pin.asked);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.names.remove(&oldest);
            }
        }
        let earlier = self.names.remove(name).map(|pin| pin.earlier).unwrap_or_default();
        let until = now + ttl.max(STANDS);
        let mut all: Vec<_> = answer.iter().map(|address| (*address, until)).collect();
        let still =
            |(address, until): &(Ipv4Addr, Instant)| *until > now && !answer.contains(address);
        all.extend(earlier.into_iter().filter(still));
        all.truncate(EARLIER_MAX);
        let pin = Pin { answer, fresh_until: now + ttl, asked: now, earlier: all };
        self.names.insert(name.to_owned(), pin);
    }

    /// Whether an address was answered for a name.
    pub(crate) fn stands(&self, name: &str, address: Ipv4Addr, now: Instant) -> bool {
        self.names.get(name).is_some_and(|pin| pin.stands(address, now))
    }

    /// The names that an address was answered for.
    pub(crate) fn names(&self, address: Ipv4Addr, now: Instant) -> Vec<String> {
        let of = self.names.iter().filter(|(_, pin)| pin.stands(address, now));
        of.map(|(name, _)| name.clone()).collect()
    }
}

impl Pin {
    fn stands(&self, address: Ipv4Addr, now: Instant) -> bool {
        self.earlier.iter().any(|(it, until)| *it == address && *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(1, 0, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(1, 0, 0, 2);

    #[test]
    fn an_answer_is_given_again_while_it_is_fresh_and_stands_for_longer() {
        let start = Instant::now();
        let mut pins = Pins::default();
        pins.pin("a.example", vec![A], Duration::from_secs(5), start);
        let then = start + Duration::from_secs(4);
        assert_eq!(pins.fresh("a.example", then), Some((vec![A], Duration::from_secs(1))));
        let later = start + Duration::from_secs(6);
        assert_eq!(pins.fresh("a.example", later), None);
        pins.pin("a.example", vec![B], Duration::from_secs(5), later);
        assert!(pins.stands("a.example", A, later) && pins.stands("a.example", B, later));
        assert_eq!(pins.names(A, later), ["a.example"]);
        assert!(!pins.stands("b.example", A, later));
        let much_later = start + STANDS + Duration::from_secs(1);
        assert!(!pins.stands("a.example", A, much_later));
        assert!(pins.stands("a.example", B, much_later));
    }

    #[test]
    fn what_is_held_is_bounded() {
        let start = Instant::now();
        let mut pins = Pins::default();
        for number in 0..2_000_u32 {
            let now = start + Duration::from_millis(number.into());
            pins.pin(&format!("{number}.example"), vec![A], Duration::from_secs(5), now);
            pins.pin("a.example", vec![number.into()], Duration::from_secs(5), now);
        }
        assert_eq!(pins.names.len(), NAMES_MAX);
        assert!(pins.names["a.example"].earlier.len() <= EARLIER_MAX);
        assert!(pins.names.contains_key("1999.example") && !pins.names.contains_key("0.example"));
    }
}
