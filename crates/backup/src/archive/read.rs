//! Reads the entries of an archive, which may be damaged or hostile.

use super::entry::{
    Attributes, BLOCK_BYTES, Entry, FilePart, Kind, LINK_BYTES_MAX, PARTS_MAX, padding,
};
use super::pax::{self, PaxRecords};
use crate::files::BUFFER_BYTES;
use std::io::{self, Read};
use tar::{EntryType, Header};

/// Maximum length of a number in the map of a sparse file, in digits.
const DIGITS_MAX: usize = 20;
/// The bytes of the checksum in a header.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Receives the entries of an archive.
pub(crate) trait Sink {
    /// The next entry. The contents of a file follow.
    fn entry(&mut self, entry: Entry) -> io::Result<()>;

    /// Contents of the current file.
    fn data(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// The current file is complete.
    fn end_of_file(&mut self) -> io::Result<()>;
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Reads an archive to its end. Returns the number of entries.
pub(crate) fn read(from: impl Read, sink: &mut dyn Sink) -> io::Result<u64> {
    let mut reading = ArchiveReader { from, buffer: vec![0; BUFFER_BYTES] };
    let mut entries = 0;
    let mut records: Option<PaxRecords> = None;
    while let Some(header) = reading.header()? {
        if header.entry_type() == EntryType::XHeader {
            if records.is_some() {
                return Err(invalid("two PAX headers follow each other"));
            }
            records = Some(reading.records(&header)?);
            continue;
        }
        let records = records.take().ok_or_else(|| invalid("an entry has no PAX header"))?;
        reading.entry(&header, records, sink)?;
        entries += 1;
    }
    if records.is_some() {
        return Err(invalid("an entry is missing"));
    }
    Ok(entries)
}

struct ArchiveReader<R> {
    from: R,
    buffer: Vec<u8>,
}

impl<R: Read> ArchiveReader<R> {
    /// The next header; `None` at the end of the archive.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut block = [0; BLOCK_BYTES];
        self.from.read_exact(&mut block)?;
        if block == [0; BLOCK_BYTES] {
            self.from.read_exact(&mut block)?;
            let more = self.from.read(&mut [0; 1])?;
            return match block == [0; BLOCK_BYTES] && more == 0 {
                true => Ok(None),
                false => Err(invalid("something follows the end of the archive")),
            };
        }
        let header = Header::from_byte_slice(&block).clone();
        let outside = |at: usize| !CHECKSUM.contains(&at);
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| if outside(at) { u32::from(*byte) } else { u32::from(b' ') })
            .sum();
        if header.cksum()? != sum {
            return Err(invalid("the checksum of a header is wrong"));
        }
        Ok(Some(header))
    }

