//! Errors of the records and the audit log.

use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// SQLite's codes for a failed `fsync`.
const UNSYNCED: [i32; 2] =
    [rusqlite::ffi::SQLITE_IOERR_FSYNC, rusqlite::ffi::SQLITE_IOERR_DIR_FSYNC];

/// Why records or audit logs cannot be read or written. Unless a variant says otherwise, nothing was
/// changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full.
    #[error("no space left on the disk of the data directory")]
    Full,
    /// The disk failed to sync a write. It is unknown which part of it was stored, and a second sync
    /// would succeed without storing it: nothing more is written until the records are opened again.
    #[error(
        "the disk failed to store a write; the records are read-only until the server restarts"
    )]
    Unsynced,
    /// A later version wrote the file.
    #[error(
        "{file} has schema {found}, and this isolet supports schema {known} at most; \
         start the version that wrote it, or restore a backup of this version"
    )]
    Newer {
        /// The file of the records.
        file: PathBuf,
        /// The schema version of the file.
        found: i64,
        /// The latest schema that this version supports.
        known: i64,
    },
    /// A version that wrote no format created the data directory.
    #[error(
        "{data} was made by an earlier version of isolet, which this version cannot read: \
         end what still runs of it with `isolet teardown --data-dir {data}`, then start with an empty directory; \
         or start the version that made it"
    )]
    EarlierVersion {
        /// The data directory.
        data: PathBuf,
    },
    /// A version without an application id wrote the file.
    #[error(
        "{file} was made by an earlier version of isolet, which this version cannot read: \
         start the version that made it, or start with an empty data directory"
    )]
    EarlierRecords {
        /// The file of the records.
        file: PathBuf,
    },
    /// The data directory has another format.
    #[error(
        "{data} has format {found}, and this isolet uses format {own}; start the version that made it, \
         or end what still runs of it with `isolet teardown --data-dir {data}` and start with an empty directory"
    )]
    OtherFormat {
        /// The data directory.
        data: PathBuf,
        /// What its file `format` contains.
        found: String,
        /// The format of this version.
        own: u32,
    },
    /// The records are missing, but there are files of sandboxes. Starting without records would lose
    /// these files.
    #[error(
        "{file} is missing or empty, but {directory} holds the files of {count} sandboxes, whose owners only the records name; \
         restore isolet.db and isolet.db-wal from a backup, or start without these sandboxes: mv {directory} {directory}.lost"
    )]
    Lost {
        /// The file of the records.
        file: PathBuf,
        /// The directory of the sandboxes.
        directory: PathBuf,
        /// How many sandboxes it holds.
        count: usize,
    },
    /// A copy of the records is inconsistent.
    #[error(
        "{file} is damaged ({said}): it was copied while a server wrote to it; \
         copy it again while that server is stopped, or with: sqlite3 ORIGINAL/isolet.db \".backup '{file}'\" after removing {file}-wal"
    )]
    Torn {
        /// The file of the records.
        file: PathBuf,
        /// What SQLite reported about the file.
        said: String,
    },
    /// A name, slot or key is in use.
    #[error("a record of that name exists already")]
    Exists,
    /// The store has stopped, or this call panicked.
    #[error("the records are closed")]
    Closed,
    /// Any other error of SQLite.
    #[error("{0}")]
    Sqlite(String),
    /// A record cannot be parsed.
    #[error("a record cannot be parsed: {0}")]
    Json(String),
    /// A file beside the records cannot be read or written.
    #[error("{}: {reason}", .path.display())]
    Io {
        /// The file or directory that the operation failed on.
        path: PathBuf,
        /// The kernel's error message.
        reason: String,
    },
    /// The tenant has too many valid keys.
    #[error("the tenant has {most} keys, which is the most")]
    TooManyKeys {
        /// The limit.
        most: usize,
    },
    /// The tenant has too many keys with those that ended within a day.
    #[error("the tenant has {most} keys with those that ended within a day, which is the most")]
    TooManyRecentKeys {
        /// The limit.
        most: usize,
    },
    /// The key that creates another one was revoked or has expired.
    #[error("the key that creates the new key was revoked or has expired")]
    CreatorEnded,
    /// A field is invalid.
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
            // The shared index of the log cannot grow. A full disk is noticed here first.
            Some(e) if e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => Self::Full,
            Some(e) if UNSYNCED.contains(&e.extended_code) => Self::Unsynced,
            Some(e) if e.code == ErrorCode::ConstraintViolation => Self::Exists,
            _ => Self::Sqlite(error.to_string()),
        }
    }
}
