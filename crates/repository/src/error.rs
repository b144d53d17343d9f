//! Errors of a repository. No variant contains credentials, keys, or text that the store sent.

use rustix::io::Errno;

/// Maximum length of a path in a message, in bytes. The end of a longer one is shown.
const SHOWN_BYTES_MAX: usize = 200;

/// An error of a repository.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The settings of the store are not valid.
    #[error("the settings of the store: {0}")]
    Settings(String),
    /// The key file cannot be used.
    #[error("key file {path}: {reason}")]
    KeyFile {
        /// Its path.
        path: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The store has no repository at the configured place.
    #[error("there is no repository at {0}; create it with `isolet store init`")]
    NoRepository(String),
    /// The repository was created with another key.
    #[error("the key file is not that of the repository")]
    WrongKey,
    /// The repository was written by a later release.
    #[error("{what} has version {version}, which a later release has written; upgrade this server")]
    Later {
        /// The kind of object.
        what: &'static str,
        /// Its version.
        version: u32,
    },
    /// The store has no such snapshot of the tenant.
    #[error("the store has no snapshot {0}")]
    NoSnapshot(String),
    /// The store cannot be reached or failed, after retries.
    #[error("the store failed: {0}")]
    Store(String),
    /// The store refuses access.
    #[error("the store refuses access; check the credentials and their rights")]
    Denied,
    /// An object is not what was written.
    #[error("{object} in the store is damaged: {reason}")]
    Damaged {
        /// The path of the object.
        object: String,
        /// What is wrong.
        reason: String,
    },
    /// A file of the snapshot could not be read or written.
    #[error("{path}: {errno}")]
    File {
        /// The path below the directory of the snapshot, shortened if it is long.
        path: String,
        /// The kernel's error.
        errno: Errno,
    },
    /// The disk has no space.
    #[error("no space is left on the disk")]
    Full,
    /// Something exceeds a limit.
    #[error("{what} exceed the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit with its unit.
        limit: String,
    },
    /// The operation took too long.
    #[error("it took longer than {0} s")]
    TooLate(u64),
    /// The caller ended the operation.
    #[error("{0}")]
    Refused(String),
    /// An internal error.
    #[error("internal fault: {0}")]
    Fault(String),
}

impl Error {
    /// Whether reading again may have another result. A store can answer "not found" for an object that it
    /// has, list an earlier state, or send something else: such an answer does not say that a snapshot was
    /// never there.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::NoRepository(_) | Self::NoSnapshot(_) | Self::Store(_) | Self::Damaged { .. }
        )
    }

    pub(crate) fn damaged(object: &str, reason: impl Into<String>) -> Self {
        Self::Damaged { object: object.to_owned(), reason: reason.into() }
    }

    pub(crate) fn at(path: &[u8], errno: Errno) -> Self {
        if matches!(errno, Errno::NOSPC | Errno::DQUOT) {
            return Self::Full;
        }
        Self::File { path: shown(path), errno }
    }

    pub(crate) fn fault(error: impl std::fmt::Display) -> Self {
        Self::Fault(error.to_string())
    }
}

/// The end of a path, as text.
fn shown(path: &[u8]) -> String {
    match path.len().checked_sub(SHOWN_BYTES_MAX) {
        Some(hidden) if hidden > 0 => format!("…{}", String::from_utf8_lossy(&path[hidden..])),
        _ if path.is_empty() => ".".to_owned(),
        _ => String::from_utf8_lossy(path).into_owned(),
    }
}
