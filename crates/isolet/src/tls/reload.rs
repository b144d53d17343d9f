//! Reads the certificate and the key again when their files change.
//!
//! Both files are replaced one after the other, and often by changing what a symbolic link leads
//! to, maybe in a directory above. The server therefore compares what the paths lead to once a
//! second, and reads only when nothing has changed for a second.

use crate::tls::TlsFiles;
use rustls::ServerConfig;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{error, info};

/// How often the files are compared.
const INTERVAL: Duration = Duration::from_secs(1);
/// After how many intervals an unusable pair is read again: the reason may have been the reading,
/// for example too many open files.
const RETRY_INTERVALS: u32 = 60;

/// The versions of both files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileVersions {
    certificate: Option<FileVersion>,
    key: Option<FileVersion>,
}

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

impl FileVersions {
    pub(crate) fn of(files: &TlsFiles) -> Self {
        Self { certificate: version(&files.certificate), key: version(&files.key) }
    }
}

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

/// Which versions were read last, and which were seen last.
struct Watched {
    read: FileVersions,
    seen: FileVersions,
    /// Intervals until versions that were read and are unusable are read again.
    retry_in: Option<u32>,
}

impl Watched {
    fn new(read: FileVersions) -> Self {
        Self { seen: read.clone(), read, retry_in: None }
    }

    /// Whether the files are to be read: their versions are new and have stayed for an interval, or
    /// it is time for another attempt.
    fn is_due(&mut self, now: FileVersions) -> bool {
        let settled = self.seen == now;
        self.seen = now;
        self.retry_in = self.retry_in.map(|intervals| intervals.saturating_sub(1));
        if !settled || (self.seen == self.read && self.retry_in != Some(0)) {
            return false;
        }
        self.read.clone_from(&self.seen);
        true
    }

    fn was_read(&mut self, usable: bool) {
        self.retry_in = (!usable).then_some(RETRY_INTERVALS);
    }
}

/// Sends each new usable pair, until nobody receives any more.
pub(super) async fn keep_current(
    files: TlsFiles,
    read: FileVersions,
    current: watch::Sender<Arc<ServerConfig>>,
) {
    let mut watched = Watched::new(read);
    let mut clock = tokio::time::interval(INTERVAL);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            () = current.closed() => return,
        }
        let checked = files.clone();
        // The files may be on a slow disk.
        let checked = tokio::task::spawn_blocking(move || {
            let loaded = watched.is_due(FileVersions::of(&checked)).then(|| checked.load());
            if let Some(loaded) = &loaded {
                watched.was_read(loaded.is_ok());
            }
            (watched, loaded)
        });
        let Ok((after, loaded)) = checked.await else { return };
        watched = after;
        match loaded {
            None => {}
            Some(Ok(config)) => {
                current.send_replace(config);
                info!(certificate = %files.certificate.display(), "TLS certificate reloaded");
            }
            Some(Err(reason)) => error!(
                reason = format!("{reason:#}"),
                "the new TLS certificate is unusable; the previous one stays in use"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(inode: u64) -> FileVersions {
        let version = FileVersion { device: 1, inode, bytes: 1, modified: (1, 1), changed: (1, 1) };
        FileVersions { certificate: Some(version), key: None }
    }

    #[test]
    fn files_are_read_once_after_they_have_settled() {
        let mut watched = Watched::new(versions(1));
        let mut settles = |inode| watched.is_due(versions(inode));
        assert_eq!(
            [settles(1), settles(2), settles(3), settles(3), settles(3)],
            [false, false, false, true, false]
        );
        assert_eq!([settles(1), settles(1)], [false, true], "the earlier files came back");
    }

    #[test]
    fn an_unusable_pair_is_read_again_after_a_pause() {
        let mut watched = Watched::new(versions(1));
        assert!(!watched.is_due(versions(2)) && watched.is_due(versions(2)));
        watched.was_read(false);
        let pause = (1..=RETRY_INTERVALS).position(|_| watched.is_due(versions(2)));
        assert_eq!(pause, Some(RETRY_INTERVALS as usize - 1));
        watched.was_read(true);
        assert!((0..2 * RETRY_INTERVALS).all(|_| !watched.is_due(versions(2))));
    }
}
