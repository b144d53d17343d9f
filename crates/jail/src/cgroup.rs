//! Control groups, in both of the kernel's versions.
//!
//! A host has only version 2, or version 1 for the limits beside a version 2 tree without
//! controllers ("hybrid"). In both cases one write to the version 2 tree kills all processes of a
//! sandbox.
//!
//! ```text
//! v2      <own>/<instance>/<sandbox>/{agent,tenant}      kill, freeze; limits if it has controllers
//! v2      …/agent/s-<session>                             the agent of a session's scope
//! v2      …/tenant/p-<random>                             a background process, created by an agent
//! v1      <own>/<instance>/<sandbox>                      one each in memory, cpu and pids: the tenant
//! v1      <own>/<instance>/<sandbox>                      in cpuset, if it is mounted: the tenant
//! ```

pub(crate) mod cpuset;
pub(crate) mod meminfo;

use crate::kernel::absent::absent_as_none;
use cpuset::Cpuset;
use isolet_wire::launcher::Limits;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, io};

/// The period of the processor time quota.
const PERIOD_US: u64 = 100_000;

/// With version 1, socket buffers may take the memory limit divided by this, in addition to the
/// limit.
const SOCKETS_DIVISOR: u64 = 4;

/// The most groups of background processes in a sandbox, with those of its sessions with a scope.
const PROCESS_GROUPS_MAX: &str = "1024";
/// The controllers that limit sandboxes.
pub(crate) const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// The groups that this process is in.
#[derive(Debug, Clone, Default)]
pub struct Hierarchies {
    /// Our group in the version 2 tree.
    pub unified: Option<PathBuf>,
    /// Our group in the version 1 hierarchy of each controller, in the order of [`CONTROLLERS`].
    pub legacy: [Option<PathBuf>; 3],
    /// Our group in the version 1 hierarchy of the cpuset controller.
    pub(crate) cpuset: Option<PathBuf>,
    /// The version 2 tree treats cgroup namespaces as boundaries (`nsdelegate`, as systemd mounts
    /// it).
    pub ns_delegate: bool,
}

