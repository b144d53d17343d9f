//! Copies of directories that are subvolumes of btrfs.

use crate::tree::DIRECTORY;
use isolet_sys::btrfs;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::path::Path;

/// Whether a directory can be copied with [`copy_subvolume`]: it is a subvolume, and no other is in
/// it. Blocks.
///
/// # Errors
/// The kernel's error.
pub fn is_plain_subvolume(directory: &Path) -> Result<bool, Errno> {
    let opened = rustix::fs::open(directory, DIRECTORY, Mode::empty())?;
    if !btrfs::is_subvolume(&opened) {
        return Ok(false);
    }
    // The kernels before 4.18 cannot say.
    Ok(!btrfs::contains_subvolumes(&opened).unwrap_or(true))
}

/// Copies a subvolume as a whole to a path that does not exist yet. The kernel writes what is in it
/// to the disk first. The time does not grow with the number of files. Blocks.
///
/// # Errors
/// The kernel's error. Nothing of the copy is left.
pub fn copy_subvolume(from: &Path, to: &Path, read_only: bool) -> Result<(), Errno> {
    let source = rustix::fs::open(from, DIRECTORY, Mode::empty())?;
    let name = to.file_name().ok_or(Errno::INVAL)?.as_encoded_bytes();
    let parent = rustix::fs::open(to.parent().ok_or(Errno::INVAL)?, DIRECTORY, Mode::empty())?;
    btrfs::snapshot(std::os::fd::AsFd::as_fd(&source), &parent, name, read_only)
}

/// Creates a directory, as a subvolume where the file system has them. Blocks.
///
/// # Errors
/// The kernel's error.
pub fn create_subvolume_or_directory(path: &Path, mode: Mode) -> Result<(), Errno> {
    let name = path.file_name().ok_or(Errno::INVAL)?.as_encoded_bytes();
    let parent = rustix::fs::open(path.parent().ok_or(Errno::INVAL)?, DIRECTORY, Mode::empty())?;
    if btrfs::create(&parent, name).is_err() {
        rustix::fs::mkdirat(&parent, name, mode)?;
    }
    rustix::fs::chmodat(&parent, name, mode, rustix::fs::AtFlags::empty())
}
