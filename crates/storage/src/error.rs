//! Why a copy failed.

use rustix::io::Errno;

/// Maximum length of a path in a message, in bytes. The end of a longer one is shown.
const SHOWN_BYTES_MAX: usize = 200;

/// Why a copy failed. What was already written is left for the caller to remove.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The kernel refused something of one file.
    #[error("{path}: {errno}")]
    File {
        /// The path below the copied directory, shortened if it is long.
        path: String,
        /// The kernel's error.
        errno: Errno,
    },
    /// The disk has no space for the copy.
    #[error("no space is left on the disk")]
    Full,
    /// The names of the directories that are being copied take too much memory.
    #[error("the names of its directories take more than {mib} MiB of memory")]
    TooManyNames {
        /// The limit, in MiB.
        mib: usize,
    },
    /// The caller ended the copy.
    #[error("{0}")]
    Refused(String),
}

impl CopyError {
    pub(crate) fn at(path: &[u8], errno: Errno) -> Self {
        if matches!(errno, Errno::NOSPC | Errno::DQUOT) {
            return Self::Full;
        }
        Self::File { path: shown(path), errno }
    }
}

/// The end of a path, as text.
fn shown(path: &[u8]) -> String {
    match path.len().checked_sub(SHOWN_BYTES_MAX) {
        Some(hidden) if hidden > 0 => {
            format!("…{}", String::from_utf8_lossy(&path[hidden..]))
        }
        _ if path.is_empty() => ".".to_owned(),
        _ => String::from_utf8_lossy(path).into_owned(),
    }
}
