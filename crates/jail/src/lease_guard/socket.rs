//! The socket by which a server finds the guard.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// The directory of the socket, below the data directory.
const DIRECTORY: &str = "lease-guard";
const SOCKET: &str = "guard.sock";
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4;

/// Listens for servers. Creates the directory of the socket, which only root may enter.
pub(super) fn listen(data_dir: &Path) -> io::Result<OwnedFd> {
    let path = data_dir.join(DIRECTORY);
    DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // An earlier process may have left a socket, also one of the directory that this is a copy of.
    match std::fs::remove_file(path.join(SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    bind(&socket, &address(&File::open(path)?)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to the guard, if it runs.
pub(super) fn connect(data_dir: &Path) -> io::Result<OwnedFd> {
    let directory = File::open(data_dir.join(DIRECTORY))?;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &address(&directory)?)?;
    Ok(socket)
}

/// The address of the socket by its open directory, because the path may be too long for an
/// address.
fn address(directory: &File) -> io::Result<SocketAddrUnix> {
    let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
    Ok(SocketAddrUnix::new(path.as_str())?)
}
