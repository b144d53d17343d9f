//! Denials that wait to be sent to the server. Equal denials within a short time are sent once,
//! with their count.

use super::netlink::nflog::DeniedPacket;
use isolet_wire::network::{Guard, NetworkDenial, NetworkDestination, Policy, Verdict};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// How long denials are collected before they are sent.
const COLLECT_TIME: Duration = Duration::from_millis(200);
/// The most different denials that wait. Further ones are counted, but not sent.
const DIFFERENT_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct PendingDenials {
    waiting: BTreeMap<DenialKey, u32>,
    since: Option<Instant>,
}

/// Denials with the same key are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DenialKey {
    veth: u32,
    address: Ipv4Addr,
    port: Option<u16>,
    protocol: String,
    rule: String,
}

fn protocol_name(number: u8) -> String {
    match number {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        other => other.to_string(),
    }
}

/// The rule that denied a packet: one of the policy, or the reason why the address is always
/// closed.
pub(super) fn denying_rule(packet: &DeniedPacket, policy: &Policy, guard: &Guard) -> String {
    if packet.over_limit {
        return "limit".to_owned();
    }
    if let Some(reason) = guard.closed(packet.address) {
        return reason.to_owned();
    }
    // A packet without a port matches rules without one.
    let destination = NetworkDestination {
        name: None,
        address: Some(packet.address),
        port: Some(packet.port.unwrap_or(0)),
    };
    match policy.decide(&destination) {
        Verdict::Refused(Some(rule)) => rule.to_string(),
        _ => "default".to_owned(),
    }
}

impl PendingDenials {
    /// Adds a packet that the sandbox sent over the pair `veth`.
    pub(super) fn add(&mut self, veth: u32, packet: &DeniedPacket, rule: String) {
        let key = DenialKey {
            veth,
            address: packet.address,
            port: packet.port,
            protocol: protocol_name(packet.protocol),
            rule,
        };
        if self.waiting.len() < DIFFERENT_MAX || self.waiting.contains_key(&key) {
            *self.waiting.entry(key).or_default() += 1;
            self.since.get_or_insert_with(Instant::now);
        }
    }

    /// The time until the denials are due to be sent; `None` when there are none.
    pub(super) fn due_in(&self) -> Option<Duration> {
        Some(COLLECT_TIME.saturating_sub(self.since?.elapsed()))
    }

    /// Takes all denials, each with the id of its pair.
    pub(super) fn take(&mut self) -> Vec<(u32, NetworkDenial)> {
        self.since = None;
        let all = std::mem::take(&mut self.waiting).into_iter();
        all.map(|(key, times)| {
            let DenialKey { veth, address, port, protocol, rule } = key;
            (veth, NetworkDenial { host: address.to_string(), port, protocol, rule, times })
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::network::Rule;

    fn packet(address: [u8; 4], port: u16) -> DeniedPacket {
        DeniedPacket {
            interface: 3,
            address: address.into(),
            port: Some(port),
            protocol: 6,
            over_limit: false,
        }
    }

    #[test]
    fn equal_denials_are_sent_once_with_their_number() {
        let mut denials = PendingDenials::default();
        for _ in 0..3 {
            denials.add(300, &packet([1, 2, 3, 4], 80), "default".into());
        }
        denials.add(300, &packet([1, 2, 3, 4], 81), "default".into());
        assert!(denials.due_in().is_some());
        let all = denials.take();
        assert_eq!(all.iter().map(|(_, refused)| refused.times).collect::<Vec<_>>(), [3, 1]);
        assert!(denials.due_in().is_none() && denials.take().is_empty());
    }

    #[test]
    fn a_denial_names_the_rule_that_refused_it() {
        let parse = |text: &str| Rule::parse(text).expect("a rule");
        let policy = Policy { allow: vec![parse("1.0.0.0/8")], deny: vec![parse("1.2.3.4:80")] };
        let guard = Guard { host: vec![[9, 9, 9, 9].into()], opened: Vec::new() };
        for (to, port, expected) in [
            ([1, 2, 3, 4], 80, "1.2.3.4:80"),
            ([2, 2, 2, 2], 80, "default"),
            ([9, 9, 9, 9], 80, "host"),
            ([10, 0, 0, 1], 80, "private"),
        ] {
            assert_eq!(denying_rule(&packet(to, port), &policy, &guard), expected);
        }
        let over_limit = DeniedPacket { over_limit: true, ..packet([1, 1, 1, 1], 80) };
        assert_eq!(denying_rule(&over_limit, &policy, &guard), "limit");
    }
}
