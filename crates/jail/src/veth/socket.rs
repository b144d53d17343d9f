//! The socket by which a server finds the process that owns the veth pairs.

use crate::config::{MANAGER_DIRECTORY, MANAGER_SOCKET, manager_socket};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The directory of the socket, made where it is not there.
fn directory(data_dir: &Path) -> std::io::Result<OwnedFd> {
    use std::os::unix::fs::DirBuilderExt as _;
    let path = data_dir.join(MANAGER_DIRECTORY);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    Ok(std::fs::File::open(path)?.into())
}

/// Listens for servers that come later.
pub(super) fn listen(data_dir: &Path) -> std::io::Result<OwnedFd> {
    let directory = directory(data_dir)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // An earlier process of this directory, or that of the directory that this one is a copy of.
    match std::fs::remove_file(manager_socket(data_dir)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // The path itself may be too long for an address.
    let path = format!("/proc/self/fd/{}/{MANAGER_SOCKET}", directory.as_raw_fd());
    bind(&socket, &SocketAddrUnix::new(path.as_str())?)?;
    rustix::net::listen(&socket, 4)?;
    Ok(socket)
}

/// Connects to the one that listens, if any does.
pub(super) fn connect(data_dir: &Path) -> std::io::Result<OwnedFd> {
    let directory: OwnedFd = std::fs::File::open(data_dir.join(MANAGER_DIRECTORY))?.into();
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let path = format!("/proc/self/fd/{}/{MANAGER_SOCKET}", directory.as_raw_fd());
    rustix::net::connect(&socket, &SocketAddrUnix::new(path.as_str())?)?;
    Ok(socket)
}
