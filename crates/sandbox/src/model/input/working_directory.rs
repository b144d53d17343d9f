//! Directories in which shells and programs start.

use crate::model::input::{BadInput, no_nul};

/// The path of a directory in the sandbox, absolute or relative: 1 to
/// [`WorkingDirectory::BYTES_MAX`] bytes without NUL. The directory need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkingDirectory(String);

impl WorkingDirectory {
    /// Maximum length, in bytes: the kernel's `PATH_MAX` counts a NUL byte at the end.
    pub const BYTES_MAX: usize = 4095;

    /// Parses a working directory from a client.
    ///
    /// # Errors
    /// [`BadInput`] of the field `cwd`.
    pub fn parse(path: String) -> Result<Self, BadInput> {
        if path.is_empty() || path.len() > Self::BYTES_MAX {
            return Err(BadInput::new("cwd", "1 to 4095 bytes"));
        }
        no_nul("cwd", &path)?;
        Ok(Self(path))
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path for the wire.
    #[must_use]
    pub fn into_inner(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_1_to_4095_bytes_without_nul() {
        let reason = |path: &str| WorkingDirectory::parse(path.into()).unwrap_err().to_string();
        let longest = "x".repeat(WorkingDirectory::BYTES_MAX);
        assert_eq!(reason(""), "cwd: 1 to 4095 bytes");
        assert_eq!(reason(&format!("{longest}x")), "cwd: 1 to 4095 bytes");
        assert_eq!(reason("/a\0"), "cwd: must not contain a NUL character");
        for good in ["/a", "a", ".", longest.as_str()] {
            assert_eq!(WorkingDirectory::parse(good.into()).unwrap().as_str(), good);
        }
    }
}
