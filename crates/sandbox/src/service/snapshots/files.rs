//! Reading and comparing the files of snapshots, without a sandbox.

use crate::live::snapshots::ComparedPage;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::ids::{SnapshotId, TenantId};
use crate::model::record::snapshot::SnapshotRecord;
use crate::sandbox::files::{FileReader, Opened, Page, StoredFile};
use crate::service::Service;
use futures_util::FutureExt as _;
use isolet_storage::merged::{
    self, ChangeKind, DiffPage, DiffRequest, Found, ListRequest, MergedTree,
};
use isolet_wire::request::{ByteRange, WalkOptions};
use isolet_wire::response::{FileKind, FileStat, FoundFile, RefusalReason};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long one list may take. One with a pattern can read many directories for few entries.
const LIST_TIME: Duration = Duration::from_secs(60);
/// How long one page of a comparison may take, besides the content of the last file.
const DIFF_TIME: Duration = Duration::from_secs(10);

/// A path that differs between two snapshots.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotChange {
    /// The file in the second snapshot, or in the first if it was removed. Its path starts at the
    /// root, without a slash in front.
    pub file: FoundFile,
    /// `added`, `changed` or `removed`.
    pub change: &'static str,
}

/// One page of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotDiff {
    /// Sorted by the components of their paths.
    pub changes: Vec<SnapshotChange>,
    /// The value of `after` for the next page; `None` on the last page. A page can be empty and
    /// still have one.
    pub next: Option<Vec<u8>>,
}

/// Sets its flag when it is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Service {
    /// Opens a file of a snapshot to read a part of it, or a directory. Links are followed within
    /// the files of the snapshot.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`], [`Error::Refused`] (`NotFound`, `WrongKind`).
    pub async fn snapshot_fetch(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
        path: Vec<u8>,
        span: ByteRange,
    ) -> Result<Opened, Error> {
        self.in_snapshot(tenant, id, move |tree| {
            let found = find(tree, &path, true)?;
            let stat = stat(&found.stat);
            match found.stat.kind {
                merged::FileKind::Directory => return Ok(Opened::Directory(stat)),
                merged::FileKind::File => {}
                _ => return Err(refused(Errno::INVAL)),
            }
            let file = found.open().map_err(refused)?;
            let at = match span {
                ByteRange::From { offset, .. } => offset,
                ByteRange::Last(count) => stat.size.saturating_sub(count),
            };
            Ok(Opened::File(Box::new(FileReader::stored(
                stat,
                StoredFile { file: Arc::new(file), at },
            ))))
        })
        .await
    }

    /// A file of a snapshot. The last link of the path is not followed.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`], [`Error::Refused`] (`NotFound`).
    pub async fn snapshot_stat(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
        path: Vec<u8>,
    ) -> Result<FoundFile, Error> {
        self.in_snapshot(tenant, id, move |tree| {
            let found = find(tree, &path, false)?;
            Ok(FoundFile { path, stat: stat(&found.stat), target: found.target })
        })
        .await
    }

    /// Lists a directory of a snapshot. Stops when the caller is dropped.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`], [`Error::Refused`] (`NotFound`, `WrongKind`), [`Error::TooLate`].
    pub async fn snapshot_walk(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
        path: Vec<u8>,
        options: WalkOptions,
    ) -> Result<Page, Error> {
        let request = ListRequest {
            recursive: options.recursive,
            hidden: options.hidden,
            glob: options.glob,
            after: options.after,
            max: options.max as usize,
        };
        let cancelled = Arc::new(AtomicBool::new(false));
        let _cancel = CancelOnDrop(Arc::clone(&cancelled));
        let walks = &self.inner.snapshots.walks;
        let _walk = if request.recursive { Some(walks.acquire(tenant).await) } else { None };
        self.in_snapshot(tenant, id, move |tree| {
            let found = find(tree, &path, true)?;
            let until = Instant::now() + LIST_TIME;
            let list = tree.list(&found, &request, until, &cancelled).map_err(refused)?;
            let mut unread = HashMap::new();
            let mut files = Vec::with_capacity(list.found.len());
            for one in list.found {
                if one.unread.is_some() {
                    unread.insert(one.path.clone(), RefusalReason::TooLarge);
                }
                files.push(FoundFile { path: one.path, stat: stat(&one.stat), target: one.target });
            }
            Ok(Page { found: files, unread, more: list.more })
        })
        .await
    }

    /// Compares the files of two snapshots. Calls for the same page share one comparison, which stops
    /// when all of them are dropped; a page can therefore be shorter than `max`.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`], and errors of the disk.
    pub async fn snapshot_diff(
        &self,
        tenant: &TenantId,
        from: &SnapshotId,
        to: &SnapshotId,
        after: Option<Vec<u8>>,
        max: usize,
    ) -> Result<SnapshotDiff, Error> {
        let snapshots = &self.inner.snapshots;
        let records = [snapshots.find(tenant, from)?, snapshots.find(tenant, to)?];
        let directories = records.each_ref().map(|record| record.name.clone());
        let page = ComparedPage { tenant: tenant.clone(), directories, after };
        let start = || self.clone().compare(page.clone(), from.clone(), records, max).boxed();
        let compared = snapshots.comparisons.join(&page, start).await?;
        Ok(SnapshotDiff::first(&compared, max))
    }

    async fn compare(
        self,
        page: ComparedPage,
        id: SnapshotId,
        [from, to]: [Arc<SnapshotRecord>; 2],
        max: usize,
    ) -> Result<Arc<DiffPage>, Error> {
        let ComparedPage { tenant, after, .. } = page;
        let cancelled = Arc::new(AtomicBool::new(false));
        let _cancel = CancelOnDrop(Arc::clone(&cancelled));
        let inner = Arc::clone(&self.inner);
        let _walk = self.inner.snapshots.walks.acquire(&tenant).await;
        self.in_record(from, &id, move |tree| {
            let other = open(&inner.snapshots, &to)?;
            let until = Instant::now() + DIFF_TIME;
            let request = DiffRequest { after, max, until, cancelled: &cancelled };
            tree.diff(&other, &request).map(Arc::new).map_err(refused)
        })
        .await
    }

    /// Runs a function over the files of a snapshot.
    ///
    /// # Errors
    /// Those of [`Service::in_record`], and [`Error::NoSnapshot`].
    async fn in_snapshot<R: Send + 'static>(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
        run: impl FnOnce(&MergedTree) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.in_record(self.inner.snapshots.find(tenant, id)?, id, run).await
    }

    /// Runs a function over the files of a snapshot. If it fails and the snapshot was deleted in the
    /// meantime, the error is that there is none.
    async fn in_record<R: Send + 'static>(
        &self,
        record: Arc<SnapshotRecord>,
        id: &SnapshotId,
        run: impl FnOnce(&MergedTree) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let inner = Arc::clone(&self.inner);
        let tenant = record.tenant.clone();
        let done = blocking(move || run(&open(&inner.snapshots, &record)?)).await?;
        if done.is_err() {
            self.inner.snapshots.find(&tenant, id)?;
        }
        done
    }
}

