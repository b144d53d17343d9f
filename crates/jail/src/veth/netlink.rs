//! Netlink: messages of attributes, over a socket that stays in the network namespace in which it
//! was opened.

pub(crate) mod nf_tables;
pub(crate) mod nflog;
pub(crate) mod rtnetlink;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv,
    send, socket_with, sockopt,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Length, type, flags, number, port.
const HEADER: usize = 16;
/// The longest datagram: the kernel fills dumps up to 32 KiB.
const DATAGRAM_BYTES_MAX: usize = 64 * 1024;
/// How much news may wait: the rest is lost, which is told by `ENOBUFS`.
const NEWS_BYTES: usize = 1024 * 1024;
/// The kernel answers at once, or never.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Types of messages that every family has.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Flags of a request.
pub(crate) const REQUEST: u16 = 1;
const ACK: u16 = 4;
pub(crate) const DUMP: u16 = 0x300;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const EXCLUSIVE: u16 = 0x200;

/// One request that is being written.
#[derive(Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// With the fixed part that its type has.
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self { bytes }
    }

    /// An attribute.
    pub(crate) fn put(mut self, kind: u16, value: &[u8]) -> Self {
        self.add(kind, value);
        self
    }

    /// A text, with the NUL that the kernel wants.
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes)
    }

    /// An attribute of attributes, perhaps after a fixed part.
    pub(crate) fn nest(
        mut self,
        kind: u16,
        fixed: &[u8],
        inner: impl FnOnce(Self) -> Self,
    ) -> Self {
        let begin = self.bytes.len();
        self.add(kind, fixed);
        self = inner(self);
        let length = (self.bytes.len() - begin) as u16;
        self.bytes[begin..begin + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    fn add(&mut self, kind: u16, value: &[u8]) {
        let length = (4 + value.len()) as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// A socket of one namespace.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    number: u32,
}

impl Netlink {
    /// One for routes and links (`None`) or netfilter, which hears of `groups`.
    pub(crate) fn open(protocol: Option<Protocol>, groups: u32) -> Result<Self, Errno> {
        let mut flags = SocketFlags::CLOEXEC;
        if groups != 0 {
            flags |= SocketFlags::NONBLOCK;
        }
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, groups))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_WAIT))?;
        Ok(Self { socket, number: 0 })
    }

    /// One for news of netfilter's log.
    pub(crate) fn news(protocol: Option<Protocol>) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, NEWS_BYTES);
        Ok(Self { socket, number: 0 })
    }

    /// Sends a request; every message of the answer goes to `each`, with its type.
    pub(crate) fn ask(
        &mut self,
        mut request: Request,
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<(), Errno> {
        self.number = self.number.wrapping_add(1).max(1);
        let length = request.bytes.len() as u32;
        // An answer of one message has no end of its own: the acknowledgement is.
        if u16_of(&request.bytes[6..]).is_none_or(|flags| flags & DUMP != DUMP) {
            request.bytes[6] |= ACK as u8;
        }
        request.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        request.bytes[8..12].copy_from_slice(&self.number.to_ne_bytes());
        send(&self.socket, &request.bytes, SendFlags::empty())?;
        let number = self.number;
        let mut done = None;
        while done.is_none() {
            let datagram = match self.receive() {
                Err(Errno::INTR) => continue,
                // Of a socket for news there is nothing to wait for: the kernel answers while it is asked.
                Err(errno) => return Err(errno),
                Ok(datagram) => datagram,
            };
            for (kind, _, body) in messages(&datagram).filter(|message| message.1 == number) {
                match kind {
                    DONE => done = Some(Ok(())),
                    ERROR => done = Some(outcome(body)),
                    _ => each(kind, body),
                }
            }
        }
        done.unwrap_or(Ok(()))
    }

    /// Sends a request that is answered with nothing but its acknowledgement.
    pub(crate) fn tell(&mut self, request: Request) -> Result<(), Errno> {
        self.ask(request, |_, _| {})
    }

    /// Sends requests that are done whole or not at all: the first and the last of them say so.
    ///
    /// # Errors
    /// The first that the kernel has told; nothing is done then.
    pub(crate) fn batch(&mut self, mut requests: Vec<Request>) -> Result<(), Errno> {
        let asked = requests.len();
        let mut bytes = Vec::new();
        for (at, request) in requests.iter_mut().enumerate() {
            self.number = self.number.wrapping_add(1).max(1);
            // The last that asks for something: all before it are done, or it is not.
            if at + 2 == asked {
                request.bytes[6] |= ACK as u8;
            }
            let length = request.bytes.len() as u32;
            request.bytes[..4].copy_from_slice(&length.to_ne_bytes());
            request.bytes[8..12].copy_from_slice(&self.number.to_ne_bytes());
            bytes.extend_from_slice(&request.bytes);
        }
        send(&self.socket, &bytes, SendFlags::empty())?;
        // The kernel has answered by now: all that it says is read, so that nothing of it is taken
        // for the answer to what comes next.
        let mut done = Err(Errno::BADMSG);
        let mut failed = None;
        loop {
            let datagram = match self.receive_if_any() {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
                Ok(datagram) => datagram,
            };
            for (_, _, body) in messages(&datagram).filter(|(kind, _, _)| *kind == ERROR) {
                match outcome(body) {
                    Ok(()) => done = Ok(()),
                    Err(errno) => failed = failed.or(Some(errno)),
                }
            }
        }
        failed.map_or(done, Err)
    }

    /// What came without being asked for; `None`: nothing more now.
    pub(crate) fn heard(&self) -> Result<Option<Vec<u8>>, Errno> {
        match self.receive() {
            Ok(datagram) => Ok(Some(datagram)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn receive(&self) -> Result<Vec<u8>, Errno> {
        self.received(RecvFlags::empty())
    }

    fn receive_if_any(&self) -> Result<Vec<u8>, Errno> {
        self.received(RecvFlags::DONTWAIT)
    }

    fn received(&self, flags: RecvFlags) -> Result<Vec<u8>, Errno> {
        let mut space = vec![0_u8; DATAGRAM_BYTES_MAX];
        let (_, length) = recv(&self.socket, space.as_mut_slice(), flags)?;
        space.truncate(length);
        Ok(space)
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn outcome(body: &[u8]) -> Result<(), Errno> {
    match number_i32(body) {
        Some(0) => Ok(()),
        Some(error) => Err(Errno::from_raw_os_error(-error)),
        None => Err(Errno::BADMSG),
    }
}

fn number_i32(bytes: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// A number of four bytes, as this machine writes it.
pub(crate) fn u32_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

fn u16_of(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?))
}

/// The messages of a datagram: type, number, body.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = (u16, u32, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32_of(rest)? as usize;
        let body = rest.get(HEADER..length)?;
        let found = (u16_of(&rest[4..])?, u32_of(&rest[8..])?, body);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(found)
    })
}

/// The attributes of a body, after its fixed part of so many bytes.
pub(crate) fn attributes(body: &[u8], fixed: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(fixed..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::from(u16_of(rest)?);
        let value = rest.get(4..length)?;
        // Without the bits for "nested" and "network order".
        let kind = u16_of(&rest[2..])? & 0x3fff;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of one attribute.
pub(crate) fn attribute(body: &[u8], fixed: usize, kind: u16) -> Option<&[u8]> {
    attributes(body, fixed).find(|(it, _)| *it == kind).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_as_it_was_written() {
        let request = Request::new(16, ACK, &[7; 4]).text(3, "eth0").nest(18, &[], |inner| {
            inner.put(1, &[1, 2, 3]).nest(2, &[9, 9, 9, 9], |deep| deep.put(5, &[]))
        });
        let mut bytes = request.bytes;
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        let all: Vec<_> = messages(&bytes).collect();
        assert_eq!(all.len(), 1);
        let (kind, _, body) = all[0];
        assert_eq!((kind, &body[..4]), (16, &[7; 4][..]));
        assert_eq!(attribute(body, 4, 3), Some(&b"eth0\0"[..]));
        let nested = attribute(body, 4, 18).expect("it is there");
        assert_eq!(attribute(nested, 0, 1), Some(&[1, 2, 3][..]));
        let deep = attribute(nested, 0, 2).expect("it is there");
        assert_eq!(attributes(deep, 4).collect::<Vec<_>>(), [(5, &[][..])]);
    }

    #[test]
    fn what_is_cut_short_ends_the_reading() {
        for cut in [&[][..], &[1], &[255; 15], &[255; 64], &[3, 0, 0, 0], &[0; 40]] {
            assert!(messages(cut).count() <= 2, "{cut:?}");
            assert!(attributes(cut, 0).count() <= 10, "{cut:?}");
        }
    }
}
