//! Checks that this machine meets the requirements, before anything is created.

use crate::cgroup::Hierarchies;
use std::fs;
use std::path::Path;

/// One sentence for each requirement that is missing, with the remedy; empty when sandboxes can be
/// created.
#[must_use]
pub fn missing() -> Vec<String> {
    let mut lacks = Vec::new();
    let mut need = |there: bool, sentence: &str| {
        if !there {
            lacks.push(sentence.to_owned());
        }
    };
    need(
        rustix::process::geteuid().is_root(),
        "not root: start isolet with sudo or as a systemd service (a rootless mode does not exist yet)",
    );
    need(
        cfg!(target_arch = "x86_64"),
        "this processor is not x86-64: sandboxes have not been run on any other",
    );
    need(
        kernel_version() >= (5, 19),
        "the kernel is older than 5.19, which overlay layers with mapped ids need: boot a newer one (Debian 12 has 6.1)",
    );
    need(
        read_number("/proc/sys/user/max_user_namespaces") > 1,
        "user namespaces are switched off: sysctl -w user.max_user_namespaces=10000",
    );
    need(has_filesystem("overlay"), "the overlay file system is missing: modprobe overlay");
    need(
        Path::new("/proc/sys/kernel/seccomp").is_dir(),
        "the kernel has no seccomp filters (CONFIG_SECCOMP_FILTER): boot a distribution's kernel",
    );
    need(
        super::image::is_usr_merged(),
        "/bin and /lib are not links into /usr: install the package usrmerge",
    );
    match Hierarchies::find() {
        Ok(found) => check_cgroups(&found, &mut need),
        Err(error) => need(false, &format!("/proc cannot be read ({error}): mount it")),
    }
    lacks
}

fn check_cgroups(found: &Hierarchies, need: &mut dyn FnMut(bool, &str)) {
    let Some(unified) = &found.unified else {
        return need(
            false,
            "no cgroup version 2 tree is mounted: mount -t cgroup2 none /sys/fs/cgroup/unified, or boot with systemd.unified_cgroup_hierarchy=1",
        );
    };
    need(
        unified.join("cgroup.procs").is_file(),
        "our own control group is not visible: run isolet outside of a container, or with its cgroup mounted",
    );
    if found.unified_only() {
        let offered = fs::read_to_string(unified.join("cgroup.controllers")).unwrap_or_default();
        for controller in crate::cgroup::CONTROLLERS {
            let there = offered.split_whitespace().any(|name| name == controller);
            need(
                there,
                &format!(
                    "the {controller} controller is not delegated to us: set Delegate=yes in the systemd unit"
                ),
            );
        }
        return;
    }
    for (controller, place) in crate::cgroup::CONTROLLERS.iter().zip(&found.legacy) {
        need(
            place.is_some(),
            &format!(
                "no {controller} control group is mounted: boot with systemd.unified_cgroup_hierarchy=1"
            ),
        );
    }
}

fn read_number(path: &str) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn has_filesystem(name: &str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last() == Some(name))
}

fn kernel_version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(['.', '-']).map_while(|part| part.trim().parse().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
