//! What the server may do to a sandbox from outside: kill it, measure it, limit it, remove it.

use crate::cgroup::Cgroups;
use crate::config::{Config, SCOPES, scope_dir};
use crate::disk;
use crate::kernel::absent::absent_as_none;
use crate::orphan::AgentProcess;
use isolet_wire::launch::Limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often an emptying group is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// The most directories of one sandbox that may wait in the trash.
const TRASH_TURNS: u32 = 100;

/// One sandbox, from outside. Made from its name alone: works after a restart of the server.
#[derive(Debug, Clone)]
pub struct SandboxHandle {
    directory: PathBuf,
    trash: PathBuf,
    /// `Err`: it is not known where they are, descriptors or memory are short.
    groups: Result<Option<Cgroups>, Errno>,
}

/// What a sandbox uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory of its processes and page cache, in bytes.
    pub memory_bytes: u64,
    /// The most it ever was.
    pub memory_peak_bytes: u64,
    /// Processor time, in microseconds.
    pub cpu_us: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Processes killed for memory.
    pub oom_kills: u64,
    /// What its disk takes of the host's, in bytes; `None` where it has none of its own.
    pub disk_bytes: Option<u64>,
}

impl SandboxHandle {
    /// The sandbox `name`, whether or not anything of it is left.
    #[must_use]
    pub fn open(config: &Config, name: &str) -> Self {
        let directory = config.sandbox_dir(name);
        let noted = absent_as_none(fs::read_to_string(directory.join("cgroups")));
        let groups = noted.and_then(|text| match text.and_then(|text| Cgroups::from_text(&text)) {
            // What runs must end though its directory is damaged.
            None => Cgroups::locate(&config.cgroup, name),
            some => Ok(some),
        });
        let groups = groups.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NFILE));
        Self { directory, trash: config.trash(), groups }
    }

    fn groups(&self) -> io::Result<Option<&Cgroups>> {
        Ok(self.groups.as_ref().map_err(|errno| *errno)?.as_ref())
    }

    /// Kills everything in it, also what is frozen or multiplies, or was moved to other groups.
    /// Nothing to kill is no error.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn kill(&self) -> io::Result<()> {
        let Some(groups) = self.groups()? else { return Ok(()) };
        match fs::write(groups.unified.join("cgroup.kill"), "1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        AgentProcess::find(&self.directory)?.map_or(Ok(()), |agent| agent.kill())
    }

    /// The network namespace that its agent lives in.
    ///
    /// # Errors
    /// `NotFound` where none lives, or as the kernel says.
    pub fn netns(&self) -> io::Result<OwnedFd> {
        AgentProcess::find(&self.directory)?.ok_or(io::ErrorKind::NotFound)?.netns()
    }

    /// Stops or continues every process in it.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn freeze(&self, frozen: bool) -> io::Result<()> {
        let Some(groups) = self.groups()? else { return Ok(()) };
        fs::write(groups.unified.join("cgroup.freeze"), if frozen { "1" } else { "0" })
    }

    /// Waits until no process is left; false when `limit` passed first. Blocks.
    #[must_use]
    pub fn wait_empty(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.populated() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Sessions whose scopes were started and not ended, by the directories that these have.
    #[must_use]
    pub fn scopes(&self) -> Vec<String> {
        let all = fs::read_dir(self.directory.join(SCOPES)).into_iter().flatten().flatten();
        all.map(|scope| scope.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Ends the agent of a session's scope and with it all that runs there; blocks for as long as
    /// `limit`. One that is not there is no error. What the session wrote stays.
    ///
    /// # Errors
    /// `TimedOut`, or as the kernel says.
    pub fn end_scope(&self, session: &str, limit: Duration) -> io::Result<()> {
        let Some(groups) = self.groups()? else { return Ok(()) };
        let (group, until) = (groups.scope(session), Instant::now() + limit);
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
            std::thread::sleep(LOOK);
        }
        groups.remove_process_groups();
        Ok(isolet_sys::tree::remove(&scope_dir(&self.directory, session))?)
    }

    /// Whether a process of it runs, or may run: it cannot be looked at now.
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

    /// A group of it that is not there any more, though the others may be.
    #[must_use]
    pub fn missing_cgroup(&self) -> Option<PathBuf> {
        let groups = self.groups().ok()??;
        let all = groups.legacy.iter().flatten().cloned();
        let mut all = all.chain([groups.unified.clone(), groups.agent(), groups.tenant()]);
        all.find(|group| !group.is_dir())
    }

    /// What it uses now; zeroes for what cannot be read.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let disk_bytes = fs::symlink_metadata(self.directory.join(disk::IMAGE))
            .ok()
            .map(|about| about.blocks() * 512);
        let Ok(Some(groups)) = self.groups() else {
            return Usage { disk_bytes, ..Usage::default() };
        };
        let tenant = groups.tenant();
        let file = |controller: usize, legacy: &str, unified: &str| match &groups.legacy[controller]
        {
            Some(group) => group.join(legacy),
            None => tenant.join(unified),
        };
        // Version 1 counts processor time in a hierarchy of its own; the version 2 tree has it always.
        let cpu = line(&groups.unified.join("cpu.stat"), "usage_usec");
        Usage {
            memory_bytes: number(&file(0, "memory.usage_in_bytes", "memory.current")),
            memory_peak_bytes: number(&file(0, "memory.max_usage_in_bytes", "memory.peak")),
            cpu_us: cpu,
            pids: number(&file(2, "pids.current", "pids.current")),
            oom_kills: line(&groups.oom_events(), "oom_kill"),
            disk_bytes,
        }
    }

    /// Waits until the kernel has let go of its disk, where it has one of its own: what was not
    /// written yet is by then. False when `limit` passed first. Blocks.
    #[must_use]
    pub fn wait_unmounted(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while disk::is_attached(&self.directory) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Changes its limits while it runs.
    ///
    /// # Errors
    /// `EBUSY` when more memory is in use and cannot be freed; `NotFound` when it is gone.
    pub fn set_limits(&self, limits: &Limits) -> io::Result<()> {
        self.groups()?.ok_or(io::ErrorKind::NotFound)?.set_limits(limits)
    }

    /// Whether its groups stand, as far as is known: they do not after the host was started anew.
    #[must_use]
    pub fn has_cgroups(&self) -> bool {
        self.groups().map_or(true, |groups| groups.is_some_and(Cgroups::exist))
    }

    /// Removes its groups once nothing runs in it; its files stay.
    ///
    /// # Errors
    /// When the groups do not become free within a second.
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
            std::thread::sleep(LOOK);
        }
    }

    /// Takes it apart once nothing runs in it: groups removed, files moved to the trash.
    /// Half-made and half-removed ones are taken apart as far as they go.
    ///
    /// # Errors
    /// When the groups do not become free within a second, or the directory cannot be moved.
    pub fn remove(&self) -> io::Result<()> {
        self.remove_cgroups()?;
        let Some(name) = self.directory.file_name().and_then(|name| name.to_str()) else {
            return Ok(());
        };
        // One that is emptied at every sleep may find its last files still there.
        for turn in 0..TRASH_TURNS {
            match fs::rename(&self.directory, self.trash.join(format!("{name}.{turn}"))) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                done => return done,
            }
        }
        Err(io::ErrorKind::DirectoryNotEmpty.into())
    }
}

/// Deletes what was moved to the trash. Slow: as long as its files are many.
///
/// # Errors
/// The first failure, after everything was tried.
pub fn empty_trash(config: &Config) -> io::Result<()> {
    let mut result = Ok(());
    for entry in fs::read_dir(config.trash())? {
        // However deep it is: a tenant made it.
        if let Err(errno) = isolet_sys::tree::remove(&entry?.path()) {
            result = Err(errno.into());
        }
    }
    result
}

/// The processes of a group. To wait for: the first of a process namespace leaves its group before
/// it ends the others, which are in groups of their own.
fn members(group: &Path) -> Vec<OwnedFd> {
    let listed = || fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let number = |line: &str| Pid::from_raw(line.parse().ok()?);
    let opened: Vec<_> = listed()
        .lines()
        .filter_map(number)
        .filter_map(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)))
        .collect();
    // Looked at after the descriptors are held: an id may have been another's by then.
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

fn number(path: &Path) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn line(path: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or(0)
}
