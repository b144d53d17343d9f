//! The sandbox's end of a veth pair, and the network namespace that a sandbox is created in. All
//! functions work on the namespace that this process is in.

use super::addresses::SANDBOX_INTERFACE;
use super::netlink::rtnetlink::Rtnetlink;
use crate::kernel::netns::{write_setting, write_setting_if_present};
use rustix::io::Errno;
use std::net::Ipv4Addr;

/// Prepares a namespace before it gets a pair: unprivileged low ports, ping, loopback, and no IPv6
/// except on loopback.
pub(super) fn prepare_netns() -> Result<(), Errno> {
    write_setting("ipv4/ip_unprivileged_port_start", "0")?;
    // The range of group ids up to the kernel's limit; ids here are those of the host.
    write_setting("ipv4/ping_group_range", "0 2147483647")?;
    write_setting_if_present("ipv6/conf/default/disable_ipv6", "1")?;
    isolet_sys::loopback::bring_up()
}

/// Assigns the address of the sandbox's end, and adds the default route.
pub(super) fn configure(address: Ipv4Addr) -> Result<(), Errno> {
    write_setting_if_present("ipv6/conf/eth0/disable_ipv6", "1")?;
    let mut rtnetlink = Rtnetlink::open()?;
    rtnetlink.set_up(SANDBOX_INTERFACE)?;
    rtnetlink.add_address(SANDBOX_INTERFACE, address)?;
    rtnetlink.add_route((Ipv4Addr::UNSPECIFIED, 0), SANDBOX_INTERFACE)
}

/// Removes the sandbox's end, and with it the pair.
pub(super) fn remove() -> Result<(), Errno> {
    Rtnetlink::open()?.remove(SANDBOX_INTERFACE)
}
