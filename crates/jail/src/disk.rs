//! A file system of a sandbox's own, for one whose disk is limited: an ext4 image in its
//! directory, sparse, shown by a loop device.
//!
//! Nothing holds the mount but the sandbox's namespace: it goes with the sandbox's last process,
//! also when launcher and server are long dead, and the device lets go of the image then. The
//! device's open file carries a lock, so that the same image is never mounted twice at a time.

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Its name in a sandbox's directory.
pub(crate) const IMAGE: &str = "disk.ext4";
/// Where the program that formats it may lie.
const PROGRAMS: [&str; 2] = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
/// Named one by one, so that the host's own preferences make no other file system.
const FEATURES: &str = "none,has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,\
                        sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum";
/// One inode for so many bytes, as a count: what bounds the number of files.
const INODE_BYTES: &str = "8192";
/// From this size on, in MiB, the journal has 16 MiB, and 4 below.
const LARGE_MIB: u64 = 256;
/// How long an image may still be held that was let go of just now; who may wait longer does so
/// before it asks the launcher.
const DETACH_WAIT: Duration = Duration::from_millis(50);

/// Why this machine cannot limit disks, with what to do; `None` when it can.
#[must_use]
pub fn no_disk() -> Option<String> {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.lines().any(|line| line.split_whitespace().last() == Some("ext4")) {
        return Some("the kernel has no ext4: modprobe ext4".to_owned());
    }
    if !Path::new("/dev/loop-control").try_exists().unwrap_or(false) {
        return Some("there is no /dev/loop-control: modprobe loop".to_owned());
    }
    if program().is_none() {
        return Some("there is no mkfs.ext4: install e2fsprogs".to_owned());
    }
    None
}

fn program() -> Option<&'static str> {
    PROGRAMS.into_iter().find(|path| Path::new(path).is_file())
}

/// Makes an image of `mib` MiB in a new sandbox's directory.
pub(crate) fn create_image(directory: &Path, mib: u64) -> Result<(), Errno> {
    let path = directory.join(IMAGE);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?;
    rustix::fs::ftruncate(&file, mib.checked_mul(1 << 20).ok_or(Errno::FBIG)?)?;
    drop(file);
    let journal = if mib < LARGE_MIB { "size=4" } else { "size=16" };
    let mut format = Command::new(program().ok_or(Errno::NOENT)?)
        .args(["-q", "-F", "-b", "4096", "-I", "256", "-i", INODE_BYTES, "-m", "0"])
        .args(["-J", journal, "-O", FEATURES])
        .args(["-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"])
        .arg(&path)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOENT))?;
    let mut said = String::new();
    if let Some(errors) = format.stderr.take() {
        let _ = errors.take(4096).read_to_string(&mut said);
    }
    // The launcher's children are nobody's to be asked after: whether it is a file system, the
    // mount says.
    let _ = format.wait();
    if !said.is_empty() {
        eprintln!("mkfs.ext4: {}", said.trim());
    }
    Ok(())
}

fn open(directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(directory.join(IMAGE), flags, Mode::empty())
}

/// Whether a device still holds the image.
pub(crate) fn is_attached(directory: &Path) -> bool {
    let Ok(image) = open(directory) else { return false };
    rustix::fs::flock(&image, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

/// Mounts the image of a sandbox's directory, attached nowhere.
///
/// # Errors
/// `EBUSY` while an earlier mount of it is not gone yet.
pub(crate) fn mount(directory: &Path) -> Result<OwnedFd, Errno> {
    let image = open(directory)?;
    let until = Instant::now() + DETACH_WAIT;
    while let Err(errno) = rustix::fs::flock(&image, FlockOperation::NonBlockingLockExclusive) {
        if errno != Errno::WOULDBLOCK || Instant::now() >= until {
            return Err(Errno::BUSY);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let device = isolet_sys::loop_device::attach(image.as_fd())?;
    let opened = rustix::mount::fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(opened.as_fd(), "source", device.path.as_str())?;
    // What is deleted inside is given back to the host; tables of inodes are zeroes anyway.
    for flag in ["discard", "noinit_itable"] {
        rustix::mount::fsconfig_set_flag(opened.as_fd(), flag)?;
    }
    rustix::mount::fsconfig_create(opened.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(opened.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}
