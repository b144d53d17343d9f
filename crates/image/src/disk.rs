//! The image directory: files that are written whole or not at all, paths that stay below a root
//! (`rooted`), directories that are being made (`staging`), and the floor of `free_space`.

pub(crate) mod free_space;
pub(crate) mod rooted;
pub(crate) mod staging;

use crate::error::Error;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Everything below a directory is on the disk when this returns.
pub(crate) fn sync(directory: &Path) -> Result<(), Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(directory, flags, Mode::empty())?;
    Ok(rustix::fs::syncfs(open)?)
}

/// Writes a file beside its name, then gives it the name.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let fresh = path.with_extension("new");
    let mut file = fs::File::create(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    if let Some(above) = path.parent() {
        fs::File::open(above)?.sync_all()?;
    }
    Ok(())
}

/// Removes a directory with everything below it, if it exists. However deep it is: a tenant's
/// image may lie there, or what an older version let in.
pub(crate) fn clear(directory: &Path) -> Result<(), Error> {
    Ok(isolet_sys::tree::remove(directory)?)
}

/// Whether a name is there, itself.
pub(crate) fn present(at: &Path) -> bool {
    rustix::fs::statat(rustix::fs::CWD, at, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
