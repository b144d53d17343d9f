//! The identity of a node: that of its data directory, so that a restarted server continues the
//! registration of the one before, and another server with the same name cannot.

use crate::error::NodeError;
use isolet_peer::replace_file;
use isolet_sandbox::DirectoryId;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The file in the data directory: a random number, and which directory it was written in.
const FILE: &str = "node-identity";

/// Reads the identity of a data directory, or makes one. A copy of a data directory, and one that was
/// restored from a backup, is another node. Blocks.
///
/// # Errors
/// [`NodeError::Identity`].
pub(crate) fn of_directory(data_dir: &Path) -> Result<String, NodeError> {
    let path = data_dir.join(FILE);
    read_or_make(data_dir, &path).map_err(|source| NodeError::Identity { path, source })
}

/// The identity of a data directory, if a server has joined a fleet on it. Blocks.
///
/// # Errors
/// Those of the kernel.
pub fn recorded(data_dir: &Path) -> io::Result<Option<String>> {
    let directory = DirectoryId::of(data_dir)?.to_string();
    match std::fs::read_to_string(data_dir.join(FILE)) {
        Ok(text) => {
            let recorded = text.trim().split_once(' ');
            Ok(recorded.filter(|(_, of)| *of == directory).map(|(own, _)| own.to_owned()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_or_make(data_dir: &Path, path: &Path) -> io::Result<String> {
    if let Some(identity) = recorded(data_dir)? {
        return Ok(identity);
    }
    let directory = DirectoryId::of(data_dir)?.to_string();
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let identity = hex::encode(random);
    replace_file(path, format!("{identity} {directory}\n").as_bytes())?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_identity_and_a_copy_gets_another() {
        let folder = tempfile::tempdir().unwrap();
        let directory = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let first = directory("first");
        let copy = directory("copy");
        let identity = of_directory(&first).unwrap();
        assert_eq!(of_directory(&first).unwrap(), identity);
        assert_eq!(recorded(&first).unwrap(), Some(identity.clone()));
        assert_eq!(recorded(&copy).unwrap(), None);
        std::fs::copy(first.join(FILE), copy.join(FILE)).unwrap();
        assert_ne!(of_directory(&copy).unwrap(), identity);
        let moved = folder.path().join("moved");
        std::fs::rename(&first, &moved).unwrap();
        assert_eq!(of_directory(&moved).unwrap(), identity);
        std::fs::write(moved.join(FILE), "damaged").unwrap();
        assert_eq!(of_directory(&moved).unwrap().len(), 32, "a new one");
    }
}
