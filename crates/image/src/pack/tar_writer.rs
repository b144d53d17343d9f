//! Writes the entries of a layer. Names and targets of links are written byte for byte; long ones in
//! the form of GNU tar, extended attributes as PAX records.

use crate::error::Error;
use crate::unpack::byte_stream::from_io_error;
use std::io::{self, Read, Write};
use tar::{Builder, EntryType, Header};

/// The name of an entry that holds a long name.
const LONG_NAME: &[u8] = b"././@LongLink";
/// What the PAX records of extended attributes begin with.
const ATTRIBUTE: &str = "SCHILY.xattr.";

/// What an entry is.
#[derive(Debug, Clone, Copy)]
pub(super) enum EntryKind<'a> {
    File { size: u64 },
    Directory,
    Symlink(&'a [u8]),
    HardLink(&'a [u8]),
    Fifo,
}

/// One entry of a layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) kind: EntryKind<'a>,
    pub(super) path: &'a [u8],
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Seconds since 1970.
    pub(super) mtime: u64,
}

pub(super) struct TarWriter<W: Write>(Builder<W>);

impl<W: Write> TarWriter<W> {
    pub(super) fn new(to: W) -> Self {
        Self(Builder::new(to))
    }

    /// Writes the end of the archive.
    pub(super) fn finish(self) -> Result<W, Error> {
        self.0.into_inner().map_err(from_io_error)
    }

    /// Writes an entry without content.
    pub(super) fn entry(
        &mut self,
        entry: &Entry<'_>,
        attributes: &[(String, Vec<u8>)],
    ) -> Result<(), Error> {
        self.write(entry, attributes, io::empty()).map_err(from_io_error)
    }

    /// Writes a file with the content that `from` has.
    ///
    /// # Errors
    /// Also if `from` has less than `size` bytes.
    pub(super) fn file(
        &mut self,
        entry: &Entry<'_>,
        attributes: &[(String, Vec<u8>)],
        size: u64,
        from: impl Read,
    ) -> Result<(), Error> {
        let whole = Whole { from, left: size };
        self.write(entry, attributes, whole).map_err(from_io_error)
    }

    fn write(
        &mut self,
        entry: &Entry<'_>,
        attributes: &[(String, Vec<u8>)],
        content: impl Read,
    ) -> io::Result<()> {
        if !attributes.is_empty() {
            let names: Vec<_> =
                attributes.iter().map(|(name, _)| format!("{ATTRIBUTE}{name}")).collect();
            let values = attributes.iter().map(|(_, value)| value.as_slice());
            self.0
                .append_pax_extensions(std::iter::zip(names.iter().map(String::as_str), values))?;
        }
        let (kind, size, target) = match entry.kind {
            EntryKind::File { size } => (EntryType::Regular, size, None),
            EntryKind::Directory => (EntryType::Directory, 0, None),
            EntryKind::Symlink(target) => (EntryType::Symlink, 0, Some(target)),
            EntryKind::HardLink(target) => (EntryType::Link, 0, Some(target)),
            EntryKind::Fifo => (EntryType::Fifo, 0, None),
        };
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(entry.mode);
        header.set_uid(entry.uid.into());
        header.set_gid(entry.gid.into());
        header.set_mtime(entry.mtime);
        header.set_size(size);
        let target = target.unwrap_or_default();
        let old = header.as_old_mut();
        let fits_name = put(&mut old.name, entry.path);
        let fits_link = put(&mut old.linkname, target);
        if !fits_name {
            self.long(EntryType::GNULongName, entry.path)?;
        }
        if !fits_link {
            self.long(EntryType::GNULongLink, target)?;
        }
        header.set_cksum();
        self.0.append(&header, content)
    }

    /// Writes a name that does not fit into the next header.
    fn long(&mut self, kind: EntryType, name: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        put(&mut header.as_old_mut().name, LONG_NAME);
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(name.len() as u64 + 1);
        header.set_cksum();
        self.0.append(&header, name.chain(io::repeat(0).take(1)))
    }
}

/// Puts as much of a name into a header as it has place for. Returns whether that is all.
fn put(place: &mut [u8; 100], name: &[u8]) -> bool {
    let length = name.len().min(place.len());
    place[..length].copy_from_slice(&name[..length]);
    length == name.len()
}

/// Reads exactly as many bytes as the header of a file says.
struct Whole<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.from.read(&mut into[..most])?;
        if count == 0 {
            return Err(io::Error::other("a file became shorter while it was read"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}
