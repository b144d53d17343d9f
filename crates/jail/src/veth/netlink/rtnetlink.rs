//! Interfaces, addresses and routes of one network namespace (`rtnetlink`).

use super::{
    CREATE, DUMP, EXCLUSIVE, Message, NetlinkSocket, Request, attribute, messages, u32_of,
};
use isolet_wire::veth::Counters;
use rustix::io::Errno;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

const AF_INET: u8 = libc::AF_INET as u8;
const IFF_UP: u32 = libc::IFF_UP as u32;
const IFF_NOARP: u32 = libc::IFF_NOARP as u32;
/// The attribute of a veth pair that describes its other end (`linux/veth.h`).
const VETH_INFO_PEER: u16 = 1;

/// The sizes of `struct ifinfomsg`, `struct ifaddrmsg` and `struct rtmsg`.
const IFINFO_BYTES: usize = 16;
const IFADDR_BYTES: usize = 8;
const RTMSG_BYTES: usize = 12;

/// Both ends of every pair have the same hardware address: no end has to resolve the other's, and
/// no sandbox can claim that of another.
const HARDWARE_ADDRESS: [u8; 6] = [0x02, 0x49, 0x53, 0x4c, 0x54, 0x01];

/// What happened to the interfaces and addresses of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterfaceEvent {
    /// The interface with this index was removed.
    Removed(u32),
    /// An interface was created or changed.
    Changed,
    /// An address was added or removed.
    Address,
    /// The kernel dropped events: everything may have changed.
    Overflow,
}

/// Changes the interfaces of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Rtnetlink(NetlinkSocket);

/// `struct ifinfomsg` that sets `flags`.
fn ifinfo(index: u32, flags: u32) -> [u8; IFINFO_BYTES] {
    let mut fixed = [0; IFINFO_BYTES];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&flags.to_ne_bytes());
    fixed
}

/// `struct rtmsg` of a route to a network with this prefix length, in the main table.
fn rtmsg(prefix_length: u8) -> [u8; RTMSG_BYTES] {
    let source_length = 0;
    let type_of_service = 0;
    let flags = [0; 4];
    let mut fixed = [0; RTMSG_BYTES];
    fixed[..8].copy_from_slice(&[
        AF_INET,
        prefix_length,
        source_length,
        type_of_service,
        libc::RT_TABLE_MAIN,
        libc::RTPROT_BOOT,
        libc::RT_SCOPE_LINK,
        libc::RTN_UNICAST,
    ]);
    fixed[8..].copy_from_slice(&flags);
    fixed
}

/// A request about the interface `name`.
fn by_name(kind: u16, name: &str) -> Request {
    Request::new(kind, 0, &ifinfo(0, 0)).text(libc::IFLA_IFNAME, name)
}

/// The other end of a pair.
pub(crate) struct Peer<'a> {
    pub(crate) netns: BorrowedFd<'a>,
    pub(crate) name: &'a str,
}

impl Rtnetlink {
    pub(crate) fn open() -> Result<Self, Errno> {
        NetlinkSocket::open(None, 0).map(Self)
    }

    /// Creates a veth pair: one end here, under `name`, the other described by `peer`. This end
    /// is up; the other one cannot be before both exist. An alias is set by a second request: the
    /// kernel ignores one in the request that creates the pair.
    pub(crate) fn create_pair(
        &mut self,
        name: &str,
        alias: Option<&str>,
        peer: Peer<'_>,
    ) -> Result<(), Errno> {
        let fixed = ifinfo(0, IFF_UP | IFF_NOARP);
        let peer_fixed = ifinfo(0, IFF_NOARP);
        let peer_netns = (peer.netns.as_raw_fd() as u32).to_ne_bytes();
        let request = Request::new(libc::RTM_NEWLINK, CREATE | EXCLUSIVE, &fixed)
            .text(libc::IFLA_IFNAME, name)
            .put(libc::IFLA_ADDRESS, &HARDWARE_ADDRESS)
            .nest(libc::IFLA_LINKINFO, &[], |info| {
                info.text(libc::IFLA_INFO_KIND, "veth").nest(libc::IFLA_INFO_DATA, &[], |data| {
                    data.nest(VETH_INFO_PEER, &peer_fixed, |end| {
                        end.text(libc::IFLA_IFNAME, peer.name)
                            .put(libc::IFLA_ADDRESS, &HARDWARE_ADDRESS)
                            .put(libc::IFLA_NET_NS_FD, &peer_netns)
                    })
                })
            });
        self.0.request(request)?;
        let Some(alias) = alias else { return Ok(()) };
        self.0.request(by_name(libc::RTM_NEWLINK, name).text(libc::IFLA_IFALIAS, alias))
    }

