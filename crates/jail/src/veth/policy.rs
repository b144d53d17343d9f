//! Who has which address, and what a policy means for addresses alone. Pure.

use isolet_wire::network::{Place, Policy, Rule};
use std::net::{IpAddr, Ipv4Addr};

/// The addresses of all sandboxes, and of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range(Ipv4Addr);

impl Range {
    /// That which this address is the first of; bits that cannot be are left out.
    pub(crate) fn new(first: Ipv4Addr) -> Self {
        Self(Ipv4Addr::from_bits(first.to_bits() & 0xffff_0000))
    }

    /// As a network.
    pub(crate) fn net(self) -> (Ipv4Addr, u8) {
        (self.0, 16)
    }

    /// What sandboxes see of us: the resolver.
    pub(crate) fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0.to_bits() + 1)
    }

    /// The address of a link inside.
    pub(crate) fn address(self, id: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0.to_bits() + id)
    }

    /// The link with this address.
    pub(crate) fn id(self, address: Ipv4Addr) -> Option<u32> {
        address.to_bits().checked_sub(self.0.to_bits()).filter(|id| (FIRST..=LAST).contains(id))
    }
}

/// Where connections go that names decide on.
pub(crate) const CARRIER_PORT: u16 = 15_001;
/// The host's end of the way out.
pub(crate) const HOST_END: &str = "isolet0";
/// Our end of it.
pub(crate) const UPLINK: &str = "up0";
/// A sandbox's end of its link.
pub(crate) const END: &str = "eth0";
/// Links that can be at once; the first addresses are not given away.
pub(crate) const FIRST: u32 = 256;
pub(crate) const LAST: u32 = 65_534;

/// The name of our end of a link.
pub(crate) fn name(id: u32) -> String {
    format!("l{id}")
}

/// How much of a policy the kernel judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing leaves.
    Closed,
    /// Everything that is not closed leaves.
    Open,
    /// What [`allowed`] says leaves, nothing else.
    Addresses,
    /// The same; and TCP that it does not allow is carried by the edge, if it may.
    Names,
}

/// How a policy is kept.
pub(crate) fn mode(policy: &Policy) -> Mode {
    if policy.allow.is_empty() {
        Mode::Closed
    } else if *policy == Policy::open() {
        Mode::Open
    } else if policy.by_address() {
        Mode::Addresses
    } else {
        Mode::Names
    }
}

/// A range of addresses and what is allowed there, each end within.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) first: Ipv4Addr,
    pub(crate) last: Ipv4Addr,
    /// Ranges of ports, sorted, without overlap.
    pub(crate) ports: Vec<(u16, u16)>,
}

impl Allowed {
    /// Also what has no ports.
    pub(crate) fn all(&self) -> bool {
        self.ports == [(0, u16::MAX)]
    }
}

/// Addresses and ports that a rule holds for, each from first to last.
type Span = ((u64, u64), (u32, u32));

/// First and last address of a rule for addresses; `None` for others.
fn span(rule: &Rule) -> Option<(u64, u64)> {
    match rule.place {
        Place::Any => Some((0, u64::from(u32::MAX))),
        Place::Net { address: IpAddr::V4(address), bits } => {
            let first = u64::from(address.to_bits());
            Some((first, first + (1_u64 << (32 - u32::from(bits.min(32)))) - 1))
        }
        _ => None,
    }
}

fn ports(rule: &Rule) -> (u32, u32) {
    rule.port.map_or((0, 65_535), |port| (port.into(), port.into()))
}

/// Ranges of addresses that rules for addresses allow, without overlap and in order.
pub(crate) fn allowed(policy: &Policy) -> Vec<Allowed> {
    let named = policy.deny.iter().any(|rule| rule.place.is_name());
    // Who denies names and allows everything means what can be judged by name.
    let allow = policy.allow.iter().filter(|rule| !(named && rule.place == Place::Any));
    let allow: Vec<_> = allow.filter_map(|rule| Some((span(rule)?, ports(rule)))).collect();
    let deny: Vec<_> =
        policy.deny.iter().filter_map(|rule| Some((span(rule)?, ports(rule)))).collect();
    let mut edges: Vec<u64> =
        allow.iter().chain(&deny).flat_map(|((first, last), _)| [*first, last + 1]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut found: Vec<Allowed> = Vec::new();
    for pair in edges.windows(2) {
        let (first, last) = (pair[0], pair[1] - 1);
        let here = |rules: &[Span]| -> Vec<(u32, u32)> {
            let holds = rules.iter().filter(|((from, to), _)| *from <= first && last <= *to);
            holds.map(|(_, ports)| *ports).collect()
        };
        let ports = without(here(&allow), &here(&deny));
        if ports.is_empty() {
            continue;
        }
        let (first, last) = (Ipv4Addr::from_bits(first as u32), Ipv4Addr::from_bits(last as u32));
        match found.last_mut() {
            Some(before)
                if before.ports == ports
                    && u64::from(before.last.to_bits()) + 1 == u64::from(first.to_bits()) =>
            {
                before.last = last;
            }
            _ => found.push(Allowed { first, last, ports }),
        }
    }
    found
}

/// Ranges of ports without others; sorted, joined where they touch.
fn without(mut some: Vec<(u32, u32)>, others: &[(u32, u32)]) -> Vec<(u16, u16)> {
    for (from, to) in others {
        let cut = |(first, last): (u32, u32)| {
            let left = (first < *from).then(|| (first, last.min(from.saturating_sub(1))));
            let right = (last > *to).then(|| (first.max(to + 1), last));
            left.into_iter().chain(right)
        };
        some = some.into_iter().flat_map(cut).collect();
    }
    some.sort_unstable();
    let mut joined: Vec<(u16, u16)> = Vec::new();
    for (first, last) in some {
        let (first, last) = (first as u16, last as u16);
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
