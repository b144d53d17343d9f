//! A server, as the process that owns links sees it: packets, and descriptors with them.

use isolet_wire::links::{LinkOrder, LinkTell, LinkTold, PACKET_BYTES_MAX};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    recvmsg, sendmsg, socket_with,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// How many bytes of news may wait for a server that does not read.
const NEWS_BYTES: usize = 1024 * 1024;

/// Where it listens, below the data directory.
const DIRECTORY: &str = "network";
const SOCKET: &str = "links.sock";

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Peer(OwnedFd);

impl Peer {
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
            match received(&self.0, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some((packet, _))) => return isolet_wire::frame::decode(&packet).ok(),
                _ => return None,
            }
        }
    }

    /// The next order, if there is one by now.
    ///
    /// # Errors
    /// It is gone, or says what nobody understands.
    pub(crate) fn next(&self) -> Result<Option<(LinkOrder, Option<OwnedFd>)>, Errno> {
        match received(&self.0, RecvFlags::DONTWAIT) {
            Ok(Some((packet, fd))) => {
                let order = isolet_wire::frame::decode(&packet).map_err(|_| Errno::BADMSG)?;
                Ok(Some((order, fd)))
            }
            Ok(None) => Err(Errno::PIPE),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Says something; false when it is not heard, because nobody reads.
    pub(crate) fn say(&self, number: u64, tell: &LinkTell, fd: Option<&OwnedFd>) -> bool {
        let packet = isolet_wire::launch::encode(&LinkTold { number, tell: tell.clone() });
        sent(&self.0, &packet, fd.map(AsFd::as_fd), SendFlags::DONTWAIT).is_ok()
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sends a packet, perhaps with a descriptor.
pub(crate) fn sent(
    to: &OwnedFd,
    packet: &[u8],
    fd: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<(), Errno> {
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    sendmsg(to, &[IoSlice::new(packet)], &mut control, flags | SendFlags::NOSIGNAL).map(drop)
}

/// A packet, and the descriptor that came with it.
pub type Packet = (Vec<u8>, Option<OwnedFd>);

/// Receives a packet, and the descriptor that came with it; `None`: the other end is gone.
///
/// # Errors
/// As the kernel says.
pub fn received(from: &OwnedFd, flags: RecvFlags) -> Result<Option<Packet>, Errno> {
    let mut packet = vec![0_u8; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut packet)];
    let got = recvmsg(from, &mut into, &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            fd = fds.next();
        }
    }
    let length = got.bytes;
    packet.truncate(length);
    Ok((length > 0).then_some((packet, fd)))
}

/// The directory of the socket, made where it is not there.
fn directory(data_dir: &Path) -> std::io::Result<OwnedFd> {
    use std::os::unix::fs::DirBuilderExt as _;
    let path = data_dir.join(DIRECTORY);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    Ok(std::fs::File::open(path)?.into())
}

/// Listens for servers that come later.
pub(crate) fn listen(data_dir: &Path) -> std::io::Result<OwnedFd> {
    let directory = directory(data_dir)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    forget(data_dir)?;
    // The path itself may be too long for an address.
    let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
    bind(&socket, &SocketAddrUnix::new(path.as_str())?)?;
    rustix::net::listen(&socket, 4)?;
    Ok(socket)
}

/// Removes a socket that another data directory has left in this one, as its copy.
pub(crate) fn forget(data_dir: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(data_dir.join(DIRECTORY).join(SOCKET)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Connects to the one that listens, if any does.
pub(crate) fn connect(data_dir: &Path) -> std::io::Result<OwnedFd> {
    let directory: OwnedFd = std::fs::File::open(data_dir.join(DIRECTORY))?.into();
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
    rustix::net::connect(&socket, &SocketAddrUnix::new(path.as_str())?)?;
    Ok(socket)
}
