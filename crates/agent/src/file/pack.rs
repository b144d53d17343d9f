//! Packs a directory into a tar archive and unpacks archives, entry by entry in constant memory.

use super::disk::{self, Failure};
use super::owned::Ids;
use super::walk::{failed, gone, walk};
use isolet_wire::request::WalkOptions;
use isolet_wire::response::{FileKind, FoundFile, RefusalReason};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use tar::{Archive, Builder, Entry, EntryType, Header};

/// Writes the contents of `root` with relative names. Sockets, FIFOs and devices are left out, and
/// so are files that have disappeared and `without` with everything below. An error sets `cut`
/// before the archive's end is written, so that the end is not sent.
pub(crate) fn pack<W: Write>(
    root: &Path,
    without: &[Vec<u8>],
    out: W,
    cut: &Cell<bool>,
) -> Result<W, Failure> {
    let mut archive = Builder::new(out);
    let options =
        WalkOptions { recursive: true, hidden: true, max: u32::MAX, ..WalkOptions::default() };
    walk(root, &options, |found, unread| {
        if without.iter().any(|left| holds(left, &found.path)) {
            return Ok(());
        }
        unread.map_or_else(|| entry(&mut archive, root, &found), Err)
    })
    .inspect_err(|_| cut.set(true))?;
    let mut out = archive.into_inner().map_err(sorted)?;
    out.flush().map_err(sorted)?;
    Ok(out)
}

/// Whether a path is `whole` or is below it.
fn holds(whole: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn entry(archive: &mut Builder<impl Write>, root: &Path, found: &FoundFile) -> Result<(), Failure> {
    let path = Path::new(OsStr::from_bytes(&found.path));
    let mut header = Header::new_gnu();
    header.set_mode(found.stat.mode);
    header.set_mtime(u64::try_from(found.stat.modified_ms / 1000).unwrap_or_default());
    header.set_size(0);
    match found.stat.kind {
        FileKind::Directory => {
            header.set_entry_type(EntryType::Directory);
            archive.append_data(&mut header, path, io::empty()).map_err(sorted)
        }
        FileKind::Symlink => {
            header.set_entry_type(EntryType::Symlink);
            let target = found.target.as_deref().unwrap_or_default();
            archive.append_link(&mut header, path, OsStr::from_bytes(target)).map_err(sorted)
        }
        FileKind::File => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let fd = match rustix::fs::open(root.join(path), flags, Mode::empty()) {
                Ok(fd) => fd,
                // A socket cannot be opened, so another file has its name by now.
                Err(errno) if gone(errno) || errno == Errno::NXIO => return Ok(()),
                Err(errno) => return Err(failed(&found.path, errno)),
            };
            let stat = disk::stat(&rustix::fs::fstat(&fd)?);
            if stat.kind != FileKind::File {
                return Ok(());
            }
            header.set_entry_type(EntryType::Regular);
            header.set_size(stat.size);
            // A file that grows is truncated, and one that shrinks is padded, because the header
            // has already been sent.
            let whole = File::from(fd).chain(io::repeat(0)).take(stat.size);
            archive.append_data(&mut header, path, whole).map_err(sorted)
        }
        FileKind::Other => Ok(()),
    }
}

/// Extracts an archive, also a zstd-compressed one, below `root`, which is created. The owners,
/// set-user-id and set-group-id bits in the archive are ignored, and devices and FIFOs are left
/// out. A replaced file keeps its owner.
pub(crate) fn unpack(root: &Path, from: impl Read) -> Result<(), Failure> {
    disk::make_dirs(root)?;
    let received = Received::default();
    let mut counted = Counted { from, bytes: received.clone() };
    let mut head = Vec::with_capacity(ZSTD_MAGIC.len());
    counted.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut head).map_err(sorted)?;
    let packed = head == ZSTD_MAGIC;
    let other = other_format(&head);
    let whole = io::Cursor::new(head).chain(counted);
    if !packed {
        let first = |error| no_archive(error, other);
        return entries(root, Archive::new(whole), &received, first);
    }
    let mut from = zstd::Decoder::new(whole).map_err(sorted)?;
    from.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(sorted)?;
    let grown = Grown { from, bytes: 0, received: received.clone() };
    entries(root, Archive::new(grown), &received, sorted)
}

/// The name of an unsupported format, if the first bytes are typical of it.
fn other_format(head: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 4] =
        [(b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zX", "xz"), (b"PK\x03\x04", "zip")];
    known.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| *name)
}

