//! A server, as the process that owns links sees it: packets, and descriptors with them.

use crate::kernel::packet::{receive_packet, send_packet};
use isolet_wire::links::{LinkOrder, LinkTell, LinkTold};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How many bytes of news may wait for a server that does not read.
const NEWS_BYTES: usize = 1024 * 1024;

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct ClientConn(OwnedFd);

impl ClientConn {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, NEWS_BYTES);
        Self(socket)
    }

    /// Whoever connects and may: the directory is root's alone.
    pub(crate) fn accept(listener: &OwnedFd) -> Option<Self> {
        let socket = accept_with(listener, SocketFlags::CLOEXEC).ok()?;
        let root = rustix::net::sockopt::socket_peercred(&socket).ok()?.uid.is_root();
        root.then(|| Self::new(socket))
    }

    /// The first order, however long it takes.
    pub(crate) fn wait(&self) -> Option<LinkOrder> {
        loop {
            match receive_packet(&self.0, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some(packet)) => return isolet_wire::frame::decode(&packet.bytes).ok(),
                _ => return None,
            }
        }
    }

    /// The next order, if there is one by now.
    ///
    /// # Errors
    /// It is gone, or says what nobody understands.
    pub(crate) fn next(&self) -> Result<Option<(LinkOrder, Option<OwnedFd>)>, Errno> {
        match receive_packet(&self.0, RecvFlags::DONTWAIT) {
            Ok(Some(packet)) => {
                let order = isolet_wire::frame::decode(&packet.bytes).map_err(|_| Errno::BADMSG)?;
                Ok(Some((order, packet.fd)))
            }
            Ok(None) => Err(Errno::PIPE),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Says something; false when it is not heard, because nobody reads.
    pub(crate) fn say(&self, number: u64, tell: &LinkTell, fd: Option<&OwnedFd>) -> bool {
        let packet = isolet_wire::launch::encode(&LinkTold { number, tell: tell.clone() });
        send_packet(&self.0, &packet, fd.map(AsFd::as_fd), SendFlags::DONTWAIT).is_ok()
    }
}

impl AsFd for ClientConn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
