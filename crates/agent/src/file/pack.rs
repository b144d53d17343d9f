//! A directory as a tar archive, and an archive as a directory; entry by entry, in constant memory.

use super::walk::walk;
use crate::disk::{self, Failure};
use isolet_wire::ask::Walk;
use isolet_wire::tell::{Found, Kind, Why};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use tar::{Archive, Builder, EntryType, Header};

/// Writes all that lies in `root`, under names that begin below it. Sockets, FIFOs and devices
/// are left out; what is gone or cannot be read by then as well.
pub(crate) fn pack(root: &Path, out: impl Write) -> Result<(), Failure> {
    let mut archive = Builder::new(out);
    let wish = Walk { recursive: true, hidden: true, max: u32::MAX, ..Walk::default() };
    walk(root, &wish, |found| entry(&mut archive, root, &found).map_err(sorted))?;
    archive.into_inner().and_then(|mut out| out.flush()).map_err(sorted)
}

fn entry(archive: &mut Builder<impl Write>, root: &Path, found: &Found) -> io::Result<()> {
    let path = Path::new(OsStr::from_bytes(&found.path));
    let mut header = Header::new_gnu();
    header.set_mode(found.stat.mode);
    header.set_mtime(u64::try_from(found.stat.modified_ms / 1000).unwrap_or_default());
    header.set_size(0);
    match found.stat.kind {
        Kind::Directory => {
            header.set_entry_type(EntryType::Directory);
            archive.append_data(&mut header, path, io::empty())
        }
        Kind::Symlink => {
            header.set_entry_type(EntryType::Symlink);
            let target = found.target.as_deref().unwrap_or_default();
            archive.append_link(&mut header, path, OsStr::from_bytes(target))
        }
        Kind::File => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Ok(fd) = rustix::fs::open(root.join(path), flags, Mode::empty()) else {
                return Ok(());
            };
            let stat = disk::stat(&rustix::fs::fstat(&fd)?);
            if stat.kind != Kind::File {
                return Ok(());
            }
            header.set_entry_type(EntryType::Regular);
            header.set_size(stat.size);
            // One that grows is cut, one that shrinks filled up: the header is out by then.
            let whole = File::from(fd).chain(io::repeat(0)).take(stat.size);
            archive.append_data(&mut header, path, whole)
        }
        Kind::Other => Ok(()),
    }
}

/// Puts all that an archive holds below `root`, which is made. Owners are not kept.
pub(crate) fn unpack(root: &Path, from: impl Read) -> Result<(), Failure> {
    disk::make_dirs(root)?;
    let mut archive = Archive::new(from);
    let mut none = true;
    for entry in archive.entries().map_err(sorted)? {
        let mut entry = entry.map_err(sorted)?;
        none = false;
        if !entry.unpack_in(root).map_err(sorted)? {
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let name: String = name.chars().take(256).collect();
            return Err(Failure::order(&format!("the archive's {name:?} would lie outside")));
        }
    }
    if none {
        return Err(Failure::order("the body is no tar archive, or an empty one"));
    }
    Ok(())
}

/// The archive's library wraps the kernel's answers, and keeps their kinds.
fn sorted(error: io::Error) -> Failure {
    let why = match error.kind() {
        _ if error.raw_os_error().is_some() => return error.into(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Why::NoSpace,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Why::Denied,
        ErrorKind::NotFound => Why::NotFound,
        ErrorKind::AlreadyExists => Why::Exists,
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => Why::WrongKind,
        ErrorKind::DirectoryNotEmpty => Why::NotEmpty,
        _ => Why::BadAsk,
    };
    let mut message = error.to_string();
    message.truncate(message.floor_char_boundary(400));
    Failure(why, message)
}
