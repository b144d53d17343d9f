//! The file system of a sandbox whose disk is limited: a sparse ext4 image in its directory, behind
//! a loop device.
//!
//! Only the sandbox's namespace holds the mount: it ends with the sandbox's last process, also when
//! launcher and server are dead, and the device is then detached from the image. The device's open
//! file carries a lock, so that an image is never mounted twice at the same time.
//!
//! Project quotas need a kernel and a mount option that few hosts have, and btrfs quotas need
//! btrfs; a loop device works everywhere. Some spare blocks and inodes are released while the
//! overlays are mounted, since a full disk could not wake otherwise. An empty image of
//! 10 GiB takes 240 KiB of the host's disk.

mod templates;

pub(crate) use templates::{DiskTemplates, Template};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The name of the image in a sandbox's directory.
pub(crate) const IMAGE: &str = "disk.ext4";
/// Possible paths of the program that formats an image.
const PROGRAMS: [&str; 2] = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
/// Listed in full, so that the host's `mke2fs.conf` does not change the file system.
const FEATURES: &str = "none,has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,\
                        sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum";
/// Bytes for each inode, which limits the number of files.
const INODE_BYTES: &str = "8192";
/// From this size on, in MiB, the journal has 16 MiB; below it has 4.
const LARGE_MIB: u64 = 256;
/// How long an image may stay attached after its file system was unmounted. The server waits longer
/// before it sends a request to the launcher.
const DETACH_WAIT: Duration = Duration::from_millis(50);

/// Why this machine cannot limit disks, with what to do; `None` when it can.
#[must_use]
pub fn no_disk() -> Option<String> {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.lines().any(|line| line.split_whitespace().last() == Some("ext4")) {
        return Some("the kernel has no ext4 file system: modprobe ext4".to_owned());
    }
    if !Path::new("/dev/loop-control").try_exists().unwrap_or(false) {
        return Some("/dev/loop-control is missing: modprobe loop".to_owned());
    }
    if program().is_none() {
        return Some("mkfs.ext4 is missing: install e2fsprogs".to_owned());
    }
    None
}

fn program() -> Option<&'static str> {
    PROGRAMS.into_iter().find(|path| Path::new(path).is_file())
}

/// Creates an image of `mib` MiB in a new sandbox's directory. If it had to be formatted, returns
/// the template for further ones of this size.
pub(crate) fn create_image(
    directory: &Path,
    mib: u64,
    templates: &DiskTemplates,
) -> Result<Option<Template>, Errno> {
    let path = directory.join(IMAGE);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?;
    rustix::fs::ftruncate(&file, mib.checked_mul(1 << 20).ok_or(Errno::FBIG)?)?;
    if templates.copy_to(&file, mib)? {
        return Ok(None);
    }
    drop(file);
    format(&path, mib)?;
    Template::read(&path, mib)
}

/// Formats an image with `mkfs.ext4`.
fn format(path: &Path, mib: u64) -> Result<(), Errno> {
    let journal = if mib < LARGE_MIB { "size=4" } else { "size=16" };
    let mut child = Command::new(program().ok_or(Errno::NOENT)?)
        .args(["-q", "-F", "-b", "4096", "-I", "256", "-i", INODE_BYTES, "-m", "0"])
        .args(["-J", journal, "-O", FEATURES])
        .args(["-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"])
        .arg(path)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOENT))?;
    let mut errors = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(4096).read_to_string(&mut errors);
    }
    // The kernel reaps the launcher's children, so there is no exit status: mounting the image
    // shows whether formatting succeeded.
    let _ = child.wait();
    if !errors.is_empty() {
        eprintln!("mkfs.ext4: {}", errors.trim());
    }
    Ok(())
}

fn open(directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(directory.join(IMAGE), flags, Mode::empty())
}

