//! The CPU sets of sandboxes. `nproc` and every program that asks for its affinity count as many
//! processors as the limit on processor time covers, rounded up.
//!
//! Without the cpuset controller, a sandbox has no set. Then it runs on all processors, and only the
//! quota of processor time limits it.

use isolet_wire::launcher::Limits;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The controller that limits processors, not their time.
pub(crate) const CONTROLLER: &str = "cpuset";

/// The CPU set of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Cpuset {
    group: PathBuf,
    /// The file with the processors that all sandboxes share.
    available: PathBuf,
    /// The file with the processors that the sandbox's processes run on.
    effective: PathBuf,
    /// Version 2, where an empty set stands for all processors.
    is_unified: bool,
}

impl Cpuset {
    /// The set of a version 1 group, which need not exist.
    pub(super) fn legacy(group: &Path) -> Self {
        let root = group.parent().unwrap_or(group);
        Self {
            available: root.join("cpuset.effective_cpus"),
            effective: group.join("cpuset.effective_cpus"),
            group: group.to_owned(),
            is_unified: false,
        }
    }

    /// The set of the version 2 group `tenant`; `None` if the group has no cpuset controller.
    pub(super) fn unified(root: &Path, tenant: &Path) -> Option<Self> {
        tenant.join("cpuset.cpus").try_exists().unwrap_or(false).then(|| Self {
            group: tenant.to_owned(),
            available: root.join("cpuset.cpus.effective"),
            effective: tenant.join("cpuset.cpus.effective"),
            is_unified: true,
        })
    }

    /// The kernel's own list of the sandbox's processors, in the format of
    /// `/sys/devices/system/cpu/online`.
    pub(crate) fn effective_file(&self) -> &Path {
        &self.effective
    }

    /// The processors that all sandboxes share.
    pub(crate) fn available(&self) -> io::Result<Vec<u32>> {
        read_processors(&self.available)
    }

    /// The processors that the sandbox's processes run on.
    pub(crate) fn processors(&self) -> io::Result<Vec<u32>> {
        read_processors(&self.effective)
    }

    /// Moves the sandbox's processes to these processors.
    pub(crate) fn assign(&self, processors: &[u32]) -> io::Result<()> {
        let list: Vec<String> = processors.iter().map(u32::to_string).collect();
        fs::write(self.group.join("cpuset.cpus"), list.join(","))
    }

    /// Gives the sandbox as many processors as `limits` cover. Its processors stay if their number
    /// is right; otherwise they are chosen from the one at index `first` on.
    pub(super) fn resize(&self, limits: &Limits, first: usize) -> io::Result<()> {
        let available = self.available()?;
        let count = processors_of(limits).min(available.len());
        if fs::read_to_string(self.group.join("cpuset.cpus"))
            .is_ok_and(|set| parse(&set).len() == count)
        {
            return Ok(());
        }
        if self.is_unified && count == available.len() {
            // Includes processors that are switched on later. Kernels such as 6.1 do not empty the
            // set of a group with processes; that one gets the processors of today.
            match fs::write(self.group.join("cpuset.cpus"), "\n") {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSPC) => {}
                other => return other,
            }
        }
        self.assign(&choose(&available, count, first))
    }

    /// Creates a version 1 group, in which processes can only be once its sets are not empty.
    pub(super) fn create_legacy(group: &Path) -> io::Result<()> {
        match fs::create_dir(group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let parent = group.parent().unwrap_or(group);
        let nodes = fs::read_to_string(parent.join("cpuset.effective_mems"))?;
        fs::write(group.join("cpuset.mems"), nodes.trim())?;
        // The scheduling domain of the parent covers these processors. Otherwise the kernel would
        // check all domains of the machine at each change.
        fs::write(group.join("cpuset.sched_load_balance"), "0")
    }

    /// Creates the version 1 group of all sandboxes, with all processors of its parent.
    pub(super) fn create_legacy_root(group: &Path) -> io::Result<()> {
        Self::create_legacy(group)?;
        let parent = group.parent().unwrap_or(group);
        let all = fs::read_to_string(parent.join("cpuset.effective_cpus"))?;
        fs::write(group.join("cpuset.cpus"), all.trim())
    }
}

/// The number of processors that the limit on processor time covers.
fn processors_of(limits: &Limits) -> usize {
    usize::try_from(limits.cpu_millis.div_ceil(1000)).unwrap_or(usize::MAX).max(1)
}

/// `count` of the processors, from the one at index `first` on.
fn choose(available: &[u32], count: usize, first: usize) -> Vec<u32> {
    let start = first.checked_rem(available.len()).unwrap_or(0);
    let mut chosen: Vec<u32> =
        available.iter().cycle().skip(start).take(count.min(available.len())).copied().collect();
    chosen.sort_unstable();
    chosen
}

fn read_processors(file: &Path) -> io::Result<Vec<u32>> {
    Ok(parse(&fs::read_to_string(file)?))
}

/// Parses the kernel's list of processors, such as `0-3,8`.
fn parse(list: &str) -> Vec<u32> {
    let mut processors = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            processors.extend(first..=last);
        }
    }
    processors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(parse("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse("\n"), [0; 0]);
    }

    #[test]
    fn a_started_processor_counts_and_sandboxes_begin_one_after_the_other() {
        let limits = |cpu_millis| Limits { memory_mib: 1, cpu_millis, pids: 1, disk_mib: 0 };
        assert_eq!([100, 1000, 1500, 2001].map(|one| processors_of(&limits(one))), [1, 1, 2, 3]);
        let available = [0, 1, 4];
        assert_eq!(choose(&available, 1, 0), [0]);
        assert_eq!(choose(&available, 1, 4), [1]);
        assert_eq!(choose(&available, 2, 2), [0, 4]);
        assert_eq!(choose(&available, 9, 1), [0, 1, 4]);
    }
}
