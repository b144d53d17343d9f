//! Deletes a directory tree of any depth, without recursion, with few descriptors, and in time that
//! grows with the number of files. Follows no symbolic link.
//!
//! A directory that is too deep is moved to the top and emptied there. Going up by `..` would cost
//! the kernel a walk to the root each time, and there are not enough descriptors for every level.
//!
//! Subvolumes of btrfs are deleted as a whole where the process may do that.

use crate::btrfs;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a directory to be emptied.
///
/// # Errors
/// `ENOTDIR` for anything else, also for a symbolic link to a directory.
pub fn open(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, DIRECTORY, Mode::empty())
}

/// The prefix of the name of a moved directory; 16 hexadecimal digits follow.
pub const LIFTED: &str = ".isolet-remove-";

/// Removes a file, a link, or a directory with everything below it. A path that does not exist is
/// no error.
///
/// # Errors
/// The kernel's error; a part of the directory may be removed by then.
pub fn remove(path: &Path) -> Result<(), Errno> {
    remove_at(rustix::fs::CWD, path.as_os_str().as_bytes())
}

/// The same for a name in an open directory.
///
/// # Errors
/// The kernel's error; a part of the directory may be removed by then.
pub fn remove_at(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let removed = match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => remove_directory(parent, name),
        done => done,
    };
    match removed {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

fn remove_directory(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let directory = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?;
    if destroyed(parent, name, directory.as_fd()) {
        return Ok(());
    }
    clear(directory)?;
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Deletes a directory if it is a subvolume that can be deleted as a whole. Another one has to be
/// emptied, and is then removed as any directory.
fn destroyed(parent: BorrowedFd<'_>, name: &[u8], directory: BorrowedFd<'_>) -> bool {
    if !btrfs::is_subvolume(directory) {
        return false;
    }
    if btrfs::destroy(parent, name).is_ok() {
        return true;
    }
    // It contains another one, or the process lacks the privilege.
    let _ = btrfs::allow_writes(directory);
    false
}

/// The most levels that are open at the same time.
const LEVELS_MAX: usize = 100;

/// An open directory, and its name in the directory above.
struct TreeLevel {
    dir: OwnedFd,
    name: Vec<u8>,
}

/// Removes everything in `top`.
///
/// # Errors
/// The kernel's error, or `EMFILE` for a directory that is too deep and cannot be moved; a part may
/// be removed by then.
pub fn clear(top: impl AsFd) -> Result<(), Errno> {
    let top = top.as_fd();
    let mut below: Vec<TreeLevel> = Vec::new();
    let mut moved = 0_u64;
    loop {
        let dir = below.last().map_or(top, |level| level.dir.as_fd());
        match unlink(dir)? {
            Some(name) if below.len() >= LEVELS_MAX => lift(dir, &name, top, &mut moved)?,
            Some(name) => {
                match rustix::fs::openat(dir, name.as_slice(), DIRECTORY, Mode::empty()) {
                    Ok(opened) if destroyed(dir, &name, opened.as_fd()) => {}
                    Ok(dir) => below.push(TreeLevel { dir, name }),
                    // The directory was removed or replaced: the next pass detects that.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(errno) => return Err(errno),
                }
            }
            None => {
                let Some(TreeLevel { name, .. }) = below.pop() else { return Ok(()) };
                let above = below.last().map_or(top, |level| level.dir.as_fd());
                match rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR) {
                    // A file that was created in it is removed by the next pass.
                    Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
    }
}

/// Moves a directory to the top.
fn lift(
    dir: BorrowedFd<'_>,
    name: &[u8],
    top: BorrowedFd<'_>,
    moved: &mut u64,
) -> Result<(), Errno> {
    loop {
        *moved += 1;
        let to = format!("{LIFTED}{moved:016x}");
        match rustix::fs::renameat_with(dir, name, top, to, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(Errno::XDEV) => return Err(Errno::MFILE),
            Err(errno) => return Err(errno),
        }
    }
}

/// Removes files, up to the first directory, whose name it returns.
///
/// It does not try to remove the directory in case it is empty: the kernel walks through all cached
/// entries below a directory before it refuses.
fn unlink(dir: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, Errno> {
    rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))?;
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let found = match entry.file_type() {
            FileType::Directory => Err(Errno::ISDIR),
            _ => rustix::fs::unlinkat(dir, name, AtFlags::empty()),
        };
        match found {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => return Ok(Some(name.to_bytes().to_vec())),
            // Some file systems return this for a directory.
            Err(Errno::PERM) if is_dir(dir, name) => return Ok(Some(name.to_bytes().to_vec())),
            Err(errno) => return Err(errno),
        }
    }
    Ok(None)
}

fn is_dir(dir: BorrowedFd<'_>, name: &std::ffi::CStr) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A recursive deletion with a descriptor per level never finished for trees that a tenant
    /// creates with `mkdir x; cd x` in a loop.
    #[test]
    fn depth_costs_neither_stack_nor_descriptors_and_links_are_not_followed() {
        let root = std::env::temp_dir().join(format!("isolet-tree-{}", std::process::id()));
        let tree = root.join("tree");
        let beside = root.join("beside");
        fs::create_dir_all(&tree).expect("makes");
        fs::create_dir_all(&beside).expect("makes");
        fs::write(beside.join("kept"), "x").expect("writes");
        let mut dir = open(&tree).expect("opens");
        for _ in 0..3_000 {
            for name in ["a", "b"] {
                rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o700)).expect("makes");
            }
            rustix::fs::symlinkat(&beside, &dir, "link").expect("links");
            dir = rustix::fs::openat(&dir, "a", DIRECTORY, Mode::empty()).expect("opens");
        }
        // An open directory would keep all directories above it in the kernel's cache.
        drop(dir);
        clear(open(&tree).expect("opens")).expect("clears");
        assert_eq!(fs::read_dir(&tree).expect("reads").count(), 0);
        assert!(beside.join("kept").is_file());
        assert!(open(&tree.join("../beside/kept")).is_err());
        remove(&root).expect("removes");
        assert!(!root.try_exists().expect("looks"));
        remove(&root).expect("nothing to remove is no error");
    }
}
