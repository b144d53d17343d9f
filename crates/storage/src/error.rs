//! Why a copy failed.

use rustix::io::Errno;
use std::io;

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
    /// The disk has no space or no inodes for the copy, or a quota of the file system is used up.
    #[error("no space is left on the disk")]
    Full,
    /// A directory is too deep to be copied.
    #[error("{path}: more than {max} directories are inside each other")]
    TooDeep {
        /// The path below the copied directory, shortened.
        path: String,
        /// The limit.
        max: usize,
    },
    /// The caller cancelled the copy.
    #[error("the copy was cancelled")]
    Cancelled,
    /// The caller ended the copy.
    #[error("{0}")]
    Refused(String),
}

impl CopyError {
    /// The error for what the kernel refused of one file. Every error that means a full disk becomes
    /// [`CopyError::Full`].
    #[must_use]
    pub fn at(path: &[u8], errno: Errno) -> Self {
        if matches!(errno, Errno::NOSPC | Errno::DQUOT) {
            return Self::Full;
        }
        Self::File { path: shown(path), errno }
    }

    /// As [`CopyError::at`], for an error of the standard library.
    #[must_use]
    pub fn io(path: &str, error: &io::Error) -> Self {
        Self::at(path.as_bytes(), Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// The same error, with the path below the directory `parent`.
    #[must_use]
    pub fn below(self, parent: &str) -> Self {
        let join = |path: String| match path.as_str() {
            "." if parent.is_empty() => path,
            "." => parent.to_owned(),
            _ if parent.is_empty() => path,
            below => format!("{parent}/{below}"),
        };
        match self {
            Self::File { path, errno } => Self::File { path: join(path), errno },
            Self::TooDeep { path, max } => Self::TooDeep { path: join(path), max },
            other => other,
        }
    }

    pub(crate) fn too_deep(path: &[u8], max: usize) -> Self {
        Self::TooDeep { path: shown(path), max }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_means_a_full_disk_is_one_error() {
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            assert!(matches!(CopyError::at(b"a", errno), CopyError::Full));
            let error = io::Error::from(errno);
            assert!(matches!(CopyError::io("a", &error).below("b"), CopyError::Full));
        }
    }

    #[test]
    fn paths_are_those_of_the_sandbox() {
        let said = |path: &[u8], parent: &str| {
            CopyError::at(path, Errno::IO).below(parent).to_string().replace(": ", "|")
        };
        assert!(said(b"a/b", "workspace").starts_with("workspace/a/b|"));
        assert!(said(b"", "workspace").starts_with("workspace|"));
        assert!(said(b"etc/x", "").starts_with("etc/x|"));
        assert!(said(&[b'a'; 300], "").starts_with("…aaa"));
    }
}
