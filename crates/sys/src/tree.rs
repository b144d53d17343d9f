//! Removes a directory with its content, however deep: without recursion, with few descriptors, and
//! in linear time. Follows no link.
//!
//! A directory that is too deep is renamed to the top and removed from there. Going up by `..`
//! would cost the kernel a walk to the root each time, and there are not enough descriptors for one
//! per level.

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
/// `ENOTDIR` for anything else, a link to one among them.
pub fn open(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, DIRECTORY, Mode::empty())
}

/// What a directory is called that was too deep, until it is removed; 16 hexadecimal digits follow.
pub const LIFTED: &str = ".isolet-remove-";

/// Removes a file, a link, or a directory with everything below it. A path that does not exist is
/// no error.
///
/// # Errors
/// As the kernel says; part of the directory may be gone by then.
pub fn remove(path: &Path) -> Result<(), Errno> {
    remove_at(rustix::fs::CWD, path.as_os_str().as_bytes())
}

/// The same for a name in an open directory.
///
/// # Errors
/// As the kernel says; part of the directory may be gone by then.
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
    clear(rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?)?;
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Levels that are held open at a time.
const LEVELS_MAX: usize = 100;

/// A directory on the way down, and its name in the one above.
struct Level {
    dir: OwnedFd,
    name: Vec<u8>,
}

/// Removes all that lies in `top`.
///
/// # Errors
/// As the kernel says, `EMFILE` for what is too deep and cannot be moved up; what was removed by then
/// is gone.
pub fn clear(top: impl AsFd) -> Result<(), Errno> {
    let top = top.as_fd();
    let mut below: Vec<Level> = Vec::new();
    let mut moved = 0_u64;
    loop {
        let dir = below.last().map_or(top, |level| level.dir.as_fd());
        match unlink(dir)? {
            Some(name) if below.len() >= LEVELS_MAX => lift(dir, &name, top, &mut moved)?,
            Some(name) => {
                match rustix::fs::openat(dir, name.as_slice(), DIRECTORY, Mode::empty()) {
                    Ok(dir) => below.push(Level { dir, name }),
                    // It was removed or replaced: the next pass finds out.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(errno) => return Err(errno),
                }
            }
            None => {
                let Some(Level { name, .. }) = below.pop() else { return Ok(()) };
                let above = below.last().map_or(top, |level| level.dir.as_fd());
                match rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR) {
                    // Something was created in it: the next pass removes that.
                    Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
    }
}

/// Gives a directory a name at the top.
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

/// Removes what is no directory; gives the first that is one.
///
/// It is not tried whether that one is empty: the kernel walks through all that it knows below a
/// directory before it refuses.
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
            // Some file systems say so of a directory.
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

    /// A deletion that went down by recursion, with a descriptor a level, never came back from
    /// trees that a tenant makes with `mkdir x; cd x` in a loop.
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
        // One that is held keeps the kernel's memory of all that was above it.
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
