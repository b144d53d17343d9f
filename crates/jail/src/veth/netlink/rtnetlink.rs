//! Links, addresses and routes of one network namespace.

use super::{CREATE, DUMP, EXCLUSIVE, Netlink, Request, attribute, u32_of};
use isolet_wire::links::Counters;
use rustix::io::Errno;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

const NEWLINK: u16 = 16;
const DELLINK: u16 = 17;
const GETLINK: u16 = 18;
const NEWADDR: u16 = 20;
const DELADDR: u16 = 21;
const GETADDR: u16 = 22;
const NEWROUTE: u16 = 24;
const GETROUTE: u16 = 26;

/// Groups of news.
const GROUP_LINK: u32 = 1;
const GROUP_IPV4_ADDR: u32 = 0x10;

const IFF_UP: u32 = 1;
const IFF_NOARP: u32 = 0x80;
const INET: u8 = 2;

/// Both ends of every link have the same hardware address: no end ever asks for the other's, and
/// nobody inside can claim another's.
const HARDWARE: [u8; 6] = [0x02, 0x49, 0x53, 0x4c, 0x54, 0x01];

/// What happened in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// A link with this index is gone.
    Gone(u32),
    /// A link was made or changed.
    Link,
    /// An address came or went.
    Address,
    /// More than could wait: everything may have changed.
    Lost,
}

/// Works on the links of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Routes(Netlink);

fn link(index: u32, flags: u32) -> [u8; 16] {
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&flags.to_ne_bytes());
    fixed
}

impl Routes {
    pub(crate) fn open() -> Result<Self, Errno> {
        Netlink::open(None, 0).map(Self)
    }

    /// Makes a pair: one end here, under `name`, the other in the namespace `other`, as `peer`.
    /// Ours is up; the other cannot be before there are two. An alias is given by itself: the
    /// kernel passes over one that comes with what is to be made.
    pub(crate) fn pair(
        &mut self,
        name: &str,
        alias: Option<&str>,
        (other, peer): (BorrowedFd<'_>, &str),
    ) -> Result<(), Errno> {
        let (fixed, other_fixed) = (link(0, IFF_UP | IFF_NOARP), link(0, IFF_NOARP));
        let place = (other.as_raw_fd() as u32).to_ne_bytes();
        let request = Request::new(NEWLINK, CREATE | EXCLUSIVE, &fixed)
            .text(3, name)
            .put(1, &HARDWARE)
            .nest(18, &[], |info| {
                info.text(1, "veth").nest(2, &[], |data| {
                    data.nest(1, &other_fixed, |end| {
                        end.text(3, peer).put(1, &HARDWARE).put(28, &place)
                    })
                })
            });
        self.0.tell(request)?;
        let Some(alias) = alias else { return Ok(()) };
        self.0.tell(Request::new(NEWLINK, 0, &link(0, 0)).text(3, name).text(20, alias))
    }

    /// Brings a link up.
    pub(crate) fn up(&mut self, name: &str) -> Result<(), Errno> {
        let index = self.index(name)?;
        self.0.tell(Request::new(NEWLINK, 0, &link(index, IFF_UP)))
    }

    /// Moves a link into another namespace; its addresses and routes stay behind.
    pub(crate) fn hand_over(&mut self, name: &str, to: BorrowedFd<'_>) -> Result<(), Errno> {
        let index = self.index(name)?;
        let place = (to.as_raw_fd() as u32).to_ne_bytes();
        self.0.tell(Request::new(NEWLINK, 0, &link(index, 0)).put(28, &place))
    }

    /// Removes a link; one that is not there is no error.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Errno> {
        match self.0.tell(Request::new(DELLINK, 0, &link(0, 0)).text(3, name)) {
            Err(Errno::NODEV) => Ok(()),
            done => done,
        }
    }

    /// Gives a link its name back. Older kernels rename only what is down; its routes go with that.
    pub(crate) fn call_back(&mut self, index: u32, name: &str) -> Result<(), Errno> {
        let rename = || Request::new(NEWLINK, 0, &link(index, 0)).text(3, name);
        match self.0.tell(rename()) {
            Err(Errno::BUSY) => {}
            done => return done,
        }
        let mut down = link(index, 0);
        down[12..16].copy_from_slice(&IFF_UP.to_ne_bytes());
        self.0.tell(Request::new(NEWLINK, 0, &down))?;
        self.0.tell(rename())?;
        self.0.tell(Request::new(NEWLINK, 0, &link(index, IFF_UP)))
    }

    /// The number of a link.
    pub(crate) fn index(&self, name: &str) -> Result<u32, Errno> {
        rustix::net::netdevice::name_to_index(&self.0, name)
    }

    /// The name of a link.
    pub(crate) fn name(&self, index: u32) -> Result<String, Errno> {
        rustix::net::netdevice::index_to_name(&self.0, index)
    }

    /// What somebody has written to a link about it.
    pub(crate) fn alias(&mut self, name: &str) -> Result<Option<String>, Errno> {
        let mut found = None;
        self.0.ask(Request::new(GETLINK, 0, &link(0, 0)).text(3, name), |kind, body| {
            if kind == NEWLINK {
                let alias = attribute(body, 16, 20).and_then(|text| text.strip_suffix(&[0]));
                found = alias.map(|text| String::from_utf8_lossy(text).into_owned());
            }
        })?;
        Ok(found)
    }

