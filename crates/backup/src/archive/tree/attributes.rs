//! The attributes of files that are packed.

use super::FileError;
use crate::archive::entry::{Attribute, Attributes};
use crate::archive::pax;
use rustix::fs::Stat;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Maximum size of the list of names and of each value of extended attributes, by the kernel.
const VALUE_BYTES_MAX: usize = 64 * 1024;

pub(super) fn attributes(stat: &Stat, extended: Vec<Attribute>) -> Attributes {
    Attributes {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_s: stat.st_mtime,
        modified_ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        extended,
    }
}

/// The extended attributes of an open file or directory.
pub(super) fn extended(file: BorrowedFd<'_>) -> Result<Vec<Attribute>, FileError> {
    let mut list = vec![0; VALUE_BYTES_MAX];
    let count = rustix::fs::flistxattr(file, list.as_mut_slice());
    collect(&list, count, |name, value| rustix::fs::fgetxattr(file, name, value))
}

/// The extended attributes of a file that was opened only as a path.
pub(super) fn extended_of_path(file: BorrowedFd<'_>) -> Result<Vec<Attribute>, FileError> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut list = vec![0; VALUE_BYTES_MAX];
    let count = rustix::fs::listxattr(&path, list.as_mut_slice());
    collect(&list, count, |name, value| rustix::fs::getxattr(&path, name, value))
}

/// Stops above the limit of the archive, because some file systems store hundreds of MiB for a file.
fn collect(
    list: &[u8],
    count: Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<Attribute>, FileError> {
    let count = match count {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        count => count?,
    };
    let mut value = vec![0; if count == 0 { 0 } else { VALUE_BYTES_MAX }];
    let mut bytes = 0;
    let mut all = Vec::new();
    let names = list[..count].split(|byte| *byte == 0);
    for name in names.filter(|name| !name.is_empty()) {
        let length = get(name, value.as_mut_slice())?;
        bytes += (name.len() + length) as u64;
        if bytes > pax::BYTES_MAX {
            return Err(FileError::LeftOut(pax::TOO_MANY_ATTRIBUTES));
        }
        all.push(Attribute { name: name.to_vec(), value: value[..length].to_vec() });
    }
    Ok(all)
}
