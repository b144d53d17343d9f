//! What stands of a server's links, seen from outside: the process that owns them, and the
//! namespace between sandboxes and host.

use crate::net::inside;
use crate::{SOON, process, wait_until};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The process that owns links for this data directory.
#[must_use]
pub fn keeper(data: &Path) -> Option<i32> {
    let data = data.display().to_string();
    process::all().into_iter().find(|pid| {
        let words = process::arguments(*pid);
        owns_pairs(&words) && words.contains(&data) && process::alive(*pid)
    })
}

/// Whether this is the command line of the process that owns the veth pairs. Launchers of earlier
/// versions have another flag.
#[must_use]
pub fn owns_pairs(command_line: &str) -> bool {
    command_line.contains("--veth") || command_line.contains("--veth")
}

/// The same, once it is there.
///
/// # Panics
/// When it does not come.
#[track_caller]
#[must_use]
pub fn owner(data: &Path) -> i32 {
    wait_until("somebody owns links", SOON, || keeper(data))
}

/// The process that judges names for it.
#[must_use]
pub fn edge(keeper: i32) -> Option<i32> {
    let all = process::all().into_iter();
    all.filter(|pid| process::parent(*pid) == Some(keeper))
        .find(|pid| process::name(*pid).starts_with("isolet-egress-proxy") && process::alive(*pid))
}

/// The namespace between: the one of its descriptors that has the gateway.
#[must_use]
pub fn between(keeper: i32) -> Option<OwnedFd> {
    let all = std::fs::read_dir(format!("/proc/{keeper}/fd")).ok()?.flatten();
    let spaces = all.filter(|fd| {
        let at = std::fs::read_link(fd.path()).unwrap_or_default();
        at.to_string_lossy().starts_with("net:")
    });
    let mut opened = spaces.filter_map(|fd| std::fs::File::open(fd.path()).ok());
    let found = opened.find(|space| inside(space, "ip", "-o addr").contains("10.231.0.1/"));
    found.map(OwnedFd::from)
}

/// Links between, those that are ready for somebody among them, and how many addresses of links the
/// filter's sets hold.
#[must_use]
pub fn standing(keeper: i32) -> (usize, usize) {
    let Some(space) = between(keeper) else { return (0, 0) };
    let links = inside(&space, "ip", "-o link").matches(": l").count() - 1;
    let held = inside(&space, "nft", "list set inet isolet addresses").matches(" . 10.").count();
    (links, held)
}