impl Hierarchies {
    /// Reads the groups from `/proc`.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn find() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        Ok(Self::parse(&mounts, &own))
    }

    fn parse(mounts: &str, own: &str) -> Self {
        let mut found = Self::default();
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            // Before the dash the fifth field is the mount point; behind it come type, source,
            // options.
            let Some(point) = left.split(' ').nth(4) else { continue };
            let mut right = right.split(' ');
            let Some(kind) = right.next() else { continue };
            let Some(options) = right.nth(1) else { continue };
            let point = Path::new(point);
            match kind {
                "cgroup2" if found.unified.is_none() => {
                    found.unified = own_path(own, "").map(|path| point.join(path));
                    found.ns_delegate = options.split(',').any(|option| option == "nsdelegate");
                }
                "cgroup" => {
                    if options.split(',').any(|option| option == cpuset::CONTROLLER) {
                        found.cpuset =
                            own_path(own, cpuset::CONTROLLER).map(|path| point.join(path));
                    }
                    for (at, controller) in CONTROLLERS.iter().enumerate() {
                        if options.split(',').any(|option| option == *controller) {
                            found.legacy[at] =
                                own_path(own, controller).map(|path| point.join(path));
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Whether the host has only version 2, which then sets the limits.
    #[must_use]
    pub fn unified_only(&self) -> bool {
        self.legacy.iter().all(Option::is_none)
    }
}

/// Our own path in the hierarchy of `controller` (empty: version 2), without its leading slash.
fn own_path(own: &str, controller: &str) -> Option<String> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let names = parts.next()?;
        let path = parts.next()?;
        let ours = match controller {
            "" => names.is_empty(),
            _ => names.split(',').any(|name| name == controller),
        };
        ours.then(|| path.trim_start_matches('/').to_owned())
    })
}

/// The parent groups of one server's sandboxes.
#[derive(Debug, Clone)]
pub struct CgroupRoot {
    /// In the version 2 tree.
    pub unified: PathBuf,
    /// In version 1, in the order of [`CONTROLLERS`].
    pub legacy: [Option<PathBuf>; 3],
    /// See [`Hierarchies::ns_delegate`].
    pub ns_delegate: bool,
    /// The version 1 group of the CPU sets, if the controller is mounted.
    cpuset: Option<PathBuf>,
    unified_only: bool,
    /// Counts the sandboxes, so that each begins on the next processor.
    created: Arc<AtomicUsize>,
}

impl CgroupRoot {
    /// The paths of the groups, whether or not they exist; `None` without a version 2 tree.
    pub(crate) fn locate(hierarchies: &Hierarchies, instance: &str) -> Option<Self> {
        let unified_only = hierarchies.unified_only();
        let own = hierarchies.unified.as_ref()?;
        // In version 2 no process may be in a group whose child groups have limits, and a service
        // manager restarts us in our own group. Only the root of the tree is exempt.
        let top = if unified_only { mount_point(own) } else { own.clone() };
        Some(Self {
            unified: top.join(instance),
            legacy: hierarchies.legacy.clone().map(|own| own.map(|own| own.join(instance))),
            ns_delegate: hierarchies.ns_delegate,
            cpuset: hierarchies.cpuset.as_ref().map(|own| own.join(instance)),
            unified_only,
            created: Arc::default(),
        })
    }

    /// Creates the groups.
    ///
    /// # Errors
    /// When a hierarchy is missing or cannot be written.
    pub fn create(hierarchies: &Hierarchies, instance: &str) -> io::Result<Self> {
        let root = Self::locate(hierarchies, instance).ok_or(io::ErrorKind::NotFound)?;
        root.ensure_exists()?;
        Ok(root)
    }

    /// The file of the controllers that [`CgroupRoot::create`] switches on at the top of a version 2
    /// tree.
    pub(crate) fn controllers_file(hierarchies: &Hierarchies) -> Option<PathBuf> {
        let own = hierarchies.unified.as_ref()?;
        Some(mount_point(own).join("cgroup.subtree_control"))
    }

    fn ensure_exists(&self) -> io::Result<()> {
        if let Some(top) = self.unified.parent().filter(|_| self.unified_only) {
            enable_controllers(top)?;
        }
        for group in self.legacy.iter().flatten().chain([&self.unified]) {
            match fs::create_dir(group) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        if self.unified_only {
            enable_controllers(&self.unified)?;
        }
        if let Some(group) = &self.cpuset {
            // Without it, sandboxes have no CPU set; see `has_cpuset`.
            let _ = Cpuset::create_legacy_root(group);
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.legacy.iter().flatten().chain(&self.cpuset).chain([&self.unified])
    }

    /// Whether new sandboxes get a CPU set.
    pub(crate) fn has_cpuset(&self) -> bool {
        match &self.cpuset {
            Some(group) => fs::read_to_string(group.join("cpuset.cpus"))
                .is_ok_and(|set| !set.trim().is_empty()),
            None => {
                self.unified_only && self.unified.join("cpuset.cpus").try_exists().unwrap_or(false)
            }
        }
    }

    /// Removes the groups that are empty.
    pub fn remove_if_empty(&self) {
        for group in self.all() {
            let _ = fs::remove_dir(group);
        }
    }

    fn paths_of(&self, name: &str) -> Cgroups {
        Cgroups {
            unified: self.unified.join(name),
            legacy: self.legacy.clone().map(|base| base.map(|base| base.join(name))),
            cpuset: self.cpuset.as_ref().map(|base| base.join(name)),
            unified_only: self.unified_only,
        }
    }

    /// Creates the groups of one sandbox and sets its limits.
    ///
    /// # Errors
    /// The kernel's; groups that were created are removed again.
    pub fn create_sandbox(&self, name: &str, limits: &Limits) -> io::Result<Cgroups> {
        let mut groups = self.paths_of(name);
        match groups.create(limits) {
            // The launcher of a server that has just stopped removed the empty parent groups.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                groups.try_remove();
                self.ensure_exists()?;
                groups.create(limits).inspect_err(|_| groups.try_remove())?;
            }
            created => created.inspect_err(|_| groups.try_remove())?,
        }
        groups.create_cpuset(limits, self.created.fetch_add(1, Ordering::Relaxed));
        Ok(groups)
    }
}

/// The mount point of the version 2 tree, given a path in it.
fn mount_point(own: &Path) -> PathBuf {
    let mut top = own.to_owned();
    while top.parent().is_some_and(|up| up.join("cgroup.controllers").try_exists().unwrap_or(false))
    {
        top.pop();
    }
    top
}

fn enable_controllers(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.subtree_control"), "+memory +cpu +pids")?;
    // Sandboxes work without it; see `CgroupRoot::has_cpuset`.
    let _ = fs::write(group.join("cgroup.subtree_control"), "+cpuset");
    Ok(())
}

/// The groups of one sandbox.
#[derive(Debug, Clone)]
pub struct Cgroups {
    /// In the version 2 tree: the parent of `agent` and `tenant`.
    pub unified: PathBuf,
    /// The tenant's control groups in version 1, in the order of [`CONTROLLERS`].
    pub legacy: [Option<PathBuf>; 3],
    /// The tenant's control group in the version 1 hierarchy of the cpuset controller.
    cpuset: Option<PathBuf>,
    unified_only: bool,
}

impl Cgroups {
    /// The likely paths of a sandbox's groups, when they are not recorded.
    ///
    /// # Errors
    /// Those of [`absent_as_none`].
    pub(crate) fn locate(instance: &str, name: &str) -> io::Result<Option<Self>> {
        let found = absent_as_none(Hierarchies::find())?;
        Ok(found.and_then(|found| Some(CgroupRoot::locate(&found, instance)?.paths_of(name))))
    }

    fn create(&self, limits: &Limits) -> io::Result<()> {
        for group in self.legacy.iter().flatten().chain([&self.unified]) {
            fs::create_dir(group)?;
        }
        if self.unified_only {
            enable_controllers(&self.unified)?;
        }
        fs::create_dir(self.agent())?;
        fs::create_dir(self.tenant())?;
        // The agent creates groups below this one. These limits hold even if a tenant controls the
        // agent.
        fs::write(self.tenant().join("cgroup.max.depth"), "1")?;
        fs::write(self.tenant().join("cgroup.max.descendants"), PROCESS_GROUPS_MAX)?;
        self.set_kernel_limits(limits)
    }

    /// Creates the CPU set, with processors from the one at index `first` on. If that fails, the
    /// sandbox has none.
    fn create_cpuset(&mut self, limits: &Limits, first: usize) {
        let created = match &self.cpuset {
            Some(group) => Cpuset::create_legacy(group),
            None => Ok(()),
        };
        let set = created.and_then(|()| match self.cpuset() {
            Some(set) => set.resize(limits, first),
            None => Ok(()),
        });
        if set.is_err()
            && let Some(group) = self.cpuset.take()
        {
            let _ = fs::remove_dir(group);
        }
    }

    /// The tenant's CPU set, if it has one.
    pub(crate) fn cpuset(&self) -> Option<Cpuset> {
        match &self.cpuset {
            Some(group) => Some(Cpuset::legacy(group)),
            None if self.unified_only => Cpuset::unified(self.unified.parent()?, &self.tenant()),
            None => None,
        }
    }

    /// The group of the sandbox's own agent, in the version 2 tree.
    #[must_use]
    pub fn agent(&self) -> PathBuf {
        self.unified.join("agent")
    }

    /// The group of the agent of a session's scope. Its programs are in the tenant's group.
    #[must_use]
    pub fn scope(&self, session: &str) -> PathBuf {
        // Without a prefix, a session's id could be a file name of the kernel.
        self.agent().join(format!("s-{session}"))
    }

    /// The tenant's group in the version 2 tree.
    #[must_use]
    pub fn tenant(&self) -> PathBuf {
        self.unified.join("tenant")
    }

    /// Whether the limits are those of version 2.
    pub(crate) fn unified_only(&self) -> bool {
        self.unified_only
    }

    /// Sets the limits. The sandbox may be running.
    ///
    /// # Errors
    /// `EBUSY` when more memory than the new limit is in use and none can be freed.
    pub fn set_limits(&self, limits: &Limits) -> io::Result<()> {
        self.set_kernel_limits(limits)?;
        if let Some(set) = self.cpuset().filter(|set| set.processors().is_ok()) {
            // The same index for the same sandbox; different ones for different sandboxes.
            let first = self.unified.as_os_str().as_encoded_bytes().iter();
            set.resize(limits, first.map(|byte| usize::from(*byte)).sum())?;
        }
        Ok(())
    }

    fn set_kernel_limits(&self, limits: &Limits) -> io::Result<()> {
        let memory = limits.memory_mib.saturating_mul(1 << 20).to_string();
        let quota = limits.cpu_millis.saturating_mul(PERIOD_US) / 1000;
        let pids = limits.pids.to_string();
        if self.unified_only {
            let tenant = self.tenant();
            fs::write(tenant.join("memory.max"), memory)?;
            fs::write(tenant.join("memory.oom.group"), "0")?;
            // Otherwise the sandbox would swap when it reaches its memory limit.
            let _ = fs::write(tenant.join("memory.swap.max"), "0");
            fs::write(tenant.join("cpu.max"), format!("{quota} {PERIOD_US}"))?;
            return fs::write(tenant.join("pids.max"), pids);
        }
        let [memory_at, cpu_at, pids_at] = &self.legacy;
        if let Some(at) = memory_at {
            // It can be set for a paused sandbox, and cannot be less than the limit of memory.
            let _ = fs::write(at.join("memory.memsw.limit_in_bytes"), "-1");
            fs::write(at.join("memory.limit_in_bytes"), memory)?;
            // Otherwise the sandbox would swap when it reaches its memory limit, as above.
            let _ = fs::write(at.join("memory.swappiness"), "0");
            // Version 1 counts the buffers of TCP and UDP separately, and only if a limit is set:
            // without one a sandbox could use up the buffers of the whole machine.
            let sockets = limits.memory_mib.saturating_mul(1 << 20) / SOCKETS_DIVISOR;
            match fs::write(at.join("memory.kmem.tcp.limit_in_bytes"), sockets.to_string()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if let Some(at) = cpu_at {
            fs::write(at.join("cpu.cfs_quota_us"), quota.to_string())?;
        }
        if let Some(at) = pids_at {
            fs::write(at.join("pids.max"), pids)?;
        }
        Ok(())
    }

    /// Opens the `tasks` files of the tenant's version 1 groups.
    pub(crate) fn open_tasks(&self) -> Result<Vec<OwnedFd>, Errno> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let open = |group: &PathBuf| rustix::fs::open(group.join("tasks"), flags, Mode::empty());
        self.legacy.iter().flatten().chain(&self.cpuset).map(open).collect()
    }

    /// The file whose `oom_kill` line counts the processes killed for memory.
    #[must_use]
    pub fn oom_events(&self) -> PathBuf {
        match &self.legacy[0] {
            Some(memory) => memory.join("memory.oom_control"),
            None => self.tenant().join("memory.events"),
        }
    }

    /// Serialises the paths for the sandbox's directory, because a later server may be in another
    /// group.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("unified {}\n", self.unified.display());
        for (controller, group) in CONTROLLERS.iter().zip(&self.legacy) {
            if let Some(group) = group {
                text.push_str(&format!("{controller} {}\n", group.display()));
            }
        }
        if let Some(group) = &self.cpuset {
            text.push_str(&format!("{} {}\n", cpuset::CONTROLLER, group.display()));
        }
        text
    }

    /// Parses [`Cgroups::to_text`]; `None` when it names no version 2 group.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let find = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(PathBuf::from))
        };
        let legacy = CONTROLLERS.map(find);
        let unified_only = legacy.iter().all(Option::is_none);
        let cpuset = find(cpuset::CONTROLLER);
        Some(Self { unified: find("unified")?, legacy, cpuset, unified_only })
    }

    /// Tries to remove all groups. Those that are not empty stay.
    pub fn try_remove(&self) {
        self.remove_children(&self.agent());
        self.remove_children(&self.tenant());
        let _ = fs::remove_dir(self.agent());
        let _ = fs::remove_dir(self.tenant());
        for group in self.all() {
            let _ = fs::remove_dir(group);
        }
    }

    /// Removes empty groups of background processes that an agent left behind.
    pub(crate) fn remove_process_groups(&self) {
        self.remove_children(&self.tenant());
    }

    fn remove_children(&self, group: &Path) {
        for child in fs::read_dir(group).into_iter().flatten().flatten() {
            if child.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = fs::remove_dir(child.path());
            }
        }
    }

    /// Whether any of the groups exists.
    #[must_use]
    pub fn exist(&self) -> bool {
        self.all().any(|group| group.is_dir())
    }

    /// All groups of the sandbox, without those below them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.legacy.iter().flatten().chain(&self.cpuset).chain([&self.unified])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hybrid_host_has_limits_in_version_1_and_kills_in_version_2() {
        let mounts = "26 25 0:23 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      27 25 0:24 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      28 25 0:25 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      28 25 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                      29 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "8:pids:/\n4:memory:/a/b\n3:cpuset:/\n1:cpu,cpuacct:/\n0::/c\n";
        let found = Hierarchies::parse(mounts, own);
        assert_eq!(found.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/unified/c")));
        assert_eq!(found.cpuset.as_deref(), Some(Path::new("/sys/fs/cgroup/cpuset/")));
        assert_eq!(found.legacy[0].as_deref(), Some(Path::new("/sys/fs/cgroup/memory/a/b")));
        assert!(!found.unified_only() && !found.ns_delegate);
    }

    #[test]
    fn a_host_of_today_has_version_2_alone() {
        let mounts = "30 25 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = Hierarchies::parse(mounts, "0::/system.slice/isolet.service\n");
        assert!(found.unified_only() && found.ns_delegate);
        assert_eq!(found.unified, Some("/sys/fs/cgroup/system.slice/isolet.service".into()));
    }

    #[test]
    fn groups_come_back_from_their_text() {
        let text = "unified /u/x\nmemory /m/x\ncpuset /c/x\n";
        let groups = Cgroups::from_text(text).expect("parses");
        assert_eq!(groups.to_text(), text);
        assert!(Cgroups::from_text("memory /m\n").is_none());
    }
}
