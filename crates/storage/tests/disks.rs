//! Copies on file systems of their own, behind loop devices.

use isolet_kit::{MountedDisk, subvolumes};
use isolet_storage::{
    Backend, Copied, CopyError, CopyMethod, StillMoment, copy_live, copy_subvolume, copy_tree,
    create_subvolume_or_directory, is_plain_subvolume, measure_tree,
};
use rustix::fs::Mode;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A mounted disk in a temporary directory.
struct Disk {
    _disk: MountedDisk,
    _folder: tempfile::TempDir,
    at: PathBuf,
}

fn disk(kind: &str, mib: u64, options: &[&str]) -> Disk {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("at");
    fs::create_dir(&at).unwrap();
    let disk = MountedDisk::mount(&folder.path().join("image"), &at, kind, mib, options);
    Disk { _disk: disk, _folder: folder, at }
}

fn copy(at: &Path) -> Result<Copied, CopyError> {
    let links = at.join("links");
    fs::create_dir(&links).unwrap();
    let to = at.join("copy");
    let copied = copy_tree(CopyMethod::Full, &at.join("from"), &to, &links, &mut |_| Ok(()));
    isolet_sys::tree::remove(&links).unwrap();
    copied
}

/// A file with 65,000 names was once copied with the error `EMLINK`, because the copy has one more
/// name while it is made.
#[test]
fn a_file_with_as_many_names_as_ext4_allows_is_copied_as_one_file() {
    const NAMES: u64 = 65_000;
    let disk = disk("ext4", 64, &["-F"]);
    let from = disk.at.join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("0"), "one").unwrap();
    for name in 1..NAMES {
        fs::hard_link(from.join("0"), from.join(name.to_string())).unwrap();
    }
    assert!(fs::hard_link(from.join("0"), from.join("more")).is_err(), "the limit of ext4");
    assert_eq!(copy(&disk.at).unwrap().entries, NAMES + 1);
    assert_eq!(fs::metadata(disk.at.join("copy/0")).unwrap().nlink(), NAMES);
    assert_eq!(fs::read_to_string(disk.at.join("copy/64999")).unwrap(), "one");
}

#[test]
fn a_disk_without_inodes_or_blocks_is_a_full_disk() {
    let disk = disk("ext4", 16, &["-F", "-N", "64"]);
    let from = disk.at.join("from");
    fs::create_dir(&from).unwrap();
    for name in 0..40 {
        fs::write(from.join(name.to_string()), "").unwrap();
    }
    assert!(matches!(copy(&disk.at), Err(CopyError::Full)));
    isolet_sys::tree::remove(&disk.at.join("copy")).unwrap();
    isolet_sys::tree::remove(&from).unwrap();
    fs::create_dir(&from).unwrap();
    fs::write(from.join("large"), vec![1; 8 << 20]).unwrap();
    assert!(matches!(copy(&disk.at), Err(CopyError::Full)));
}

#[test]
fn subvolumes_are_copied_as_a_whole_and_removed_with_what_is_in_them() {
    let disk = disk("btrfs", 128, &[]);
    assert_eq!(Backend::probe(&disk.at).unwrap(), Backend::Btrfs);
    let from = disk.at.join("from");
    create_subvolume_or_directory(&from, Mode::from_raw_mode(0o711)).unwrap();
    assert_eq!(fs::metadata(&from).unwrap().mode() & 0o7777, 0o711);
    assert!(is_plain_subvolume(&from).unwrap());
    fs::create_dir(from.join("a")).unwrap();
    fs::write(from.join("a/file"), vec![1; 100_000]).unwrap();
    let frozen = disk.at.join("frozen");
    copy_subvolume(&from, &frozen, true).unwrap();
    fs::write(from.join("a/file"), "changed").unwrap();
    assert_eq!(fs::read(frozen.join("a/file")).unwrap().len(), 100_000);
    assert!(fs::write(frozen.join("new"), "").is_err(), "it is read-only");
    let measured = measure_tree(&frozen, &mut |_| Ok(())).unwrap();
    assert_eq!(measured, Copied { entries: 3, bytes: 100_000 });
    let second = disk.at.join("second");
    copy_subvolume(&frozen, &second, false).unwrap();
    fs::write(second.join("new"), "").unwrap();
    // A subvolume inside another one would be missing in the copy.
    create_subvolume_or_directory(&from.join("inner"), Mode::from_raw_mode(0o755)).unwrap();
    assert!(!is_plain_subvolume(&from).unwrap());
    let plain = disk.at.join("plain");
    fs::create_dir(&plain).unwrap();
    assert!(!is_plain_subvolume(&plain).unwrap());
    assert!(copy_subvolume(&plain, &disk.at.join("none"), false).is_err());
    fs::rename(&frozen, plain.join("frozen")).expect_err("a read-only one cannot be moved");
    fs::rename(&from, plain.join("from")).unwrap();
    copy_subvolume(&second, &plain.join("read-only"), true).unwrap();
    assert_eq!(subvolumes(&disk.at).len(), 5);
    for path in [&plain, &frozen, &second] {
        isolet_sys::tree::remove(path).unwrap();
        assert!(!path.try_exists().unwrap());
    }
    assert_eq!(subvolumes(&disk.at), Vec::<String>::new());
}

