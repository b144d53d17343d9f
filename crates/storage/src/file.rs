//! Copies one regular file.

use crate::copied::{Copied, ENTRY_BYTES, SpaceCheck};
use crate::error::CopyError;
use crate::method::CopyMethod;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Bytes that are in memory at a time where the kernel cannot copy from file to file.
const BUFFER_BYTES: usize = 256 * 1024;
/// Bytes between two checks of the free space.
const STEP_BYTES: u64 = 16 * 1024 * 1024;

/// Copies a file that the server owns to a new path, and flushes the copy to the disk. Owner and
/// mode are those of a new file: the server's, and 0600. Blocks.
///
/// # Errors
/// [`CopyError`].
pub fn copy_file(
    method: CopyMethod,
    from: &Path,
    to: &Path,
    check: SpaceCheck<'_>,
) -> Result<Copied, CopyError> {
    let name = from.file_name().unwrap_or_default().as_encoded_bytes();
    let at = |errno| CopyError::at(name, errno);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let source = rustix::fs::open(from, flags, Mode::empty()).map_err(at)?;
    check(ENTRY_BYTES)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let copy = rustix::fs::open(to, flags, Mode::from_raw_mode(0o600)).map_err(at)?;
    let bytes = copy_data(method, name, source.as_fd(), copy.as_fd(), check)?;
    rustix::fs::fsync(&copy).map_err(at)?;
    Ok(Copied { entries: 1, bytes })
}

/// Copies the data of an open file into an empty one. Returns the size of the data.
pub(crate) fn copy_data(
    method: CopyMethod,
    path: &[u8],
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    check: SpaceCheck<'_>,
) -> Result<u64, CopyError> {
    let at = |errno| CopyError::at(path, errno);
    let length = rustix::fs::fstat(from).map_err(at)?.st_size;
    let length = u64::try_from(length).unwrap_or(0);
    if method == CopyMethod::Reflink && rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return data_bytes(from, length).map_err(at);
    }
    let mut total = 0;
    let mut position = 0;
    while let Some(part) = next_data(from, position, length).map_err(at)? {
        copy_part(path, from, to, &part, check)?;
        total += part.end - part.start;
        position = part.end;
    }
    rustix::fs::ftruncate(to, length).map_err(at)?;
    Ok(total)
}

/// The next range of data from an offset on; `None` if only a hole follows.
pub(crate) fn next_data(
    file: impl AsFd,
    from: u64,
    length: u64,
) -> Result<Option<std::ops::Range<u64>>, Errno> {
    if from >= length {
        return Ok(None);
    }
    let file = file.as_fd();
    let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        // No data after this offset.
        Err(Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(length);
    Ok((start < end).then_some(start..end))
}

fn data_bytes(file: BorrowedFd<'_>, length: u64) -> Result<u64, Errno> {
    let mut total = 0;
    let mut position = 0;
    while let Some(part) = next_data(file, position, length)? {
        total += part.end - part.start;
        position = part.end;
    }
    Ok(total)
}

fn copy_part(
    path: &[u8],
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    part: &std::ops::Range<u64>,
    check: SpaceCheck<'_>,
) -> Result<(), CopyError> {
    let mut read_at = part.start;
    let mut write_at = part.start;
    while read_at < part.end {
        let step = (part.end - read_at).min(STEP_BYTES);
        check(step)?;
        let count = usize::try_from(step).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), count)
        {
            // The file became shorter while it was copied.
            Ok(0) => return Err(CopyError::at(path, Errno::STALE)),
            Ok(_) | Err(Errno::INTR) => {}
            // Between two file systems, such as a directory and a disk of a sandbox.
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL) => {
                read_at = copy_through_memory(from, to, read_at, step)
                    .map_err(|errno| CopyError::at(path, errno))?;
                write_at = read_at;
            }
            Err(errno) => return Err(CopyError::at(path, errno)),
        }
    }
    Ok(())
}

/// Copies `bytes` from an offset on. Returns the offset behind them.
fn copy_through_memory(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    start: u64,
    bytes: u64,
) -> Result<u64, Errno> {
    let end = start + bytes;
    let mut at = start;
    let mut buffer = vec![0; BUFFER_BYTES];
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(BUFFER_BYTES);
        let count = match rustix::io::pread(from, &mut buffer[..most], at) {
            Err(Errno::INTR) => continue,
            // The file became shorter while it was copied.
            Ok(0) => return Err(Errno::STALE),
            count => count?,
        };
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            match rustix::io::pwrite(to, rest, at) {
                Err(Errno::INTR) => {}
                written => {
                    let written = written?;
                    rest = &rest[written..];
                    at += written as u64;
                }
            }
        }
    }
    Ok(at)
}
