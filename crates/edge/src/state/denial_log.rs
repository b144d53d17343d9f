//! Refusals until they are told: equal ones are counted, not repeated.

use isolet_wire::network::{EdgeTell, Refused};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Mutex;

/// Different refusals of one link that wait to be told; further ones are not told. A tenth of a
/// second is all that they wait.
const WAITING_MAX: usize = 256;

/// What was refused, without how often.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct What {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) protocol: &'static str,
    pub(crate) rule: String,
}

/// All that wait.
#[derive(Debug, Default)]
pub(crate) struct Tells {
    waiting: Mutex<HashMap<Ipv4Addr, HashMap<What, u32>>>,
}

impl Tells {
    /// Notes a refusal.
    pub(crate) fn note(&self, link: Ipv4Addr, what: What) {
        let mut waiting = self.waiting.lock().expect("nobody panics with it");
        let of_link = waiting.entry(link).or_default();
        if of_link.len() < WAITING_MAX || of_link.contains_key(&what) {
            let times = of_link.entry(what).or_insert(0);
            *times = times.saturating_add(1);
        }
    }

    /// Takes out what waits.
    pub(crate) fn take(&self) -> Vec<EdgeTell> {
        let waiting = std::mem::take(&mut *self.waiting.lock().expect("nobody panics with it"));
        let told = waiting.into_iter().flat_map(|(address, of_link)| {
            of_link.into_iter().map(move |(what, times)| {
                let What { host, port, protocol, rule } = what;
                let protocol = protocol.to_owned();
                let refused = Refused { host, port, protocol, rule, times };
                EdgeTell::Refused { address, refused }
            })
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_refusals_are_counted_and_their_number_is_bounded() {
        let tells = Tells::default();
        let link = Ipv4Addr::new(10, 231, 0, 2);
        let what = |host: String| What { host, port: Some(1), protocol: "tcp", rule: "x".into() };
        for _ in 0..3 {
            tells.note(link, what("a".into()));
        }
        let told = tells.take();
        assert!(matches!(&told[..], [EdgeTell::Refused { refused, .. }] if refused.times == 3));
        for number in 0..10_000 {
            tells.note(link, what(number.to_string()));
        }
        assert_eq!(tells.take().len(), WAITING_MAX);
        assert!(tells.take().is_empty());
    }
}
