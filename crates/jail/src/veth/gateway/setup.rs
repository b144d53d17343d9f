//! Prepares the host for the gateway, and the gateway's namespace.

use super::{Failure, failed};
use crate::kernel::netns::{write_setting, write_setting_if_present};
use crate::veth::addresses::{AddressRange, HOST_UPLINK};
use crate::veth::netlink::rtnetlink::Rtnetlink;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// How long the uplink of an earlier process, which was killed, may take to disappear.
const REMOVAL_WAIT: Duration = Duration::from_millis(500);

/// Checks that no other program uses our interface or our addresses, and removes the uplink that an
/// earlier process of this data directory left behind.
pub(super) fn claim_uplink(
    host: &mut Rtnetlink,
    alias: &str,
    range: AddressRange,
) -> Result<(), Failure> {
    let until = Instant::now() + REMOVAL_WAIT;
    let mut found = host.alias(HOST_UPLINK);
    // An interface that is being removed has no alias.
    while matches!(found, Ok(None)) && Instant::now() < until {
        std::thread::sleep(REMOVAL_WAIT / 100);
        found = host.alias(HOST_UPLINK);
    }
    match found {
        Ok(Some(other)) if other == alias => {
            host.remove(HOST_UPLINK)
                .map_err(|errno| failed("remove the old interface isolet0", errno))?;
        }
        Ok(_) => {
            return Err(format!(
                "a link {HOST_UPLINK} exists that is not ours: one server of a machine has egress; \
                 if no other runs, remove it with: ip link del {HOST_UPLINK}"
            ));
        }
        Err(_) => {}
    }
    let (address, prefix_length) = range.network();
    match host.overlaps(range.network(), HOST_UPLINK) {
        Ok(true) => Err(format!(
            "this machine has routes into {address}/{prefix_length}, which sandboxes use: set another [network] range"
        )),
        Ok(false) => Ok(()),
        Err(errno) => Err(failed("list routes", errno)),
    }
}

/// Makes the host forward packets.
pub(super) fn enable_forwarding() -> Result<(), Failure> {
    let current = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap_or_default();
    if current.trim() == "1" {
        return Ok(());
    }
    write_setting("ipv4/ip_forward", "1").map_err(|errno| {
        format!(
            "cannot switch forwarding on ({}): sysctl -w net.ipv4.ip_forward=1",
            std::io::Error::from(errno)
        )
    })
}

/// Writes the settings of the gateway's namespace, which forwards only IPv4.
pub(super) fn configure_netns() -> Result<(), Errno> {
    write_setting("ipv4/ip_forward", "1")?;
    for interface in ["all", "default"] {
        write_setting(&format!("ipv4/conf/{interface}/rp_filter"), "0")?;
        write_setting(&format!("ipv4/conf/{interface}/send_redirects"), "0")?;
        write_setting(&format!("ipv4/conf/{interface}/accept_redirects"), "0")?;
        write_setting(&format!("ipv4/conf/{interface}/accept_source_route"), "0")?;
        write_setting_if_present(&format!("ipv6/conf/{interface}/disable_ipv6"), "1")?;
    }
    // All sandboxes share the connection table of this namespace: closed connections leave it soon.
    for (state, seconds) in [("time_wait", "10"), ("fin_wait", "30"), ("close_wait", "30")] {
        let setting = format!("netfilter/nf_conntrack_tcp_timeout_{state}");
        write_setting_if_present(&setting, seconds)?;
    }
    isolet_sys::loopback::bring_up()
}
