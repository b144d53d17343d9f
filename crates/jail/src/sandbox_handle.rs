//! The server's operations on a sandbox from outside: kill, freeze, measure, limit, and remove it.

pub(crate) mod frozen;
pub(crate) mod page_out;

use crate::cgroup::Cgroups;
use crate::cgroup::meminfo::{self, Machine};
use crate::config::{Config, SCOPES, scope_dir};
use crate::disk;
use crate::kernel::absent::absent_as_none;
use crate::kernel::kernel_file;
use crate::orphan::AgentProcess;
use isolet_wire::launcher::Limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

/// How often a condition is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The most directories of one sandbox that may be in the trash.
const TRASH_COPIES_MAX: u32 = 100;

/// A handle on one sandbox. It needs only the sandbox's name, so it works after a restart of the
/// server.
#[derive(Debug, Clone)]
pub struct SandboxHandle {
    directory: PathBuf,
    trash: PathBuf,
    /// `Err` when the paths are unknown because the process has no descriptors or memory left.
    groups: Result<Option<Cgroups>, Errno>,
}

/// The resource usage of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory of its processes and page cache, in bytes.
    pub memory_bytes: u64,
    /// The highest value of `memory_bytes` so far.
    pub memory_peak_bytes: u64,
    /// Processor time, in microseconds.
    pub cpu_us: u64,
    /// The number of processes and threads.
    pub pids: u64,
    /// The number of processes that the kernel killed for memory.
    pub oom_kills: u64,
    /// Bytes that its own disk takes on the host; `None` when it has no disk of its own.
    pub disk_bytes: Option<u64>,
}

/// Bytes that the disk of the sandbox `name` takes on the host; `None` when it has no disk of its own.
#[must_use]
pub fn disk_bytes(config: &Config, name: &str) -> Option<u64> {
    bytes_of(&config.sandbox_dir(name))
}

fn bytes_of(directory: &Path) -> Option<u64> {
    let about = fs::symlink_metadata(directory.join(disk::IMAGE)).ok()?;
    Some(about.blocks() * 512)
}

