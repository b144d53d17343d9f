//! The agent's listening socket. Its path is on the host, out of reach of the tenant's root.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Connections that may wait until the agent accepts them.
const BACKLOG: i32 = 128;

/// Listens as `agent.sock` in `directory`, whose path may be too long for a socket address.
pub(crate) fn listen(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let path = format!("/proc/self/fd/{}/agent.sock", directory.as_raw_fd());
    rustix::net::bind(&socket, &SocketAddrUnix::new(path.as_str())?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}
