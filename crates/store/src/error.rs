//! Why records cannot be read or written.

use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// Answers that say that the disk was asked to keep what it was given, and did not.
const UNSYNCED: [i32; 2] =
    [rusqlite::ffi::SQLITE_IOERR_FSYNC, rusqlite::ffi::SQLITE_IOERR_DIR_FSYNC];

/// Why records cannot be read or written. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full.
    #[error("no space left on the disk of the records")]
    Full,
    /// The disk failed to take what was written. What of it is there is not known, and another try
    /// would be told that all is well: nothing more is written until the records are opened anew.
    #[error("the disk did not take what was written; nothing more is recorded until a restart")]
    Unsynced,
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
    /// The records are gone, and sandboxes are there: to begin with none would lose their files.
    #[error(
        "{file} is missing or empty, but {directory} holds the files of {count} sandboxes, which only its records tell whose they are; \
         put isolet.db and isolet.db-wal back from a backup, or start without these sandboxes: mv {directory} {directory}.lost"
    )]
    Lost {
        /// Which file.
        file: PathBuf,
        /// Where the sandboxes lie.
        directory: PathBuf,
        /// How many.
        count: usize,
    },
    /// What was copied is not one state of the records.
    #[error(
        "{file} is damaged ({said}): it was copied while a server wrote to it; \
         copy it again while that server is stopped, or with: sqlite3 ORIGINAL/isolet.db \".backup '{file}'\" after removing {file}-wal"
    )]
    Torn {
        /// Which file.
        file: PathBuf,
        /// What SQLite says.
        said: String,
    },
    /// A name, slot or key is taken.
    #[error("a record of that name exists")]
    Exists,
    /// The store has stopped, or a fault ended this call.
    #[error("the records are closed")]
    Closed,
    /// Anything else.
    #[error("{0}")]
    Sqlite(String),
    /// A record does not read.
    #[error("a record does not read: {0}")]
    Json(String),
    /// A file beside the records cannot be read or written.
    #[error("{}: {reason}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the kernel says.
        reason: String,
    },
    /// A field is out of its bounds.
    #[error("{0}")]
    Bad(&'static str),
}

impl Error {
    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), reason: error.to_string() }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error() {
            Some(e) if e.code == ErrorCode::DiskFull => Self::Full,
            // The shared index of the log cannot grow: full disks show here first.
            Some(e) if e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => Self::Full,
            Some(e) if UNSYNCED.contains(&e.extended_code) => Self::Unsynced,
            Some(e) if e.code == ErrorCode::ConstraintViolation => Self::Exists,
            _ => Self::Sqlite(error.to_string()),
        }
    }
}
