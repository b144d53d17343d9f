//! Which addresses the server connects to on behalf of a tenant.
//!
//! A tenant chooses the URL, and the server may reach networks that the tenant cannot. So only public
//! addresses are allowed, and those that the operator has allowed. The rule is about the address that is
//! connected to, whatever the name resolved to before.

use ipnet::IpNet;
use isolet_wire::network::closed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The addresses that are allowed in addition to public ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Networks of the operator.
    pub allowed: Vec<IpNet>,
}

impl AddressRules {
    /// The reason why an address is closed; `None`: it is allowed.
    #[must_use]
    pub fn closed(&self, address: IpAddr) -> Option<&'static str> {
        let address = address.to_canonical();
        if self.allows(address) {
            return None;
        }
        match address {
            IpAddr::V4(address) => closed(address),
            IpAddr::V6(address) => closed_v6(address),
        }
    }

    /// Like [`AddressRules::closed`], and closed are also the addresses of this machine. Only the kernel
    /// knows them all: it names the address itself as the source of packets to it. Sends nothing.
    pub(crate) fn closed_here(&self, address: SocketAddr) -> Option<&'static str> {
        let ip = address.ip().to_canonical();
        self.closed(ip).or_else(|| (!self.allows(ip) && is_own(address)).then_some("host"))
    }

    fn allows(&self, address: IpAddr) -> bool {
        self.allowed.iter().any(|network| network.contains(&address))
    }
}

fn is_own(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address.ip())
}

/// IPv6 networks below `2000::/3` that lead nowhere or to IPv4 addresses, with the reason. Everything
/// outside of `2000::/3` is closed.
const CLOSED_V6: [(Ipv6Addr, u32, &str); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "reserved"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "reserved"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "reserved"),
];
/// The network of addresses that a NAT64 gateway translates; the last 32 bits are the IPv4 address.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

fn closed_v6(address: Ipv6Addr) -> Option<&'static str> {
    let within = |network: Ipv6Addr, bits: u32| {
        (address.to_bits() ^ network.to_bits()).leading_zeros() >= bits
    };
    if within(NAT64, 96) {
        let [.., a, b, c, d] = address.octets();
        return closed(Ipv4Addr::new(a, b, c, d));
    }
    if within(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3) {
        let found = CLOSED_V6.iter().find(|(network, bits, _)| within(*network, *bits));
        return found.map(|found| found.2);
    }
    Some(match address.segments()[0] {
        _ if address.is_loopback() => "loopback",
        0xfc00..=0xfdff => "private",
        0xfe80..=0xfebf => "link-local",
        0xff00.. => "multicast",
        _ => "reserved",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_public_addresses_are_allowed() {
        let rules = AddressRules::default();
        for (address, reason) in [
            ("127.0.0.1", Some("loopback")),
            ("10.0.0.1", Some("private")),
            ("172.16.0.1", Some("private")),
            ("192.168.1.1", Some("private")),
            ("100.64.0.1", Some("private")),
            ("169.254.169.254", Some("link-local")),
            ("168.63.129.16", Some("metadata")),
            ("224.0.0.1", Some("multicast")),
            ("0.0.0.0", Some("this network")),
            ("255.255.255.255", Some("reserved")),
            ("::1", Some("loopback")),
            ("::", Some("reserved")),
            ("::127.0.0.1", Some("reserved")),
            ("::ffff:127.0.0.1", Some("loopback")),
            ("::ffff:169.254.169.254", Some("link-local")),
            ("64:ff9b::10.0.0.1", Some("private")),
            ("64:ff9b::8.8.8.8", None),
            ("64:ff9b:1::8.8.8.8", Some("reserved")),
            ("fd00:ec2::254", Some("private")),
            ("fe80::1", Some("link-local")),
            ("fec0::1", Some("reserved")),
            ("ff02::1", Some("multicast")),
            ("2001::1", Some("reserved")),
            ("2001:db8::1", Some("reserved")),
            ("2002:7f00:1::", Some("reserved")),
            ("2606:4700::1111", None),
            ("8.8.8.8", None),
            ("::ffff:8.8.8.8", None),
        ] {
            assert_eq!(rules.closed(ip(address)), reason, "{address}");
        }
    }

    #[test]
    fn an_operator_allows_networks() {
        let allowed = vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let rules = AddressRules { allowed };
        assert_eq!(rules.closed(ip("10.1.2.3")), None);
        assert_eq!(rules.closed(ip("::ffff:10.1.2.3")), None);
        assert_eq!(rules.closed(ip("fd00:ec2::254")), None);
        assert_eq!(rules.closed(ip("10.2.2.3")), Some("private"));
    }

    #[test]
    fn the_addresses_of_this_machine_are_known() {
        let own = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(is_own(own));
        let rules = AddressRules { allowed: vec!["127.0.0.0/8".parse().unwrap()] };
        assert_eq!(rules.closed_here(own), None);
    }
}
