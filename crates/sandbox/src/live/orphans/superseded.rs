//! Files of sandboxes that another node has taken over: `DATA/superseded/TENANT/ID-TIME`. The server
//! never reads them. It deletes them after the configured time, and the oldest ones when there are
//! too many.

use crate::model::clock::now_ms;
use crate::model::ids::{SandboxId, TenantId};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory, below the data directory.
const DIRECTORY: &str = "superseded";
/// Maximum number of directories that are kept. When there are more, the oldest are deleted.
pub(crate) const SUPERSEDED_MAX: usize = 1000;
/// The file that holds the record of the sandbox.
const RECORD: &str = "record.json";

/// The name of the directory for a sandbox that is superseded now.
pub(crate) fn target(id: &SandboxId) -> String {
    format!("{id}-{}", now_ms())
}

/// Where the files of a superseded sandbox are.
pub(crate) fn path(data: &Path, tenant: &TenantId, target: &str) -> PathBuf {
    data.join(DIRECTORY).join(tenant.as_str()).join(target)
}

/// Moves the files of a sandbox there, with its record. Can be repeated after a kill at any point.
/// Nothing of the sandbox may run. Blocks.
pub(crate) fn put(from: &Path, to: &Path, record: &str) -> io::Result<()> {
    let tenant = to.parent().ok_or(ErrorKind::InvalidInput)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(tenant)?;
    match fs::rename(from, to) {
        // It was moved before, or the sandbox had no files.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(to)?;
        }
        done => done?,
    }
    fs::write(to.join(RECORD), record)?;
    fs::File::open(tenant)?.sync_all()
}

/// A directory of superseded files.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    since_ms: i64,
}

/// Moves what was kept for longer than `keep`, and the oldest beyond [`SUPERSEDED_MAX`], to the trash.
/// Returns how many. Blocks.
pub(crate) fn sweep(data: &Path, trash: &Path, keep: Duration) -> io::Result<usize> {
    let mut all = list(&data.join(DIRECTORY))?;
    all.sort_by_key(|kept| kept.since_ms);
    let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
    let too_old = now_ms().saturating_sub(keep_ms);
    let beyond = all.len().saturating_sub(SUPERSEDED_MAX);
    let mut removed = 0;
    for (index, kept) in all.iter().enumerate() {
        if index < beyond || kept.since_ms <= too_old {
            fs::rename(&kept.path, trash.join(crate::model::ids::random()))?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn list(directory: &Path) -> io::Result<Vec<Kept>> {
    let mut all = Vec::new();
    for tenant in entries(directory)? {
        for path in entries(&tenant)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let time = name.rsplit_once('-').and_then(|(_, time)| time.parse().ok());
            // Other files that the operator put there stay.
            if let Some(since_ms) = time {
                all.push(Kept { path, since_ms });
            }
        }
    }
    Ok(all)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_one(data: &Path, target: &str) -> PathBuf {
        let from = data.join("sandboxes/one");
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("file"), target).unwrap();
        let to = path(data, &TenantId::default_tenant(), target);
        put(&from, &to, "{}").unwrap();
        to
    }

    #[test]
    fn files_are_moved_once_and_a_repetition_changes_nothing() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let to = put_one(data, "box-1");
        put(&data.join("sandboxes/one"), &to, "{}").unwrap();
        assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "box-1");
        assert_eq!(fs::read_to_string(to.join(RECORD)).unwrap(), "{}");
        // A sandbox without files leaves its record.
        let none = path(data, &TenantId::default_tenant(), "none-2");
        put(&data.join("sandboxes/none"), &none, "{}").unwrap();
        assert!(none.join(RECORD).try_exists().unwrap());
    }

    #[test]
    fn what_is_old_and_what_is_too_much_is_deleted() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let trash = data.join("trash");
        fs::create_dir_all(&trash).unwrap();
        let keep = Duration::from_secs(60);
        assert_eq!(sweep(data, &trash, keep).unwrap(), 0, "there is no such directory");
        let old = put_one(data, &format!("a-{}", now_ms() - 61_000));
        let new = put_one(data, &target(&"b".parse().unwrap()));
        let other = put_one(data, "without a time");
        assert_eq!(sweep(data, &trash, keep).unwrap(), 1);
        let exists = |path: &Path| path.try_exists().unwrap();
        assert!(!exists(&old) && exists(&new) && exists(&other));
        let tenant = new.parent().unwrap();
        for number in 0..SUPERSEDED_MAX {
            fs::create_dir(tenant.join(format!("c-{}", now_ms() + 1000 + number as i64))).unwrap();
        }
        assert_eq!(sweep(data, &trash, keep).unwrap(), 1);
        assert!(!exists(&new), "the oldest one");
    }
}
