//! Checks that this machine meets the requirements, before anything is created. They only read.

use crate::cgroup::Hierarchies;
use std::path::Path;
use std::{fmt, fs};

/// The requirements of the control groups, one for each problem.
pub const CONTROL_GROUPS: &str = "control groups";
/// The first kernel that shows overlay layers under mapped ids.
const KERNEL_MIN: (u32, u32) = (5, 19);

/// One requirement of sandboxes on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// What is required, in one or two words.
    pub name: &'static str,
    /// What this machine has, or what it lacks.
    pub result: Result<String, Lack>,
}

/// Something that this machine lacks. Displayed as `problem: remedy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// What is missing, as a sentence.
    pub problem: String,
    /// What the operator can do: a package, a setting or a command.
    pub remedy: String,
}

impl Lack {
    fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.problem, self.remedy)
    }
}

/// One sentence for each requirement that is missing, with the remedy; empty when sandboxes can be
/// created.
#[must_use]
pub fn missing() -> Vec<String> {
    let lacks = requirements().into_iter().filter_map(|one| one.result.err());
    lacks.map(|lack| lack.to_string()).collect()
}

/// All requirements, with what this machine has.
#[must_use]
pub fn requirements() -> Vec<Requirement> {
    let mut all = vec![user(), processor(), kernel(), user_namespaces(), overlay(), seccomp()];
    all.push(merged_usr());
    all.extend(control_groups());
    all
}

fn requirement(
    name: &'static str,
    holds: bool,
    found: impl Into<String>,
    lack: Lack,
) -> Requirement {
    Requirement { name, result: if holds { Ok(found.into()) } else { Err(lack) } }
}

fn user() -> Requirement {
    let lack = Lack::new(
        "not root",
        "start isolet with sudo or as a systemd service (a rootless mode does not exist yet)",
    );
    requirement("user", rustix::process::geteuid().is_root(), "root", lack)
}

fn processor() -> Requirement {
    let lack = Lack::new(
        "this processor is not x86-64",
        "use an x86-64 machine: sandboxes have not been run on any other",
    );
    requirement("processor", cfg!(target_arch = "x86_64"), std::env::consts::ARCH, lack)
}

fn kernel() -> Requirement {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(['.', '-']).map_while(|part| part.trim().parse().ok());
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let lack = Lack::new(
        "the kernel is older than 5.19, which overlay layers with mapped ids need",
        "boot a newer one (Debian 12 has 6.1)",
    );
    requirement("kernel", version >= KERNEL_MIN, format!("Linux {}", release.trim()), lack)
}

fn user_namespaces() -> Requirement {
    let limit = read_number("/proc/sys/user/max_user_namespaces");
    let lack =
        Lack::new("user namespaces are switched off", "sysctl -w user.max_user_namespaces=10000");
    requirement("user namespaces", limit > 1, format!("at most {limit}"), lack)
}

fn overlay() -> Requirement {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has = known.lines().any(|line| line.split_whitespace().last() == Some("overlay"));
    let lack = Lack::new("the overlay file system is missing", "modprobe overlay");
    requirement("overlay", has, "known to the kernel", lack)
}

fn seccomp() -> Requirement {
    let lack = Lack::new(
        "the kernel has no seccomp filters (CONFIG_SECCOMP_FILTER)",
        "boot a distribution's kernel",
    );
    let has = Path::new("/proc/sys/kernel/seccomp").is_dir();
    requirement("seccomp", has, "known to the kernel", lack)
}

fn merged_usr() -> Requirement {
    let lack = Lack::new("/bin and /lib are not links into /usr", "install the package usrmerge");
    requirement("merged /usr", super::image::is_usr_merged(), "/bin and /lib are links", lack)
}

/// One requirement if everything is there, otherwise one for each problem.
fn control_groups() -> Vec<Requirement> {
    let found = match Hierarchies::find() {
        Ok(found) => check_hierarchies(&found),
        Err(error) => {
            let problem = format!("/proc cannot be read ({error})");
            Err(vec![Lack::new(problem, "mount it")])
        }
    };
    let of = |result| Requirement { name: CONTROL_GROUPS, result };
    match found {
        Ok(found) => vec![of(Ok(found.to_owned()))],
        Err(lacks) => lacks.into_iter().map(|lack| of(Err(lack))).collect(),
    }
}

fn check_hierarchies(found: &Hierarchies) -> Result<&'static str, Vec<Lack>> {
    let Some(unified) = &found.unified else {
        return Err(vec![Lack::new(
            "no cgroup version 2 tree is mounted",
            "mount -t cgroup2 none /sys/fs/cgroup/unified, or boot with systemd.unified_cgroup_hierarchy=1",
        )]);
    };
    let mut lacks = Vec::new();
    if !unified.join("cgroup.procs").is_file() {
        lacks.push(Lack::new(
            "our own control group is not visible",
            "run isolet outside of a container, or with its cgroup mounted",
        ));
    }
    if found.unified_only() {
        let offered = fs::read_to_string(unified.join("cgroup.controllers")).unwrap_or_default();
        let lacking = crate::cgroup::CONTROLLERS
            .into_iter()
            .filter(|name| !offered.split_whitespace().any(|one| one == *name));
        lacks.extend(lacking.map(|controller| {
            Lack::new(
                format!("the {controller} controller is not delegated to us"),
                "set Delegate=yes in the systemd unit",
            )
        }));
        return if lacks.is_empty() { Ok("version 2") } else { Err(lacks) };
    }
    for (controller, place) in crate::cgroup::CONTROLLERS.iter().zip(&found.legacy) {
        if place.is_none() {
            lacks.push(Lack::new(
                format!("no {controller} control group is mounted"),
                "boot with systemd.unified_cgroup_hierarchy=1",
            ));
        }
    }
    if lacks.is_empty() {
        Ok("version 1 for limits, version 2 to end sandboxes")
    } else {
        Err(lacks)
    }
}

fn read_number(path: &str) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}