impl SandboxHandle {
    /// A handle on the sandbox `name`, whether or not it exists.
    #[must_use]
    pub fn open(config: &Config, name: &str) -> Self {
        let directory = config.sandbox_dir(name);
        let recorded = absent_as_none(fs::read_to_string(directory.join("cgroups")));
        let groups =
            recorded.and_then(|text| match text.and_then(|text| Cgroups::from_text(&text)) {
                // Its processes must end even if its directory is damaged.
                None => Cgroups::locate(&config.cgroup, name),
                some => Ok(some),
            });
        let groups = groups.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NFILE));
        Self { directory, trash: config.trash(), groups }
    }

    pub(crate) fn groups(&self) -> io::Result<Option<&Cgroups>> {
        Ok(self.groups.as_ref().map_err(|errno| *errno)?.as_ref())
    }

    /// Kills every process of the sandbox, also processes that are frozen, that fork all the time,
    /// or that were moved to other groups. A sandbox without processes is no error.
    ///
    /// # Errors
    /// The kernel's.
    pub fn kill(&self) -> io::Result<()> {
        let Some(groups) = self.groups()? else { return Ok(()) };
        match fs::write(groups.unified.join("cgroup.kill"), "1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        AgentProcess::find(&self.directory)?.map_or(Ok(()), |agent| agent.kill())
    }

    /// The network namespace of its agent.
    ///
    /// # Errors
    /// `NotFound` when no agent runs, otherwise the kernel's.
    pub fn netns(&self) -> io::Result<OwnedFd> {
        AgentProcess::find(&self.directory)?.ok_or(io::ErrorKind::NotFound)?.netns()
    }

    /// Freezes or thaws every process of the sandbox.
    ///
    /// # Errors
    /// The kernel's.
    pub fn freeze(&self, frozen: bool) -> io::Result<()> {
        let Some(groups) = self.groups()? else { return Ok(()) };
        fs::write(groups.unified.join("cgroup.freeze"), if frozen { "1" } else { "0" })
    }

    /// The file that freezes and thaws it, opened for writing; `None` without control groups.
    pub(crate) fn freeze_file(&self) -> io::Result<Option<fs::File>> {
        let Some(groups) = self.groups()? else { return Ok(None) };
        let opened = fs::File::options().write(true).open(groups.unified.join("cgroup.freeze"));
        absent_as_none(opened)
    }

    /// Whether [`SandboxHandle::freeze`] was called last with `true`, also if some processes have
    /// not stopped yet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn is_freezing(&self) -> io::Result<bool> {
        let Some(groups) = self.groups()? else { return Ok(false) };
        let wanted = absent_as_none(fs::read_to_string(groups.unified.join("cgroup.freeze")))?;
        Ok(wanted.is_some_and(|wanted| wanted.trim() == "1"))
    }

    /// Whether all processes have stopped since [`SandboxHandle::freeze`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn is_frozen(&self) -> io::Result<bool> {
        let Some(groups) = self.groups()? else { return Ok(true) };
        let events = fs::read_to_string(groups.unified.join("cgroup.events"))?;
        Ok(events.lines().any(|line| line == "frozen 1"))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits until no process is left; false when `limit` passed first. Blocks.
    #[must_use]
    pub fn wait_empty(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.populated() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }

    /// The ids of the sessions whose scopes were started and not ended.
    #[must_use]
    pub fn scopes(&self) -> Vec<String> {
        let all = fs::read_dir(self.directory.join(SCOPES)).into_iter().flatten().flatten();
        all.map(|scope| scope.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Ends the agent of a session's scope and with it every process of the scope; blocks for at
    /// most `limit`. A scope that does not exist is no error. Files that the session wrote stay.
    ///
    /// # Errors
    /// `TimedOut`, or the kernel's error.
    pub fn end_scope(&self, session: &str, limit: Duration) -> io::Result<()> {
        let Some(groups) = self.groups()? else { return Ok(()) };
        let group = groups.scope(session);
        let until = Instant::now() + limit;
        let agent = members(&group);
        match fs::write(group.join("cgroup.kill"), "1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        wait_ended(&agent, until)?;
        loop {
            match fs::remove_dir(&group) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {}
                _ => break,
            }
            if Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        groups.remove_process_groups();
        Ok(isolet_sys::tree::remove(&scope_dir(&self.directory, session))?)
    }

    /// Whether a process of the sandbox runs, or may run because that cannot be determined now.
    #[must_use]
    pub fn populated(&self) -> bool {
        self.try_populated().unwrap_or(true)
    }

    fn try_populated(&self) -> io::Result<bool> {
        let Some(groups) = self.groups()? else { return Ok(false) };
        let events = absent_as_none(fs::read_to_string(groups.unified.join("cgroup.events")))?;
        let events = events.unwrap_or_default();
        let populated = events.lines().any(|line| line == "populated 1");
        Ok(populated || AgentProcess::find(&self.directory)?.is_some())
    }

    /// A control group of the sandbox that no longer exists, although others may.
    #[must_use]
    pub fn missing_cgroup(&self) -> Option<PathBuf> {
        let groups = self.groups().ok()??;
        let mut all = groups.all().cloned().chain([groups.agent(), groups.tenant()]);
        all.find(|group| !group.is_dir())
    }

    /// The current usage. Values that cannot be read are 0.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let disk_bytes = bytes_of(&self.directory);
        let Ok(Some(groups)) = self.groups() else {
            return Usage { disk_bytes, ..Usage::default() };
        };
        let tenant = groups.tenant();
        let file = |controller: usize, legacy: &str, unified: &str| match &groups.legacy[controller]
        {
            Some(group) => group.join(legacy),
            None => tenant.join(unified),
        };
        // Version 1 counts processor time in a hierarchy of its own; the version 2 tree has it
        // always.
        let cpu = read_key(&groups.unified.join("cpu.stat"), "usage_usec");
        Usage {
            memory_bytes: read_number(&file(0, "memory.usage_in_bytes", "memory.current")),
            memory_peak_bytes: read_number(&file(0, "memory.max_usage_in_bytes", "memory.peak")),
            cpu_us: cpu,
            pids: read_number(&file(2, "pids.current", "pids.current")),
            oom_kills: read_key(&groups.oom_events(), "oom_kill"),
            disk_bytes,
        }
    }

    /// Waits until the kernel has unmounted and detached the sandbox's disk, if it has one, and so
    /// has written all data to it. False when `limit` passed first. Blocks.
    #[must_use]
    pub fn wait_unmounted(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while disk::is_attached(&self.directory) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }

    /// Changes its limits while it runs. Its programs see the new memory limit in `/proc/meminfo` from
    /// then on.
    ///
    /// # Errors
    /// `EBUSY` when more memory is in use and cannot be freed; `NotFound` when the groups are gone.
    pub fn set_limits(&self, limits: &Limits) -> io::Result<()> {
        let groups = self.groups()?.ok_or(io::ErrorKind::NotFound)?;
        let done = groups.set_limits(limits);
        // The memory limit may have changed even after a failure. The limits hold whether or not the
        // file can be written.
        let _ =
            Machine::read().and_then(|machine| meminfo::refresh(&self.directory, groups, &machine));
        done
    }

    /// Whether the control groups exist, or may exist. After a reboot of the host they do not.
    #[must_use]
    pub fn has_cgroups(&self) -> bool {
        self.groups().map_or(true, |groups| groups.is_some_and(Cgroups::exist))
    }

    /// The parents of its control groups, which all sandboxes of the data directory share.
    pub(crate) fn cgroup_roots(&self) -> Vec<PathBuf> {
        let Ok(Some(groups)) = &self.groups else { return Vec::new() };
        groups.all().filter_map(|group| group.parent().map(Path::to_owned)).collect()
    }

    /// Removes the control groups once no process runs in them. The files stay.
    ///
    /// # Errors
    /// `ResourceBusy` when the groups are not empty within a second.
    pub fn remove_cgroups(&self) -> io::Result<()> {
        let Some(groups) = self.groups()? else { return Ok(()) };
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            groups.try_remove();
            if !groups.exist() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Removes the sandbox once no process runs in it: removes the control groups, and moves the
    /// files to the trash. Works on sandboxes that are only partly created or removed.
    ///
    /// # Errors
    /// `ResourceBusy` when the groups are not empty within a second, or the directory cannot be
    /// moved.
    pub fn remove(&self) -> io::Result<()> {
        self.remove_cgroups()?;
        let Some(name) = self.directory.file_name().and_then(|name| name.to_str()) else {
            return Ok(());
        };
        // Files that an ephemeral sandbox lost in its last sleep may still be in the trash.
        for copy in 0..TRASH_COPIES_MAX {
            match fs::rename(&self.directory, self.trash.join(format!("{name}.{copy}"))) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                done => return done,
            }
        }
        Err(io::ErrorKind::DirectoryNotEmpty.into())
    }
}

/// Deletes everything in the trash. The time grows with the number of files.
///
/// # Errors
/// The first failure, after everything was tried.
pub fn empty_trash(config: &Config) -> io::Result<()> {
    let mut result = Ok(());
    for entry in fs::read_dir(config.trash())? {
        // A tenant decided how deep the tree is.
        if let Err(errno) = isolet_sys::tree::remove(&entry?.path()) {
            result = Err(errno.into());
        }
    }
    result
}

/// Opens the processes of a group, to wait for their end. The first process of a process namespace
/// leaves its group before the other processes end, which are in groups of their own.
fn members(group: &Path) -> Vec<OwnedFd> {
    let listed = || fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let number = |line: &str| Pid::from_raw(line.parse().ok()?);
    let opened: Vec<_> = listed()
        .lines()
        .filter_map(number)
        .filter_map(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)))
        .collect();
    // Checked while the descriptors are open: another process may have reused an id before that.
    let still: Vec<_> = listed().lines().filter_map(number).collect();
    opened.into_iter().filter(|(pid, _)| still.contains(pid)).map(|(_, process)| process).collect()
}

fn wait_ended(processes: &[OwnedFd], until: Instant) -> io::Result<()> {
    for process in processes {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        if poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn read_number(path: &Path) -> u64 {
    kernel_file::read(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The number after `name` in a file of such lines; 0 if there is none.
pub(crate) fn read_key(path: &Path, name: &str) -> u64 {
    try_read_key(path, name).unwrap_or(0)
}

/// The number after `name` in a file of such lines.
pub(crate) fn try_read_key(path: &Path, name: &str) -> Option<u64> {
    let text = kernel_file::read(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}
