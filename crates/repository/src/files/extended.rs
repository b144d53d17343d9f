//! Extended attributes: those of users, ACLs and file capabilities. Others belong to the host, such
//! as labels of its security modules.

use crate::files::owner_ids::OwnerIds;
use crate::format::record::EXTENDED_BYTES_MAX;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Maximum size of the list of names and of each value, by the kernel.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Names and values.
pub(crate) type Extended = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads and writes extended attributes with one pair of buffers.
pub(crate) struct ExtendedReader {
    list: Vec<u8>,
    value: Vec<u8>,
}

fn is_portable(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || [
            b"system.posix_acl_access".as_slice(),
            b"system.posix_acl_default",
            b"security.capability",
        ]
        .contains(&name)
}

impl ExtendedReader {
    pub(crate) fn new() -> Self {
        Self { list: vec![0; VALUE_BYTES_MAX], value: vec![0; VALUE_BYTES_MAX] }
    }

    /// The attributes of an open file, sorted by name. More than fit into a record is `E2BIG`.
    pub(crate) fn read(&mut self, file: BorrowedFd<'_>, ids: OwnerIds) -> Result<Extended, Errno> {
        let count = match rustix::fs::flistxattr(file, self.list.as_mut_slice()) {
            Err(Errno::OPNOTSUPP) | Ok(0) => return Ok(Vec::new()),
            count => count?,
        };
        let mut all = Vec::new();
        let mut total = 0;
        for name in self.list[..count].split(|byte| *byte == 0) {
            if !is_portable(name) {
                continue;
            }
            let length = rustix::fs::fgetxattr(file, name, self.value.as_mut_slice())?;
            total += name.len() + length;
            if total > EXTENDED_BYTES_MAX {
                return Err(Errno::TOOBIG);
            }
            let value = ids.portable_value(name, self.value[..length].to_vec());
            all.push((name.to_vec(), value));
        }
        all.sort_unstable();
        Ok(all)
    }
}

/// Sets attributes of an open file. Names that no push writes are left out.
pub(crate) fn write(file: BorrowedFd<'_>, extended: &Extended) -> Result<(), Errno> {
    for (name, value) in extended {
        if is_portable(name) && !name.contains(&0) {
            rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())?;
        }
    }
    Ok(())
}
