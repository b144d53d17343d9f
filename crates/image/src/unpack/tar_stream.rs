//! Reads a tar stream entry by entry, and checks every length before it is used.
//!
//! The `tar` crate parses header blocks. Iteration is implemented here, because that crate reads long
//! names and PAX records of any length into memory.

use crate::error::Error;
use crate::unpack::tar_split::TarSplitWriter;
use std::io::{ErrorKind, Read};
use tar::{EntryType, Header};

const BLOCK: usize = 512;
/// Maximum size of the long names and PAX records of one entry together, with their headers, in bytes.
const EXTRA_BYTES_MAX: u64 = 1024 * 1024;

/// One entry. Its content must be read from the [`TarStream`] before the next entry is requested.
#[derive(Debug)]
pub struct TarEntry {
    /// The name as the archive has it: at most 1 MiB, not checked otherwise.
    pub path: Vec<u8>,
    /// The target of a link, with the same limit.
    pub link: Vec<u8>,
    /// What it is.
    pub kind: EntryType,
    /// The permissions, up to 0o7777.
    pub mode: u32,
    /// The user id of the owner.
    pub uid: u64,
    /// The group id.
    pub gid: u64,
    /// The time of the last change.
    pub mtime: Mtime,
    /// The size of the content, in bytes.
    pub size: u64,
    /// The extended attributes.
    pub xattrs: Vec<(String, Vec<u8>)>,
}

/// A time of modification, since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Mtime {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds in addition.
    pub nanos: u32,
}

/// A tar stream, positioned in an entry.
pub struct TarStream<R> {
    from: R,
    /// Unread bytes of the entry's content.
    left: u64,
    /// Bytes that fill the last block of the content.
    padding: u64,
    /// Records what is not the content of a file that is kept.
    split: Option<TarSplitWriter>,
}

/// Extended records that apply to the next entry.
#[derive(Default)]
struct Extra {
    bytes: u64,
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: Vec<(String, Vec<u8>)>,
}

impl Extra {
    fn number(&self, key: &str) -> Result<Option<u64>, Error> {
        let Some((_, value)) = self.pax.iter().rev().find(|(name, _)| name == key) else {
            return Ok(None);
        };
        let text = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        text.map(Some).ok_or_else(|| Error::bad(format!("the PAX record {key} is not a number")))
    }

    fn text(&self, key: &str) -> Option<Vec<u8>> {
        self.pax.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    }

    fn mtime(&self) -> Option<Mtime> {
        let text = String::from_utf8(self.text("mtime")?).ok()?;
        let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
        let nanos: String = part.chars().chain("000000000".chars()).take(9).collect();
        Some(Mtime { seconds: whole.parse().ok()?, nanos: nanos.parse().ok()? })
    }
}

impl<R: Read> TarStream<R> {
    /// A stream at the beginning of an archive.
    pub fn new(from: R) -> Self {
        Self { from, left: 0, padding: 0, split: None }
    }

    /// A stream that is recorded, so that it can be made again.
    pub(crate) fn recorded(from: R, split: Option<TarSplitWriter>) -> Self {
        Self { split, ..Self::new(from) }
    }

    /// Notes that the whole content of the entry was written to the file at `path`.
    pub(crate) fn kept(&mut self, path: &[u8], size: u64) -> Result<(), Error> {
        if let Some(split) = &mut self.split {
            split.content(path, size)?;
        }
        Ok(())
    }

    /// Notes that a file which was kept has been replaced.
    pub(crate) fn replaced(&mut self) {
        if let Some(split) = &mut self.split {
            split.give_up();
        }
    }

