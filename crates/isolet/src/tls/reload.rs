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
}

impl Watched {
    /// Whether versions that were not read yet have stayed for an interval.
    fn settles_on(&mut self, now: FileVersions) -> bool {
        let settled = self.seen == now;
        self.seen = now;
        if !settled || self.seen == self.read {
            return false;
        }
        self.read.clone_from(&self.seen);
        true
    }
}

/// Sends each new usable pair, until nobody receives any more.
pub(super) async fn keep_current(
    files: TlsFiles,
    read: FileVersions,
    current: watch::Sender<Arc<ServerConfig>>,
) {
    let mut watched = Watched { seen: read.clone(), read };
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
            let loaded = watched.settles_on(FileVersions::of(&checked)).then(|| checked.load());
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
        let mut watched = Watched { read: versions(1), seen: versions(1) };
        let mut settles = |inode| watched.settles_on(versions(inode));
        assert_eq!(
            [settles(1), settles(2), settles(3), settles(3), settles(3)],
            [false, false, false, true, false]
        );
        assert_eq!([settles(1), settles(1)], [false, true], "the earlier files came back");
    }
}
