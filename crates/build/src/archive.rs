//! Archives of files that clients upload: tar, also compressed with gzip. They are checked when they
//! arrive, and again by the sandbox that unpacks them.

pub(crate) mod copy;
pub(crate) mod stop;

use crate::error::Error;
use flate2::read::MultiGzDecoder;
use isolet_sandbox::image::{self, TarEntry, TarStream};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use stop::Stop;
use tar::EntryType;

/// Maximum number of entries.
const ENTRIES_MAX: usize = 100_000;
/// Maximum size of all names together, in bytes. They are in memory at the same time.
const NAMES_BYTES_MAX: usize = 32 << 20;
/// Maximum number of parts of a name, as in a layer.
const NAME_PARTS_MAX: usize = 128;
/// Maximum unpacked size, in bytes.
const UNPACKED_BYTES_MAX: u64 = 8 << 30;
/// An archive up to this size may expand by any factor, in bytes.
const EXPANSION_FREE_BYTES: u64 = 64 << 20;
/// How much a larger one may expand.
const EXPANSION_MAX: u64 = 400;
/// Maximum length of a name, in bytes.
const NAME_BYTES_MAX: usize = 4095;
/// What a gzip file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Bytes of a file that are read at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// The entries of an archive whose names, kinds and sizes were checked.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ArchiveSummary {
    /// The digest of names, kinds, permissions and contents, in hexadecimal. Times and owners do not
    /// count.
    pub digest: String,
    /// The number of entries.
    pub entries: usize,
    /// The unpacked size, in bytes.
    pub unpacked_bytes: u64,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Directory,
    File,
    Symlink,
    HardLink,
}

/// Limits what is read from a compressed archive.
pub(crate) struct Unpacked<R> {
    from: R,
    left: u64,
    stop: Stop,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let damaged = |error: io::Error| match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::Interrupted, _) | (_, Some(_)) => error,
            _ => io::Error::other(image::Error::Bad(format!("it is damaged or cut off: {error}"))),
        };
        self.stop.check()?;
        let count = self.from.read(to).map_err(damaged)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            let quantity = "their unpacked size".to_owned();
            let limit = "8 GiB, and above 64 MiB 400 times the size of the upload".to_owned();
            io::Error::other(image::Error::TooLarge { quantity, limit })
        })?;
        Ok(count)
    }
}

/// An archive that is being read.
pub(crate) type Entries = TarStream<Unpacked<Box<dyn Read>>>;

/// Opens an archive, which can be read until the work is to stop.
pub(crate) fn open(path: &Path, stop: &Stop) -> io::Result<Entries> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let left =
        UNPACKED_BYTES_MAX.min(EXPANSION_FREE_BYTES.max(bytes.saturating_mul(EXPANSION_MAX)));
    let mut whole = BufReader::new(file);
    let mut head = Vec::with_capacity(GZIP.len());
    whole.by_ref().take(GZIP.len() as u64).read_to_end(&mut head)?;
    let is_gzip = head == GZIP;
    let whole = io::Cursor::new(head).chain(whole);
    let from: Box<dyn Read> = match is_gzip {
        true => Box::new(MultiGzDecoder::new(whole)),
        false => Box::new(whole),
    };
    Ok(TarStream::new(Unpacked { from, left, stop: stop.clone() }))
}

/// The content of the entry that was read last.
pub(crate) struct Content<'a>(pub(crate) &'a mut Entries);

impl Read for Content<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.read(to).map_err(io::Error::other)
    }
}

/// The sum of the names of an archive, which has a limit.
#[derive(Debug, Default)]
pub(crate) struct NameBytes(usize);

impl NameBytes {
    /// Counts a name.
    ///
    /// # Errors
    /// [`Error::FilesTooLarge`].
    pub(crate) fn add(&mut self, name: &str) -> Result<(), Error> {
        self.0 = self.0.saturating_add(name.len());
        if self.0 <= NAMES_BYTES_MAX {
            return Ok(());
        }
        let quantity = "the names of all files together".to_owned();
        Err(Error::FilesTooLarge { quantity, limit: format!("{} MiB", NAMES_BYTES_MAX >> 20) })
    }
}

/// The name of an entry, relative and without `.` and `..`; empty for the root itself.
///
/// # Errors
/// [`Error::BadFiles`].
pub(crate) fn name(entry: &TarEntry) -> Result<String, Error> {
    clean(&entry.path)
}