    fn record_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if let Some(split) = &mut self.split {
            split.bytes(bytes)?;
        }
        Ok(())
    }

    /// Returns the next entry, and skips unread content of the last one. `None` at the end.
    ///
    /// # Errors
    /// [`Error::Bad`] for an invalid archive, [`Error::TooLarge`] for names and PAX records of more
    /// than 1 MiB, and an error that the reader wraps in its own.
    pub fn next_entry(&mut self) -> Result<Option<TarEntry>, Error> {
        let mut extra = Extra::default();
        loop {
            self.pass()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let kind = header.entry_type();
            let size =
                header.entry_size().map_err(|_| Error::bad("a tar header has no valid size"))?;
            match kind {
                EntryType::GNULongName => extra.path = Some(self.name(size, &mut extra.bytes)?),
                EntryType::GNULongLink => extra.link = Some(self.name(size, &mut extra.bytes)?),
                EntryType::XHeader => {
                    let text = self.record(size, &mut extra.bytes)?;
                    extra.pax = pax(&text)?;
                }
                EntryType::XGlobalHeader => drop(self.record(size, &mut extra.bytes)?),
                EntryType::GNUSparse => {
                    return Err(Error::bad("sparse tar entries are not supported"));
                }
                _ => return self.entry(&header, kind, size, extra).map(Some),
            }
        }
    }

    fn entry(
        &mut self,
        header: &Header,
        kind: EntryType,
        size: u64,
        extra: Extra,
    ) -> Result<TarEntry, Error> {
        if extra.pax.iter().any(|(name, _)| name.starts_with("GNU.sparse.")) {
            return Err(Error::bad("sparse tar entries are not supported"));
        }
        let invalid =
            |name: &'static str| move |_| Error::bad(format!("a tar header has no valid {name}"));
        let size = extra.number("size")?.unwrap_or(size);
        let path = extra.text("path").or(extra.path.clone());
        let link = extra.text("linkpath").or(extra.link.clone());
        let content = !matches!(
            kind,
            EntryType::Directory
                | EntryType::Symlink
                | EntryType::Link
                | EntryType::Fifo
                | EntryType::Char
                | EntryType::Block
        );
        let entry = TarEntry {
            path: path.unwrap_or_else(|| header.path_bytes().into_owned()),
            link: link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned()),
            kind,
            mode: header.mode().map_err(invalid("mode"))? & 0o7777,
            uid: match extra.number("uid")? {
                Some(uid) => uid,
                None if is_blank(&header.as_old().uid) => 0,
                None => header.uid().map_err(invalid("owner"))?,
            },
            gid: match extra.number("gid")? {
                Some(gid) => gid,
                None if is_blank(&header.as_old().gid) => 0,
                None => header.gid().map_err(invalid("group"))?,
            },
            mtime: extra.mtime().unwrap_or_else(|| {
                let seconds = i64::try_from(header.mtime().unwrap_or(0)).unwrap_or(0);
                Mtime { seconds, nanos: 0 }
            }),
            size: if content { size } else { 0 },
            xattrs: extra
                .pax
                .into_iter()
                .filter_map(|(name, value)| {
                    Some((name.strip_prefix("SCHILY.xattr.")?.to_owned(), value))
                })
                .collect(),
        };
        self.left = entry.size;
        self.padding = entry.size.wrapping_neg() % BLOCK as u64;
        if let Some(split) = &mut self.split {
            split.entry();
        }
        Ok(entry)
    }

    /// Reads content of the entry; 0 at its end. What is read must go to a file, which
    /// `kept` names, or the stream must not be recorded.
    ///
    /// # Errors
    /// As [`TarStream::next_entry`].
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if most == 0 {
            return Ok(0);
        }
        let count = some(&mut self.from, &mut into[..most])?;
        if count == 0 {
            return Err(cut());
        }
        self.left -= count as u64;
        Ok(count)
    }

    /// Reads the stream to its end, which may lie behind the end of the archive. Returns the reader,
    /// and whether the stream was recorded so that it can be made again.
    pub(crate) fn finish(mut self) -> Result<(R, bool), Error> {
        let mut rest = [0; 16 * 1024];
        loop {
            let count = some(&mut self.from, &mut rest)?;
            if count == 0 {
                break;
            }
            self.record_bytes(&rest[..count])?;
        }
        let recorded = self.split.map_or(Ok(false), TarSplitWriter::finish)?;
        Ok((self.from, recorded))
    }

    fn pass(&mut self) -> Result<(), Error> {
        let mut rest = self.left + self.padding;
        let mut scrap = [0; 16 * 1024];
        while rest > 0 {
            let most = usize::try_from(rest).unwrap_or(usize::MAX).min(scrap.len());
            match some(&mut self.from, &mut scrap[..most])? {
                0 => return Err(cut()),
                count => {
                    self.record_bytes(&scrap[..count])?;
                    rest -= count as u64;
                }
            }
        }
        self.left = 0;
        self.padding = 0;
        Ok(())
    }

    fn header(&mut self) -> Result<Option<Header>, Error> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match some(&mut self.from, &mut block[filled..])? {
                // Some archives lack the two blocks of zeros at the end.
                0 if filled == 0 => return Ok(None),
                0 => return Err(cut()),
                count => filled += count,
            }
        }
        self.record_bytes(&block)?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let sum = block.iter().enumerate().fold(0_u32, |sum, (at, byte)| {
            sum + u32::from(if (148..156).contains(&at) { b' ' } else { *byte })
        });
        match header.cksum() {
            Ok(said) if said == sum => Ok(Some(header)),
            _ => Err(Error::bad("a layer or archive is not a valid tar archive")),
        }
    }

    fn record(&mut self, size: u64, sofar: &mut u64) -> Result<Vec<u8>, Error> {
        *sofar = sofar.saturating_add(size).saturating_add(BLOCK as u64);
        if *sofar > EXTRA_BYTES_MAX {
            return Err(Error::large("names and PAX records of one tar entry", "1 MiB"));
        }
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
        let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
        let mut filled = 0;
        while filled < text.len() {
            filled += self.read(&mut text[filled..])?;
        }
        self.record_bytes(&text)?;
        Ok(text)
    }

    fn name(&mut self, size: u64, sofar: &mut u64) -> Result<Vec<u8>, Error> {
        let mut name = self.record(size, sofar)?;
        if let Some(end) = name.iter().position(|byte| *byte == 0) {
            name.truncate(end);
        }
        Ok(name)
    }
}

