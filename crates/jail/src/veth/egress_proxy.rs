//! The edge: the program that knows names. It is started here, with sockets that listen in the
//! namespace between sandboxes and host; it lives in the host's network, as a user that nobody is.

use super::policy::CARRIER_PORT;
use crate::filter::{FilterKind, bytes};
use crate::kernel::sealed_memfd::seal;
use isolet_sys::{exec, inherited_fd, namespaces::fork_in_namespaces};
use isolet_wire::network::{EdgeOrder, EdgeTell, PACKET_BYTES_MAX, RESOLVER_ADDRESS};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrV4, SocketFlags, SocketType, bind, listen, recv,
    send, socket_with, socketpair, sockopt,
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Packets to a slow edge that may wait in its socket, in bytes.
const CONTROL_BYTES: usize = 1024 * 1024;

/// Sockets that listen in the namespace between.
#[derive(Debug)]
pub(crate) struct ProxyListeners {
    carrier: OwnedFd,
    dns_udp: OwnedFd,
    dns_tcp: OwnedFd,
}

impl ProxyListeners {
    /// Opens them in the namespace that this process is in.
    pub(crate) fn open(gateway: std::net::Ipv4Addr) -> Result<Self, Errno> {
        let door = |kind: SocketType, address, port: u16| -> Result<OwnedFd, Errno> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::INET, kind, flags, None)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &SocketAddrV4::new(address, port))?;
            if kind == SocketType::STREAM {
                listen(&socket, BACKLOG)?;
            }
            Ok(socket)
        };
        Ok(Self {
            carrier: door(SocketType::STREAM, gateway, CARRIER_PORT)?,
            dns_udp: door(SocketType::DGRAM, RESOLVER_ADDRESS, 53)?,
            dns_tcp: door(SocketType::STREAM, RESOLVER_ADDRESS, 53)?,
        })
    }
}

/// A running edge. Ends when it is dropped: nobody tells it anything any more.
#[derive(Debug)]
pub(crate) struct EgressProxy {
    control: OwnedFd,
    process: OwnedFd,
}

impl EgressProxy {
    /// Starts the program, as this user and group.
    pub(crate) fn start(program: &Path, doors: &ProxyListeners, user: u32) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(program, flags, Mode::empty())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (control, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let _ = sockopt::set_socket_send_buffer_size(&control, CONTROL_BYTES);
        let short = |error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
        let filter = seal("filter", &bytes(FilterKind::Edge)).map_err(short)?;
        let given = [
            theirs.as_fd(),
            doors.carrier.as_fd(),
            doors.dns_udp.as_fd(),
            doors.dns_tcp.as_fd(),
            filter.as_fd(),
        ];
        let child = fork_in_namespaces(0, None, || match become_it(&file, &given, user) {
            Ok(()) => 0,
            Err(errno) => errno.raw_os_error(),
        });
        let child = child.map_err(short)?;
        Ok(Self { control, process: child.pidfd })
    }

    /// Tells it something. One that does not listen is ended: it is started anew then.
    pub(crate) fn tell(&self, order: &EdgeOrder) {
        let packet = isolet_wire::launch::encode(order);
        if send(&self.control, &packet, SendFlags::NOSIGNAL).is_err() {
            self.end();
        }
    }

    /// What it says next; `None`: nothing now.
    ///
    /// # Errors
    /// It has ended, or says what nobody understands.
    pub(crate) fn heard(&self) -> Result<Option<EdgeTell>, Errno> {
        let mut packet = vec![0_u8; PACKET_BYTES_MAX];
        match recv(&self.control, packet.as_mut_slice(), RecvFlags::empty()) {
            Ok((_, length)) if length > 0 => {
                isolet_wire::frame::decode(&packet[..length]).map(Some).map_err(|_| Errno::BADMSG)
            }
            Ok(_) => Err(Errno::PIPE),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn end(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.process, rustix::process::Signal::KILL);
    }
}

impl AsFd for EgressProxy {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

impl Drop for EgressProxy {
    fn drop(&mut self) {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        self.end();
        let _ = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
    }
}

/// In the child: its descriptors in a row, no right of ours, and the program. The filter it takes
/// itself: one that lets a program be started would let it start others.
fn become_it(file: &OwnedFd, given: &[BorrowedFd<'_>], user: u32) -> Result<(), Errno> {
    exec::reset_signals();
    let lift = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 64);
    let program = lift(file.as_fd())?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let null = lift(null.as_fd())?;
    let row = [null.as_fd(); 3].into_iter().chain(given.iter().copied());
    let row = row.map(lift).collect::<Result<Vec<_>, _>>()?;
    let mut end = 0;
    for fd in &row {
        inherited_fd::dup_to(fd.as_fd(), end)?;
        end += 1;
    }
    inherited_fd::set_cloexec_from(end);
    rustix::thread::set_thread_groups(&[])?;
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)?;
    let error = exec::execute(program.as_fd(), &[c"isolet-edge"], &[]);
    Err(Errno::from_io_error(&error).unwrap_or(Errno::NOEXEC))
}
