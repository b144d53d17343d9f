//! The owner and attributes of a file that replaces another one.

use super::disk::Failure;
use rustix::fs::{AtFlags, CWD, Gid, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::path::Path;

/// Maximum size of all attribute names of a file, and of one value, in bytes, as in the kernel.
const ATTRIBUTES_BYTES_MAX: usize = 64 * 1024;
/// The attribute that holds a file's access control list.
const ACL: &[u8] = b"system.posix_acl_access";

/// A user id and a group id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ids {
    uid: u32,
    gid: u32,
}

impl From<&rustix::fs::Stat> for Ids {
    fn from(stat: &rustix::fs::Stat) -> Self {
        Self { uid: stat.st_uid, gid: stat.st_gid }
    }
}

impl Ids {
    fn uid(self) -> Option<Uid> {
        Some(Uid::from_raw(self.uid))
    }

    fn gid(self) -> Option<Gid> {
        Some(Gid::from_raw(self.gid))
    }

    /// Sets the owner of a path without following a symbolic link. If the sandbox's user has no
    /// permission, the file stays the writer's.
    pub(super) fn own(self, path: &Path) -> Result<(), Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::chownat(CWD, path, self.uid(), self.gid(), flags) {
            Err(Errno::PERM | Errno::INVAL) => Ok(()),
            result => result,
        }
    }
}

/// The owner of a written file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The owner of the replaced file, with its attributes. A new file belongs to the writer.
    Kept,
    /// This owner, because the file was moved here.
    Moved(Ids),
}

impl Owner {
    /// Sets the owner of a file, and copies the attributes of the replaced file at `path`. Returns
    /// `false` if the sandbox's user has no permission to set the owner, so that the file stays the
    /// writer's.
    pub(super) fn give(
        self,
        file: &File,
        old: Option<&rustix::fs::Stat>,
        path: &Path,
    ) -> Result<bool, Failure> {
        let ids = match (self, old) {
            (Self::Moved(ids), _) => ids,
            (Self::Kept, Some(old)) => old.into(),
            (Self::Kept, None) => return Ok(true),
        };
        if self == Self::Kept {
            attributes(path, file)?;
        }
        if Ids::from(&rustix::fs::fstat(file)?) == ids {
            return Ok(true);
        }
        match rustix::fs::fchown(file, ids.uid(), ids.gid()) {
            Ok(()) => Ok(true),
            // Another user's file in a directory of the writer, or a user from outside the sandbox.
            Err(Errno::PERM | Errno::INVAL) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Copies the access control list and the user attributes. Attributes of the kernel or a security
/// module that depend on the contents (`security.*`, above all capabilities) are not copied.
fn attributes(from: &Path, to: &File) -> Result<(), Failure> {
    let mut names = vec![0; ATTRIBUTES_BYTES_MAX];
    let count = match rustix::fs::llistxattr(from, &mut names[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOENT) => return Ok(()),
        count => count?,
    };
    for name in names[..count].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        let bytes = name.to_bytes();
        if bytes != ACL && !bytes.starts_with(b"user.") {
            continue;
        }
        let mut value = vec![0; ATTRIBUTES_BYTES_MAX];
        match rustix::fs::lgetxattr(from, name, &mut value[..]) {
            Ok(count) => rustix::fs::fsetxattr(to, name, &value[..count], XattrFlags::empty())?,
            // Removed in the meantime.
            Err(Errno::NODATA | Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
