//! Identifies the data directory, and decides whether its records of processes are still valid.
//!
//! A data directory names processes, control groups and sockets. Those names are valid only on the
//! boot and in the directory in which they were written: in a copy they belong to the original, and
//! after a reboot they may belong to any process. `DATA/identity` records the boot, and the
//! directory's device, inode and creation time, at the last start of a server. The next start
//! compares:
//!
//! | recorded | consequence |
//! |---|---|
//! | the same boot and directory (also moved, or under another mount) | all records are valid |
//! | the same directory, another boot | the processes of all sandboxes are forgotten |
//! | another directory: this one is a copy, or was restored | the same, except for sandboxes whose processes have this very directory mounted |
//! | nothing: the directory was written by a version without identities | only processes that run with another directory mounted are forgotten |
//!
//! Forgetting removes only files of the data directory. No process, group or mount is touched.

use crate::cgroup::Cgroups;
use crate::config::{self, Config, SCOPES};
use crate::disk;
use crate::kernel::absent::absent_as_none;
use crate::kernel::helper_socket::HelperSocket;
use crate::orphan::{self, AgentProcess};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The name of the record in the data directory.
const FILE: &str = "identity";
/// The size of the record in bytes: constant, so that it can be rewritten when the disk is full.
const FILE_BYTES: usize = 512;
/// Recorded where the file system does not report when a directory was created.
const CREATED_UNKNOWN: &str = "unknown";
/// The kernel's id of this boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Files of a sandbox's directory that name its processes, beside the directory of its scopes.
const PROCESS_FILES: [&str; 3] = ["agent.sock", "cgroups", orphan::FILE];

/// How the data directory relates to its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The directory that was recorded, on the same boot.
    Same,
    /// The directory that was recorded; the machine was rebooted since.
    Rebooted,
    /// A directory other than the recorded one: a copy, or restored from a backup.
    Copied,
    /// No record: the directory is new, or written by a version without identities.
    Unrecorded,
}

/// The result of [`adopt`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// How the directory relates to its record.
    pub origin: Origin,
    /// The name of the control group of all its sandboxes.
    pub cgroup: String,
    /// Sandboxes whose recorded processes run and belong to another data directory.
    pub foreign: usize,
}

/// Identifies a directory independently of its path and its mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryId {
    device: u64,
    inode: u64,
    /// The time of its creation, `SECONDS.NANOSECONDS`, or `unknown`. Inodes are reused.
    created: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct IdentityRecord {
    boot: String,
    directory: DirectoryId,
    cgroup: String,
}

/// The data directory that the recorded processes of a sandbox belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ownership {
    /// This directory: the processes have it mounted.
    Ours,
    /// Another data directory, such as the original of this copy.
    Foreign,
    /// None, because no recorded process runs.
    NoProcess,
}

impl DirectoryId {
    /// Identifies a directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), flags)?;
        let has_created = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let created = match has_created {
            true => format!("{}.{:09}", stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
            false => CREATED_UNKNOWN.to_owned(),
        };
        let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        Ok(Self { device, inode: stat.stx_ino, created })
    }
}

impl fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.device, self.inode, self.created)
    }
}

impl IdentityRecord {
    fn to_text(&self) -> String {
        let Self { boot, directory, cgroup } = self;
        let DirectoryId { device, inode, created } = directory;
        format!("boot {boot}\ndevice {device}\ninode {inode}\nborn {created}\ngroups {cgroup}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let find =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let directory = DirectoryId {
            device: find("device")?.parse().ok()?,
            inode: find("inode")?.parse().ok()?,
            created: find("born")?.to_owned(),
        };
        let cgroup = find("groups").filter(|name| config::is_group(name))?.to_owned();
        Some(Self { boot: find("boot")?.to_owned(), directory, cgroup })
    }