impl SnapshotDiff {
    /// The first changes of a page, at most `max`.
    fn first(page: &DiffPage, max: usize) -> Self {
        let shown = &page.changes[..page.changes.len().min(max.max(1))];
        let changes = shown.iter().map(|one| SnapshotChange {
            change: match one.kind {
                ChangeKind::Added => "added",
                ChangeKind::Changed => "changed",
                ChangeKind::Removed => "removed",
            },
            file: FoundFile {
                path: one.path.clone(),
                stat: stat(&one.stat),
                target: one.target.clone(),
            },
        });
        let next = match shown.last().filter(|_| shown.len() < page.changes.len()) {
            Some(last) => Some(last.path.clone()),
            None => page.next.clone(),
        };
        Self { changes: changes.collect(), next }
    }
}

fn open(
    snapshots: &crate::live::snapshots::Snapshots,
    record: &SnapshotRecord,
) -> Result<MergedTree, Error> {
    snapshots.open_tree(record).map_err(|errno| {
        Error::Fault(format!("files of snapshot {} cannot be opened: {errno}", record.id))
    })
}

fn find(tree: &MergedTree, path: &[u8], follow: bool) -> Result<Found, Error> {
    tree.find(path, follow).map_err(refused)?.ok_or_else(|| refused(Errno::NOENT))
}

/// The error for a path, as the files of a sandbox have it.
fn refused(errno: Errno) -> Error {
    let reason = match errno {
        Errno::NOENT => RefusalReason::NotFound,
        Errno::NOTDIR | Errno::ISDIR | Errno::LOOP | Errno::INVAL => RefusalReason::WrongKind,
        Errno::NAMETOOLONG => RefusalReason::TooLarge,
        Errno::TIMEDOUT => return Error::TooLate("the list"),
        _ => RefusalReason::Failed,
    };
    Error::Refused { reason, message: errno.to_string() }
}

fn stat(of: &merged::FileStat) -> FileStat {
    FileStat {
        kind: match of.kind {
            merged::FileKind::File => FileKind::File,
            merged::FileKind::Directory => FileKind::Directory,
            merged::FileKind::Symlink => FileKind::Symlink,
            merged::FileKind::Other => FileKind::Other,
        },
        size: of.size,
        mode: of.mode,
        modified_ms: of.modified_ms(),
        inode: of.inode.1,
    }
}