/// Whether a loop device is still attached to the image.
pub(crate) fn is_attached(directory: &Path) -> bool {
    let Ok(image) = open(directory) else { return false };
    rustix::fs::flock(&image, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

/// Mounts the image of a sandbox's directory. The mount is detached.
///
/// # Errors
/// `EBUSY` while an earlier mount of the image still exists.
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
    let context = rustix::mount::fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "source", device.path.as_str())?;
    // Blocks that are freed inside are returned to the host; inode tables are zero already.
    for flag in ["discard", "noinit_itable"] {
        rustix::mount::fsconfig_set_flag(context.as_fd(), flag)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Mounts a disk image that nothing changes, such as that of a snapshot, for reading. The mount is
/// detached: paths below it are opened relative to the descriptor, and it ends with the descriptor
/// and the files that are open in it. Several mounts of one image may exist. Blocks.
///
/// # Errors
/// The kernel's.
pub fn mount_read_only(image: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A device that is attached to a file opened for reading is read-only.
    let image = rustix::fs::open(image, flags, Mode::empty())?;
    let device = isolet_sys::loop_device::attach(image.as_fd())?;
    let open = |skip_journal: bool| {
        let context = rustix::mount::fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(context.as_fd(), "source", device.path.as_str())?;
        rustix::mount::fsconfig_set_flag(context.as_fd(), "ro")?;
        if skip_journal {
            rustix::mount::fsconfig_set_flag(context.as_fd(), "noload")?;
        }
        rustix::mount::fsconfig_create(context.as_fd()).map(|()| context)
    };
    let context = match open(false) {
        // The sandbox ran when the image was copied. Its journal was emptied before, but its mark
        // stayed, and a read-only device does not let the kernel remove it.
        Err(Errno::ROFS) => open(true)?,
        context => context?,
    };
    let flags = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Waits until no loop device is attached to the disk of a sandbox. Returns whether that is so within
/// `limit`. Blocks.
#[must_use]
pub fn wait_detached(sandbox: &Path, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while is_attached(sandbox) {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Mounts the disk of a sandbox that does not run, with the ids that its files have on disk. The
/// mount is detached and ends with the descriptor. Blocks.
///
/// # Errors
/// `EBUSY` while an earlier mount of the disk still exists, otherwise the kernel's error.
pub fn mount_disk(sandbox: &Path) -> Result<OwnedFd, Errno> {
    mount(sandbox)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_mounted_for_reading_several_times() {
        if let Some(lack) = no_disk() {
            println!("skipped: {lack}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        create_image(folder.path(), 64, &DiskTemplates::default()).unwrap();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let writable = mount_disk(folder.path()).unwrap();
        let file = rustix::fs::openat(&writable, "a", flags, Mode::from_raw_mode(0o600)).unwrap();
        rustix::io::write(&file, b"text").unwrap();
        drop((file, writable));
        // The device is detached a moment after the mount has ended.
        assert!(wait_detached(folder.path(), Duration::from_secs(10)));
        let image = folder.path().join(IMAGE);
        let mounts = [mount_read_only(&image).unwrap(), mount_read_only(&image).unwrap()];
        for mount in &mounts {
            let file = rustix::fs::openat(mount, "a", OFlags::RDONLY, Mode::empty()).unwrap();
            let mut text = [0; 8];
            assert_eq!(rustix::io::read(file, &mut text).unwrap(), 4);
            assert_eq!(&text[..4], b"text");
            let made = rustix::fs::openat(mount, "b", flags, Mode::from_raw_mode(0o600));
            assert_eq!(made.err(), Some(Errno::ROFS));
        }
    }

    #[test]
    fn an_image_is_formatted_once_for_each_size() {
        if let Some(lack) = no_disk() {
            println!("skipped: {lack}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let templates = DiskTemplates::default();
        let create = |name: &str, mib: u64| {
            let directory = folder.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            let formatted = create_image(&directory, mib, &templates).unwrap();
            let image = std::fs::read(directory.join(IMAGE)).unwrap();
            // The magic number of ext4, in the superblock at 1024.
            assert_eq!(image[1024 + 56..1024 + 58], [0x53, 0xef], "{name}");
            (formatted, image)
        };
        let (template, first) = create("first", 64);
        templates.remember(template.expect("it is formatted"));
        let (template, second) = create("second", 64);
        assert!(template.is_none() && second == first);
        assert!(create("larger", 65).0.is_some(), "another size");
        assert!(create("third", 65).0.is_some(), "it was not mounted, so it may be incomplete");
    }
}
