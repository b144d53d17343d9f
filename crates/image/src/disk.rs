//! The image directory: atomic writes, paths that stay below a root (`rooted`), directories under
//! construction (`staging`), and the minimum of free disk space (`free_space`).

pub(crate) mod free_space;
pub(crate) mod rooted;
pub(crate) mod staging;

use crate::error::Error;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Flushes everything below a directory to the disk.
pub(crate) fn sync(directory: &Path) -> Result<(), Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(directory, flags, Mode::empty())?;
    Ok(rustix::fs::syncfs(open)?)
}

/// Replaces a file atomically: writes a temporary file beside it, then renames that.
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

/// Removes a directory with everything below it, if it exists. The depth does not matter: it may hold
/// a tenant's image.
pub(crate) fn clear(directory: &Path) -> Result<(), Error> {
    Ok(isolet_sys::tree::remove(directory)?)
}

/// Whether a path exists. A dangling symlink exists.
pub(crate) fn present(at: &Path) -> bool {
    rustix::fs::statat(rustix::fs::CWD, at, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