    /// `None` when there is no record, or it does not parse.
    fn read(data: &Path) -> io::Result<Option<Self>> {
        let mut bytes = Vec::with_capacity(FILE_BYTES);
        match File::open(data.join(FILE)) {
            Ok(file) => drop(file.take(FILE_BYTES as u64).read_to_end(&mut bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// Writes in place. After a power failure the file may not parse, which counts as no record.
    fn write(&self, data: &Path) -> io::Result<()> {
        let mut bytes = self.to_text().into_bytes();
        bytes.resize(FILE_BYTES, b'\n');
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(data.join(FILE))?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()
    }
}

/// The directory's id as a short text, for names that must differ between data directories.
pub(crate) fn directory_id(data: &Path) -> io::Result<String> {
    let DirectoryId { device, inode, created } = DirectoryId::of(data)?;
    Ok(format!("{device:x}:{inode:x}:{created}"))
}

/// Whether the data directory differs from the one in its record.
///
/// # Errors
/// Those of the file system.
pub fn is_copy(data: &Path) -> io::Result<bool> {
    let directory = DirectoryId::of(data)?;
    let boot = boot()?;
    let recorded = IdentityRecord::read(data)?;
    Ok(recorded.is_some_and(|recorded| recorded.origin(&directory, &boot) == Origin::Copied))
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string(BOOT)?.trim().to_owned())
}

impl IdentityRecord {
    /// How a data directory with this id, on this boot, relates to the record.
    fn origin(&self, directory: &DirectoryId, boot: &str) -> Origin {
        let rebooted = self.boot != boot;
        if self.directory == *directory {
            return if rebooted { Origin::Rebooted } else { Origin::Same };
        }
        // A file system may get another device number at a boot. Inode and creation time stay, and
        // differ in a copy.
        let renumbered = DirectoryId { device: directory.device, ..self.directory.clone() }
            == *directory
            && directory.created != CREATED_UNKNOWN;
        if rebooted && renumbered { Origin::Rebooted } else { Origin::Copied }
    }
}

/// Compares the data directory with its record, forgets processes that are not its own, and writes
/// a new record. The caller must hold the directory's lock. The call may be interrupted and
/// repeated.
///
/// # Errors
/// Those of the file system; the directory may not be used then.
pub fn adopt(config: &Config) -> io::Result<Identity> {
    let data = &config.data_dir;
    let directory = DirectoryId::of(data)?;
    let boot = boot()?;
    let recorded = IdentityRecord::read(data)?;
    let origin = recorded.as_ref().map_or(Origin::Unrecorded, |of| of.origin(&directory, &boot));
    // No process of an earlier boot runs, even if other processes have the same ids now.
    let may_run = recorded.as_ref().is_none_or(|recorded| recorded.boot == boot);
    let foreign = forget(data, origin, may_run)?;
    let cgroup = match &recorded {
        Some(recorded) if origin == Origin::Same => recorded.cgroup.clone(),
        None if foreign == 0 => config.cgroup.clone(),
        // Groups with the recorded name, or with the name of this path, may belong to another
        // directory.
        _ => config::unique_group(data),
    };
    let new = IdentityRecord { boot, directory, cgroup: cgroup.clone() };
    if recorded.as_ref() != Some(&new) {
        new.write(data)?;
    }
    Ok(Identity { origin, cgroup, foreign })
}

/// Forgets processes that do not belong to this directory. Returns the number of sandboxes that had
/// some.
fn forget(data: &Path, origin: Origin, may_run: bool) -> io::Result<usize> {
    if origin == Origin::Same {
        return Ok(0);
    }
    let all = match fs::read_dir(data.join("sandboxes")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        all => all?,
    };
    let mut ours = 0;
    let mut foreign = 0;
    for entry in all {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let ownership = if may_run { owner_of(&entry.path())? } else { Ownership::NoProcess };
        let keep = match ownership {
            Ownership::Ours => true,
            Ownership::Foreign => false,
            Ownership::NoProcess => origin == Origin::Unrecorded,
        };
        ours += usize::from(ownership == Ownership::Ours);
        foreign += usize::from(ownership == Ownership::Foreign);
        if !keep {
            forget_one(&entry.path())?;
        }
    }
    if ours == 0 && (origin != Origin::Unrecorded || foreign > 0) {
        // Their processes belong to the original.
        HelperSocket::ALL.iter().try_for_each(|socket| remove_if_present(&socket.path(data)))?;
    }
    Ok(foreign)
}

fn forget_one(directory: &Path) -> io::Result<()> {
    isolet_sys::tree::remove(&directory.join(SCOPES))?;
    PROCESS_FILES.iter().try_for_each(|name| remove_if_present(&directory.join(name)))
}

fn remove_if_present(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Determines which data directory the recorded processes of a sandbox belong to, without touching
/// them.
fn owner_of(directory: &Path) -> io::Result<Ownership> {
    let mut pids = Vec::new();
    if let Some(agent) = AgentProcess::find(directory)? {
        pids.push(agent.pid());
    }
    let groups = absent_as_none(fs::read_to_string(directory.join("cgroups")))?;
    if let Some(groups) = groups.and_then(|text| Cgroups::from_text(&text)) {
        let members = absent_as_none(fs::read_to_string(groups.agent().join("cgroup.procs")))?;
        pids.extend(members.unwrap_or_default().lines().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    // Checked before the disk: a process that is ending belongs to no other directory.
    let mounted: Vec<bool> = pids.iter().filter_map(|pid| has_mounted(*pid, directory)).collect();
    if mounted.is_empty() {
        return Ok(Ownership::NoProcess);
    }
    let ours = match directory.join(disk::IMAGE).try_exists()? {
        true => disk::is_attached(directory),
        false => mounted.contains(&true),
    };
    Ok(if ours { Ownership::Ours } else { Ownership::Foreign })
}

/// Whether a process has the workspace of this directory as its own. `None` when the process has
/// ended, or is ending and has no root directory any more.
fn has_mounted(pid: i32, directory: &Path) -> Option<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::SRCH) => return None,
        root => root,
    };
    let open = || {
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let shown = rustix::fs::openat2(root?, "workspace", flags, Mode::empty(), how)?;
        File::from(shown).metadata()
    };
    let own = fs::symlink_metadata(directory.join("workspace"));
    Some(matches!((open(), own), (Ok(shown), Ok(own))
        if (shown.dev(), shown.ino()) == (own.dev(), own.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data directory with one sandbox, and the record of a process of the sandbox.
    fn directory(folder: &Path) -> Config {
        let config = Config::beside(&folder.join("data")).expect("own path is known");
        let sandbox = config.sandbox_dir("one");
        fs::create_dir_all(sandbox.join("workspace")).expect("makes");
        write_process_files(&sandbox);
        config
    }

    fn write_process_files(sandbox: &Path) {
        for name in PROCESS_FILES {
            fs::write(sandbox.join(name), "unified /nowhere/one\n").expect("writes");
        }
    }

    fn names_processes(config: &Config) -> bool {
        config.sandbox_dir("one").join("cgroups").is_file()
    }

    #[test]
    fn what_is_recorded_reads_back_and_what_does_not_read_is_nothing() {
        let directory = DirectoryId { device: 1, inode: 2, created: "3.000000004".to_owned() };
        let cgroup = "isolet-0000000a".to_owned();
        let recorded = IdentityRecord { boot: "b-1".to_owned(), directory, cgroup };
        assert_eq!(IdentityRecord::parse(&recorded.to_text()).as_ref(), Some(&recorded));
        for bad in ["", "boot x\n", &recorded.to_text().replace("isolet-0", "../x")] {
            assert_eq!(IdentityRecord::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_same_directory_is_known_under_any_name_and_a_copy_is_not() {
        let folder = tempfile::tempdir().expect("makes");
        let config = directory(folder.path());
        let first = adopt(&config).expect("adopts");
        assert_eq!((first.origin, names_processes(&config)), (Origin::Unrecorded, true));
        assert_eq!(first.cgroup, config.cgroup);
        assert_eq!(adopt(&config).expect("adopts").origin, Origin::Same);
        let moved = Config { data_dir: folder.path().join("moved"), ..config.clone() };
        fs::rename(&config.data_dir, &moved.data_dir).expect("moves");
        let again = adopt(&moved).expect("adopts");
        assert_eq!((again.origin, names_processes(&moved)), (Origin::Same, true));
        assert_eq!(again.cgroup, first.cgroup, "its groups keep their name");
        // At the path of the original, which still exists beside the copy.
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args([&moved.data_dir, &config.data_dir])
            .status();
        assert!(copied.expect("cp runs").success());
        let copy = adopt(&config).expect("adopts");
        assert_eq!((copy.origin, names_processes(&config)), (Origin::Copied, false));
        assert_ne!(copy.cgroup, first.cgroup, "its groups are its own");
        assert_eq!(adopt(&config).expect("adopts"), Identity { origin: Origin::Same, ..copy });
        assert_eq!(adopt(&moved).expect("adopts").origin, Origin::Same);
    }

    /// An agent that was killed just before the start was once attributed to another directory.
    #[test]
    fn an_ending_process_belongs_to_no_directory() {
        let folder = tempfile::tempdir().expect("makes");
        let mut child = std::process::Command::new("true").spawn().expect("starts");
        let pid = i32::try_from(child.id()).expect("a pid");
        let ended = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("not waited for");
            stat.contains(") Z ")
        };
        while !ended() {
            std::thread::yield_now();
        }
        assert_eq!(has_mounted(pid, folder.path()), None);
        child.wait().expect("ends");
        assert_eq!(has_mounted(pid, folder.path()), None);
        let own = i32::try_from(std::process::id()).expect("a pid");
        assert_eq!(has_mounted(own, folder.path()), Some(false));
    }

    #[test]
    fn after_a_reboot_no_process_is_believed() {
        let folder = tempfile::tempdir().expect("makes");
        let config = directory(folder.path());
        let first = adopt(&config).expect("adopts");
        let file = config.data_dir.join(FILE);
        let text = fs::read_to_string(&file).expect("reads");
        let boot = fs::read_to_string(BOOT).expect("reads");
        let other = text.replace(boot.trim(), "11111111-2222-3333-4444-555555555555");
        assert_ne!(text, other);
        fs::write(&file, other).expect("writes");
        let again = adopt(&config).expect("adopts");
        assert_eq!((again.origin, names_processes(&config)), (Origin::Rebooted, false));
        assert_ne!(again.cgroup, first.cgroup, "a group of that name is not believed either");
        write_process_files(&config.sandbox_dir("one"));
        assert_eq!(adopt(&config).expect("adopts").origin, Origin::Same);
        assert!(names_processes(&config), "what this boot has noted holds");
    }

    #[test]
    fn a_boot_that_numbers_devices_otherwise_makes_no_copy() {
        let directory =
            |device, created: &str| DirectoryId { device, inode: 2, created: created.into() };
        let recorded =
            |directory| IdentityRecord { boot: "one".into(), directory, cgroup: "group".into() };
        let known = recorded(directory(7, "5.6"));
        assert_eq!(known.origin(&directory(8, "5.6"), "two"), Origin::Rebooted);
        assert_eq!(known.origin(&directory(8, "5.6"), "one"), Origin::Copied);
        assert_eq!(known.origin(&directory(8, "9.9"), "two"), Origin::Copied);
        assert_eq!(
            recorded(directory(7, CREATED_UNKNOWN)).origin(&directory(8, CREATED_UNKNOWN), "two"),
            Origin::Copied
        );
    }
}
