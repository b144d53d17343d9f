//! PAX records: what the fixed header of a tar entry has no space for.

use super::entry::{Attribute, Entry, Kind, PARTS_MAX, PATH_BYTES_MAX};
use std::io;

/// The prefix of extended attributes.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
/// Maximum size of all records of an entry, in bytes: the attributes of a file have at most 128 KiB
/// on ext4, and two paths fit too.
pub(super) const BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Why a file with more extended attributes is left out.
pub(super) const TOO_MANY_ATTRIBUTES: &str = "its extended attributes have more than 4 MiB";
/// Why a file with more holes is left out.
pub(super) const TOO_MANY_PARTS: &str = "it has more than 4 million holes";
/// Length of a name in the fixed header, in bytes.
pub(super) const NAME_BYTES: usize = 100;

/// The records of one entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PaxRecords {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) modified: Option<(i64, u32)>,
    pub(super) extended: Vec<Attribute>,
    pub(super) sparse_length: Option<u64>,
    sparse_version: (bool, bool),
    sparse_name: Option<Vec<u8>>,
}

impl PaxRecords {
    /// Whether the entry begins with a map of its parts.
    pub(super) fn is_sparse(&self) -> bool {
        self.sparse_version == (true, true) && self.sparse_length.is_some()
    }

    /// The path, if it is recorded.
    pub(super) fn take_path(&mut self) -> Option<Vec<u8>> {
        self.sparse_name.take().or_else(|| self.path.take())
    }
}

/// Whether a name fits into the fixed header as it is.
pub(super) fn fits(name: &[u8]) -> bool {
    name.len() <= NAME_BYTES && name.iter().all(|byte| (0x20..0x7f).contains(byte))
}

fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // The length counts its own digits.
    let rest = key.len() + value.len() + 3;
    let mut length = rest + rest.to_string().len();
    if length.to_string().len() != rest.to_string().len() {
        length += 1;
    }
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// The records of an entry whose name in the archive is `name`. Fails above the limits of
/// [`decode`] and of the reader.
pub(super) fn encode(entry: &Entry, name: &[u8]) -> Result<Vec<u8>, &'static str> {
    let link_bytes = match &entry.kind {
        Kind::Symlink { target: link } | Kind::HardLink { to: link } => link.len(),
        _ => 0,
    };
    if name.len().max(link_bytes) > PATH_BYTES_MAX {
        return Err("its path is too long");
    }
    if matches!(&entry.kind, Kind::File { parts: Some(parts), .. } if parts.len() > PARTS_MAX) {
        return Err(TOO_MANY_PARTS);
    }
    let mut out = Vec::new();
    let attributes = &entry.attributes;
    if !fits(name) {
        record(&mut out, b"path", name);
    }
    match &entry.kind {
        Kind::Symlink { target: link } | Kind::HardLink { to: link } if !fits(link) => {
            record(&mut out, b"linkpath", link);
        }
        Kind::File { length, parts: Some(_) } => {
            record(&mut out, b"GNU.sparse.major", b"1");
            record(&mut out, b"GNU.sparse.minor", b"0");
            record(&mut out, b"GNU.sparse.name", name);
            record(&mut out, b"GNU.sparse.realsize", length.to_string().as_bytes());
        }
        _ => {}
    }
    let time = format!("{}.{:09}", attributes.modified_s, attributes.modified_ns);
    record(&mut out, b"mtime", time.as_bytes());
    for attribute in &attributes.extended {
        record(&mut out, &[ATTRIBUTE, &attribute.name].concat(), &attribute.value);
        if out.len() as u64 > BYTES_MAX {
            return Err(TOO_MANY_ATTRIBUTES);
        }
    }
    Ok(out)
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn number<N: std::str::FromStr>(bytes: &[u8]) -> io::Result<N> {
    let text = std::str::from_utf8(bytes).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| invalid("a PAX number is invalid"))
}

/// Parses the records of an entry. Unknown ones are ignored.
pub(super) fn decode(mut bytes: &[u8]) -> io::Result<PaxRecords> {
    let mut records = PaxRecords::default();
    while !bytes.is_empty() {
        let space = bytes.iter().take(20).position(|byte| *byte == b' ');
        let space = space.ok_or_else(|| invalid("a PAX record has no length"))?;
        let length: usize = number(&bytes[..space])?;
        let whole = bytes.get(space + 1..length).and_then(|whole| whole.strip_suffix(b"\n"));
        let whole = whole.ok_or_else(|| invalid("a PAX record is cut off"))?;
        let equals = whole.iter().position(|byte| *byte == b'=');
        let equals = equals.ok_or_else(|| invalid("a PAX record has no value"))?;
        take(&mut records, &whole[..equals], &whole[equals + 1..])?;
        bytes = &bytes[length..];
    }
    Ok(records)
}

