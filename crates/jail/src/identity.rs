//! Which data directory this is, and whether what it says about processes still holds.
//!
//! A data directory names processes, control groups and sockets. Those names mean something only
//! on the boot and in the directory that they were written in: in a copy they are the original's,
//! and after a reboot they may be anybody's. `DATA/identity` records the boot, and the directory's
//! device, inode and time of birth, as of the last start of a server. The next start compares:
//!
//! | recorded | what follows |
//! |---|---|
//! | the same boot and directory (also moved, or under another mount) | everything is as it was left |
//! | the same directory, another boot | the processes of all sandboxes are forgotten |
//! | another directory: this one is a copy, or was restored | likewise, but for sandboxes whose processes have this very directory mounted |
//! | nothing: written by a version without identities | only processes that run with another directory mounted are forgotten |
//!
//! Forgetting removes files of the data directory alone. No process, group or mount is touched.

use crate::{
    cgroup::Cgroups,
    config::{self, Config, SCOPES},
    disk,
    kernel::absent::absent_as_none,
    orphan::{self, AgentProcess},
};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags},
    io::Errno,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Its name in the data directory.
const FILE: &str = "identity";
/// What the file takes, in bytes: always the same, so that a full disk does not stop a change.
const FILE_BYTES: usize = 512;
/// Recorded where the file system does not say when a directory was made.
const BORN_UNKNOWN: &str = "unknown";
/// Where the kernel says which boot this is.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// What a sandbox's directory says about its processes, beside the directory of its scopes.
const OF_PROCESSES: [&str; 3] = ["agent.sock", "cgroups", orphan::FILE];

/// How the data directory stands to what it recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The directory that was recorded, on the same boot.
    Same,
    /// The directory that was recorded; the machine was started anew since.
    Rebooted,
    /// Another directory than the one that was recorded: a copy, or restored.
    Copied,
    /// Nothing is recorded: it is new, or a version without identities wrote it.
    Unrecorded,
}

/// What a start has found, and what it goes on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// How it stands to what was recorded.
    pub origin: Origin,
    /// Name of the group of all its sandboxes.
    pub cgroup: String,
    /// Sandboxes whose recorded processes run and belong to another data directory.
    pub foreign: usize,
}

/// A directory, wherever it is mounted and whatever it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    device: u64,
    inode: u64,
    /// Seconds and nanoseconds; where the file system tells them. Inodes are used again.
    born: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Recorded {
    boot: String,
    place: Place,
    cgroup: String,
}

/// Whose the processes are that a sandbox's directory names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// They have this directory mounted.
    Ours,
    /// They run, with another directory.
    Foreign,
    /// None runs.
    Nobodys,
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let about = rustix::fs::statx(CWD, path, AtFlags::empty(), flags)?;
        let told = about.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = match told {
            true => format!("{}.{:09}", about.stx_btime.tv_sec, about.stx_btime.tv_nsec),
            false => BORN_UNKNOWN.to_owned(),
        };
        let device = rustix::fs::makedev(about.stx_dev_major, about.stx_dev_minor);
        Ok(Self { device, inode: about.stx_ino, born })
    }
}

impl Recorded {
    fn text(&self) -> String {
        let Place { device, inode, born } = &self.place;
        let (boot, cgroup) = (&self.boot, &self.cgroup);
        format!("boot {boot}\ndevice {device}\ninode {inode}\nborn {born}\ngroups {cgroup}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let find =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let place = Place {
            device: find("device")?.parse().ok()?,
            inode: find("inode")?.parse().ok()?,
            born: find("born")?.to_owned(),
        };
        let cgroup = find("groups").filter(|name| config::is_group(name))?.to_owned();
        Some(Self { boot: find("boot")?.to_owned(), place, cgroup })
    }

