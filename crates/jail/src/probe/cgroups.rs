//! Creates the control groups of a sandbox, freezes a process in them, kills it, and removes them.

use super::child::wait;
use crate::cgroup::{CgroupRoot, Cgroups, Hierarchies, cpuset};
use crate::child::step_error::{StepError, at_step};
use isolet_sys::namespaces::fork_in_namespaces;
use isolet_wire::launcher::Limits;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

/// How long the kernel may take to freeze a process, and to remove a killed one from its group.
const WAIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);
/// Limits of the groups: any that the kernel accepts.
const LIMITS: Limits = Limits { memory_mib: 64, cpu_millis: 100, pids: 16, disk_mib: 0 };

/// The limit on processes of the group that this process is in; `None`: no limit.
#[must_use]
pub fn tasks_max() -> Option<u64> {
    let found = Hierarchies::find().ok()?;
    let own = if found.unified_only() { found.unified } else { found.legacy[2].clone() };
    fs::read_to_string(own?.join("pids.max")).ok()?.trim().parse().ok()
}

/// Creates the groups, sets limits, and freezes and kills a process. Needs root. Returns whether
/// sandboxes get a CPU set, which they can do without.
///
/// # Errors
/// The failed step.
pub fn control_groups() -> Result<bool, StepError> {
    let step =
        |name: &'static str| move |error: io::Error| StepError::from_io(name, &error, Errno::IO);
    let found = Hierarchies::find().map_err(step("find control groups"))?;
    let enabled = EnabledControllers::read(&found);
    let instance = format!("isolet-doctor-{}", std::process::id());
    let root = CgroupRoot::create(&found, &instance).map_err(step("create control groups"))?;
    let has_cpuset = root.has_cpuset();
    let done =
        root.create_sandbox("probe", &LIMITS).map_err(step("set limits")).and_then(|groups| {
            let done = freeze_and_kill(&groups);
            remove(&groups);
            done
        });
    root.remove_if_empty();
    enabled.restore();
    done.map(|()| has_cpuset)
}

/// The controllers that were switched on at the top of the version 2 tree.
struct EnabledControllers {
    file: Option<PathBuf>,
    before: String,
}

impl EnabledControllers {
    fn read(found: &Hierarchies) -> Self {
        let file = found.unified_only().then(|| CgroupRoot::controllers_file(found)).flatten();
        let before = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        Self { file, before: before.unwrap_or_default() }
    }

    /// Switches off the controllers that this probe has switched on.
    fn restore(&self) {
        let Some(file) = &self.file else { return };
        for name in crate::cgroup::CONTROLLERS.into_iter().chain([cpuset::CONTROLLER]) {
            if !self.before.split_whitespace().any(|one| one == name) {
                let _ = fs::write(file, format!("-{name}"));
            }
        }
    }
}

fn freeze_and_kill(groups: &Cgroups) -> Result<(), StepError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let group = rustix::fs::open(groups.agent(), flags, Mode::empty())
        .map_err(at_step("open the group"))?;
    let parent = rustix::process::getpid();
    let forked = fork_in_namespaces(0, Some(group.as_fd()), || {
        let die = Some(rustix::process::Signal::KILL);
        let bound = rustix::process::set_parent_process_death_signal(die);
        if bound.is_err() || rustix::process::getppid() != Some(parent) {
            return 1;
        }
        loop {
            rustix::event::pause();
        }
    });
    let child =
        forked.map_err(|error| StepError::from_io("start in a group", &error, Errno::IO))?;
    let frozen = write(&groups.unified, "cgroup.freeze", "1", "freeze")
        .and_then(|()| wait_for(groups, "frozen 1", "freeze"));
    let thawed = write(&groups.unified, "cgroup.freeze", "0", "thaw");
    let killed = write(&groups.unified, "cgroup.kill", "1", "kill a group");
    if killed.is_err() {
        let _ = rustix::process::pidfd_send_signal(&child.pidfd, rustix::process::Signal::KILL);
    }
    wait(&child)?;
    frozen.and(thawed).and(killed)
}

fn write(group: &Path, file: &str, text: &str, step: &'static str) -> Result<(), StepError> {
    fs::write(group.join(file), text).map_err(|error| StepError::from_io(step, &error, Errno::IO))
}

fn wait_for(groups: &Cgroups, line: &str, step: &'static str) -> Result<(), StepError> {
    let until = Instant::now() + WAIT;
    loop {
        let events = fs::read_to_string(groups.unified.join("cgroup.events"));
        let events = events.map_err(|error| StepError::from_io(step, &error, Errno::IO))?;
        if events.lines().any(|one| one == line) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(StepError::new(step, Errno::TIMEDOUT));
        }
        std::thread::sleep(PAUSE);
    }
}

fn remove(groups: &Cgroups) {
    let until = Instant::now() + WAIT;
    loop {
        groups.try_remove();
        if !groups.exist() || Instant::now() >= until {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}
