//! What a server leaves on its machine: cgroups, mounts, directories and processes.

use crate::process;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Deeper than any of Isolet's cgroups is nested.
const DEPTH_MAX: usize = 8;

/// Everything of one data directory that can be observed from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traces {
    /// Names of sandboxes that have a cgroup in some hierarchy.
    pub groups: BTreeSet<String>,
    /// Names of sandboxes that have a directory.
    pub directories: BTreeSet<String>,
    /// The number of entries that wait to be removed.
    pub trash: usize,
    /// Mount points below the data directory in this mount namespace.
    pub mounts: BTreeSet<String>,
    /// Disks of sandboxes that the kernel still lists, for sandboxes that have a disk.
    pub disks: BTreeSet<String>,
}

impl Traces {
    /// Observes the current state.
    #[must_use]
    pub fn of(data: &Path) -> Self {
        let groups = parent_cgroups(data).iter().flat_map(|base| folders(base)).collect();
        let directories = folders(&data.join("sandboxes")).into_iter().collect();
        let trash = fs::read_dir(data.join("trash")).map_or(0, Iterator::count);
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        let mounts = points.filter(|point| below(data, point)).map(str::to_owned).collect();
        Self { groups, directories, trash, mounts, disks: disks(data) }
    }

    /// The agents of a data directory's sandboxes with their start times, whether or not a server
    /// runs on it.
    #[must_use]
    pub fn agents(data: &Path) -> BTreeSet<(i32, u64)> {
        agents(data).into_iter().filter_map(|pid| Some((pid, process::started(pid)?))).collect()
    }

    /// Ends everything that runs for a data directory without a server.
    pub fn erase(data: &Path) {
        erase(data);
    }

    /// Whether exactly `count` sandboxes exist and none is half removed.
    #[must_use]
    pub fn holds(&self, count: usize) -> bool {
        self.groups.len() == count
            && self.directories.len() == count
            && self.trash == 0
            && self.mounts.is_empty()
            && self.disks.len() <= count
    }
}

/// Whether a mount point lies below the data directory, and is not the directory itself, which may
/// be a separate disk.
fn below(data: &Path, point: &str) -> bool {
    Path::new(point).starts_with(data) && Path::new(point) != data
}

fn disks(data: &Path) -> BTreeSet<String> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let files = devices
        .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.filter(|file| Path::new(file).starts_with(data)).collect()
}

/// Name of the cgroup that contains those of this data directory's sandboxes.
pub(crate) fn instance(data: &Path) -> String {
    let recorded = fs::read_to_string(data.join("identity")).unwrap_or_default();
    if let Some(name) = recorded.lines().find_map(|line| line.strip_prefix("groups ")) {
        return name.to_owned();
    }
    isolet_jail::Config::beside(data).expect("own path is known").cgroup
}

/// The path of that cgroup in every hierarchy that has it.
pub(crate) fn parent_cgroups(data: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    find(Path::new("/sys/fs/cgroup"), &instance(data), 0, &mut found);
    found
}

/// The cgroup of each sandbox in every hierarchy.
pub(crate) fn cgroups(data: &Path) -> Vec<PathBuf> {
    let all = parent_cgroups(data).into_iter();
    let mut all: Vec<_> =
        all.flat_map(|base| folders(&base).into_iter().map(move |name| base.join(name))).collect();
    all.sort();
    all
}

fn find(at: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for folder in folders(at) {
        let path = at.join(&folder);
        if folder == name {
            found.push(path);
        } else if depth < DEPTH_MAX {
            find(&path, name, depth + 1, found);
        }
    }
}

fn folders(at: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(at) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()));
    folders.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The pids in the cgroups of this data directory, agents and tenants.
pub(crate) fn members(data: &Path) -> Vec<i32> {
    let mut pids = BTreeSet::new();
    for base in parent_cgroups(data) {
        collect(&base, 0, &mut pids);
    }
    pids.into_iter().collect()
}

fn collect(group: &Path, depth: usize, pids: &mut BTreeSet<i32>) {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    if depth < DEPTH_MAX {
        for folder in folders(group) {
            collect(&group.join(folder), depth + 1, pids);
        }
    }
}

/// Process 1 of each sandbox.
pub(crate) fn agents(data: &Path) -> Vec<i32> {
    let mut pids = BTreeSet::new();
    for base in parent_cgroups(data) {
        for folder in folders(&base) {
            collect(&base.join(folder).join("agent"), 0, &mut pids);
        }
    }
    pids.into_iter().collect()
}

/// Ends every process of this data directory and removes its cgroups, for a server that is gone.
pub(crate) fn erase(data: &Path) {
    for base in parent_cgroups(data) {
        let _ = fs::write(base.join("cgroup.kill"), "1");
    }
    crate::wait_until("processes of a dead server end", crate::SOON, || {
        let left = members(data);
        left.iter().for_each(|pid| process::kill(*pid));
        left.is_empty().then_some(())
    });
    for base in parent_cgroups(data) {
        remove(&base, 0);
    }
}

fn remove(group: &Path, depth: usize) {
    if depth < DEPTH_MAX {
        for folder in folders(group) {
            remove(&group.join(folder), depth + 1);
        }
    }
    let _ = fs::remove_dir(group);
}
