//! Resolves paths below an open directory with one `openat2` call, which follows no symbolic link
//! and does not leave the directory by `..`. Used wherever a tenant chose a part of the path.

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Attempts to resolve a path while other processes rename parts of it.
const OPEN_ATTEMPTS: u32 = 64;

/// Opens `path` below `from` with `O_PATH`; an empty path is `from` itself.
///
/// # Errors
/// `ELOOP` for a link on the path, `EXDEV` for a path that leaves `from`, otherwise the kernel's.
pub(crate) fn open_beneath(
    from: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { "." } else { path };
    let flags = flags | OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..OPEN_ATTEMPTS {
        opened = rustix::fs::openat2(from, path, flags, Mode::empty(), resolve);
        // A part of the path was renamed during the call.
        if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    opened
}

/// Opens the directory `path` below `from`. Creates it and its parents where they do not exist,
/// owned by the user and the group `owner_id`.
///
/// # Errors
/// Those of [`open_beneath`], `ENOTDIR`, and the kernel's for creating a directory.
pub(crate) fn create_directories(
    from: BorrowedFd<'_>,
    path: &str,
    owner_id: u32,
) -> Result<OwnedFd, Errno> {
    let mut parent = open_beneath(from, "", OFlags::DIRECTORY)?;
    for name in path.split('/') {
        let next = match open_beneath(parent.as_fd(), name, OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                let created = open_beneath(parent.as_fd(), name, OFlags::DIRECTORY)?;
                chown(created.as_fd(), owner_id, owner_id)?;
                created
            }
            opened => opened?,
        };
        parent = next;
    }
    Ok(parent)
}

/// The type of an open file.
pub(crate) fn file_type(file: BorrowedFd<'_>) -> Result<FileType, Errno> {
    let stat = rustix::fs::statat(file, "", AtFlags::EMPTY_PATH)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// Changes the owner of an open file, which may be open with `O_PATH`.
pub(crate) fn chown(file: BorrowedFd<'_>, uid: u32, gid: u32) -> Result<(), Errno> {
    let uid = Uid::from_raw(uid);
    let gid = Gid::from_raw(gid);
    rustix::fs::chownat(file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)
}
