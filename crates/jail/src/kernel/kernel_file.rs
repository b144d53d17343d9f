//! Files of the kernel, as in `/proc` and of control groups.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// More than most of these files have.
const USUAL_BYTES: usize = 8 * 1024;

/// Reads a whole file, usually with one call and another one that finds its end. These files have
/// no length, so `fs::read_to_string` would begin with 32 bytes and double that each time.
///
/// # Errors
/// The kernel's; `InvalidData` if the file is no UTF-8.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::with_capacity(USUAL_BYTES);
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}
