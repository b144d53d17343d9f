//! The server's connection, on the side of the process that owns the veth pairs.

use crate::kernel::packet::{receive_packet, send_packet};
use isolet_wire::version;
use isolet_wire::veth::{VethRequest, VethResponse, VethResponseBody};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, sockopt};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of events that may wait for a server that does not read.
const SEND_BUFFER_BYTES: usize = 1024 * 1024;

/// A request, with the descriptor that came with it.
pub(super) struct Request {
    pub(super) order: VethRequest,
    pub(super) fd: Option<OwnedFd>,
}

#[derive(Debug)]
pub(super) struct ClientConn(OwnedFd);

impl ClientConn {
    pub(super) fn new(socket: OwnedFd) -> Self {
        let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
        Self(socket)
    }

    /// Accepts a connection of root. No other user reaches the socket, because root owns its
    /// directory.
    pub(super) fn accept(listener: &OwnedFd) -> Option<Self> {
        let socket = accept_with(listener, SocketFlags::CLOEXEC).ok()?;
        let is_root = sockopt::socket_peercred(&socket).ok()?.uid.is_root();
        is_root.then(|| Self::new(socket))
    }

    /// Waits for the first request, without a time limit.
    pub(super) fn receive(&self) -> Option<VethRequest> {
        loop {
            match receive_packet(&self.0, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some(packet)) => return isolet_wire::frame::decode(&packet.bytes).ok(),
                _ => return None,
            }
        }
    }

    /// The next request, if one has arrived.
    ///
    /// # Errors
    /// `EPIPE` when the connection is closed, `EBADMSG` for a packet that cannot be decoded.
    pub(super) fn try_receive(&self) -> Result<Option<Request>, Errno> {
        match receive_packet(&self.0, RecvFlags::DONTWAIT) {
            Ok(Some(packet)) => {
                let order = isolet_wire::frame::decode(&packet.bytes).map_err(|_| Errno::BADMSG)?;
                Ok(Some(Request { order, fd: packet.fd }))
            }
            Ok(None) => Err(Errno::PIPE),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Answers a greeting. True if both sides agree on a version.
    pub(super) fn greet(&self, number: u64, offered: u16) -> bool {
        let version = version::answer(offered);
        self.send(number, &VethResponseBody::Hello { version }, None) && version <= offered
    }

    /// Sends an answer, or an event (`number` 0). False when the server does not read.
    pub(super) fn send(&self, number: u64, body: &VethResponseBody, fd: Option<&OwnedFd>) -> bool {
        let packet = isolet_wire::launcher::encode(&VethResponse { number, body: body.clone() });
        send_packet(&self.0, &packet, fd.map(AsFd::as_fd), SendFlags::DONTWAIT).is_ok()
    }
}

impl AsFd for ClientConn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
