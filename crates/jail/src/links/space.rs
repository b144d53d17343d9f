//! Network namespaces: made, entered for a moment, and set up for a sandbox.

use isolet_sys::namespaces::unshare;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The namespace that this process is in.
pub(crate) fn own() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())
}

/// Stands in another namespace from here on. The process has one thread.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
}

/// Does something in another namespace. The process has one thread.
///
/// # Panics
/// When there is no way back: what came next would be done in the wrong place.
pub(crate) fn within<R>(
    home: BorrowedFd<'_>,
    other: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<R, Errno>,
) -> Result<R, Errno> {
    enter(other)?;
    let done = work();
    enter(home).expect("back into its own network namespace");
    done
}

/// Makes a namespace, and does something in it first.
///
/// # Panics
/// As [`within`].
pub(crate) fn made(
    home: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<(), Errno>,
) -> Result<OwnedFd, Errno> {
    unshare(UnshareFlags::NEWNET)?;
    let made = own().and_then(|made| work().map(|()| made));
    enter(home).expect("back into its own network namespace");
    made
}

/// Writes a setting of the namespace that this process is in.
pub(crate) fn set(path: &str, value: &str) -> Result<(), Errno> {
    let path = format!("/proc/sys/net/{path}");
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, value.as_bytes()).map(drop)
}

/// The same where the kernel may not have it.
pub(crate) fn set_if_any(path: &str, value: &str) -> Result<(), Errno> {
    match set(path, value) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// What a sandbox finds in its namespace before there is a link: low ports, ping, loopback, and no
/// IPv6 on anything but loopback.
pub(crate) fn settings() -> Result<(), Errno> {
    set("ipv4/ip_unprivileged_port_start", "0")?;
    // As far as the kernel's own limit goes; ids here are the host's.
    set("ipv4/ping_group_range", "0 2147483647")?;
    set_if_any("ipv6/conf/default/disable_ipv6", "1")?;
    isolet_sys::loopback::bring_up()
}

/// What the namespace between sandboxes and host needs to forward, and no more.
pub(crate) fn between() -> Result<(), Errno> {
    set("ipv4/ip_forward", "1")?;
    for place in ["all", "default"] {
        set(&format!("ipv4/conf/{place}/rp_filter"), "0")?;
        set(&format!("ipv4/conf/{place}/send_redirects"), "0")?;
        set(&format!("ipv4/conf/{place}/accept_redirects"), "0")?;
        set(&format!("ipv4/conf/{place}/accept_source_route"), "0")?;
        set_if_any(&format!("ipv6/conf/{place}/disable_ipv6"), "1")?;
    }
    // All sandboxes share the kernel's table of connections there: what has ended leaves it soon.
    for (what, seconds) in [("time_wait", "10"), ("fin_wait", "30"), ("close_wait", "30")] {
        set_if_any(&format!("netfilter/nf_conntrack_tcp_timeout_{what}"), seconds)?;
    }
    isolet_sys::loopback::bring_up()
}

/// A sandbox's end of a link: its address, and all else by it. For the namespace entered.
pub(crate) fn end(address: std::net::Ipv4Addr) -> Result<(), Errno> {
    set_if_any("ipv6/conf/eth0/disable_ipv6", "1")?;
    let mut routes = super::route::Routes::open()?;
    routes.up(super::plan::END)?;
    routes.address(super::plan::END, address)?;
    routes.route((std::net::Ipv4Addr::UNSPECIFIED, 0), super::plan::END, None)
}

/// Takes away what an earlier link has left.
pub(crate) fn clear() -> Result<(), Errno> {
    super::route::Routes::open()?.remove(super::plan::END)
}

/// Whether two descriptors are of one namespace.
pub(crate) fn same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let number = |fd: &OwnedFd| rustix::fs::fstat(fd.as_fd()).ok().map(|it| (it.st_dev, it.st_ino));
    number(one).is_some() && number(one) == number(other)
}