    /// Brings an interface up.
    pub(crate) fn set_up(&mut self, name: &str) -> Result<(), Errno> {
        let index = self.index_of(name)?;
        self.0.request(Request::new(libc::RTM_NEWLINK, 0, &ifinfo(index, IFF_UP)))
    }

    /// Moves an interface into another namespace. It loses its addresses and routes.
    pub(crate) fn move_to_netns(&mut self, name: &str, to: BorrowedFd<'_>) -> Result<(), Errno> {
        let index = self.index_of(name)?;
        let netns = (to.as_raw_fd() as u32).to_ne_bytes();
        let request = Request::new(libc::RTM_NEWLINK, 0, &ifinfo(index, 0));
        self.0.request(request.put(libc::IFLA_NET_NS_FD, &netns))
    }

    /// Removes an interface, with the other end of its pair. One that does not exist is no error.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Errno> {
        match self.0.request(by_name(libc::RTM_DELLINK, name)) {
            Err(Errno::NODEV) => Ok(()),
            removed => removed,
        }
    }

    /// Renames an interface. Older kernels rename only one that is down, which removes its routes.
    pub(crate) fn rename(&mut self, index: u32, name: &str) -> Result<(), Errno> {
        let rename =
            || Request::new(libc::RTM_NEWLINK, 0, &ifinfo(index, 0)).text(libc::IFLA_IFNAME, name);
        match self.0.request(rename()) {
            Err(Errno::BUSY) => {}
            done => return done,
        }
        let mut down = ifinfo(index, 0);
        down[12..16].copy_from_slice(&IFF_UP.to_ne_bytes());
        self.0.request(Request::new(libc::RTM_NEWLINK, 0, &down))?;
        self.0.request(rename())?;
        self.0.request(Request::new(libc::RTM_NEWLINK, 0, &ifinfo(index, IFF_UP)))
    }

    /// The index of an interface.
    pub(crate) fn index_of(&self, name: &str) -> Result<u32, Errno> {
        rustix::net::netdevice::name_to_index(&self.0, name)
    }

    /// The name of an interface.
    pub(crate) fn name_of(&self, index: u32) -> Result<String, Errno> {
        rustix::net::netdevice::index_to_name(&self.0, index)
    }

    /// The alias of an interface: a text that its creator set.
    pub(crate) fn alias(&mut self, name: &str) -> Result<Option<String>, Errno> {
        let mut found = None;
        self.0.query(by_name(libc::RTM_GETLINK, name), |kind, body| {
            if kind == libc::RTM_NEWLINK {
                let alias = attribute(body, IFINFO_BYTES, libc::IFLA_IFALIAS)
                    .and_then(|text| text.strip_suffix(&[0]));
                found = alias.map(|text| String::from_utf8_lossy(text).into_owned());
            }
        })?;
        Ok(found)
    }

    /// The traffic of a pair, from the other end's point of view.
    pub(crate) fn counters(&mut self, name: &str) -> Result<Counters, Errno> {
        let mut found = Counters::default();
        self.0.query(by_name(libc::RTM_GETLINK, name), |_, body| {
            let Some(stats) = attribute(body, IFINFO_BYTES, libc::IFLA_STATS64) else { return };
            // `struct rtnl_link_stats64` begins with these four numbers.
            let mut numbers = stats.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
            let mut next = || numbers.next().unwrap_or(0);
            found = Counters {
                out_packets: next(),
                back_packets: next(),
                out_bytes: next(),
                back_bytes: next(),
                refused: 0,
            };
        })?;
        Ok(found)
    }

    /// Adds an address with a prefix of 32 bits.
    pub(crate) fn add_address(&mut self, name: &str, address: Ipv4Addr) -> Result<(), Errno> {
        let mut fixed = [AF_INET, 32, 0, 0, 0, 0, 0, 0];
        fixed[4..8].copy_from_slice(&self.index_of(name)?.to_ne_bytes());
        let bytes = address.octets();
        let request = Request::new(libc::RTM_NEWADDR, CREATE, &fixed);
        self.0.request(request.put(libc::IFA_LOCAL, &bytes).put(libc::IFA_ADDRESS, &bytes))
    }

    /// Adds a route to a network (the default route for a prefix of length 0) over an interface,
    /// without a next hop.
    pub(crate) fn add_route(
        &mut self,
        network: (Ipv4Addr, u8),
        interface: &str,
    ) -> Result<(), Errno> {
        let (address, prefix_length) = network;
        let fixed = rtmsg(prefix_length);
        let index = self.index_of(interface)?.to_ne_bytes();
        let mut request = Request::new(libc::RTM_NEWROUTE, CREATE | EXCLUSIVE, &fixed);
        if prefix_length > 0 {
            request = request.put(libc::RTA_DST, &address.octets());
        }
        self.0.request(request.put(libc::RTA_OIF, &index))
    }

    /// Whether there is a route to a network that overlaps with `ours`, other than over the
    /// interface `except`. Default routes do not count.
    pub(crate) fn overlaps(&mut self, ours: (Ipv4Addr, u8), except: &str) -> Result<bool, Errno> {
        let except = self.index_of(except).unwrap_or(0);
        let mut fixed = [0; RTMSG_BYTES];
        fixed[0] = AF_INET;
        let mut found = false;
        self.0.query(Request::new(libc::RTM_GETROUTE, DUMP, &fixed), |_, body| {
            let bits = body.get(1).copied().unwrap_or(0);
            let Some(octets) = attribute(body, RTMSG_BYTES, libc::RTA_DST)
                .and_then(|it| <[u8; 4]>::try_from(it).ok())
            else {
                return;
            };
            let interface = attribute(body, RTMSG_BYTES, libc::RTA_OIF).and_then(u32_of);
            let shorter = u32::from(bits.min(ours.1));
            let mask = u32::MAX.checked_shl(32 - shorter).unwrap_or(0);
            let differs = (u32::from_be_bytes(octets) ^ ours.0.to_bits()) & mask;
            found |= bits > 0 && differs == 0 && interface != Some(except);
        })?;
        Ok(found)
    }

    /// Every IPv4 address of this namespace, sorted.
    pub(crate) fn addresses(&mut self) -> Result<Vec<Ipv4Addr>, Errno> {
        let mut all = Vec::new();
        self.0.query(
            Request::new(libc::RTM_GETADDR, DUMP, &[AF_INET, 0, 0, 0, 0, 0, 0, 0]),
            |_, body| {
                // `IFA_ADDRESS` is the other end's for a point-to-point interface.
                let local = attribute(body, IFADDR_BYTES, libc::IFA_LOCAL)
                    .or_else(|| attribute(body, IFADDR_BYTES, libc::IFA_ADDRESS));
                let bytes = local.and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
                all.extend(bytes.map(Ipv4Addr::from));
            },
        )?;
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

/// Receives events of the interfaces and addresses of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct InterfaceMonitor(NetlinkSocket);

impl InterfaceMonitor {
    pub(crate) fn open() -> Result<Self, Errno> {
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR;
        NetlinkSocket::open(None, groups as u32).map(Self)
    }

    /// Takes all events that wait.
    pub(crate) fn events(&self) -> Vec<InterfaceEvent> {
        let mut all = Vec::new();
        loop {
            match self.0.try_receive() {
                Ok(Some(datagram)) => all.extend(messages(&datagram).filter_map(event)),
                Ok(None) => return all,
                Err(_) => {
                    all.push(InterfaceEvent::Overflow);
                    return all;
                }
            }
        }
    }
}

fn event(message: Message<'_>) -> Option<InterfaceEvent> {
    match message.kind {
        libc::RTM_DELLINK => Some(InterfaceEvent::Removed(u32_of(message.body.get(4..8)?)?)),
        libc::RTM_NEWLINK => Some(InterfaceEvent::Changed),
        libc::RTM_NEWADDR | libc::RTM_DELADDR => Some(InterfaceEvent::Address),
        _ => None,
    }
}

impl AsFd for InterfaceMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Rtnetlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::attributes;
    use super::*;

    #[test]
    fn attributes_of_a_dump_are_told_apart() {
        // The kernel's message for an address with two attributes.
        let mut body = vec![AF_INET, 32, 0, 0, 1, 0, 0, 0];
        for (kind, value) in [(1_u16, [10, 0, 0, 1]), (2, [10, 0, 0, 2])] {
            body.extend_from_slice(&8_u16.to_ne_bytes());
            body.extend_from_slice(&kind.to_ne_bytes());
            body.extend_from_slice(&value);
        }
        assert_eq!(attributes(&body, 8).count(), 2);
        assert_eq!(attribute(&body, 8, libc::IFA_LOCAL), Some(&[10, 0, 0, 2][..]));
    }
}