/// Whether a number is left out, which stands for 0 as in other programs.
fn is_blank(field: &[u8]) -> bool {
    field.iter().all(|byte| matches!(byte, 0 | b' '))
}

fn cut() -> Error {
    Error::bad("the tar archive is cut off")
}

fn some(from: &mut impl Read, into: &mut [u8]) -> Result<usize, Error> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(crate::unpack::byte_stream::from_io_error(error)),
            Ok(count) => return Ok(count),
        }
    }
}

/// Parses PAX records: `LENGTH KEY=VALUE\n`, repeated.
fn pax(text: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let bad = || Error::bad("a PAX record cannot be parsed");
    let mut rest = text;
    let mut all = Vec::new();
    while !rest.is_empty() && rest[0] != 0 {
        let space = rest.iter().position(|byte| *byte == b' ').ok_or_else(bad)?;
        let length = std::str::from_utf8(&rest[..space]).ok().and_then(|text| text.parse().ok());
        let length: usize = length.filter(|length| *length <= rest.len()).ok_or_else(bad)?;
        let body = rest.get(space + 1..length).and_then(|body| body.strip_suffix(b"\n"));
        let body = body.ok_or_else(bad)?;
        let equals = body.iter().position(|byte| *byte == b'=').ok_or_else(bad)?;
        let key = std::str::from_utf8(&body[..equals]).map_err(|_| bad())?;
        all.push((key.to_owned(), body[equals + 1..].to_vec()));
        rest = &rest[length..];
    }
    Ok(all)
}
