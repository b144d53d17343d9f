//! What must survive a server: records of sandboxes, sessions, keys and answers given.
#![forbid(unsafe_code)]

pub mod keys;

use std::path::PathBuf;

/// Why records cannot be read or written. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full.
    #[error("no space left on the disk of the records")]
    Full,
    /// Written by a later version.
    #[error(
        "{file} has schema {found}, this version knows up to {known}; start the version that wrote it"
    )]
    Newer {
        /// Which file.
        file: PathBuf,
        /// What it has.
        found: i64,
        /// What is known here.
        known: i64,
    },
    /// A name, slot or key is taken.
    #[error("a record of that name exists")]
    Exists,
    /// The store has stopped.
    #[error("the records are closed")]
    Closed,
    /// Anything else.
    #[error("{0}")]
    Sqlite(String),
    /// A record does not read.
    #[error("a record does not read: {0}")]
    Json(String),
    /// A field is out of its bounds.
    #[error("{0}")]
    Bad(&'static str),
}