fn take(records: &mut PaxRecords, key: &[u8], value: &[u8]) -> io::Result<()> {
    match key {
        b"path" => records.path = Some(bounded(value)?),
        b"linkpath" => records.link = Some(bounded(value)?),
        b"mtime" => records.modified = Some(time(value)?),
        b"GNU.sparse.major" => records.sparse_version.0 = value == b"1",
        b"GNU.sparse.minor" => records.sparse_version.1 = value == b"0",
        b"GNU.sparse.name" => records.sparse_name = Some(bounded(value)?),
        b"GNU.sparse.realsize" => records.sparse_length = Some(number(value)?),
        _ => {
            if let Some(name) = key.strip_prefix(ATTRIBUTE).filter(|name| !name.is_empty()) {
                records.extended.push(Attribute { name: name.to_vec(), value: value.to_vec() });
            }
        }
    }
    Ok(())
}

fn bounded(value: &[u8]) -> io::Result<Vec<u8>> {
    if value.len() > PATH_BYTES_MAX {
        Err(invalid("a path is too long"))
    } else {
        Ok(value.to_vec())
    }
}

fn time(value: &[u8]) -> io::Result<(i64, u32)> {
    let mut halves = value.splitn(2, |byte| *byte == b'.');
    let seconds = number(halves.next().unwrap_or_default())?;
    let fraction = halves.next().unwrap_or_default();
    let mut digits: Vec<u8> = fraction.iter().copied().take(9).collect();
    digits.resize(9, b'0');
    Ok((seconds, number(&digits)?))
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Attributes, FilePart};
    use super::*;

    #[test]
    fn records_read_as_they_were_written() {
        let extended = vec![Attribute { name: b"user.x".into(), value: b"a\nb=\0\xff".into() }];
        let attributes =
            Attributes { modified_s: -5, modified_ns: 7, extended, ..Attributes::default() };
        for length in 80..1100 {
            let path: Vec<u8> = (0..length).map(|n| if n % 3 == 0 { 0xfe } else { b'a' }).collect();
            let kind = Kind::Symlink { target: vec![b'\n'; 200] };
            let entry = Entry { path: path.clone(), kind, attributes: attributes.clone() };
            let mut records = decode(&encode(&entry, &path).unwrap()).unwrap();
            assert_eq!(records.take_path(), Some(path));
            assert_eq!(records.link, Some(vec![b'\n'; 200]));
            assert_eq!(records.modified, Some((-5, 7)));
            assert_eq!(records.extended, entry.attributes.extended);
        }
    }

    #[test]
    fn records_that_no_reader_accepts_are_not_written() {
        let attributes = Attributes::default();
        let longest = vec![b'a'; PATH_BYTES_MAX];
        let mut entry = Entry { path: longest.clone(), kind: Kind::Fifo, attributes };
        assert!(decode(&encode(&entry, &longest).unwrap()).is_ok());
        let longer = [&longest[..], b"/"].concat();
        assert!(encode(&entry, &longer).is_err());
        let attribute = Attribute { name: b"user.x".into(), value: vec![7; 60_000] };
        entry.attributes.extended = vec![attribute; 60];
        assert!(encode(&entry, &longest).is_ok());
        let more = entry.attributes.extended.clone();
        entry.attributes.extended.extend(more);
        assert_eq!(encode(&entry, &longest), Err(TOO_MANY_ATTRIBUTES));
        let parts = Some(vec![FilePart { offset: 0, length: 0 }; PARTS_MAX + 1]);
        let kind = Kind::File { length: 0, parts };
        let sparse = Entry { path: b"a".to_vec(), kind, attributes: Attributes::default() };
        assert_eq!(encode(&sparse, b"a"), Err(TOO_MANY_PARTS));
    }

    #[test]
    fn invalid_records_are_refused() {
        for bad in
            ["5", "x a=b\n", "99 a=b\n", "6 a=bc", "0 a=b\n", "5 ab\n", "3 \n", "10 mtime=\n"]
        {
            assert!(decode(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
