//! The sandbox's end of a veth pair: its namespace before there is a pair, and its address.

use super::netlink::rtnetlink::Routes;
use super::policy::END;
use crate::kernel::netns::{write_setting, write_setting_if_present};
use rustix::io::Errno;
use std::net::Ipv4Addr;

/// What a sandbox finds in its namespace before there is a link: low ports, ping, loopback, and no
/// IPv6 on anything but loopback.
pub(super) fn prepare_netns() -> Result<(), Errno> {
    write_setting("ipv4/ip_unprivileged_port_start", "0")?;
    // As far as the kernel's own limit goes; ids here are the host's.
    write_setting("ipv4/ping_group_range", "0 2147483647")?;
    write_setting_if_present("ipv6/conf/default/disable_ipv6", "1")?;
    isolet_sys::loopback::bring_up()
}

/// A sandbox's end of a link: its address, and all else by it. For the namespace entered.
pub(super) fn configure(address: Ipv4Addr) -> Result<(), Errno> {
    write_setting_if_present("ipv6/conf/eth0/disable_ipv6", "1")?;
    let mut routes = Routes::open()?;
    routes.up(END)?;
    routes.address(END, address)?;
    routes.route((Ipv4Addr::UNSPECIFIED, 0), END, None)
}

/// Takes away what an earlier link has left.
pub(super) fn remove() -> Result<(), Errno> {
    Routes::open()?.remove(END)
}