    /// What went over a link, seen from its other end.
    pub(crate) fn counters(&mut self, name: &str) -> Result<Counters, Errno> {
        let mut found = Counters::default();
        self.0.ask(Request::new(GETLINK, 0, &link(0, 0)).text(3, name), |_, body| {
            let Some(stats) = attribute(body, 16, 23) else { return };
            let number = |at: usize| {
                let bytes = stats.get(at * 8..at * 8 + 8).and_then(|it| it.try_into().ok());
                bytes.map_or(0, u64::from_ne_bytes)
            };
            found = Counters {
                out_packets: number(0),
                back_packets: number(1),
                out_bytes: number(2),
                back_bytes: number(3),
                refused: 0,
            };
        })?;
        Ok(found)
    }

    /// Gives a link an address that is its own alone.
    pub(crate) fn address(&mut self, name: &str, address: Ipv4Addr) -> Result<(), Errno> {
        let mut fixed = [INET, 32, 0, 0, 0, 0, 0, 0];
        fixed[4..8].copy_from_slice(&self.index(name)?.to_ne_bytes());
        let (local, bytes) = (2, address.octets());
        let request = Request::new(NEWADDR, CREATE, &fixed).put(local, &bytes).put(1, &bytes);
        self.0.tell(request)
    }

    /// A route to a network (all of it with no bits) by a link; there is nobody to ask on the way.
    pub(crate) fn route(
        &mut self,
        (network, bits): (Ipv4Addr, u8),
        name: &str,
        source: Option<Ipv4Addr>,
    ) -> Result<(), Errno> {
        // The main table, by boot, to the link itself, unicast.
        let fixed = [INET, bits, 0, 0, 254, 3, 253, 1, 0, 0, 0, 0];
        let index = self.index(name)?.to_ne_bytes();
        let mut request = Request::new(NEWROUTE, CREATE | EXCLUSIVE, &fixed);
        if bits > 0 {
            request = request.put(1, &network.octets());
        }
        if let Some(source) = source {
            request = request.put(7, &source.octets());
        }
        self.0.tell(request.put(4, &index))
    }

    /// Networks of the main table that lie in one of ours, or the other way round, and are not
    /// reached by the link of this name.
    pub(crate) fn overlaps(&mut self, ours: (Ipv4Addr, u8), but: &str) -> Result<bool, Errno> {
        let but = self.index(but).unwrap_or(0);
        let mut found = false;
        self.0.ask(
            Request::new(GETROUTE, DUMP, &[INET, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            |_, body| {
                let bits = body.get(1).copied().unwrap_or(0);
                let Some(octets) =
                    attribute(body, 12, 1).and_then(|it| <[u8; 4]>::try_from(it).ok())
                else {
                    return;
                };
                let by = attribute(body, 12, 4).and_then(u32_of);
                let shorter = u32::from(bits.min(ours.1));
                let mask = u32::MAX.checked_shl(32 - shorter).unwrap_or(0);
                let differs = (u32::from_be_bytes(octets) ^ ours.0.to_bits()) & mask;
                found |= bits > 0 && differs == 0 && by != Some(but);
            },
        )?;
        Ok(found)
    }

    /// Every IPv4 address of this namespace, sorted.
    pub(crate) fn addresses(&mut self) -> Result<Vec<Ipv4Addr>, Errno> {
        let mut all = Vec::new();
        self.0.ask(Request::new(GETADDR, DUMP, &[INET, 0, 0, 0, 0, 0, 0, 0]), |_, body| {
            // Its own; the other end's where it is one of a point-to-point link.
            let local = attribute(body, 8, 2).or_else(|| attribute(body, 8, 1));
            let bytes = local.and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
            all.extend(bytes.map(Ipv4Addr::from));
        })?;
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

/// Hears what happens to links and addresses of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Watch(Netlink);

impl Watch {
    pub(crate) fn open() -> Result<Self, Errno> {
        Netlink::open(None, GROUP_LINK | GROUP_IPV4_ADDR).map(Self)
    }

    /// Everything until now.
    pub(crate) fn heard(&self) -> Vec<News> {
        let mut all = Vec::new();
        loop {
            match self.0.heard() {
                Ok(Some(datagram)) => all.extend(super::messages(&datagram).filter_map(
                    |(kind, _, body)| match kind {
                        DELLINK => Some(News::Gone(u32_of(body.get(4..8)?)?)),
                        NEWLINK => Some(News::Link),
                        NEWADDR | DELADDR => Some(News::Address),
                        _ => None,
                    },
                )),
                Ok(None) => return all,
                Err(_) => {
                    all.push(News::Lost);
                    return all;
                }
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Routes {
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
        // As the kernel says that a link has an address, and a label.
        let mut body = vec![INET, 32, 0, 0, 1, 0, 0, 0];
        for (kind, value) in [(1_u16, [10, 0, 0, 1]), (2, [10, 0, 0, 2])] {
            body.extend_from_slice(&8_u16.to_ne_bytes());
            body.extend_from_slice(&kind.to_ne_bytes());
            body.extend_from_slice(&value);
        }
        assert_eq!(attributes(&body, 8).count(), 2);
        assert_eq!(attribute(&body, 8, 2), Some(&[10, 0, 0, 2][..]));
    }
}