    /// `None` where nothing is recorded, or nothing that reads.
    fn read(data: &Path) -> io::Result<Option<Self>> {
        let mut bytes = Vec::with_capacity(FILE_BYTES);
        match File::open(data.join(FILE)) {
            Ok(file) => drop(file.take(FILE_BYTES as u64).read_to_end(&mut bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// Written in place: what stands after a cut in power does not read, and is as if nothing had
    /// been recorded.
    fn write(&self, data: &Path) -> io::Result<()> {
        let mut bytes = self.text().into_bytes();
        bytes.resize(FILE_BYTES, b'\n');
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(data.join(FILE))?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()
    }
}

/// The directory as a short text, for names that must differ between data directories.
pub(crate) fn directory_id(data: &Path) -> io::Result<String> {
    let Place { device, inode, born } = Place::of(data)?;
    Ok(format!("{device:x}:{inode:x}:{born}"))
}

/// Whether the data directory is another than the one that its identity records.
///
/// # Errors
/// As the kernel says.
pub fn is_copy(data: &Path) -> io::Result<bool> {
    let place = Place::of(data)?;
    let boot = boot()?;
    let recorded = Recorded::read(data)?;
    Ok(recorded.is_some_and(|recorded| recorded.origin(&place, &boot) == Origin::Copied))
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string(BOOT)?.trim().to_owned())
}

impl Recorded {
    /// How the data directory, which is at this place on this boot, stands to the record.
    fn origin(&self, place: &Place, boot: &str) -> Origin {
        let rebooted = self.boot != boot;
        if self.place == *place {
            return if rebooted { Origin::Rebooted } else { Origin::Same };
        }
        // A boot may give a file system another device number. The inode and its time of birth
        // stay, and are not those of a copy.
        let renumbered = Place { device: place.device, ..self.place.clone() } == *place
            && !place.born.is_empty();
        if rebooted && renumbered { Origin::Rebooted } else { Origin::Copied }
    }
}

/// Compares the data directory with what it recorded, forgets what does not hold here, and
/// records what it is. Who calls this holds the directory's lock. May be cut off and done again.
///
/// # Errors
/// As the kernel says; nothing of it is to be used then.
pub fn adopt(config: &Config) -> io::Result<Identity> {
    let data = &config.data_dir;
    let place = Place::of(data)?;
    let boot = boot()?;
    let recorded = Recorded::read(data)?;
    let origin = recorded.as_ref().map_or(Origin::Unrecorded, |of| of.origin(&place, &boot));
    // Nothing of an earlier boot runs, whatever has its numbers by now.
    let may_run = recorded.as_ref().is_none_or(|recorded| recorded.boot == boot);
    let foreign = forget(data, origin, may_run)?;
    let cgroup = match &recorded {
        Some(recorded) if origin == Origin::Same => recorded.cgroup.clone(),
        None if foreign == 0 => config.cgroup.clone(),
        // Groups of the recorded name, or of this path, are the original's, or of who knows whom.
        _ => config::unique_group(data),
    };
    let new = Recorded { boot, place, cgroup: cgroup.clone() };
    if recorded.as_ref() != Some(&new) {
        new.write(data)?;
    }
    Ok(Identity { origin, cgroup, foreign })
}

/// Forgets processes that are not this directory's; how many sandboxes have foreign ones.
fn forget(data: &Path, origin: Origin, may_run: bool) -> io::Result<usize> {
    if origin == Origin::Same {
        return Ok(0);
    }
    let all = match fs::read_dir(data.join("sandboxes")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        all => all?,
    };
    let (mut ours, mut foreign) = (0, 0);
    for entry in all {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let whose = if may_run { whose(&entry.path())? } else { Whose::Nobodys };
        let holds = match whose {
            Whose::Ours => true,
            Whose::Foreign => false,
            Whose::Nobodys => origin == Origin::Unrecorded,
        };
        ours += usize::from(whose == Whose::Ours);
        foreign += usize::from(whose == Whose::Foreign);
        if !holds {
            forget_one(&entry.path())?;
        }
    }
    if ours == 0 && (origin != Origin::Unrecorded || foreign > 0) {
        remove_if_present(&config::manager_socket(data))?;
    }
    Ok(foreign)
}

fn forget_one(directory: &Path) -> io::Result<()> {
    isolet_sys::tree::remove(&directory.join(SCOPES))?;
    OF_PROCESSES.iter().try_for_each(|name| remove_if_present(&directory.join(name)))
}

fn remove_if_present(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Looks at the processes that a sandbox's directory names. Nothing is done to them.
fn whose(directory: &Path) -> io::Result<Whose> {
    let mut pids = Vec::new();
    if let Some(agent) = AgentProcess::find(directory)? {
        pids.push(agent.pid());
    }
    let groups = absent_as_none(fs::read_to_string(directory.join("cgroups")))?;
    if let Some(groups) = groups.and_then(|text| Cgroups::from_text(&text)) {
        let members = absent_as_none(fs::read_to_string(groups.agent().join("cgroup.procs")))?;
        pids.extend(members.unwrap_or_default().lines().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    // Looked at before the disk: a process that ends is not one that runs elsewhere.
    let shown: Vec<bool> = pids.iter().filter_map(|pid| shows(*pid, directory)).collect();
    if shown.is_empty() {
        return Ok(Whose::Nobodys);
    }
    let ours = match directory.join(disk::IMAGE).try_exists()? {
        true => disk::is_attached(directory),
        false => shown.contains(&true),
    };
    Ok(if ours { Whose::Ours } else { Whose::Foreign })
}

/// Whether a process has the workspace of this directory as its own. `None` when the process has
/// ended, or is ending and has no root directory any more.
fn shows(pid: i32, directory: &Path) -> Option<bool> {
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

    /// A data directory with one sandbox, and what a server recorded of a process of it.
    fn directory(folder: &Path) -> Config {
        let config = Config::beside(&folder.join("data")).expect("own path is known");
        let sandbox = config.sandbox_dir("one");
        fs::create_dir_all(sandbox.join("workspace")).expect("makes");
        note(&sandbox);
        config
    }

    fn note(sandbox: &Path) {
        for name in OF_PROCESSES {
            fs::write(sandbox.join(name), "unified /nowhere/one\n").expect("writes");
        }
    }

    fn named(config: &Config) -> bool {
        config.sandbox_dir("one").join("cgroups").is_file()
    }

    #[test]
    fn what_is_recorded_reads_back_and_what_does_not_read_is_nothing() {
        let place = Place { device: 1, inode: 2, born: "3.000000004".to_owned() };
        let cgroup = "isolet-0000000a".to_owned();
        let recorded = Recorded { boot: "b-1".to_owned(), place, cgroup };
        assert_eq!(Recorded::parse(&recorded.text()).as_ref(), Some(&recorded));
        for bad in ["", "boot x\n", &recorded.text().replace("isolet-0", "../x")] {
            assert_eq!(Recorded::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_same_directory_is_known_under_any_name_and_a_copy_is_not() {
        let folder = tempfile::tempdir().expect("makes");
        let config = directory(folder.path());
        let first = adopt(&config).expect("adopts");
        assert_eq!((first.origin, named(&config)), (Origin::Unrecorded, true));
        assert_eq!(first.cgroup, config.cgroup);
        assert_eq!(adopt(&config).expect("adopts").origin, Origin::Same);
        let moved = Config { data_dir: folder.path().join("moved"), ..config.clone() };
        fs::rename(&config.data_dir, &moved.data_dir).expect("moves");
        let again = adopt(&moved).expect("adopts");
        assert_eq!((again.origin, named(&moved)), (Origin::Same, true));
        assert_eq!(again.cgroup, first.cgroup, "its groups keep their name");
        // At the path of the original, which lives on beside it.
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args([&moved.data_dir, &config.data_dir])
            .status();
        assert!(copied.expect("cp runs").success());
        let copy = adopt(&config).expect("adopts");
        assert_eq!((copy.origin, named(&config)), (Origin::Copied, false));
        assert_ne!(copy.cgroup, first.cgroup, "its groups are its own");
        assert_eq!(adopt(&config).expect("adopts"), Identity { origin: Origin::Same, ..copy });
        assert_eq!(adopt(&moved).expect("adopts").origin, Origin::Same);
    }

    /// An agent that was killed a moment before the start was taken for another directory's.
    #[test]
    fn a_process_that_ends_is_nobodys() {
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
        assert_eq!(shows(pid, folder.path()), None);
        child.wait().expect("ends");
        assert_eq!(shows(pid, folder.path()), None);
        let own = i32::try_from(std::process::id()).expect("a pid");
        assert_eq!(shows(own, folder.path()), Some(false));
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
        assert_eq!((again.origin, named(&config)), (Origin::Rebooted, false));
        assert_ne!(again.cgroup, first.cgroup, "a group of that name is not believed either");
        note(&config.sandbox_dir("one"));
        assert_eq!(adopt(&config).expect("adopts").origin, Origin::Same);
        assert!(named(&config), "what this boot has noted holds");
    }

    #[test]
    fn a_boot_that_numbers_devices_otherwise_makes_no_copy() {
        let place = |device, born: &str| Place { device, inode: 2, born: born.into() };
        let recorded = |place| Recorded { boot: "one".into(), place, cgroup: "group".into() };
        let known = recorded(place(7, "5.6"));
        assert_eq!(known.origin(&place(8, "5.6"), "two"), Origin::Rebooted);
        assert_eq!(known.origin(&place(8, "5.6"), "one"), Origin::Copied);
        assert_eq!(known.origin(&place(8, "9.9"), "two"), Origin::Copied);
        assert_eq!(
            recorded(place(7, BORN_UNKNOWN)).origin(&place(8, BORN_UNKNOWN), "two"),
            Origin::Copied
        );
    }
}
