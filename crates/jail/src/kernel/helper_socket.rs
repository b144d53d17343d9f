//! The sockets of the processes that outlive the server: how the server starts such a process, and
//! how the next server finds it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4;
/// How long such a process may take to notice that its sandboxes have ended, and afterwards to die of
/// a signal.
const END_WAIT: Duration = Duration::from_secs(3);

/// Where such a process listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HelperSocket {
    /// Its directory below the data directory. Nothing else that others may read is in it.
    directory: &'static str,
    name: &'static str,
}

impl HelperSocket {
    /// The process that owns the veth pairs.
    pub(crate) const VETH: Self = Self { directory: "network", name: "links.sock" };
    /// The lease guard.
    pub(crate) const LEASE_GUARD: Self = Self { directory: "lease-guard", name: "guard.sock" };
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::VETH, Self::LEASE_GUARD];

    /// The path of the socket. It may be too long for an address.
    pub(crate) fn path(self, data_dir: &Path) -> PathBuf {
        data_dir.join(self.directory).join(self.name)
    }

    /// Listens for servers. Creates the directory of the socket, which only root may enter.
    pub(crate) fn listen(self, data_dir: &Path) -> io::Result<OwnedFd> {
        let path = data_dir.join(self.directory);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        let directory = File::open(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // An earlier process may have left a socket, also one of the directory that this is a copy of.
        match std::fs::remove_file(self.path(data_dir)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        bind(&socket, &self.address(&directory)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// Connects to the process, if it runs.
    pub(crate) fn connect(self, data_dir: &Path) -> io::Result<OwnedFd> {
        let directory = File::open(data_dir.join(self.directory))?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::connect(&socket, &self.address(&directory)?)?;
        Ok(socket)
    }

    /// Waits for the end of the process, which nothing needs any more, or kills it: one of another
    /// version may not understand a request to end. Blocks for some seconds.
    pub(crate) fn end_process(self, data_dir: &Path) -> io::Result<()> {
        if let Some(process) = self.process(data_dir)?
            && !ends(&process)?
        {
            let _ = pidfd_send_signal(&process, Signal::KILL);
            if !ends(&process)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// The process, if it runs.
    fn process(self, data_dir: &Path) -> io::Result<Option<OwnedFd>> {
        // Without a process, the socket is missing or refuses the connection.
        let Ok(socket) = self.connect(data_dir) else { return Ok(None) };
        let Some(pid) = Pid::from_raw(isolet_sys::peer::pid(&socket)?) else { return Ok(None) };
        Ok(pidfd_open(pid, PidfdFlags::empty()).ok())
    }

    /// The address of the socket by its open directory.
    fn address(self, directory: &File) -> Result<SocketAddrUnix, Errno> {
        let path = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), self.name);
        SocketAddrUnix::new(path.as_str())
    }
}

/// Whether a process ends in time.
pub(crate) fn ends(process: &OwnedFd) -> io::Result<bool> {
    let limit = Timespec::try_from(END_WAIT).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit))? > 0)
}

/// Starts such a process, whose standard input is the other end of the returned connection.
pub(crate) fn spawn(command: &mut Command) -> io::Result<(OwnedFd, Child)> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let child = command.env_clear().stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn()?;
    Ok((ours, child))
}
