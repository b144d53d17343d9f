//! What a copy contains, and what it may write.

use crate::error::CopyError;

/// What a copy contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files, directories and other entries.
    pub entries: u64,
    /// Size of the data in the files without their holes, in bytes. A copy by reference takes less
    /// of the disk.
    pub bytes: u64,
}

/// Called before more is written, with the number of bytes that were written since the last call.
/// An error ends the copy.
pub type SpaceCheck<'a> = &'a mut dyn FnMut(u64) -> Result<(), CopyError>;
