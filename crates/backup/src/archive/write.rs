//! Writes the entries of an archive.

use super::entry::{BLOCK_BYTES, Entry, Kind, padding, sparse_map};
use super::error::PackError;
use super::pax::{self, NAME_BYTES};
use std::io::Write;
use tar::{EntryType, Header};

/// The name of the entries that contain PAX records.
const PAX_NAME: &[u8] = b"./PaxHeaders/entry";

/// An archive that is being written.
pub(crate) struct ArchiveWriter<W> {
    out: W,
    /// Bytes of contents that the current entry still needs.
    missing: u64,
    padding: usize,
}

impl<W: Write> ArchiveWriter<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, missing: 0, padding: 0 }
    }

    /// Writes the header of an entry. For a file, the caller then writes its parts with
    /// [`ArchiveWriter::data`].
    ///
    /// # Errors
    /// [`PackError::Unfit`] above the limits of the reader; nothing of the entry is written then.
    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<(), PackError> {
        self.check_complete()?;
        let name = shown(entry);
        let records = pax::encode(entry, &name).map_err(PackError::Unfit)?;
        self.header(EntryType::XHeader, PAX_NAME, &[], records.len() as u64, None)?;
        self.put(&records)?;
        self.pad(padding(records.len() as u64))?;
        let mut map = Vec::new();
        let mut link: &[u8] = &[];
        let mut size = 0;
        let kind = match &entry.kind {
            Kind::Directory => EntryType::Directory,
            Kind::File { length, parts } => {
                size = match parts {
                    None => *length,
                    Some(parts) => {
                        map = sparse_map(parts);
                        parts.iter().map(|part| part.length).sum::<u64>() + map.len() as u64
                    }
                };
                EntryType::Regular
            }
            Kind::Symlink { target } => {
                link = target;
                EntryType::Symlink
            }
            Kind::HardLink { to } => {
                link = to;
                EntryType::Link
            }
            Kind::Fifo => EntryType::Fifo,
            Kind::Whiteout => EntryType::Char,
        };
        self.header(kind, &name, link, size, Some(entry))?;
        self.put(&map)?;
        self.missing = size - map.len() as u64;
        self.padding = padding(size);
        if self.missing == 0 {
            self.pad(self.padding)?;
        }
        Ok(())
    }

    fn header(
        &mut self,
        kind: EntryType,
        name: &[u8],
        link: &[u8],
        size: u64,
        entry: Option<&Entry>,
    ) -> Result<(), PackError> {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        let old = header.as_old_mut();
        fill(&mut old.name, name);
        fill(&mut old.linkname, link);
        header.set_size(size);
        header.set_mode(entry.map_or(0o600, |entry| entry.attributes.mode));
        header.set_uid(entry.map_or(0, |entry| u64::from(entry.attributes.uid)));
        header.set_gid(entry.map_or(0, |entry| u64::from(entry.attributes.gid)));
        let seconds = entry.map_or(0, |entry| entry.attributes.modified_s);
        header.set_mtime(u64::try_from(seconds).unwrap_or(0));
        if kind == EntryType::Char {
            header.set_device_major(0).map_err(PackError::Target)?;
            header.set_device_minor(0).map_err(PackError::Target)?;
        }
        header.set_cksum();
        self.put(header.as_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        self.out.write_all(bytes).map_err(PackError::Target)
    }

    /// Writes contents of the current file.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        let left = self.missing.checked_sub(bytes.len() as u64);
        self.missing = left.ok_or_else(|| PackError::source("a file grew while it was read"))?;
        self.put(bytes)?;
        if self.missing == 0 {
            self.pad(self.padding)?;
        }
        Ok(())
    }

    fn pad(&mut self, count: usize) -> Result<(), PackError> {
        self.put(&[0; BLOCK_BYTES][..count])
    }

    fn check_complete(&self) -> Result<(), PackError> {
        match self.missing {
            0 => Ok(()),
            _ => Err(PackError::source("a file shrank while it was read")),
        }
    }

    /// Writes the end of the archive.
    pub(crate) fn finish(mut self) -> Result<W, PackError> {
        self.check_complete()?;
        self.pad(BLOCK_BYTES)?;
        self.pad(BLOCK_BYTES)?;
        Ok(self.out)
    }
}

/// The path as tar programs show it.
fn shown(entry: &Entry) -> Vec<u8> {
    match &entry.kind {
        Kind::Directory if entry.path.is_empty() => b"./".to_vec(),
        Kind::Directory => [&entry.path, &b"/"[..]].concat(),
        _ => entry.path.clone(),
    }
}

fn fill(field: &mut [u8; NAME_BYTES], name: &[u8]) {
    let count = name.len().min(field.len());
    field[..count].copy_from_slice(&name[..count]);
}
