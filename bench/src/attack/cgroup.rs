//! A control group with a memory limit.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The group, which is removed when it is dropped; its processes return to the group above.
pub(super) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    pub(super) fn new(mib: u64) -> Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let first = Path::new("/sys/fs/cgroup/memory");
        let path = own.lines().find_map(|line| line.split_once(":memory:/").map(|(_, path)| path));
        let (base, limit) = match path.filter(|_| first.is_dir()) {
            Some(path) => (first.join(path), "memory.limit_in_bytes"),
            None => (PathBuf::from("/sys/fs/cgroup"), "memory.max"),
        };
        let group = Self(base.join(format!("isolet-bench-{}", std::process::id())));
        fs::create_dir(&group.0).with_context(|| group.0.display().to_string())?;
        fs::write(group.0.join(limit), (mib << 20).to_string())?;
        Ok(group)
    }

    pub(super) fn take(&self, pid: u32) -> Result<()> {
        Ok(fs::write(self.0.join("cgroup.procs"), pid.to_string())?)
    }

    /// The number of its processes that the kernel killed for lack of memory.
    pub(super) fn killed(&self) -> Result<u64> {
        let text = ["memory.oom_control", "memory.events"]
            .map(|name| fs::read_to_string(self.0.join(name)).unwrap_or_default())
            .concat();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(line.context("a count")?.parse()?)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let left = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        if let Some(above) = self.0.parent() {
            left.lines().for_each(|pid| drop(fs::write(above.join("cgroup.procs"), pid)));
        }
        let _ = fs::remove_dir(&self.0);
    }
}
