//! The part of a policy that the kernel's packet filter enforces: rules on addresses. Pure.

use isolet_wire::network::{Policy, Rule, RuleTarget};
use std::net::{IpAddr, Ipv4Addr};

/// How much of a policy the packet filter enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyMode {
    /// Nothing is allowed: the packet filter drops everything.
    Closed,
    /// Everything is allowed but addresses that are always closed.
    Open,
    /// Only [`allowed_ranges`] are allowed.
    Addresses,
    /// [`allowed_ranges`] are allowed; the egress proxy decides about other TCP connections, which
    /// are redirected to it.
    Names,
}

pub(super) fn policy_mode(policy: &Policy) -> PolicyMode {
    if policy.allow.is_empty() {
        PolicyMode::Closed
    } else if *policy == Policy::open() {
        PolicyMode::Open
    } else if policy.by_address() {
        PolicyMode::Addresses
    } else {
        PolicyMode::Names
    }
}

/// A range of addresses, and the ports that are allowed there. Ranges include both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowedRange {
    pub(crate) first: Ipv4Addr,
    pub(crate) last: Ipv4Addr,
    /// First and last port of each range, sorted and without overlap.
    pub(crate) ports: Vec<(u16, u16)>,
}

impl AllowedRange {
    /// Whether all ports are allowed, and with them packets without ports.
    pub(crate) fn all_ports(&self) -> bool {
        self.ports == [(0, u16::MAX)]
    }
}

/// The addresses and ports that a rule applies to. Both ends are included.
#[derive(Clone, Copy)]
struct Span {
    first: u64,
    last: u64,
    ports: (u32, u32),
}

impl Span {
    /// `None` for a rule on names.
    fn of(rule: &Rule) -> Option<Self> {
        let ports = ports(rule);
        match rule.place {
            RuleTarget::Any => Some(Self { first: 0, last: u64::from(u32::MAX), ports }),
            RuleTarget::Network { address: IpAddr::V4(address), bits } => {
                let first = u64::from(address.to_bits());
                let last = first + (1_u64 << (32 - u32::from(bits.min(32)))) - 1;
                Some(Self { first, last, ports })
            }
            _ => None,
        }
    }
}

fn ports(rule: &Rule) -> (u32, u32) {
    rule.port.map_or((0, 65_535), |port| (port.into(), port.into()))
}

/// The ranges that rules on addresses allow, in order and without overlap.
pub(super) fn allowed_ranges(policy: &Policy) -> Vec<AllowedRange> {
    let denies_names = policy.deny.iter().any(|rule| rule.place.is_name());
    // When a rule denies a name, `*` allows only connections whose name the egress proxy can check.
    let allow = policy.allow.iter().filter(|rule| !(denies_names && rule.place == RuleTarget::Any));
    let allow: Vec<_> = allow.filter_map(Span::of).collect();
    let deny: Vec<_> = policy.deny.iter().filter_map(Span::of).collect();
    let spans = allow.iter().chain(&deny);
    let mut bounds: Vec<u64> = spans.flat_map(|span| [span.first, span.last + 1]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut found: Vec<AllowedRange> = Vec::new();
    for pair in bounds.windows(2) {
        let first = pair[0];
        let last = pair[1] - 1;
        let ports_of = |spans: &[Span]| -> Vec<(u32, u32)> {
            let covering = spans.iter().filter(|span| span.first <= first && last <= span.last);
            covering.map(|span| span.ports).collect()
        };
        let ports = without(ports_of(&allow), &ports_of(&deny));
        if ports.is_empty() {
            continue;
        }
        let first = Ipv4Addr::from_bits(first as u32);
        let last = Ipv4Addr::from_bits(last as u32);
        match found.last_mut() {
            Some(before)
                if before.ports == ports
                    && u64::from(before.last.to_bits()) + 1 == u64::from(first.to_bits()) =>
            {
                before.last = last;
            }
            _ => found.push(AllowedRange { first, last, ports }),
        }
    }
    found
}

/// Removes ranges of ports from others. The result is sorted, and ranges that touch are joined.
fn without(mut ports: Vec<(u32, u32)>, removed: &[(u32, u32)]) -> Vec<(u16, u16)> {
    for (from, to) in removed {
        let cut = |(first, last): (u32, u32)| {
            let left = (first < *from).then(|| (first, last.min(from.saturating_sub(1))));
            let right = (last > *to).then(|| (first.max(to + 1), last));
            left.into_iter().chain(right)
        };
        ports = ports.into_iter().flat_map(cut).collect();
    }
    ports.sort_unstable();
    let mut joined: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ports {
        let first = first as u16;
        let last = last as u16;
        match joined.last_mut() {
            Some(before) if u32::from(first) <= u32::from(before.1) + 1 => {
                before.1 = before.1.max(last);
            }
            _ => joined.push((first, last)),
        }
    }
    joined
}

#[cfg(test)]
#[path = "policy_test.rs"]
mod tests;
