//! Netfilter's log (`nfnetlink_log`), by which the kernel reports denied packets.

use super::{NetlinkSocket, Request, attribute, messages};
use rustix::io::Errno;
use rustix::net::netlink;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

/// The log group of denied packets.
pub(crate) const LOG_GROUP: u16 = 7;
/// The log prefix of packets that were denied because the sandbox has too many connections.
pub(crate) const LIMIT_PREFIX: &str = "limit";

const PACKET: u16 = message_type(libc::NFULNL_MSG_PACKET);
const CONFIG: u16 = message_type(libc::NFULNL_MSG_CONFIG);
/// The size of `struct nfgenmsg`.
const NFGEN_BYTES: usize = 4;
/// The first bytes of each packet that are reported, which contain its headers.
const COPIED_BYTES: u32 = 64;

/// A packet that the packet filter denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeniedPacket {
    /// The index of the interface that it came by.
    pub(crate) interface: u32,
    /// The address that the packet was sent to.
    pub(crate) address: Ipv4Addr,
    /// The destination port, of TCP and UDP.
    pub(crate) port: Option<u16>,
    /// The protocol's number in IP.
    pub(crate) protocol: u8,
    /// Whether it was denied only because the sandbox has too many connections.
    pub(crate) over_limit: bool,
}

/// Receives the denied packets of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct NfLog(NetlinkSocket);

impl NfLog {
    pub(crate) fn open() -> Result<Self, Errno> {
        let mut socket = NetlinkSocket::open_nonblocking(Some(netlink::NETFILTER))?;
        let [high, low] = LOG_GROUP.to_be_bytes();
        let configure = |attribute: libc::c_int, value: &[u8]| {
            Request::new(CONFIG, 0, &[0, 0, high, low]).put(attribute as u16, value)
        };
        let command = [libc::NFULNL_CFG_CMD_BIND as u8];
        socket.request(configure(libc::NFULA_CFG_CMD, &command))?;
        let mut mode = COPIED_BYTES.to_be_bytes().to_vec();
        mode.extend([libc::NFULNL_COPY_PACKET as u8, 0]);
        socket.request(configure(libc::NFULA_CFG_MODE, &mode))?;
        // Each packet is reported at once.
        socket.request(configure(libc::NFULA_CFG_QTHRESH, &1_u32.to_be_bytes()))?;
        Ok(Self(socket))
    }

    /// Takes all packets that wait.
    pub(crate) fn packets(&self) -> Vec<DeniedPacket> {
        let mut all = Vec::new();
        loop {
            match self.0.try_receive() {
                Ok(Some(datagram)) => {
                    let packets = messages(&datagram).filter(|message| message.kind == PACKET);
                    all.extend(packets.filter_map(|message| packet(message.body)));
                }
                // The kernel dropped some packets.
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

const fn message_type(message: libc::c_int) -> u16 {
    (libc::NFNL_SUBSYS_ULOG << 8 | message) as u16
}

fn packet(body: &[u8]) -> Option<DeniedPacket> {
    let value = |attribute_type: libc::c_int| attribute(body, NFGEN_BYTES, attribute_type as u16);
    let interface = u32::from_be_bytes(value(libc::NFULA_IFINDEX_INDEV)?.try_into().ok()?);
    let bytes = value(libc::NFULA_PAYLOAD)?;
    let prefix = value(libc::NFULA_PREFIX).unwrap_or_default();
    let header = usize::from(bytes.first()? & 0xf) * 4;
    let protocol = *bytes.get(9)?;
    let address: [u8; 4] = bytes.get(16..20)?.try_into().ok()?;
    let port = bytes.get(header + 2..header + 4).and_then(|port| port.try_into().ok());
    let port = port
        .map(u16::from_be_bytes)
        .filter(|_| matches!(i32::from(protocol), libc::IPPROTO_TCP | libc::IPPROTO_UDP));
    let over_limit = prefix.starts_with(LIMIT_PREFIX.as_bytes());
    Some(DeniedPacket { interface, address: address.into(), port, protocol, over_limit })
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
        let address = Ipv4Addr::new(1, 2, 3, 4);
        let expected =
            DeniedPacket { interface: 3, address, port: Some(443), protocol: 6, over_limit: true };
        assert_eq!(found, expected);
        for length in 0..body.len() {
            let _ = packet(&body[..length]);
        }
        assert_eq!(packet(&body[..12]), None);
    }
}
