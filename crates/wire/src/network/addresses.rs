//! Addresses that are closed regardless of the egress rules.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};

/// Networks that no egress rule opens, with the reason. They lead to this machine, to its
/// neighbours, or nowhere.
pub const CLOSED: [(Ipv4Addr, u8, &str); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "private"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "metadata"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(192, 175, 48, 0), 24, "reserved"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "private"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// The reason why an address is closed regardless of the rules. [`Guard::closed`] also knows the
/// addresses of this machine.
#[must_use]
pub fn closed(address: Ipv4Addr) -> Option<&'static str> {
    let it = IpAddr::V4(address);
    CLOSED.iter().find(|(net, bits, _)| within(it, IpAddr::V4(*net), *bits)).map(|found| found.2)
}

/// Which addresses are closed on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// The addresses of this machine, which are closed.
    pub host: Vec<Ipv4Addr>,
    /// Networks that the operator has opened although they belong to [`CLOSED`] or to this machine.
    pub opened: Vec<(Ipv4Addr, u8)>,
}

impl Guard {
    /// The reason why an address is closed; `None` means that the rules decide.
    #[must_use]
    pub fn closed(&self, address: Ipv4Addr) -> Option<&'static str> {
        let it = IpAddr::V4(address);
        if self.opened.iter().any(|(net, bits)| within(it, IpAddr::V4(*net), *bits)) {
            return None;
        }
        if self.host.contains(&address) { Some("host") } else { closed(address) }
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(it) => u128::from(it.to_bits()) << 96,
        IpAddr::V6(it) => it.to_bits(),
    }
}

pub(super) fn mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

pub(super) fn within(it: IpAddr, net: IpAddr, bits: u8) -> bool {
    it.is_ipv4() == net.is_ipv4() && (bits_of(it) ^ bits_of(net)) & mask(bits) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ways_to_this_machine_and_its_neighbours_are_closed() {
        for (address, reason) in [
            ([10, 1, 2, 3], Some("private")),
            ([127, 0, 0, 1], Some("loopback")),
            ([169, 254, 169, 254], Some("link-local")),
            ([0, 0, 0, 0], Some("this network")),
            ([172, 31, 255, 255], Some("private")),
            ([172, 32, 0, 0], None),
            ([192, 168, 1, 1], Some("private")),
            ([255, 255, 255, 255], Some("reserved")),
            ([239, 1, 1, 1], Some("multicast")),
            ([8, 8, 8, 8], None),
        ] {
            assert_eq!(closed(address.into()), reason, "{address:?}");
        }
        let guard =
            Guard { host: vec![[8, 8, 4, 4].into()], opened: vec![([10, 1, 0, 0].into(), 16)] };
        assert_eq!(guard.closed([8, 8, 4, 4].into()), Some("host"));
        assert_eq!(guard.closed([10, 1, 9, 9].into()), None);
        assert_eq!(guard.closed([10, 2, 9, 9].into()), Some("private"));
    }
}
