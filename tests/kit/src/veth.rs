//! Observes a server's veth pairs from outside: the veth manager's process, the egress proxy, and
//! the network namespace between the sandboxes and the host.

use crate::net::inside;
use crate::{SOON, process, wait_until};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The pid of the veth manager of this data directory, if it runs.
#[must_use]
pub fn find_manager(data: &Path) -> Option<i32> {
    let data = data.display().to_string();
    process::all().into_iter().find(|pid| {
        let words = process::arguments(*pid);
        let owns = words.contains("--veth") || words.contains("--links");
        owns && words.contains(&data) && process::alive(*pid)
    })
}

/// Waits for the veth manager of this data directory and returns its pid.
///
/// # Panics
/// When it does not appear within [`SOON`].
#[track_caller]
#[must_use]
pub fn manager(data: &Path) -> i32 {
    wait_until("the veth manager runs", SOON, || find_manager(data))
}

/// The pid of the egress proxy that this veth manager started.
#[must_use]
pub fn egress_proxy(manager: i32) -> Option<i32> {
    let all = process::all().into_iter();
    all.filter(|pid| process::parent(*pid) == Some(manager))
        .find(|pid| process::name(*pid).starts_with("isolet-egress") && process::alive(*pid))
}

/// The gateway's network namespace, found among the veth manager's descriptors by its address.
#[must_use]
pub fn gateway_netns(manager: i32) -> Option<OwnedFd> {
    let all = std::fs::read_dir(format!("/proc/{manager}/fd")).ok()?.flatten();
    let namespaces = all.filter(|fd| {
        let at = std::fs::read_link(fd.path()).unwrap_or_default();
        at.to_string_lossy().starts_with("net:")
    });
    let mut opened = namespaces.filter_map(|fd| std::fs::File::open(fd.path()).ok());
    let found = opened.find(|netns| inside(netns, "ip", "-o addr").contains("10.231.0.1/"));
    found.map(OwnedFd::from)
}

/// The number of veth interfaces in the gateway's namespace, including those prepared for the warm
/// pool, and the number of sandbox addresses in the nftables sets.
#[must_use]
pub fn counts(manager: i32) -> (usize, usize) {
    let Some(netns) = gateway_netns(manager) else { return (0, 0) };
    let interfaces = inside(&netns, "ip", "-o link").matches(": l").count() - 1;
    let addresses =
        inside(&netns, "nft", "list set inet isolet addresses").matches(" . 10.").count();
    (interfaces, addresses)
}