/// The error if the first header is invalid, which names the supported formats.
fn no_archive(error: io::Error, other: Option<&str>) -> Failure {
    if error.raw_os_error().is_some() {
        return error.into();
    }
    let is = match other {
        Some(name) => format!("no archive that is taken here: it is compressed with {name}"),
        None => "no tar archive".to_owned(),
    };
    Failure::request(&format!(
        "the body is {is}; send tar (GNU, pax or ustar), plain or compressed with zstd"
    ))
}

/// Extracts entry by entry. `first` explains an invalid first header.
fn entries(
    root: &Path,
    mut archive: Archive<impl Read>,
    received: &Received,
    first: impl Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    let mut none = true;
    let mut holes = 0_u64;
    for entry in archive.entries().map_err(sorted)? {
        let mut entry = match entry {
            Err(error) if none => return Err(first(error)),
            entry => entry.map_err(sorted)?,
        };
        none = false;
        match entry.header().entry_type() {
            EntryType::Char | EntryType::Block | EntryType::Fifo => continue,
            // Its zeros are written although the archive does not contain them.
            EntryType::GNUSparse => {
                holes = holes.saturating_add(entry.size());
                received.allows(holes).map_err(sorted)?;
            }
            _ => {}
        }
        let replaced = replaced(root, &entry);
        if !entry.unpack_in(root).map_err(sorted)? {
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let name: String = name.chars().take(256).collect();
            return Err(Failure::request(&format!("the archive's {name:?} would lie outside")));
        }
        if let Some((path, owner)) = replaced {
            owner.own(&path)?;
        }
    }
    // The archive of an empty directory is a block of zeros.
    if none && received.0.get() < BLOCK_BYTES {
        return Err(no_archive(io::ErrorKind::UnexpectedEof.into(), None));
    }
    Ok(())
}

/// The regular file that an archive's file replaces, whose owner is kept.
fn replaced(root: &Path, entry: &Entry<'_, impl Read>) -> Option<(PathBuf, Ids)> {
    if !matches!(entry.header().entry_type(), EntryType::Regular | EntryType::GNUSparse) {
        return None;
    }
    let mut path = root.to_owned();
    for part in entry.path().ok()?.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => return None,
            _ => {}
        }
    }
    let old = rustix::fs::lstat(&path).ok()?;
    let file = FileType::from_raw_mode(old.st_mode) == FileType::RegularFile;
    file.then(|| (path, Ids::from(&old)))
}

/// The block size of tar archives.
const BLOCK_BYTES: u64 = 512;
/// The first bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Base-2 logarithm of the maximum memory for decompression, in bytes, as in the program `zstd`.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Size to which any archive may expand, in bytes.
const GROWN_BYTES: u64 = 1 << 30;
/// Above that size, the maximum ratio of expanded to received bytes.
const GROWN_FOLD: u64 = 1000;

/// Counts the received bytes.
#[derive(Debug, Clone, Default)]
struct Received(Rc<Cell<u64>>);

impl Received {
    fn allows(&self, grown: u64) -> io::Result<()> {
        if grown <= GROWN_BYTES.saturating_add(self.0.get().saturating_mul(GROWN_FOLD)) {
            return Ok(());
        }
        let message = "the archive grows more than 1000-fold, beyond 1 GiB";
        Err(io::Error::new(ErrorKind::InvalidData, message))
    }
}

struct Counted<R> {
    from: R,
    bytes: Received,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.bytes.0.set(self.bytes.0.get() + count as u64);
        Ok(count)
    }
}

/// Limits the size of decompressed data relative to the received bytes.
struct Grown<R> {
    from: R,
    bytes: u64,
    received: Received,
}

impl<R: Read> Read for Grown<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.bytes += count as u64;
        self.received.allows(self.bytes)?;
        Ok(count)
    }
}

/// The archive library wraps the kernel's errors and keeps their kinds.
fn sorted(error: io::Error) -> Failure {
    let reason = match error.kind() {
        _ if error.raw_os_error().is_some() => return error.into(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => RefusalReason::NoSpace,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => RefusalReason::Denied,
        ErrorKind::NotFound => RefusalReason::NotFound,
        ErrorKind::AlreadyExists => RefusalReason::Exists,
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => RefusalReason::WrongKind,
        ErrorKind::DirectoryNotEmpty => RefusalReason::NotEmpty,
        _ => RefusalReason::BadRequest,
    };
    let mut message = error.to_string();
    let mut cause = error.get_ref().and_then(|inner| inner.source());
    while let Some(deeper) = cause {
        message = format!("{message}: {deeper}");
        cause = deeper.source();
    }
    message.truncate(message.floor_char_boundary(400));
    Failure(reason, message)
}
