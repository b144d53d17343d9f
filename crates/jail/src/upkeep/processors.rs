//! Spreads busy sandboxes over the processors.
//!
//! A sandbox with one processor runs on one from its start on. Without this module two busy
//! sandboxes could share a processor while another has nothing to do. The server calls
//! [`Balancer::run`] in intervals. While no sandbox is busy, a call reads one file of the kernel.

mod spread;

use crate::cgroup::cpuset::Cpuset;
use crate::cgroup::{CgroupRoot, Cgroups, Hierarchies};
use crate::config::Config;
use crate::sandbox_handle::{SandboxHandle, read_key};
use spread::{BusySandbox, spread};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The share of one processor from which on sandboxes, one or all together, are busy.
const BUSY: f64 = 0.05;

/// Measures sandboxes, and moves those that are busy to processors that are less used.
#[derive(Debug)]
pub struct Balancer {
    config: Config,
    /// The version 2 group of all sandboxes.
    all: PathBuf,
    last: Option<GroupUsage>,
    sandboxes: HashMap<String, GroupUsage>,
}

/// Processor time at one moment.
#[derive(Debug, Clone, Copy)]
struct GroupUsage {
    at: Instant,
    cpu_us: u64,
}

impl GroupUsage {
    fn of(group: &Path) -> Self {
        Self { at: Instant::now(), cpu_us: read_key(&group.join("cpu.stat"), "usage_usec") }
    }

    /// The processors that were used since an earlier reading.
    fn load_since(&self, earlier: &Self) -> f64 {
        let elapsed = self.at.duration_since(earlier.at).as_secs_f64();
        let used_us = self.cpu_us.saturating_sub(earlier.cpu_us);
        if elapsed > 0.0 { used_us as f64 / 1e6 / elapsed } else { 0.0 }
    }
}

impl Balancer {
    /// A balancer for the sandboxes of a server; `None` if they have no CPU sets, because the cpuset
    /// controller is missing or not delegated.
    #[must_use]
    pub fn new(config: &Config) -> Option<Self> {
        let root = CgroupRoot::locate(&Hierarchies::find().ok()?, &config.cgroup)?;
        root.has_cpuset().then(|| Self {
            config: config.clone(),
            all: root.unified,
            last: None,
            sandboxes: HashMap::new(),
        })
    }

    /// Measures and moves sandboxes. `names` returns the names of those that run, and is called only
    /// while some are busy. Returns how many were moved. Blocks.
    pub fn run(&mut self, names: impl FnOnce() -> Vec<String>) -> usize {
        let now = GroupUsage::of(&self.all);
        let before = self.last.replace(now);
        if before.is_none_or(|before| now.load_since(&before) < BUSY) {
            self.sandboxes.clear();
            return 0;
        }
        let earlier = std::mem::take(&mut self.sandboxes);
        let mut busy = Vec::new();
        for name in names() {
            let handle = SandboxHandle::open(&self.config, &name);
            let Ok(Some(groups)) = handle.groups() else { continue };
            let now = GroupUsage::of(&groups.unified);
            let load = earlier.get(&name).map_or(0.0, |earlier| now.load_since(earlier));
            self.sandboxes.insert(name, now);
            if load >= BUSY {
                busy.extend(Busy::read(groups, load));
            }
        }
        balance(busy)
    }
}

/// A busy sandbox and its CPU set.
struct Busy {
    set: Cpuset,
    sandbox: BusySandbox,
}

impl Busy {
    fn read(groups: &Cgroups, load: f64) -> Option<Self> {
        let set = groups.cpuset()?;
        let processors = set.processors().ok()?;
        Some(Self { set, sandbox: BusySandbox { processors, load } })
    }
}

fn balance(busy: Vec<Busy>) -> usize {
    let Some(available) = busy.first().and_then(|first| first.set.available().ok()) else {
        return 0;
    };
    let (sets, mut sandboxes): (Vec<_>, Vec<_>) =
        busy.into_iter().map(|one| (one.set, one.sandbox)).unzip();
    let moved = spread(&available, &mut sandboxes);
    let assigned = moved.into_iter().filter(|index| {
        // A sandbox that has just ended has no CPU set anymore.
        sets[*index].assign(&sandboxes[*index].processors).is_ok()
    });
    assigned.count()
}
