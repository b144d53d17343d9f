//! Netfilter's log: packets that were refused, as the kernel tells them.

use super::{Netlink, Request, attribute, messages};
use rustix::io::Errno;
use rustix::net::netlink;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

/// Of netfilter's log: where refused packets go.
pub(crate) const LOG_GROUP: u16 = 7;
/// How a packet that is one too many is marked there; others are not.
pub(crate) const LIMIT_PREFIX: &str = "limit";

/// Messages of this subsystem.
const PACKET: u16 = 4 << 8;
const CONFIG: u16 = PACKET | 1;
/// Only the heads of packets.
const COPIED_BYTES: u32 = 64;

/// A packet that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeniedPacket {
    /// The link by which it came.
    pub(crate) index: u32,
    /// Where it should go.
    pub(crate) to: Ipv4Addr,
    /// Of TCP and UDP.
    pub(crate) port: Option<u16>,
    /// IP's number.
    pub(crate) protocol: u8,
    /// It was one too many, and else allowed.
    pub(crate) limit: bool,
}

/// Hears refused packets of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct NfLog(Netlink);

impl NfLog {
    pub(crate) fn open() -> Result<Self, Errno> {
        let mut socket = Netlink::news(Some(netlink::NETFILTER))?;
        let [high, low] = LOG_GROUP.to_be_bytes();
        let request =
            |part: u16, value: &[u8]| Request::new(CONFIG, 0, &[0, 0, high, low]).put(part, value);
        let bind = 1;
        socket.tell(request(1, &[bind]))?;
        let mut copy = COPIED_BYTES.to_be_bytes().to_vec();
        let with_bytes = 2;
        copy.extend([with_bytes, 0]);
        socket.tell(request(2, &copy))?;
        // Told at once.
        socket.tell(request(5, &1_u32.to_be_bytes()))?;
        Ok(Self(socket))
    }

    /// Everything until now.
    pub(crate) fn heard(&self) -> Vec<DeniedPacket> {
        let mut all = Vec::new();
        loop {
            match self.0.heard() {
                Ok(Some(datagram)) => {
                    let found = messages(&datagram).filter(|(kind, _, _)| *kind == PACKET);
                    all.extend(found.filter_map(|(_, _, body)| packet(body)));
                }
                // More than could wait: some are not told.
                Err(Errno::NOBUFS) => {}
                _ => return all,
            }
        }
    }
}

impl AsFd for NfLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn packet(body: &[u8]) -> Option<DeniedPacket> {
    let index = u32::from_be_bytes(attribute(body, 4, 4)?.try_into().ok()?);
    let bytes = attribute(body, 4, 9)?;
    let prefix = attribute(body, 4, 10).unwrap_or_default();
    let head = usize::from(bytes.first()? & 0xf) * 4;
    let protocol = *bytes.get(9)?;
    let to: [u8; 4] = bytes.get(16..20)?.try_into().ok()?;
    let port = bytes.get(head + 2..head + 4).and_then(|port| port.try_into().ok());
    let port = port.map(u16::from_be_bytes).filter(|_| matches!(protocol, 6 | 17));
    let limit = prefix.starts_with(LIMIT_PREFIX.as_bytes());
    Some(DeniedPacket { index, to: to.into(), port, protocol, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_and_what_is_cut_short_is_none() {
        let mut head = vec![0_u8; 28];
        head[0] = 0x46;
        head[9] = 6;
        head[16..20].copy_from_slice(&[1, 2, 3, 4]);
        head[26..28].copy_from_slice(&443_u16.to_be_bytes());
        let mut body = vec![0; 4];
        for (kind, value) in [(4_u16, &3_u32.to_be_bytes()[..]), (10, b"limit\0\0\0"), (9, &head)] {
            body.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
            body.extend_from_slice(&kind.to_ne_bytes());
            body.extend_from_slice(value);
        }
        let found = packet(&body).expect("a packet");
        let (to, port) = (Ipv4Addr::new(1, 2, 3, 4), Some(443));
        assert_eq!(found, DeniedPacket { index: 3, to, port, protocol: 6, limit: true });
        for length in 0..body.len() {
            let _ = packet(&body[..length]);
        }
        assert_eq!(packet(&body[..12]), None);
    }
}
