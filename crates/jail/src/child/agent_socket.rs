//! The agent's listening socket. Its name lies on the host, where the tenant's root does not reach it.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Waiting connections of an agent that has not accepted yet.
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
