//! What the archive of a layer has besides the contents of its files, so that the archive can be made
//! again from the unpacked layer, byte for byte.
//!
//! Another node can verify a layer only by a digest that the image names, and these are digests of
//! archives. This server keeps layers unpacked. Packing a tree again gives another archive: the order
//! of entries, padding, PAX records and owners differ between builders. Keeping the compressed
//! archives would need much more space for as long as a node is to send layers, and would still end
//! with an archive that was removed. So headers, padding and everything else that is not the content of
//! a file are recorded while a layer is unpacked, as the library `tar-split` does for Docker. That is
//! mostly a header of 512 bytes for each file, which compresses well.
//!
//! The file is a zstd stream of records: a byte for the kind, then
//!
//! | kind | follows |
//! |---|---|
//! | 0: bytes of the archive | their number (`u32`), and the bytes |
//! | 1: the content of a file | its size (`u64`), the length of its path (`u16`), and the path |
//! | 2: the end | the size of the archive (`u64`) |
//!
//! Numbers are little-endian. What is made again is as trustworthy as the disk; the node that receives it
//! compares its digest.

use crate::disk::rooted;
use crate::error::Error;
use rustix::fs::{FileType, OFlags};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;

/// The name of the file in the directory of a layer.
pub(crate) const FILE: &str = "tar-split.zst";
/// The level of compression.
const LEVEL: i32 = 1;
/// Bytes of the archive in one record.
const RECORD_BYTES: usize = 64 * 1024;
/// The most bytes of the archive that are recorded for a layer, and for each of its entries. A layer
/// with more, for example with long PAX records, is not sent to other nodes.
const BASE_BYTES_MAX: u64 = 4 * 1024 * 1024;
const ENTRY_BYTES_MAX: u64 = 4096;

const BYTES: u8 = 0;
const CONTENT: u8 = 1;
const END: u8 = 2;

/// Writes the file while a layer is unpacked.
pub(crate) struct TarSplitWriter {
    to: zstd::Encoder<'static, BufWriter<File>>,
    /// Bytes that are not written yet.
    pending: Vec<u8>,
    /// The bytes of the archive so far.
    bytes: u64,
    /// Those of them that are recorded.
    recorded: u64,
    recorded_max: u64,
    /// Whether the archive can be made again from the tree.
    complete: bool,
}

impl TarSplitWriter {
    /// Creates the file.
    ///
    /// # Errors
    /// [`Error::Disk`], [`Error::Full`].
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let file = BufWriter::new(File::create(path)?);
        Ok(Self {
            to: zstd::Encoder::new(file, LEVEL)?,
            pending: Vec::new(),
            bytes: 0,
            recorded: 0,
            recorded_max: BASE_BYTES_MAX,
            complete: true,
        })
    }

    /// Records bytes of the archive that are in no file of the tree.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.recorded += bytes.len() as u64;
        self.complete &= self.recorded <= self.recorded_max;
        if !self.complete {
            return Ok(());
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= RECORD_BYTES { self.write_pending() } else { Ok(()) }
    }

    /// Notes one more entry of the archive.
    pub(crate) fn entry(&mut self) {
        self.recorded_max = self.recorded_max.saturating_add(ENTRY_BYTES_MAX);
    }

    /// Records that the content of a file follows. `path` is its path in the tree.
    pub(crate) fn content(&mut self, path: &[u8], size: u64) -> io::Result<()> {
        self.bytes += size;
        let Ok(length) = u16::try_from(path.len()) else {
            self.give_up();
            return Ok(());
        };
        if size == 0 || !self.complete {
            return Ok(());
        }
        self.write_pending()?;
        self.to.write_all(&[CONTENT])?;
        self.to.write_all(&size.to_le_bytes())?;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(path)
    }

    /// Notes that the tree lacks something of the archive: a file that a later entry has replaced.
    pub(crate) fn give_up(&mut self) {
        self.complete = false;
        self.pending = Vec::new();
    }

    /// Writes the end. Returns whether the archive can be made again; otherwise the file is of no
    /// use.
    pub(crate) fn finish(mut self) -> io::Result<bool> {
        if !self.complete {
            return Ok(false);
        }
        self.write_pending()?;
        self.to.write_all(&[END])?;
        self.to.write_all(&self.bytes.to_le_bytes())?;
        self.to.finish()?.flush()?;
        Ok(true)
    }

    fn write_pending(&mut self) -> io::Result<()> {
        for part in self.pending.chunks(RECORD_BYTES) {
            let length = u32::try_from(part.len()).map_err(io::Error::other)?;
            self.to.write_all(&[BYTES])?;
            self.to.write_all(&length.to_le_bytes())?;
            self.to.write_all(part)?;
        }
        self.pending.clear();
        Ok(())
    }
}

/// Writes the archive of a layer, made of the file and of the tree. Returns its size.
///
/// # Errors
/// [`Error::Bad`] if something is missing or damaged; the error of `to`.
pub(crate) fn write_archive(
    split: &Path,
    tree: BorrowedFd<'_>,
    to: &mut impl Write,
) -> Result<u64, Error> {
    let mut from = BufReader::new(zstd::Decoder::new(File::open(split)?)?);
    let mut buffer = vec![0; RECORD_BYTES];
    let mut bytes = 0_u64;
    loop {
        match number::<1>(&mut from)?[0] {
            BYTES => {
                let length = u32::from_le_bytes(number(&mut from)?) as usize;
                let part = buffer.get_mut(..length).ok_or_else(damaged)?;
                from.read_exact(part)?;
                to.write_all(part)?;
                bytes += length as u64;
            }
            CONTENT => {
                let size = u64::from_le_bytes(number(&mut from)?);
                let length = u16::from_le_bytes(number(&mut from)?);
                let path = buffer.get_mut(..usize::from(length)).ok_or_else(damaged)?;
                from.read_exact(path)?;
                let file = open(tree, path)?;
                copy(file, size, &mut buffer, to)?;
                bytes = bytes.saturating_add(size);
            }
            END if u64::from_le_bytes(number(&mut from)?) == bytes => return Ok(bytes),
            _ => return Err(damaged()),
        }
    }
}

/// Opens a file of the tree, and nothing outside of it.
fn open(tree: BorrowedFd<'_>, path: &[u8]) -> Result<File, Error> {
    // Opening a named pipe does not block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rooted::open(tree, path, flags)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind == FileType::RegularFile { Ok(file.into()) } else { Err(damaged()) }
}

fn copy(mut from: File, size: u64, buffer: &mut [u8], to: &mut impl Write) -> Result<(), Error> {
    let mut left = size;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = from.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(Error::bad("a file of a layer is shorter than its archive says"));
        }
        to.write_all(&buffer[..count])?;
        left -= count as u64;
    }
    Ok(())
}

fn number<const LENGTH: usize>(from: &mut impl Read) -> Result<[u8; LENGTH], Error> {
    let mut bytes = [0; LENGTH];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn damaged() -> Error {
    Error::bad("the record of a layer's archive is damaged")
}

#[cfg(test)]
mod tests;
