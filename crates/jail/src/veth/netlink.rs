//! Netlink: sends and receives messages of attributes, over a socket that belongs to the network
//! namespace in which it was opened.

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

/// The size of `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER_BYTES: usize = 16;
/// The longest datagram: the kernel fills dumps up to 32 KiB.
const DATAGRAM_BYTES_MAX: usize = 64 * 1024;
/// The size of the receive buffer. Events that do not fit are lost, which the kernel reports as
/// `ENOBUFS`.
const RECEIVE_BUFFER_BYTES: usize = 1024 * 1024;
/// The timeout of an answer. The kernel answers at once, or never.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Types of messages that every family has.
const ERROR: u16 = libc::NLMSG_ERROR as u16;
const DONE: u16 = libc::NLMSG_DONE as u16;

/// Flags of a request.
const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const ACK: u16 = libc::NLM_F_ACK as u16;
pub(crate) const DUMP: u16 = libc::NLM_F_DUMP as u16;
pub(crate) const CREATE: u16 = libc::NLM_F_CREATE as u16;
pub(crate) const EXCLUSIVE: u16 = libc::NLM_F_EXCL as u16;

/// A request under construction.
#[derive(Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Begins a request. `fixed` is the structure that messages of this type begin with.
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self { bytes }
    }

    /// Adds an attribute with these bytes as its value.
    pub(crate) fn put(mut self, kind: u16, value: &[u8]) -> Self {
        self.add(kind, value);
        self
    }

    /// Adds a string attribute, with the NUL that the kernel expects.
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes)
    }

    /// Adds an attribute that holds a fixed structure (which may be empty) and then attributes.
    pub(crate) fn nest(
        mut self,
        kind: u16,
        fixed: &[u8],
        inner: impl FnOnce(Self) -> Self,
    ) -> Self {
        let start = self.bytes.len();
        self.add(kind, fixed);
        self = inner(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
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

/// A netlink socket of one network namespace.
#[derive(Debug)]
pub(crate) struct NetlinkSocket {
    socket: OwnedFd,
    sequence: u32,
}

impl NetlinkSocket {
    /// Opens a socket for routes and interfaces (`None`) or netfilter, subscribed to `groups`.
    pub(crate) fn open(protocol: Option<Protocol>, groups: u32) -> Result<Self, Errno> {
        let mut flags = SocketFlags::CLOEXEC;
        if groups != 0 {
            flags |= SocketFlags::NONBLOCK;
        }
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, groups))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_WAIT))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Opens a socket for events that requests configure, such as those of netfilter's log.
    pub(crate) fn open_nonblocking(protocol: Option<Protocol>) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES);
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends a request; calls `each` with the type and body of every message of the answer.
    pub(crate) fn query(
        &mut self,
        mut request: Request,
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<(), Errno> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let length = request.bytes.len() as u32;
        // A single-message answer has no terminator, so the request asks for an acknowledgement
        // that marks its end.
        if u16_of(&request.bytes[6..]).is_none_or(|flags| flags & DUMP != DUMP) {
            request.bytes[6] |= ACK as u8;
        }
        request.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        request.bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        send(&self.socket, &request.bytes, SendFlags::empty())?;
        let sequence = self.sequence;
        let mut done = None;
        while done.is_none() {
            let datagram = match self.receive(RecvFlags::empty()) {
                Err(Errno::INTR) => continue,
                // A non-blocking socket does not have to wait: the kernel answers during the
                // request.
                Err(errno) => return Err(errno),
                Ok(datagram) => datagram,
            };
            for message in messages(&datagram).filter(|message| message.sequence == sequence) {
                match message.kind {
                    DONE => done = Some(Ok(())),
                    ERROR => done = Some(error_of(message.body)),
                    kind => each(kind, message.body),
                }
            }
        }
        done.unwrap_or(Ok(()))
    }

    /// Sends a request whose only answer is an acknowledgement.
    pub(crate) fn request(&mut self, request: Request) -> Result<(), Errno> {
        self.query(request, |_, _| {})
    }

    /// Sends requests that the kernel carries out as one transaction. The first and the last
    /// request delimit it.
    ///
    /// # Errors
    /// The kernel's first error; nothing has changed then.
    pub(crate) fn transaction(&mut self, mut requests: Vec<Request>) -> Result<(), Errno> {
        let asked = requests.len();
        let mut bytes = Vec::new();
        for (at, request) in requests.iter_mut().enumerate() {
            self.sequence = self.sequence.wrapping_add(1).max(1);
            // The last request within the transaction: its acknowledgement holds for all before it.
            if at + 2 == asked {
                request.bytes[6] |= ACK as u8;
            }
            let length = request.bytes.len() as u32;
            request.bytes[..4].copy_from_slice(&length.to_ne_bytes());
            request.bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
            bytes.extend_from_slice(&request.bytes);
        }
        send(&self.socket, &bytes, SendFlags::empty())?;
        // The kernel has answered by now. All answers are read, so that none is taken for the
        // answer to a later request.
        let mut done = Err(Errno::BADMSG);
        let mut failed = None;
        loop {
            let datagram = match self.receive(RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
                Ok(datagram) => datagram,
            };
            for message in messages(&datagram).filter(|message| message.kind == ERROR) {
                match error_of(message.body) {
                    Ok(()) => done = Ok(()),
                    Err(errno) => failed = failed.or(Some(errno)),
                }
            }
        }
        failed.map_or(done, Err)
    }

    /// The next datagram of events; `None` when no more is waiting.
    pub(crate) fn try_receive(&self) -> Result<Option<Vec<u8>>, Errno> {
        match self.receive(RecvFlags::empty()) {
            Ok(datagram) => Ok(Some(datagram)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn receive(&self, flags: RecvFlags) -> Result<Vec<u8>, Errno> {
        let mut datagram = vec![0_u8; DATAGRAM_BYTES_MAX];
        let (_, length) = recv(&self.socket, datagram.as_mut_slice(), flags)?;
        datagram.truncate(length);
        Ok(datagram)
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The result that an acknowledgement carries.
fn error_of(body: &[u8]) -> Result<(), Errno> {
    match i32_of(body) {
        Some(0) => Ok(()),
        Some(error) => Err(Errno::from_raw_os_error(-error)),
        None => Err(Errno::BADMSG),
    }
}

fn i32_of(bytes: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// A number of four bytes in native byte order.
pub(crate) fn u32_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

fn u16_of(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?))
}

/// A message of a received datagram.
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

/// The messages of a datagram.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32_of(rest)? as usize;
        let body = rest.get(HEADER_BYTES..length)?;
        let kind = u16_of(&rest[4..])?;
        let sequence = u32_of(&rest[8..])?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, sequence, body })
    })
}

/// The attributes of a body, as type and value, after the `fixed` bytes that it begins with.
pub(crate) fn attributes(body: &[u8], fixed: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(fixed..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::from(u16_of(rest)?);
        let value = rest.get(4..length)?;
        let kind = u16_of(&rest[2..])? & libc::NLA_TYPE_MASK as u16;
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
        let body = all[0].body;
        assert_eq!((all[0].kind, &body[..4]), (16, &[7; 4][..]));
        assert_eq!(attribute(body, 4, 3), Some(&b"eth0\0"[..]));
        let nested = attribute(body, 4, 18).expect("the attribute exists");
        assert_eq!(attribute(nested, 0, 1), Some(&[1, 2, 3][..]));
        let deep = attribute(nested, 0, 2).expect("the attribute exists");
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
