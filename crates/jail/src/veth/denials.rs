//! Refusals on their way to the server: equal ones that come close together are told once.

use isolet_wire::network::{Guard, Policy, Refused, To, Verdict};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::netlink::nflog::DeniedPacket;

/// How long equal ones are gathered.
pub(crate) const GATHER: Duration = Duration::from_millis(200);
/// Different ones at once; more are counted, and not told.
const DIFFERENT_MAX: usize = 1024;

/// What is gathered.
#[derive(Debug, Default)]
pub(crate) struct PendingDenials {
    waiting: BTreeMap<(u32, Key), u32>,
    since: Option<Instant>,
}

type Key = (Ipv4Addr, Option<u16>, String, String);

/// How a protocol is called.
fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        other => other.to_string(),
    }
}

/// Which rule has refused a packet.
pub(crate) fn rule(packet: &DeniedPacket, policy: &Policy, guard: &Guard) -> String {
    if packet.limit {
        return "limit".to_owned();
    }
    if let Some(why) = guard.closed(packet.to) {
        return why.to_owned();
    }
    // What has no port is held to rules without one.
    let to = To { name: None, address: Some(packet.to), port: Some(packet.port.unwrap_or(0)) };
    match policy.judge(&to) {
        Verdict::Refused(Some(rule)) => rule.to_string(),
        _ => "default".to_owned(),
    }
}

impl PendingDenials {
    /// One more.
    pub(crate) fn add(&mut self, id: u32, packet: &DeniedPacket, rule: String) {
        let key = (id, (packet.to, packet.port, protocol(packet.protocol), rule));
        if self.waiting.len() < DIFFERENT_MAX || self.waiting.contains_key(&key) {
            *self.waiting.entry(key).or_default() += 1;
            self.since.get_or_insert_with(Instant::now);
        }
    }

    /// How long until they are told.
    pub(crate) fn left(&self) -> Option<Duration> {
        Some(GATHER.saturating_sub(self.since?.elapsed()))
    }

    /// All that wait, each with its link.
    pub(crate) fn take(&mut self) -> Vec<(u32, Refused)> {
        self.since = None;
        let all = std::mem::take(&mut self.waiting).into_iter();
        all.map(|((id, (to, port, protocol, rule)), times)| {
            (id, Refused { host: to.to_string(), port, protocol, rule, times })
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::network::Rule;

    fn packet(to: [u8; 4], port: u16) -> DeniedPacket {
        DeniedPacket { index: 3, to: to.into(), port: Some(port), protocol: 6, limit: false }
    }

    #[test]
    fn equal_refusals_are_told_once_with_their_number() {
        let mut told = PendingDenials::default();
        for _ in 0..3 {
            told.add(300, &packet([1, 2, 3, 4], 80), "default".into());
        }
        told.add(300, &packet([1, 2, 3, 4], 81), "default".into());
        assert!(told.left().is_some());
        let all = told.take();
        assert_eq!(all.iter().map(|(_, refused)| refused.times).collect::<Vec<_>>(), [3, 1]);
        assert!(told.left().is_none() && told.take().is_empty());
    }

    #[test]
    fn a_refusal_names_what_refused_it() {
        let parse = |text: &str| Rule::parse(text).expect("a rule");
        let policy = Policy { allow: vec![parse("1.0.0.0/8")], deny: vec![parse("1.2.3.4:80")] };
        let guard = Guard { host: vec![[9, 9, 9, 9].into()], opened: Vec::new() };
        for (to, port, expected) in [
            ([1, 2, 3, 4], 80, "1.2.3.4:80"),
            ([2, 2, 2, 2], 80, "default"),
            ([9, 9, 9, 9], 80, "host"),
            ([10, 0, 0, 1], 80, "private"),
        ] {
            assert_eq!(rule(&packet(to, port), &policy, &guard), expected);
        }
        let crowded = DeniedPacket { limit: true, ..packet([1, 1, 1, 1], 80) };
        assert_eq!(rule(&crowded, &policy, &guard), "limit");
    }
}
