//! Packets over unix sockets, each with at most one descriptor.

use isolet_wire::network::PACKET_BYTES_MAX;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A packet that [`receive_packet`] returned.
#[derive(Debug)]
pub struct Packet {
    /// The content, never empty.
    pub bytes: Vec<u8>,
    /// The descriptor that came with it.
    pub fd: Option<OwnedFd>,
}

/// Sends a packet, with a descriptor if there is one.
pub(crate) fn send_packet(
    socket: &OwnedFd,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<(), Errno> {
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags | SendFlags::NOSIGNAL).map(drop)
}

/// Receives a packet; `None` when the other end is closed.
///
/// # Errors
/// Those of `recvmsg`.
pub fn receive_packet(socket: &OwnedFd, flags: RecvFlags) -> Result<Option<Packet>, Errno> {
    let mut bytes = vec![0_u8; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut into, &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
    let length = received.bytes;
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            fd = fds.next();
        }
    }
    bytes.truncate(length);
    Ok((length > 0).then_some(Packet { bytes, fd }))
}
