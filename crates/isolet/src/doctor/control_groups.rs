//! Tries out control groups.

use super::finding::Finding;
use isolet_jail::{CONTROL_GROUPS, probe, requirements};

const GROUP: &str = "control groups";

pub(super) fn check(is_root: bool) -> Vec<Finding> {
    let found = requirements().into_iter().find(|one| one.name == CONTROL_GROUPS);
    // What is lacking stands in the group `host`.
    let Some(Ok(layout)) = found.map(|one| one.result) else { return Vec::new() };
    vec![Finding::ok(GROUP, "version", layout), delegation(is_root)]
}

fn delegation(is_root: bool) -> Finding {
    let check = "delegation";
    if !is_root {
        return Finding::needs_root(GROUP, check);
    }
    match probe::control_groups() {
        Ok(()) => Finding::ok(GROUP, check, "limits set; a process frozen and killed"),
        Err(error) => Finding::failure(
            GROUP,
            check,
            format!("the groups of a sandbox do not work ({error})"),
            "set Delegate=yes in the systemd unit; in a container, mount the host's control groups writable",
        ),
    }
}
