//! Checks that a start directory exists.

use crate::model::error::Error;
use crate::sandbox::Sandbox;
use isolet_wire::response::{FileKind, RefusalReason};

impl Sandbox {
    /// Checks that a session can start in this directory.
    ///
    /// # Errors
    /// [`Error::Refused`] with `BadCwd`, [`Error::Link`].
    pub(crate) async fn check_directory(&self, path: &str) -> Result<(), Error> {
        let reason = match self.file_look(path.as_bytes(), true).await {
            Ok(found) if found.stat.kind == FileKind::Directory => return Ok(()),
            Ok(_) => "not a directory",
            Err(Error::Refused { reason: RefusalReason::NotFound, .. }) => "no such directory",
            Err(Error::Refused { reason: RefusalReason::WrongKind, .. }) => "not a directory",
            Err(Error::Refused { reason: RefusalReason::Denied, .. }) => "it cannot be entered",
            Err(error) => return Err(error),
        };
        let message = format!("cannot enter the start directory: {path}: {reason}");
        Err(Error::Refused { reason: RefusalReason::BadCwd, message })
    }
}
