//! Reads files and processes that may have disappeared.

use rustix::io::Errno;
use std::io;

/// Turns an error that means "it does not exist" into `None`.
///
/// # Errors
/// `EMFILE`, `ENFILE` and `ENOMEM`: these do not say whether it exists, so it may still exist and
/// run.
pub(crate) fn absent_as_none<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(error),
            _ => Ok(None),
        },
    }
}
