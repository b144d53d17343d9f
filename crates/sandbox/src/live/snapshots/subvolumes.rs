//! Copies on btrfs, where the directories of a sandbox without a disk image are subvolumes: each is
//! copied as a whole, in a time that does not grow with its files.
//!
//! A sandbox that was created before, or on another file system, has plain directories. Their files
//! are copied one by one, and so are those of a subvolume that contains another one, which the
//! kernel would leave out.

use isolet_storage::{CopyError, copy_subvolume, is_plain_subvolume};
use std::path::Path;

/// The directories that are subvolumes: those of both overlays, and the workspace.
const SUBVOLUMES: [&str; 3] = ["root", "usr", "workspace"];

/// Whether all directories of a sandbox or a snapshot can be copied as a whole. Blocks.
pub(super) fn are_in(directory: &Path) -> bool {
    SUBVOLUMES.iter().all(|name| is_plain_subvolume(&directory.join(name)).unwrap_or(false))
}

/// Copies the subvolumes of a sandbox or a snapshot. They can be copied at the same time, so that
/// they share one transaction of the file system. Blocks.
///
/// # Errors
/// [`CopyError`]; some of them may be there.
pub(super) fn copy(from: &Path, to: &Path, read_only: bool) -> Result<(), CopyError> {
    let one = |name: &'static str| {
        copy_subvolume(&from.join(name), &to.join(name), read_only)
            .map_err(|errno| CopyError::at(name.as_bytes(), errno))
    };
    std::thread::scope(|scope| {
        let started = SUBVOLUMES.map(|name| {
            std::thread::Builder::new()
                .spawn_scoped(scope, move || one(name))
                .map_err(|error| CopyError::io(name, &error))
        });
        // All are joined, also after an error.
        let all = started.map(|copying| copying?.join().unwrap_or(Err(CopyError::Cancelled)));
        all.into_iter().fold(Ok(()), Result::and)
    })
}

/// Removes what [`copy`] has created before it failed. Blocks.
///
/// # Errors
/// [`CopyError`].
pub(super) fn remove(from: &Path) -> Result<(), CopyError> {
    SUBVOLUMES.iter().try_for_each(|name| {
        isolet_sys::tree::remove(&from.join(name))
            .map_err(|errno| CopyError::at(name.as_bytes(), errno))
    })
}
