//! Starts the egress proxy (`isolet-egress-proxy`), which enforces rules with host names. Its
//! listening sockets are in the gateway's namespace; it runs in the host's network, as an
//! unprivileged user.

use super::addresses::PROXY_PORT;
use crate::filter::{FilterKind, bytes};
use crate::kernel::sealed_memfd::seal;
use isolet_sys::namespaces::fork_in_namespaces;
use isolet_sys::{exec, inherited_fd};
use isolet_wire::network::{PACKET_BYTES_MAX, ProxyRequest, ProxyResponse, RESOLVER_ADDRESS};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrV4, SocketFlags, SocketType, bind, listen, recv,
    send, socket_with, socketpair, sockopt,
};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::ffi::CStr;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Bytes of packets that may wait for a slow proxy.
const CONTROL_BYTES: usize = 1024 * 1024;
const DNS_PORT: u16 = 53;
/// The protocol version of this process as text, because nothing may be formatted after `fork`.
const PROTOCOL: &CStr = c"1";
const _: () = assert!(isolet_wire::VERSION == 1, "PROTOCOL is the version as text");
/// Descriptors are duplicated above this number before they are put in place.
const LIFTED_FROM: i32 = 64;

/// The proxy's sockets, which listen in the gateway's namespace.
#[derive(Debug)]
pub(super) struct ProxyListeners {
    connections: OwnedFd,
    dns_udp: OwnedFd,
    dns_tcp: OwnedFd,
}

impl ProxyListeners {
    /// Opens the sockets in the namespace that this process is in.
    pub(super) fn open(gateway: Ipv4Addr) -> Result<Self, Errno> {
        Ok(Self {
            connections: bound(SocketType::STREAM, gateway, PROXY_PORT)?,
            dns_udp: bound(SocketType::DGRAM, RESOLVER_ADDRESS, DNS_PORT)?,
            dns_tcp: bound(SocketType::STREAM, RESOLVER_ADDRESS, DNS_PORT)?,
        })
    }
}

fn bound(kind: SocketType, address: Ipv4Addr, port: u16) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, kind, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(address, port))?;
    if kind == SocketType::STREAM {
        listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}

/// A running proxy. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct EgressProxy {
    control: OwnedFd,
    pidfd: OwnedFd,
}

impl EgressProxy {
    /// Starts the program with this user and group id.
    pub(super) fn start(
        program: &Path,
        listeners: &ProxyListeners,
        user: u32,
    ) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let program = rustix::fs::open(program, flags, Mode::empty())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (control, proxy_control) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let _ = sockopt::set_socket_send_buffer_size(&control, CONTROL_BYTES);
        let errno = |error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
        let filter = seal("filter", &bytes(FilterKind::EgressProxy)).map_err(errno)?;
        // In the order of the program's descriptors, 3 to 7.
        let inherited = [
            proxy_control.as_fd(),
            listeners.connections.as_fd(),
            listeners.dns_udp.as_fd(),
            listeners.dns_tcp.as_fd(),
            filter.as_fd(),
        ];
        let child = fork_in_namespaces(0, None, || match exec_proxy(&program, &inherited, user) {
            Ok(()) => 0,
            Err(errno) => errno.raw_os_error(),
        });
        Ok(Self { control, pidfd: child.map_err(errno)?.pidfd })
    }

    /// Sends a command. A proxy that does not read is killed, and later started again.
    pub(super) fn send(&self, command: &ProxyRequest) {
        let packet = isolet_wire::launcher::encode(command);
        if send(&self.control, &packet, SendFlags::NOSIGNAL).is_err() {
            self.kill();
        }
    }

    /// The next message, if one has arrived.
    ///
    /// # Errors
    /// `EPIPE` when the proxy has ended, `EBADMSG` for a packet that cannot be decoded.
    pub(super) fn try_receive(&self) -> Result<Option<ProxyResponse>, Errno> {
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

    fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

impl AsFd for EgressProxy {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

impl Drop for EgressProxy {
    fn drop(&mut self) {
        self.kill();
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

/// In the child: moves the descriptors to consecutive numbers, drops all privileges, and executes
/// the program. The program installs its seccomp filter itself, because a filter that allowed this
/// execution would allow others too.
fn exec_proxy(program: &OwnedFd, inherited: &[BorrowedFd<'_>], user: u32) -> Result<(), Errno> {
    exec::reset_signals();
    let lift = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, LIFTED_FROM);
    let program = lift(program.as_fd())?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let null = lift(null.as_fd())?;
    let fds = [null.as_fd(); 3].into_iter().chain(inherited.iter().copied());
    let fds = fds.map(lift).collect::<Result<Vec<_>, _>>()?;
    let mut target = 0;
    for fd in &fds {
        inherited_fd::dup_to(fd.as_fd(), target)?;
        target += 1;
    }
    inherited_fd::set_cloexec_from(target);
    rustix::thread::set_thread_groups(&[])?;
    let uid = Uid::from_raw(user);
    let gid = Gid::from_raw(user);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)?;
    let error =
        exec::execute(program.as_fd(), &[c"isolet-egress-proxy", c"--protocol", PROTOCOL], &[]);
    Err(Errno::from_io_error(&error).unwrap_or(Errno::NOEXEC))
}
