//! Keeps what running sandboxes see as `/proc/meminfo` up to date.
//!
//! The server calls [`MeminfoRefresher::run`] in intervals. Memory changes while programs run, so a
//! call reads the processor time of all sandboxes together, which is one file, and does nothing more
//! if it has not changed. Otherwise it reads the processor time of each sandbox, and rewrites the
//! files of those whose time has changed.

use crate::cgroup::meminfo::{self, Machine};
use crate::cgroup::{CgroupRoot, Cgroups, Hierarchies};
use crate::config::Config;
use crate::sandbox_handle::{SandboxHandle, try_read_key};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Rewrites the files of sandboxes whose programs have run.
#[derive(Debug)]
pub struct MeminfoRefresher {
    config: Config,
    /// The version 2 group of all sandboxes.
    all: PathBuf,
    cpu_us: Option<u64>,
    /// All sandboxes are up to date while the processor time is that of `cpu_us`.
    settled: bool,
    sandboxes: HashMap<String, Refreshed>,
}

/// A sandbox at its last refresh.
#[derive(Debug)]
struct Refreshed {
    directory: PathBuf,
    groups: Cgroups,
    /// The group of the tenant's programs.
    tenant: PathBuf,
    cpu_us: Option<u64>,
    /// The sandbox was refreshed after its processor time stopped changing: the kernel may free the
    /// memory of a program, or count it, shortly after the program's end.
    settled: bool,
}

impl MeminfoRefresher {
    /// A refresher for the sandboxes of a server; `None` without a version 2 tree of control groups.
    #[must_use]
    pub fn new(config: &Config) -> Option<Self> {
        let root = CgroupRoot::locate(&Hierarchies::find().ok()?, &config.cgroup)?;
        Some(Self {
            config: config.clone(),
            all: root.unified,
            cpu_us: None,
            settled: false,
            sandboxes: HashMap::new(),
        })
    }

    /// Refreshes sandboxes. `names` returns the names of those that run, and is called only if
    /// programs have run since the last call. Returns how many files were rewritten. Blocks.
    ///
    /// A file that cannot be written is tried again when programs of its sandbox run.
    pub fn run(&mut self, names: impl FnOnce() -> Vec<String>) -> usize {
        let cpu_us = cpu_us(&self.all);
        if self.settled && cpu_us == self.cpu_us {
            return 0;
        }
        let Ok(machine) = Machine::read() else { return 0 };
        self.cpu_us = cpu_us;
        let mut before = std::mem::take(&mut self.sandboxes);
        let mut rewritten = 0;
        for name in names() {
            let known = before.remove(&name).or_else(|| Refreshed::open(&self.config, &name));
            if let Some(mut sandbox) = known
                && let Some(changed) = sandbox.refresh(&machine)
            {
                rewritten += usize::from(changed);
                self.sandboxes.insert(name, sandbox);
            }
        }
        self.settled = self.sandboxes.values().all(|sandbox| sandbox.settled);
        rewritten
    }
}

impl Refreshed {
    fn open(config: &Config, name: &str) -> Option<Self> {
        let handle = SandboxHandle::open(config, name);
        let groups = handle.groups().ok()??.clone();
        Some(Self {
            directory: handle.directory().to_owned(),
            tenant: groups.tenant(),
            groups,
            cpu_us: None,
            settled: false,
        })
    }

    /// Returns whether the file was rewritten; `None` if the sandbox has ended. One that wakes may
    /// have other groups.
    fn refresh(&mut self, machine: &Machine) -> Option<bool> {
        let now = cpu_us(&self.tenant)?;
        let unchanged = self.cpu_us.replace(now) == Some(now);
        if unchanged && self.settled {
            return Some(false);
        }
        self.settled = unchanged;
        Some(meminfo::refresh(&self.directory, &self.groups, machine).unwrap_or(false))
    }
}

