//! File system operations. Paths come from a tenant, so the caller must be confined.

use isolet_sys::tree;
use isolet_wire::response::{FileKind, FileStat, RefusalReason};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The directory to which relative paths refer.
const HOME: &str = "/workspace";
/// File system types of the kernel's own file systems, as in `statfs`.
const PROC: rustix::fs::FsWord = 0x9fa0;
const SYS: rustix::fs::FsWord = 0x6265_6572;

/// The reason for a failure, with a message.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) RefusalReason, pub(crate) String);

impl Failure {
    pub(crate) fn request(message: &str) -> Self {
        Self(RefusalReason::BadRequest, message.to_owned())
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        let reason = match errno {
            Errno::NOENT => RefusalReason::NotFound,
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BUSY | Errno::TXTBSY => {
                RefusalReason::Denied
            }
            Errno::NOTEMPTY => RefusalReason::NotEmpty,
            Errno::NOTDIR | Errno::ISDIR | Errno::LOOP => RefusalReason::WrongKind,
            // The file has changed its type, or a name like `.` cannot be removed.
            Errno::NXIO | Errno::INVAL => RefusalReason::WrongKind,
            Errno::NOSPC | Errno::DQUOT => RefusalReason::NoSpace,
            Errno::NAMETOOLONG | Errno::FBIG => RefusalReason::TooLarge,
            Errno::EXIST => RefusalReason::Exists,
            _ => RefusalReason::Failed,
        };
        Self(reason, errno.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self(RefusalReason::Failed, error.to_string()),
        }
    }
}

/// Turns a received path into an absolute one.
pub(crate) fn path(bytes: &[u8]) -> Result<PathBuf, Failure> {
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(Failure::request("a path has at least one byte, and none that is NUL"));
    }
    Ok(Path::new(HOME).join(OsString::from_vec(bytes.to_vec())))
}

/// The metadata of a file.
pub(crate) fn stat(stat: &rustix::fs::Stat) -> FileStat {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    FileStat {
        kind,
        size: stat.st_size as u64,
        mode: stat.st_mode & 0o7777,
        modified_ms: stat.st_mtime * 1000 + stat.st_mtime_nsec as i64 / 1_000_000,
        inode: stat.st_ino,
    }
}

/// The target of a symbolic link; `None` for other files.
pub(crate) fn target(dir: BorrowedFd<'_>, name: &[u8], stat: &FileStat) -> Option<Vec<u8>> {
    let link = stat.kind == FileKind::Symlink;
    let target = link.then(|| rustix::fs::readlinkat(dir, name, Vec::new()).ok())??;
    Some(target.into_bytes())
}

/// Opens a regular file for reading, or a directory. Opening other types could block forever.
pub(crate) fn open(path: &Path) -> Result<(File, FileStat), Failure> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let mut stat = stat(&rustix::fs::fstat(&fd)?);
    if !matches!(stat.kind, FileKind::File | FileKind::Directory) {
        return Err(Failure(RefusalReason::WrongKind, "not a regular file".to_owned()));
    }
    // The kernel generates the contents on reading, and the sizes in the metadata are meaningless.
    if matches!(rustix::fs::fstatfs(&fd)?.f_type, PROC | SYS) {
        stat.size = 0;
    }
    Ok((File::from(fd), stat))
}

/// Creates a directory with its parents.
pub(crate) fn make_dirs(path: &Path) -> Result<(), Failure> {
    Ok(std::fs::create_dir_all(path)?)
}

/// The names in a directory.
pub(crate) fn names(path: &Path, max: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty())?;
    let mut names = Vec::new();
    each(&dir, |name, _| {
        names.push(name.to_vec());
        names.len() <= max
    })?;
    if names.len() > max {
        return Err(Failure(
            RefusalReason::TooLarge,
            format!("the directory has more than {max} entries"),
        ));
    }
    Ok(names)
}

/// Calls `take` with every entry but `.` and `..` until it returns false.
pub(crate) fn each(
    dir: &OwnedFd,
    mut take: impl FnMut(&[u8], FileType) -> bool,
) -> Result<(), Errno> {
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && !take(name, entry.file_type()) {
            break;
        }
    }
    Ok(())
}

/// Removes a file, a link, an empty directory or, with `recursive`, a directory with its contents.
pub(crate) fn remove(path: &Path, recursive: bool) -> Result<(), Failure> {
    match rustix::fs::unlinkat(CWD, path, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        // The kernel checks this before it looks up the name, so a missing file must be reported as
        // missing.
        Err(Errno::ROFS) => {
            rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
            return Err(Errno::ROFS.into());
        }
        result => return Ok(result?),
    }
    if recursive {
        tree::clear(tree::open(path)?)?;
    }
    Ok(rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)?)
}
