//! Ids, addresses and interface names of veth pairs. Pure.

use std::net::Ipv4Addr;

/// The port of the egress proxy on the gateway, to which connections are redirected when names
/// decide about them.
pub(crate) const PROXY_PORT: u16 = 15_001;
/// The host's end of the uplink, the pair between host and gateway.
pub(crate) const HOST_UPLINK: &str = "isolet0";
/// The gateway's end of the uplink.
pub(crate) const GATEWAY_UPLINK: &str = "up0";
/// The name of a sandbox's end of its pair.
pub(crate) const SANDBOX_INTERFACE: &str = "eth0";
/// Ids of veth pairs. The first addresses of the range are not assigned to sandboxes.
pub(crate) const FIRST_ID: u32 = 256;
pub(crate) const LAST_ID: u32 = 65_534;

/// The name of the gateway's end of a sandbox's pair.
pub(crate) fn interface_name(id: u32) -> String {
    format!("l{id}")
}

/// The addresses of all sandboxes and of the gateway: a `/16` network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressRange(Ipv4Addr);

impl AddressRange {
    /// The range that begins with `first`, whose last 16 bits are ignored.
    pub(crate) fn new(first: Ipv4Addr) -> Self {
        Self(Ipv4Addr::from_bits(first.to_bits() & 0xffff_0000))
    }

    /// The address and prefix length of the network.
    pub(crate) fn network(self) -> (Ipv4Addr, u8) {
        (self.0, 16)
    }

    /// The gateway's own address, where the egress proxy listens.
    pub(crate) fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0.to_bits() + 1)
    }

    /// The address of a sandbox, by the id of its pair.
    pub(crate) fn address(self, id: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0.to_bits() + id)
    }

    /// The id of the pair with this address.
    pub(crate) fn id(self, address: Ipv4Addr) -> Option<u32> {
        let id = address.to_bits().checked_sub(self.0.to_bits());
        id.filter(|id| (FIRST_ID..=LAST_ID).contains(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_an_address_of_its_own_within_the_range() {
        let range = AddressRange::new(Ipv4Addr::new(10, 231, 7, 7));
        assert_eq!(range.network(), (Ipv4Addr::new(10, 231, 0, 0), 16));
        assert_eq!(range.gateway(), Ipv4Addr::new(10, 231, 0, 1));
        assert_eq!(range.address(FIRST_ID), Ipv4Addr::new(10, 231, 1, 0));
        assert_eq!(range.address(LAST_ID), Ipv4Addr::new(10, 231, 255, 254));
        assert_eq!(range.id(range.address(LAST_ID)), Some(LAST_ID));
        assert_eq!(range.id(range.gateway()), None);
        assert_eq!(range.id(Ipv4Addr::new(10, 232, 1, 0)), None);
        assert!(interface_name(LAST_ID).len() < 16);
    }
}