#[test]
fn the_backend_is_that_of_the_file_system() {
    for (kind, mib, options, backend) in
        [("xfs", 320, &[][..], Backend::Reflink), ("ext4", 16, &["-F"][..], Backend::Layers)]
    {
        let disk = disk(kind, mib, options);
        assert_eq!(Backend::probe(&disk.at).unwrap(), backend, "{kind}");
        create_subvolume_or_directory(&disk.at.join("a"), Mode::from_raw_mode(0o755)).unwrap();
        assert!(!is_plain_subvolume(&disk.at.join("a")).unwrap());
    }
}

/// Both passes share the blocks of the original, and the second one replaces what changed.
#[test]
fn two_passes_by_reference_copy_what_changed_and_take_no_space() {
    const FILE_BYTES: usize = 32 << 20;
    let disk = disk("xfs", 320, &[]);
    let from = disk.at.join("from");
    let to = disk.at.join("to");
    let links = disk.at.join("links");
    fs::create_dir_all(from.join("a")).unwrap();
    fs::create_dir(&links).unwrap();
    for name in 0..200 {
        fs::write(from.join(format!("a/{name}")), "before").unwrap();
    }
    fs::write(from.join("large"), vec![1; FILE_BYTES]).unwrap();
    let free = || {
        let _ = rustix::fs::syncfs(fs::File::open(&disk.at).unwrap());
        let stat = rustix::fs::statvfs(&disk.at).unwrap();
        stat.f_bfree * stat.f_frsize
    };
    let before = free();
    let since = StillMoment::now(&links).unwrap();
    let mut check = |_| Ok(());
    let live = copy_live(CopyMethod::Reflink, since, &from, &to, &links, &mut check).unwrap();
    fs::write(from.join("a/7"), "afterw").unwrap();
    fs::remove_file(from.join("a/8")).unwrap();
    fs::rename(from.join("a/9"), from.join("moved")).unwrap();
    let copied = live.complete(CopyMethod::Reflink, &from, &to, &links, &mut check).unwrap();
    assert_eq!(copied.entries, 202);
    assert_eq!(fs::read_to_string(to.join("a/7")).unwrap(), "afterw");
    assert_eq!(fs::read_to_string(to.join("moved")).unwrap(), "before");
    assert!(!to.join("a/8").try_exists().unwrap() && !to.join("a/9").try_exists().unwrap());
    assert_eq!(fs::read(to.join("large")).unwrap(), vec![1; FILE_BYTES]);
    assert!(before - free() < FILE_BYTES as u64 / 4, "the blocks are shared");
}

/// On xfs, an exchange of two names moves no time of the files.
#[test]
fn files_that_exchanged_their_names_between_two_passes_are_copied_again() {
    let disk = disk("xfs", 320, &[]);
    let from = disk.at.join("from");
    let to = disk.at.join("to");
    let links = disk.at.join("links");
    fs::create_dir(&from).unwrap();
    fs::create_dir(&links).unwrap();
    fs::write(from.join("a"), "one").unwrap();
    fs::write(from.join("b"), "two").unwrap();
    // Older than what may be in progress.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let since = StillMoment::now(&links).unwrap();
    let mut check = |_| Ok(());
    let live = copy_live(CopyMethod::Reflink, since, &from, &to, &links, &mut check).unwrap();
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    let at = rustix::fs::CWD;
    rustix::fs::renameat_with(at, from.join("a"), at, from.join("b"), exchange).unwrap();
    live.complete(CopyMethod::Reflink, &from, &to, &links, &mut check).unwrap();
    assert_eq!(fs::read_to_string(to.join("a")).unwrap(), "two");
    assert_eq!(fs::read_to_string(to.join("b")).unwrap(), "one");
}
