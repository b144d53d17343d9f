//! Tries out control groups.

use super::finding::Finding;
use isolet_jail::{CONTROL_GROUPS, probe, requirements};

const GROUP: &str = "control groups";

pub(super) fn check(is_root: bool) -> Vec<Finding> {
    let found = requirements().into_iter().find(|one| one.name == CONTROL_GROUPS);
    // What is lacking stands in the group `host`.
    let Some(Ok(layout)) = found.map(|one| one.result) else { return Vec::new() };
    let mut all = vec![Finding::ok(GROUP, "version", layout)];
    all.extend(delegation(is_root));
    all
}

fn delegation(is_root: bool) -> Vec<Finding> {
    let check = "delegation";
    if !is_root {
        return vec![Finding::needs_root(GROUP, check)];
    }
    match probe::control_groups() {
        Ok(has_cpuset) => vec![
            Finding::ok(GROUP, check, "limits set; a process frozen and killed"),
            processors(has_cpuset),
        ],
        Err(error) => vec![Finding::failure(
            GROUP,
            check,
            format!("the groups of a sandbox do not work ({error})"),
            "set Delegate=yes in the systemd unit; in a container, mount the host's control groups writable",
        )],
    }
}

fn processors(has_cpuset: bool) -> Finding {
    let check = "processors";
    if has_cpuset {
        return Finding::ok(GROUP, check, "programs count those that the limit covers");
    }
    Finding::warning(
        GROUP,
        check,
        "no cpuset controller: programs in sandboxes count all processors of this machine",
        "delegate the cpuset controller (Delegate=yes), or boot a kernel with CONFIG_CPUSETS",
    )
}
