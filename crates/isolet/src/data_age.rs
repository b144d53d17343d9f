//! Whether a data directory was created by a version that requires TLS beyond loopback.
//!
//! An operator who upgrades must not be cut off by a restart, so a server on an older data
//! directory only warns, for one release. A new directory gets a marker, which records that no
//! server ever listened without TLS there unless its configuration said so.

use anyhow::{Context, Result};
use isolet_backup::Marker;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The marker in the data directory.
pub(crate) const MARKER: Marker = Marker {
    name: "requires-tls",
    text: "Beyond loopback, a server on this directory needs TLS or allow_plaintext = true.\n",
};
/// The records. Every version that stored anything has this file.
const RECORDS: &str = "isolet.db";
/// The directory of sandboxes, which may be there although the records are lost.
const SANDBOXES: &str = "sandboxes";

/// Whether a version without this requirement has used the directory.
pub(crate) fn is_of_earlier_version(data_dir: &Path) -> io::Result<bool> {
    Ok(data_dir.join(RECORDS).try_exists()? && !data_dir.join(MARKER.name).try_exists()?)
}

/// Marks a directory that no server has used, and creates it if it is missing. Must be called before
/// the records are created.
pub(crate) fn mark_if_new(data_dir: &Path) -> Result<()> {
    let mark = || {
        if data_dir.join(RECORDS).try_exists()? || data_dir.join(SANDBOXES).try_exists()? {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o711).create(data_dir)?;
        std::fs::write(data_dir.join(MARKER.name), MARKER.text)
    };
    mark().with_context(|| format!("cannot write {}", data_dir.join(MARKER.name).display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_with_records_and_no_marker_is_of_an_earlier_version() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        assert!(!is_of_earlier_version(&data).unwrap());
        mark_if_new(&data).unwrap();
        std::fs::write(data.join(RECORDS), "").unwrap();
        assert!(!is_of_earlier_version(&data).unwrap());
        std::fs::remove_file(data.join(MARKER.name)).unwrap();
        mark_if_new(&data).unwrap();
        assert!(is_of_earlier_version(&data).unwrap(), "an upgrade leaves it as it is");
    }
}
