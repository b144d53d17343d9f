//! File calls: one connection each, answered by a worker inside the sandbox.
//!
//! Paths are bytes, absolute or below `/workspace`; they are resolved inside, never here.

use crate::{Error, Sandbox};
use bytes::Bytes;
use isolet_wire::tell::{Entry, Stat};

/// The most entries that one list may ask for.
pub const ENTRIES_MAX: u32 = 100_000;

/// A file being read.
pub struct Reader {
    /// As it was when it was opened.
    pub stat: Stat,
}

/// A file being written under a temporary name. Dropped before [`Writer::finish`]: no change.
pub struct Writer {}

impl Reader {
    /// The next bytes; `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Refused`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        todo!()
    }
}

impl Writer {
    /// More bytes, as many as there are.
    ///
    /// # Errors
    /// [`Error::Link`]; [`Error::Refused`] when the agent has given up (disk full).
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let _ = bytes;
        todo!()
    }

    /// Puts the file under its name.
    ///
    /// # Errors
    /// As `write`; nothing is changed then.
    pub async fn finish(self) -> Result<(), Error> {
        todo!()
    }
}

impl Sandbox {
    /// Reads a regular file from `offset`, at most `limit` bytes.
    ///
    /// # Errors
    /// [`Error::Refused`] (`NotFound`, `Denied`, `WrongKind`), [`Error::Link`].
    pub async fn file_read(
        &self,
        path: &[u8],
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Reader, Error> {
        let _ = (path, offset, limit);
        todo!()
    }

    /// Writes a whole file; parents are made, a new one gets `mode`.
    ///
    /// # Errors
    /// As `file_read`, and `NoSpace`.
    pub async fn file_write(&self, path: &[u8], mode: u32) -> Result<Writer, Error> {
        let _ = (path, mode);
        todo!()
    }

    /// Entries of a directory, at most `max` (refused with `TooLarge` when there are more).
    ///
    /// # Errors
    /// As `file_read`.
    pub async fn file_list(&self, path: &[u8], max: u32) -> Result<Vec<Entry>, Error> {
        let _ = (path, max);
        todo!()
    }

    /// What is known of one name; a symbolic link is not followed.
    ///
    /// # Errors
    /// As `file_read`.
    pub async fn file_stat(&self, path: &[u8]) -> Result<Stat, Error> {
        let _ = path;
        todo!()
    }

    /// Makes a directory and its parents.
    ///
    /// # Errors
    /// As `file_read`.
    pub async fn file_mkdir(&self, path: &[u8]) -> Result<(), Error> {
        let _ = path;
        todo!()
    }

    /// Removes a name; a directory with all it holds when `recursive`.
    ///
    /// # Errors
    /// As `file_read`.
    pub async fn file_remove(&self, path: &[u8], recursive: bool) -> Result<(), Error> {
        let _ = (path, recursive);
        todo!()
    }
}