    fn records(&mut self, header: &Header) -> io::Result<PaxRecords> {
        let size = header.entry_size()?;
        if size > pax::BYTES_MAX {
            return Err(invalid("a PAX header is too long"));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        self.from.read_exact(&mut bytes)?;
        self.skip_padding(size)?;
        pax::decode(&bytes)
    }

    fn skip_padding(&mut self, size: u64) -> io::Result<()> {
        self.from.read_exact(&mut [0; BLOCK_BYTES][..padding(size)])
    }

    fn entry(
        &mut self,
        header: &Header,
        mut records: PaxRecords,
        sink: &mut dyn Sink,
    ) -> io::Result<()> {
        let size = header.entry_size()?;
        let old = header.as_old();
        let named = records.take_path().unwrap_or_else(|| until_nul(&old.name));
        let link = records.link.take().unwrap_or_else(|| until_nul(&old.linkname));
        let mut left = size;
        let kind = match header.entry_type() {
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink if !link.is_empty() && link.len() <= LINK_BYTES_MAX => {
                Kind::Symlink { target: link }
            }
            EntryType::Link => Kind::HardLink { to: clean(&link)? },
            EntryType::Fifo => Kind::Fifo,
            EntryType::Char
                if header.device_major()? == Some(0) && header.device_minor()? == Some(0) =>
            {
                Kind::Whiteout
            }
            EntryType::Regular => match records.is_sparse() {
                false => Kind::File { length: size, parts: None },
                true => {
                    let length = records.sparse_length.unwrap_or(0);
                    let parts = self.parts(length, &mut left)?;
                    Kind::File { length, parts: Some(parts) }
                }
            },
            other => {
                let kind = char::from(other.as_byte());
                return Err(invalid(&format!("an entry has the type {kind:?}")));
            }
        };
        let path = match clean(&named)? {
            path if path.is_empty() && kind != Kind::Directory => {
                return Err(invalid("an entry has no name"));
            }
            path => path,
        };
        let (modified_s, modified_ns) =
            records.modified.ok_or_else(|| invalid("an entry has no time"))?;
        let id = |id: u64| u32::try_from(id).map_err(|_| invalid("an owner is out of range"));
        let attributes = Attributes {
            mode: header.mode()? & 0o7777,
            uid: id(header.uid()?)?,
            gid: id(header.gid()?)?,
            modified_s,
            modified_ns,
            extended: records.extended,
        };
        let parts = match &kind {
            Kind::File { parts: Some(parts), .. } => parts.clone(),
            Kind::File { length, .. } => vec![FilePart { offset: 0, length: *length }],
            _ if size == 0 => Vec::new(),
            _ => return Err(invalid("an entry that is not a file has contents")),
        };
        let is_file = matches!(kind, Kind::File { .. });
        if left != parts.iter().map(|part| part.length).sum::<u64>() {
            return Err(invalid("the parts of a file differ from its size"));
        }
        sink.entry(Entry { path, kind, attributes })?;
        for part in parts {
            self.part(part, sink)?;
        }
        self.skip_padding(size)?;
        if is_file { sink.end_of_file() } else { Ok(()) }
    }

    fn part(&mut self, part: FilePart, sink: &mut dyn Sink) -> io::Result<()> {
        let mut offset = part.offset;
        let end = part.offset + part.length;
        while offset < end {
            let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX).min(BUFFER_BYTES);
            self.from.read_exact(&mut self.buffer[..wanted])?;
            sink.data(offset, &self.buffer[..wanted])?;
            offset += wanted as u64;
        }
        Ok(())
    }

    /// Reads the map of a sparse file, and subtracts its size from `left`.
    fn parts(&mut self, length: u64, left: &mut u64) -> io::Result<Vec<FilePart>> {
        let mut read = 0;
        let count = self.number(&mut read)?;
        if count > PARTS_MAX as u64 {
            return Err(invalid("a file has too many parts"));
        }
        let mut parts = Vec::new();
        let mut end = 0;
        for _ in 0..count {
            let offset = self.number(&mut read)?;
            let bytes = self.number(&mut read)?;
            let after = offset.checked_add(bytes).filter(|after| *after <= length && offset >= end);
            end = after.ok_or_else(|| invalid("the parts of a file overlap"))?;
            parts.push(FilePart { offset, length: bytes });
        }
        self.skip_padding(read)?;
        let map = read + padding(read) as u64;
        *left = left.checked_sub(map).ok_or_else(|| invalid("the map of a file is too long"))?;
        Ok(parts)
    }

    fn number(&mut self, read: &mut u64) -> io::Result<u64> {
        let mut digits = Vec::new();
        loop {
            let mut byte = [0; 1];
            self.from.read_exact(&mut byte)?;
            *read += 1;
            if byte == [b'\n'] {
                break;
            }
            digits.push(byte[0]);
            if digits.len() > DIGITS_MAX || !byte[0].is_ascii_digit() {
                return Err(invalid("the map of a file is invalid"));
            }
        }
        let text = std::str::from_utf8(&digits).ok();
        let number = text.and_then(|text| text.parse().ok());
        number.ok_or_else(|| invalid("the map of a file is invalid"))
    }
}

fn until_nul(field: &[u8]) -> Vec<u8> {
    field.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

/// A path below the root without a trailing slash; empty for the root. Refuses every other path.
fn clean(path: &[u8]) -> io::Result<Vec<u8>> {
    let refused =
        || invalid(&format!("the path {:?} leads elsewhere", String::from_utf8_lossy(path)));
    if path == b"./" || path == b"." {
        return Ok(Vec::new());
    }
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let good =
        |part: &[u8]| !part.is_empty() && part != b"." && part != b".." && !part.contains(&0);
    if path.split(|byte| *byte == b'/').all(good) { Ok(path.to_vec()) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_root_are_read() {
        assert_eq!(clean(b"a/b/").unwrap(), b"a/b");
        assert_eq!(clean(b"./").unwrap(), b"");
        for bad in ["", "/", "/a", "a//b", "../a", "a/..", "a/./b", "./a", "a/../b", "a\0b"] {
            assert!(clean(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