fn clean(bytes: &[u8]) -> Result<String, Error> {
    let shown = || {
        let shown = &bytes[..bytes.len().min(1000)];
        String::from_utf8_lossy(shown).chars().take(200).collect::<String>()
    };
    let refused = |problem: &str| Error::BadFiles(format!("the entry {:?} {problem}", shown()));
    if bytes.len() > NAME_BYTES_MAX {
        return Err(refused("has a name of more than 4095 bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| refused("has a name that is not UTF-8"))?;
    if text.starts_with('/') {
        return Err(refused("has an absolute name"));
    }
    if text.contains('\0') {
        return Err(refused("has a NUL in its name"));
    }
    let mut parts = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err(refused("lies outside of the archive")),
            part => parts.push(part),
        }
    }
    if parts.len() > NAME_PARTS_MAX {
        return Err(refused("lies in more than 127 nested directories"));
    }
    Ok(parts.join("/"))
}

/// What an entry is.
///
/// # Errors
/// [`Error::BadFiles`] for devices and other kinds that are not copied.
pub(crate) fn kind(entry: &TarEntry, name: &str) -> Result<Kind, Error> {
    match entry.kind {
        EntryType::Regular | EntryType::Continuous => Ok(Kind::File),
        EntryType::Directory => Ok(Kind::Directory),
        EntryType::Symlink => Ok(Kind::Symlink),
        EntryType::Link => Ok(Kind::HardLink),
        _ => {
            let what = "neither a file, a directory nor a link";
            Err(Error::BadFiles(format!("the entry {name:?} is {what}")))
        }
    }
}

/// The target of a link as text.
pub(crate) fn target<'a>(entry: &'a TarEntry, name: &str) -> Result<&'a str, Error> {
    let text = std::str::from_utf8(&entry.link).ok();
    text.filter(|text| !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains('\0'))
        .ok_or_else(|| Error::BadFiles(format!("the link {name:?} has no target that is UTF-8")))
}

