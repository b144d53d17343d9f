//! Makes an earlier copy of a file equal to it again.

use crate::copied::{Copied, SpaceCheck};
use crate::error::CopyError;
use crate::file::next_data;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// How much is read at once, in bytes.
const READ_BYTES: usize = 1024 * 1024;
/// The unit in which a copy is compared and written, in bytes.
const BLOCK_BYTES: usize = 64 * 1024;

/// Compares a file that the server owns with an earlier copy, and writes the blocks that differ. Holes
/// stay holes. The caller flushes the copy to the disk. Blocks.
///
/// # Errors
/// [`CopyError`].
pub fn refresh_copy(from: &Path, to: &Path, check: SpaceCheck<'_>) -> Result<Copied, CopyError> {
    let name = from.file_name().unwrap_or_default().as_encoded_bytes();
    let at = |errno| CopyError::at(name, errno);
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let source = rustix::fs::open(from, flags | OFlags::RDONLY, Mode::empty()).map_err(at)?;
    let copy = rustix::fs::open(to, flags | OFlags::RDWR, Mode::empty()).map_err(at)?;
    let length = u64::try_from(rustix::fs::fstat(&source).map_err(at)?.st_size).unwrap_or(0);
    rustix::fs::ftruncate(&copy, length).map_err(at)?;
    let mut compare = Compare { source, copy, bytes: [vec![0; READ_BYTES], vec![0; READ_BYTES]] };
    let mut total = 0;
    let mut position = 0;
    while let Some(part) = next_data(&compare.source, position, length).map_err(at)? {
        compare.clear(position, part.start).map_err(at)?;
        let mut offset = part.start;
        while offset < part.end {
            let count = usize::try_from(part.end - offset).unwrap_or(READ_BYTES).min(READ_BYTES);
            check(0)?;
            compare.refresh(offset, count, check, name)?;
            offset += count as u64;
        }
        total += part.end - part.start;
        position = part.end;
    }
    compare.clear(position, length).map_err(at)?;
    Ok(Copied { entries: 1, bytes: total })
}

struct Compare {
    source: OwnedFd,
    copy: OwnedFd,
    /// What was read of both.
    bytes: [Vec<u8>; 2],
}

impl Compare {
    /// Makes a range a hole of the copy.
    fn clear(&self, start: u64, end: u64) -> Result<(), Errno> {
        if start >= end || next_data(&self.copy, start, end)?.is_none() {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.copy, flags, start, end - start)
    }

    fn refresh(
        &mut self,
        offset: u64,
        count: usize,
        check: SpaceCheck<'_>,
        name: &[u8],
    ) -> Result<(), CopyError> {
        let at = |errno| CopyError::at(name, errno);
        let [is, was] = &mut self.bytes;
        read_all(&self.source, &mut is[..count], offset).map_err(at)?;
        read_all(&self.copy, &mut was[..count], offset).map_err(at)?;
        let blocks = is[..count].chunks(BLOCK_BYTES).zip(was[..count].chunks(BLOCK_BYTES));
        for (number, (is, was)) in blocks.enumerate() {
            if is == was {
                continue;
            }
            check(is.len() as u64)?;
            let mut written = 0;
            while written < is.len() {
                let place = offset + (number * BLOCK_BYTES + written) as u64;
                written += rustix::io::pwrite(&self.copy, &is[written..], place).map_err(at)?;
            }
        }
        Ok(())
    }
}

/// Reads until the buffer is full.
fn read_all(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<(), Errno> {
    let mut count = 0;
    while count < buffer.len() {
        match rustix::io::pread(file, &mut buffer[count..], offset + count as u64) {
            // The file became shorter.
            Ok(0) => return Err(Errno::STALE),
            Ok(read) => count += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CopyMethod, copy_file};
    use std::fs;
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    #[test]
    fn a_copy_follows_changes_and_new_holes() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        let to = folder.path().join("to");
        let file = fs::File::create(&from).unwrap();
        file.set_len(64 << 20).unwrap();
        let data: Vec<u8> = (0..8_000_000_u32).map(|number| (number % 251) as u8).collect();
        file.write_all_at(&data, 5_000).unwrap();
        file.write_all_at(&data, 40 << 20).unwrap();
        copy_file(CopyMethod::Full, &from, &to, &mut |_| Ok(())).unwrap();
        file.write_all_at(b"changed", 3_000_001).unwrap();
        file.write_all_at(b"new", 30 << 20).unwrap();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, flags, 40 << 20, 4 << 20).unwrap();
        let mut written = 0;
        let mut check = |bytes| {
            written += bytes;
            Ok(())
        };
        refresh_copy(&from, &to, &mut check).unwrap();
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
        assert!(written <= 3 * BLOCK_BYTES as u64, "{written}");
        let blocks = |path: &Path| fs::metadata(path).unwrap().blocks();
        assert!(blocks(&to) <= blocks(&from) + 256, "{} {}", blocks(&to), blocks(&from));
    }
}
