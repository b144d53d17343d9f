//! The size of a directory tree, for copies that are taken without a look at the files.

use crate::copied::{Copied, SpaceCheck};
use crate::error::CopyError;
use crate::tree::DIRECTORY;
use crate::walk::{Visitor, walk};
use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The unit of `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

/// Counts the entries and the data of a directory with everything below it. `check` is called for
/// each entry with 0, to end it. Blocks.
///
/// # Errors
/// [`CopyError`].
pub fn measure_tree(directory: &Path, check: SpaceCheck<'_>) -> Result<Copied, CopyError> {
    let root = rustix::fs::open(directory, DIRECTORY, Mode::empty());
    let root = root.map_err(|errno| CopyError::at(b"", errno))?;
    let mut measuring = Measuring { check, found: Copied::default() };
    walk(&mut measuring, root)?;
    Ok(measuring.found)
}

struct Measuring<'a> {
    check: SpaceCheck<'a>,
    found: Copied,
}

impl Visitor for Measuring<'_> {
    type Place = OwnedFd;

    fn source<'a>(&self, at: &'a OwnedFd) -> BorrowedFd<'a> {
        at.as_fd()
    }

    fn entry(
        &mut self,
        at: &OwnedFd,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<OwnedFd>, CopyError> {
        (self.check)(0)?;
        let failed = |errno| CopyError::at(path, errno);
        let stat = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let below = rustix::fs::openat(at, name, DIRECTORY, Mode::empty());
                return below.map(Some).map_err(failed);
            }
            FileType::RegularFile => self.found.bytes += share(&stat),
            _ => {}
        }
        self.found.entries += 1;
        Ok(None)
    }

    fn leave(&mut self, _: &OwnedFd, _: &[u8]) -> Result<(), CopyError> {
        self.found.entries += 1;
        Ok(())
    }

    fn parent(&self, at: &OwnedFd) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(at, "..", DIRECTORY, Mode::empty())
    }

    fn inodes(&self, at: &OwnedFd) -> Result<[u64; 2], Errno> {
        Ok([rustix::fs::fstat(at)?.st_ino, 0])
    }
}

/// The data of a file, divided among its names.
fn share(stat: &Stat) -> u64 {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES);
    #[allow(clippy::useless_conversion, reason = "it has 32 bits on aarch64")]
    let names = u64::from(stat.st_nlink).max(1);
    size.min(allocated) / names
}