/// The processor time of a version 2 group in microseconds; `None` if there is no such group.
fn cpu_us(group: &Path) -> Option<u64> {
    try_read_key(&group.join("cpu.stat"), "usage_usec")
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::launcher::Limits;
    use std::fs;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// Control groups and directories of sandboxes without an agent. Dropping it removes the groups.
    struct Sandboxes {
        _folder: tempfile::TempDir,
        config: Config,
        root: CgroupRoot,
        all: Vec<(String, Cgroups)>,
    }

    impl Sandboxes {
        fn create(count: usize) -> Self {
            let folder = tempfile::tempdir().expect("creates");
            let mut config = Config::beside(folder.path()).expect("own path is known");
            config.cgroup = format!("isolet-meminfo-{}", std::process::id());
            let hierarchies = Hierarchies::find().expect("finds");
            let root = CgroupRoot::create(&hierarchies, &config.cgroup).expect("creates");
            let limits = Limits { memory_mib: 256, cpu_millis: 1000, pids: 64, disk_mib: 0 };
            let mut all = Vec::new();
            for number in 0..count {
                let name = format!("s{number}");
                let groups = root.create_sandbox(&name, &limits).expect("creates");
                let directory = config.sandbox_dir(&name);
                fs::create_dir_all(&directory).expect("creates");
                fs::write(directory.join("cgroups"), groups.to_text()).expect("writes");
                fs::write(directory.join("meminfo"), "").expect("writes");
                all.push((name, groups));
            }
            Self { _folder: folder, config, root, all }
        }

        fn names(&self) -> Vec<String> {
            self.all.iter().map(|(name, _)| name.clone()).collect()
        }

        /// Runs a short program in the first `count` sandboxes.
        fn run_programs(&self, count: usize) {
            for (_, groups) in &self.all[..count] {
                let procs = groups.tenant().join("cgroup.procs");
                let enter = format!("echo $$ >{}; :", procs.display());
                assert!(Command::new("sh").args(["-c", &enter]).status().expect("runs").success());
            }
        }

        fn meminfo(&self, number: usize) -> String {
            let directory = self.config.sandbox_dir(&self.all[number].0);
            fs::read_to_string(directory.join("meminfo")).expect("reads")
        }
    }

    impl Drop for Sandboxes {
        fn drop(&mut self) {
            for (_, groups) in &self.all {
                groups.try_remove();
            }
            self.root.remove_if_empty();
        }
    }

    #[test]
    fn only_sandboxes_whose_programs_have_run_are_looked_at() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: control groups need root");
            return;
        }
        let sandboxes = Sandboxes::create(2);
        let mut refresher = MeminfoRefresher::new(&sandboxes.config).expect("has control groups");
        assert_eq!(refresher.run(|| sandboxes.names()), 2, "a new server refreshes all");
        assert!(sandboxes.meminfo(0).starts_with("MemTotal:         262144 kB\nMemFree:"));
        assert_eq!(refresher.run(|| sandboxes.names()), 0, "once more, after the last change");
        assert_eq!(refresher.run(|| panic!("nothing has run")), 0);
        let write = |number: usize| {
            let directory = sandboxes.config.sandbox_dir(&sandboxes.all[number].0);
            fs::write(directory.join("meminfo"), "changed").expect("writes");
        };
        write(0);
        write(1);
        sandboxes.run_programs(1);
        assert_eq!(refresher.run(|| sandboxes.names()), 1);
        assert!(sandboxes.meminfo(0).starts_with("MemTotal:"));
        assert_eq!(sandboxes.meminfo(1), "changed");
        write(0);
        assert_eq!(refresher.run(|| sandboxes.names()), 1, "once more, after the last change");
        assert_eq!(refresher.run(|| panic!("nothing has run")), 0);
        assert_eq!(sandboxes.meminfo(1), "changed");
    }

    #[test]
    #[ignore = "measures"]
    fn the_cost_of_a_call() {
        for count in [1, 10, 300] {
            let sandboxes = Sandboxes::create(count);
            let mut refresher = MeminfoRefresher::new(&sandboxes.config).expect("control groups");
            let mut measure = |busy: usize| {
                let mut times: Vec<Duration> = (0..20)
                    .map(|_| {
                        sandboxes.run_programs(busy);
                        let begin = Instant::now();
                        refresher.run(|| sandboxes.names());
                        begin.elapsed()
                    })
                    .collect();
                times.sort();
                times[times.len() / 2]
            };
            let all = measure(count);
            let one = measure(1);
            let none = measure(0);
            println!("{count} sandboxes: none busy {none:?}, one {one:?}, all {all:?}");
        }
    }
}