/// Reads a whole archive, and checks it. Blocks.
///
/// # Errors
/// [`Error::BadFiles`], [`Error::FilesTooLarge`], [`Error::Disk`].
pub(crate) fn inspect(path: &Path) -> Result<ArchiveSummary, Error> {
    let mut archive = open(path, &Stop::default())?;
    // Sorted, because clients list files in any order. A later entry replaces an earlier one.
    let mut all: BTreeMap<String, [u8; 32]> = BTreeMap::new();
    let mut name_bytes = NameBytes::default();
    let mut unpacked_bytes = 0_u64;
    let mut count = 0;
    let mut piece = vec![0; PIECE_BYTES];
    while let Some(entry) = archive.next_entry()? {
        count += 1;
        if count > ENTRIES_MAX {
            let quantity = "the number of entries".to_owned();
            return Err(Error::FilesTooLarge { quantity, limit: ENTRIES_MAX.to_string() });
        }
        let name = name(&entry)?;
        name_bytes.add(&name)?;
        let kind = kind(&entry, &name)?;
        let mut hash = Sha256::new();
        hash.update([kind as u8]);
        match kind {
            Kind::Directory => hash.update(entry.mode.to_be_bytes()),
            Kind::Symlink => hash.update(target(&entry, &name)?),
            Kind::HardLink => hash.update(clean(target(&entry, &name)?.as_bytes())?),
            Kind::File => {
                hash.update(entry.mode.to_be_bytes());
                loop {
                    let read = archive.read(&mut piece)?;
                    if read == 0 {
                        break;
                    }
                    hash.update(&piece[..read]);
                    unpacked_bytes += read as u64;
                }
            }
        }
        all.insert(name, hash.finalize().into());
    }
    let mut whole = Sha256::new();
    for (name, hash) in &all {
        whole.update((name.len() as u64).to_be_bytes());
        whole.update(name);
        whole.update(hash);
    }
    let digest = hex::encode(whole.finalize());
    Ok(ArchiveSummary { digest, entries: all.len(), unpacked_bytes })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;
    use tar::{Builder, Header};

    /// An archive with these entries: kind, name, target, mode, content.
    pub(crate) fn tar(entries: &[(EntryType, &str, &str, u32, &[u8])]) -> Vec<u8> {
        let mut tar = Builder::new(Vec::new());
        for (kind, name, link, mode, content) in entries {
            let mut header = Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(*mode);
            header.set_mtime(1_600_000_000);
            header.set_size(content.len() as u64);
            header.set_cksum();
            tar.append(&header, *content).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn summary(bytes: &[u8]) -> Result<ArchiveSummary, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        inspect(file.path()).map_err(|error| error.to_string())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut to = GzEncoder::new(Vec::new(), Compression::best());
        to.write_all(bytes).unwrap();
        to.finish().unwrap()
    }

    const FILE: EntryType = EntryType::Regular;

    /// An entry in front of another one, such as a long name, whose content is zeros or a text.
    fn extension(kind: EntryType, content: &[u8]) -> Vec<u8> {
        let whole = tar(&[(kind, "extension", "", 0o644, content)]);
        whole[..whole.len() - 1024].to_vec()
    }

    #[test]
    fn the_digest_is_that_of_the_content() {
        let one = tar(&[(FILE, "a", "", 0o644, b"1"), (FILE, "b", "", 0o644, b"2")]);
        let other_order = tar(&[(FILE, "b", "", 0o644, b"2"), (FILE, "./a", "", 0o644, b"1")]);
        let whole = summary(&one).unwrap();
        assert_eq!((whole.entries, whole.unpacked_bytes), (2, 2));
        assert_eq!(summary(&gzip(&one)).unwrap(), whole);
        assert_eq!(summary(&other_order).unwrap(), whole);
        let other_mode = tar(&[(FILE, "a", "", 0o755, b"1"), (FILE, "b", "", 0o644, b"2")]);
        let other_text = tar(&[(FILE, "a", "", 0o644, b"1"), (FILE, "b", "", 0o644, b"3")]);
        for other in [other_mode, other_text] {
            assert_ne!(summary(&other).unwrap().digest, whole.digest);
        }
    }

    #[test]
    fn entries_that_lead_out_or_are_no_files_are_refused_by_name() {
        for (kind, name, link, word) in [
            (FILE, "../a", "", "outside"),
            (FILE, "a/../../b", "", "outside"),
            (FILE, "/etc/passwd", "", "absolute"),
            (EntryType::Char, "null", "", "neither a file"),
            (EntryType::Fifo, "pipe", "", "neither a file"),
            (EntryType::Link, "a", "../../etc/shadow", "outside"),
            (EntryType::Link, "a", "/etc/shadow", "absolute"),
            (EntryType::Symlink, "a", "", "no target"),
        ] {
            let said = summary(&tar(&[(kind, name, link, 0o644, b"")])).unwrap_err();
            assert!(said.contains(word), "{name} {link}: {said}");
        }
    }

    #[test]
    fn what_is_no_archive_or_a_part_of_one_is_refused() {
        let whole = tar(&[(FILE, "a", "", 0o644, &[7; 2000])]);
        for bytes in [&b"hello"[..], &[0x1f, 0x8b, 1, 2, 3], &whole[..1000], &gzip(&whole)[..60]] {
            assert!(summary(bytes).unwrap_err().contains("tar archive"), "{} bytes", bytes.len());
        }
        assert_eq!(summary(&tar(&[])).unwrap().entries, 0);
    }

    #[test]
    fn an_archive_that_expands_too_much_is_refused() {
        let zeros = tar(&[(FILE, "a", "", 0o644, &vec![0; 70 << 20])]);
        let packed = gzip(&zeros);
        assert!(packed.len() * 400 < zeros.len());
        assert!(summary(&packed).unwrap_err().contains("unpacked size"));
        assert!(summary(&zeros).is_ok());
    }

    /// Gzip shrinks zeros a thousandfold, so that a small upload can have a name of gigabytes.
    #[test]
    fn a_name_that_would_fill_the_memory_is_refused() {
        let name = vec![b'a'; 2 << 20];
        let mut record = format!("{} path=", name.len() + 14).into_bytes();
        record.extend(&name);
        record.push(b'\n');
        for bomb in [
            extension(EntryType::GNULongName, &name),
            extension(EntryType::GNULongLink, &name),
            extension(EntryType::XHeader, &record),
            extension(EntryType::XGlobalHeader, &record),
        ] {
            let whole = [bomb, tar(&[(FILE, "a", "", 0o644, b"1")])].concat();
            for bytes in [gzip(&whole), whole] {
                let said = summary(&bytes).unwrap_err();
                assert!(said.contains("PAX records") && said.contains("1 MiB"), "{said}");
            }
        }
    }

    #[test]
    fn long_names_of_both_kinds_are_read() {
        let long = "d/".repeat(100) + "f";
        let record = format!("{} path={long}\n", long.len() + 10);
        for name in [
            extension(EntryType::GNULongName, long.as_bytes()),
            extension(EntryType::XHeader, record.as_bytes()),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let whole = [name, tar(&[(FILE, "a", "", 0o644, b"1")])].concat();
            std::fs::write(file.path(), whole).unwrap();
            let names = copy::entries(file.path(), &Stop::default()).unwrap();
            assert_eq!(names.into_keys().collect::<Vec<_>>(), std::slice::from_ref(&long));
        }
    }

    #[test]
    fn names_have_a_limit_together_and_in_depth() {
        let mut many = Vec::new();
        for number in 0..NAMES_BYTES_MAX / 4000 + 1 {
            let name = format!("{number:08}/{}", "a/".repeat(60)) + &"b".repeat(4000 - 129);
            many.extend(extension(EntryType::GNULongName, name.as_bytes()));
            many.extend(extension(FILE, b""));
        }
        let said = summary(&gzip(&many)).unwrap_err();
        assert!(said.contains("names of all files together"), "{said}");
        let deep = "a/".repeat(NAME_PARTS_MAX) + "b";
        let whole = [
            extension(EntryType::GNULongName, deep.as_bytes()),
            tar(&[(FILE, "a", "", 0o644, b"1")]),
        ];
        assert!(summary(&whole.concat()).unwrap_err().contains("127 nested directories"));
    }
}
