//! How a data directory stores snapshots.

use crate::method::CopyMethod;
use crate::tree::DIRECTORY;
use rustix::fs::Mode;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// How the files of sandboxes become snapshots. The file system of the data directory decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// btrfs: files share blocks, and a directory can be a subvolume that is copied at once.
    Btrfs,
    /// xfs and others: files share blocks.
    Reflink,
    /// ext4 and others: no two files share blocks. A snapshot takes the directories in which a
    /// sandbox has its changes as immutable layers, and copies only what it cannot take.
    Layers,
}

impl Backend {
    /// Finds out what the file system of a directory can do: by its type for btrfs, otherwise by
    /// copying a file there. The file is removed. Blocks.
    ///
    /// # Errors
    /// The kernel's error if no file can be written there.
    pub fn probe(directory: &Path) -> Result<Self, Errno> {
        let opened = rustix::fs::open(directory, DIRECTORY, Mode::empty())?;
        if isolet_sys::btrfs::is_btrfs(&opened) {
            return Ok(Self::Btrfs);
        }
        match CopyMethod::probe(directory)? {
            CopyMethod::Reflink => Ok(Self::Reflink),
            CopyMethod::Full => Ok(Self::Layers),
        }
    }

    /// How single files are copied.
    #[must_use]
    pub fn copies(self) -> CopyMethod {
        match self {
            Self::Btrfs | Self::Reflink => CopyMethod::Reflink,
            Self::Layers => CopyMethod::Full,
        }
    }

    /// The word for clients and logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Btrfs => "btrfs",
            Self::Reflink => "reflink",
            Self::Layers => "layers",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_json_is_that_of_the_log() {
        for backend in [Backend::Btrfs, Backend::Reflink, Backend::Layers] {
            let json = format!("\"{backend}\"");
            assert_eq!(serde_json::to_string(&backend).unwrap(), json);
            assert_eq!(serde_json::from_str::<Backend>(&json).unwrap(), backend);
        }
    }

    #[test]
    fn files_of_the_same_file_system_are_copied_as_the_probe_says() {
        let folder = tempfile::tempdir().unwrap();
        let backend = Backend::probe(folder.path()).unwrap();
        assert_eq!(backend.copies(), CopyMethod::probe(folder.path()).unwrap());
    }
}
