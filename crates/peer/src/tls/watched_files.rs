//! Notices that files were replaced.
//!
//! Files that belong together are replaced one after the other, and often by changing what a
//! symbolic link leads to, maybe in a directory above. Therefore what the paths lead to is compared
//! once in an interval, and the files are read only when nothing has changed for an interval.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the files are compared.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// After how many intervals unusable files are read again: the reason may have been the reading,
/// for example too many open files.
const RETRY_INTERVALS: u32 = 60;

/// What distinguishes one version of a file from another. `ctime` also changes when a tool restores
/// the time of the last modification.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The versions of all files; `None` for a path that leads to none.
type Versions = Vec<Option<FileVersion>>;

/// The version of the file that a path leads to; `None` if it leads to none.
fn version(path: &Path) -> Option<FileVersion> {
    let file = std::fs::metadata(path).ok()?;
    Some(FileVersion {
        device: file.dev(),
        inode: file.ino(),
        bytes: file.size(),
        modified: (file.mtime(), file.mtime_nsec()),
        changed: (file.ctime(), file.ctime_nsec()),
    })
}

/// Files that are read again when they change.
#[derive(Debug)]
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    read: Versions,
    seen: Versions,
    /// Intervals until versions that were read and are unusable are read again.
    retry_in: Option<u32>,
}

impl WatchedFiles {
    /// To be called before the files are read for the first time. Blocks.
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let paths: Vec<PathBuf> = paths.into_iter().map(Path::to_owned).collect();
        let read: Versions = paths.iter().map(|path| version(path)).collect();
        Self { paths, seen: read.clone(), read, retry_in: None }
    }

    /// To be called once in an [`INTERVAL`]: whether the files are to be read, because they are
    /// new and have stayed the same for an interval, or because it is time for another attempt.
    /// Blocks.
    pub fn is_due(&mut self) -> bool {
        let now = self.paths.iter().map(|path| version(path)).collect();
        self.compare(now)
    }

    /// Reports what `is_due` asked for. Unusable files are read again after a minute.
    pub fn was_read(&mut self, usable: bool) {
        self.retry_in = (!usable).then_some(RETRY_INTERVALS);
    }

    fn compare(&mut self, now: Versions) -> bool {
        let settled = self.seen == now;
        self.seen = now;
        self.retry_in = self.retry_in.map(|intervals| intervals.saturating_sub(1));
        if !settled || (self.seen == self.read && self.retry_in != Some(0)) {
            return false;
        }
        self.read.clone_from(&self.seen);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(inode: u64) -> Versions {
        let version = FileVersion { device: 1, inode, bytes: 1, modified: (1, 1), changed: (1, 1) };
        vec![Some(version), None]
    }

    fn watched() -> WatchedFiles {
        WatchedFiles { paths: Vec::new(), read: versions(1), seen: versions(1), retry_in: None }
    }

    #[test]
    fn files_are_read_once_after_they_have_settled() {
        let mut watched = watched();
        let mut settles = |inode| watched.compare(versions(inode));
        assert_eq!(
            [settles(1), settles(2), settles(3), settles(3), settles(3)],
            [false, false, false, true, false]
        );
        assert_eq!([settles(1), settles(1)], [false, true], "the earlier files came back");
    }

    #[test]
    fn unusable_files_are_read_again_after_a_pause() {
        let mut watched = watched();
        assert!(!watched.compare(versions(2)) && watched.compare(versions(2)));
        watched.was_read(false);
        let pause = (1..=RETRY_INTERVALS).position(|_| watched.compare(versions(2)));
        assert_eq!(pause, Some(RETRY_INTERVALS as usize - 1));
        watched.was_read(true);
        assert!((0..2 * RETRY_INTERVALS).all(|_| !watched.compare(versions(2))));
    }

    #[test]
    fn a_changed_link_is_another_version() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["one", "two"] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("cert.pem"), name).unwrap();
        }
        std::os::unix::fs::symlink(at("one"), at("link")).unwrap();
        let path = at("link").join("cert.pem");
        let mut watched = WatchedFiles::new([path.as_path()]);
        assert!(!watched.is_due());
        std::fs::remove_file(at("link")).unwrap();
        std::os::unix::fs::symlink(at("two"), at("link")).unwrap();
        assert_eq!([watched.is_due(), watched.is_due()], [false, true]);
    }
}
