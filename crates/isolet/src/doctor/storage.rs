//! The data directory and its disk.

use super::finding::Finding;
use super::nearest;
use isolet_sandbox::storage::Backend;
use isolet_sandbox::{Config, check_format};
use rustix::fs::{FsWord, StatVfs};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const GROUP: &str = "storage";
const MIB: u64 = 1 << 20;
/// Part of the inodes, in percent, below which pulls and imports of images are refused.
const INODES_PERCENT: u64 = 2;
/// The length of the file that [`try_out`] writes.
const PROBE_BYTES: usize = 64 * 1024;
/// The magic numbers of file systems that lose their files at a reboot.
const TMPFS: FsWord = 0x0102_1994;
const RAMFS: FsWord = 0x8584_58f6;

/// Checks that only read.
pub(super) fn check(config: &Config) -> Vec<Finding> {
    let directory = nearest(&config.data_dir);
    let mut all = Vec::new();
    all.extend(permissions(&config.data_dir));
    all.extend(file_system(directory));
    match rustix::fs::statvfs(directory) {
        Ok(disk) => {
            all.push(space(&disk, config.free_space_floor_mib));
            all.push(inodes(&disk));
        }
        Err(errno) => all.push(Finding::failure(
            GROUP,
            "disk",
            format!("cannot read the free space of {}: {errno}", directory.display()),
            "mount the disk of the data directory",
        )),
    }
    all
}

/// Whether this version can read what the directory contains.
pub(super) fn format(data_dir: &Path) -> Finding {
    match check_format(data_dir) {
        Ok(_) => {
            Finding::ok(GROUP, "format", "this version can read the data directory".to_owned())
        }
        Err(error) => Finding::failure(
            GROUP,
            "format",
            error.to_string(),
            "use an empty data directory, or the version that made this one",
        ),
    }
}

/// Others could read the files of sandboxes, or replace those of the server.
fn permissions(data_dir: &Path) -> Option<Finding> {
    let about = fs::metadata(data_dir).ok()?;
    let mode = about.mode() & 0o7777;
    if mode & 0o022 == 0 {
        return None;
    }
    Some(Finding::failure(
        GROUP,
        "permissions",
        format!("other users may write to {} (mode {mode:04o})", data_dir.display()),
        format!("chmod go-w {}", data_dir.display()),
    ))
}

fn file_system(directory: &Path) -> Option<Finding> {
    let kind = rustix::fs::statfs(directory).ok()?.f_type;
    (kind == TMPFS || kind == RAMFS).then(|| {
        Finding::warning(
            GROUP,
            "file system",
            format!("{} is in memory: a reboot loses all sandboxes", directory.display()),
            "set data_dir to a directory on a disk",
        )
    })
}

fn space(disk: &StatVfs, floor_mib: u64) -> Finding {
    let check = "free space";
    let free_mib = disk.f_bavail.saturating_mul(disk.f_frsize) / MIB;
    let remedy = "delete sandboxes and run `isolet image gc`, or enlarge the disk";
    let message = format!("{free_mib} MiB; creates and uploads are refused below {floor_mib} MiB");
    if free_mib < floor_mib {
        return Finding::failure(GROUP, check, message, remedy);
    }
    if free_mib < floor_mib.saturating_mul(4) {
        return Finding::warning(GROUP, check, message, remedy);
    }
    Finding::ok(GROUP, check, format!("{free_mib} MiB"))
}

fn inodes(disk: &StatVfs) -> Finding {
    let check = "free inodes";
    if disk.f_files == 0 {
        return Finding::ok(GROUP, check, "the file system creates them as needed");
    }
    let percent = u128::from(disk.f_favail) * 100 / u128::from(disk.f_files);
    let percent = u64::try_from(percent).unwrap_or(100);
    let message = format!("{} ({percent} %)", disk.f_favail);
    let remedy =
        "delete sandboxes and images with many files, or use a file system with more inodes";
    match percent {
        0..INODES_PERCENT => Finding::failure(GROUP, check, message, remedy),
        INODES_PERCENT..10 => Finding::warning(GROUP, check, message, remedy),
        _ => Finding::ok(GROUP, check, message),
    }
}

/// Writes a file to the data directory and copies one there, and removes them again.
pub(super) fn try_out(data_dir: &Path) -> Vec<Finding> {
    let directory = nearest(data_dir);
    let check = "data directory";
    let shown = directory.display();
    let finding = match write_file(directory) {
        Ok(()) if directory == data_dir => {
            Finding::ok(GROUP, check, format!("{shown} is writable"))
        }
        Ok(()) => {
            Finding::ok(GROUP, check, format!("the server will create {}", data_dir.display()))
        }
        Err(error) => {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => "run isolet as root, or set another data_dir",
                io::ErrorKind::ReadOnlyFilesystem => "remount it writable, or set another data_dir",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "free space on its disk, or set another data_dir"
                }
                _ => "check the disk (dmesg), or set another data_dir",
            };
            Finding::failure(GROUP, check, format!("cannot write to {shown}: {error}"), remedy)
        }
    };
    vec![finding, snapshots(directory)]
}

fn snapshots(directory: &Path) -> Finding {
    let check = "snapshots";
    match Backend::probe(directory) {
        Ok(backend) => {
            let how = match backend {
                Backend::Btrfs => "by subvolumes and shared blocks",
                Backend::Reflink => "by files that share blocks",
                Backend::Layers => "by immutable layers; disks of sandboxes are copied in full",
            };
            Finding::ok(GROUP, check, format!("{backend}: {how}"))
        }
        Err(errno) => Finding::unchecked(
            GROUP,
            check,
            &format!("no file can be copied in {}: {errno}", directory.display()),
            "correct what the check `data directory` reports",
        ),
    }
}

fn write_file(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!(".doctor-{}.tmp", std::process::id()));
    let _ = fs::remove_file(&path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let written = file.write_all(&[1; PROBE_BYTES]).and_then(|()| file.sync_all());
    let removed = fs::remove_file(&path);
    written.and(removed)
}
