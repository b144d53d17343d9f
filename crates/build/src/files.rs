//! Files that clients upload for their builds, as archives. Each belongs to one tenant.

use crate::archive::{ArchiveSummary, inspect};
use crate::error::Error;
use isolet_sandbox::TenantId;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum size of one upload, in bytes.
pub const FILE_BYTES_MAX: u64 = 2 << 30;
/// Maximum size of all uploads of a tenant, also of those that are being received, in bytes. Beyond it
/// the oldest are removed.
const TENANT_BYTES_MAX: u64 = 8 << 30;
/// Maximum number of uploads of a tenant. Beyond it the oldest are removed.
const TENANT_FILES_MAX: usize = 500;
/// Archives that are inspected, or whose entries are listed, at the same time, of all tenants. Each takes
/// one processor.
const INSPECTIONS_MAX: usize = 2;
/// Length of a name, in characters.
const NAME_LETTERS: usize = 64;

/// The name of an upload: 64 hexadecimal digits. Clients compute it from what they upload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilesName(String);

impl FilesName {
    /// Parses a name from a client; `None` unless it has 64 digits of `0-9a-f`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (text.len() == NAME_LETTERS && digits).then(|| Self(text.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<FilesName> for String {
    fn from(name: FilesName) -> Self {
        name.0
    }
}

impl TryFrom<String> for FilesName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        Self::parse(&text).ok_or("must have 64 digits of 0-9a-f")
    }
}

/// Counts bytes that an upload is about to write, and refuses those that it may not.
pub(crate) type Reserve = Box<dyn Fn(u64) -> Result<(), Error> + Send + Sync>;

/// The uploads of all tenants. A name is a pointer to an archive, which has its digest as its name, so
/// that the content behind a digest never changes.
#[derive(Debug)]
pub(crate) struct Files {
    /// The directory of all builds.
    root: PathBuf,
    next: AtomicU64,
    /// Held while names and archives change on the disk. Lock order: this lock, then `pins`.
    changes: Mutex<()>,
    /// How many builds use an archive, by its digest.
    pins: Mutex<HashMap<(TenantId, String), usize>>,
    /// One permit for each archive that is inspected.
    inspections: Arc<Semaphore>,
}

/// An upload that is being received. Dropping it removes what was received.
pub struct Upload {
    files: Arc<Files>,
    tenant: TenantId,
    name: FilesName,
    path: PathBuf,
    file: tokio::fs::File,
    bytes: u64,
    reserve: Reserve,
}

/// Uploads that a build copies. They stay as they are until this is dropped.
#[derive(Debug)]
pub(crate) struct PinnedFiles {
    files: Arc<Files>,
    tenant: TenantId,
    /// The digests of the files that each step copies.
    digests: Vec<Option<String>>,
}

impl PinnedFiles {
    pub(crate) fn digests(&self) -> &[Option<String>] {
        &self.digests
    }

    /// Waits until another archive may be read, of all tenants.
    pub(crate) async fn reading(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.files.inspections).acquire_owned().await.ok()
    }

    /// The archive that a step copies.
    pub(crate) fn archive(&self, step: usize) -> Option<PathBuf> {
        let digest = self.digests.get(step)?.as_deref()?;
        Some(self.files.archive(&self.tenant, digest))
    }
}

impl Drop for PinnedFiles {
    fn drop(&mut self) {
        let mut pins = lock(&self.files.pins);
        for digest in self.digests.iter().flatten() {
            let key = (self.tenant.clone(), digest.clone());
            if let Some(count) = pins.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    pins.remove(&key);
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            next: AtomicU64::new(0),
            changes: Mutex::default(),
            pins: Mutex::default(),
            inspections: Arc::new(Semaphore::new(INSPECTIONS_MAX)),
        }
    }

    fn directory(&self, tenant: &TenantId) -> PathBuf {
        self.root.join(tenant.as_str()).join("files")
    }

    fn archive(&self, tenant: &TenantId, digest: &str) -> PathBuf {
        self.directory(tenant).join(format!("{digest}.tar"))
    }

    /// What an upload contains; `None` if the tenant has none of this name. Blocks.
    pub(crate) fn find(&self, tenant: &TenantId, name: &FilesName) -> Option<ArchiveSummary> {
        let pointer = self.directory(tenant).join(format!("{}.json", name.0));
        let summary = read_pointer(&pointer)?;
        // Without its archive, the pointer names nothing.
        fs::metadata(self.archive(tenant, &summary.digest)).ok()?;
        // What is used is not the oldest any more.
        let file = fs::File::options().append(true).open(pointer).ok()?;
        let _ = file.set_modified(SystemTime::now());
        Some(summary)
    }

    /// Finds the files that each step copies, and keeps them as they are. Blocks.
    ///
    /// # Errors
    /// [`Error::NoFiles`].
    pub(crate) fn pin(
        self: &Arc<Self>,
        tenant: &TenantId,
        steps: &[Option<FilesName>],
    ) -> Result<PinnedFiles, Error> {
        let _unchanged = lock(&self.changes);
        let files = Arc::clone(self);
        let mut pinned = PinnedFiles { files, tenant: tenant.clone(), digests: Vec::new() };
        for name in steps {
            let digest = match name {
                None => None,
                Some(name) => {
                    let found = self.find(tenant, name);
                    Some(found.ok_or_else(|| Error::NoFiles(name.0.clone()))?.digest)
                }
            };
            if let Some(digest) = &digest {
                *lock(&self.pins).entry((tenant.clone(), digest.clone())).or_default() += 1;
            }
            pinned.digests.push(digest);
        }
        Ok(pinned)
    }

    /// Begins to receive an upload.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        tenant: &TenantId,
        name: FilesName,
        reserve: Reserve,
    ) -> Result<Upload, Error> {
        let directory = self.directory(tenant);
        tokio::fs::create_dir_all(&directory).await?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{number}.part"));
        let file = tokio::fs::File::create(&path).await?;
        let files = Arc::clone(self);
        Ok(Upload { files, tenant: tenant.clone(), name, path, file, bytes: 0, reserve })
    }

    /// Removes what uploads of all tenants that never ended have left. Blocks.
    pub(crate) fn clear(&self) {
        for tenant in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            for part in files_of(&tenant.path().join("files"), "part") {
                let _ = fs::remove_file(part.path);
            }
        }
    }

    /// Removes all uploads of a tenant that no build uses. Blocks.
    pub(crate) fn remove_all(&self, tenant: &TenantId) {
        let _changing = lock(&self.changes);
        for pointer in files_of(&self.directory(tenant), "json") {
            let summary = read_pointer(&pointer.path);
            if !summary.is_some_and(|summary| self.is_pinned(tenant, &summary.digest)) {
                let _ = fs::remove_file(pointer.path);
            }
        }
        self.remove_unused(tenant, None);
    }

    fn is_pinned(&self, tenant: &TenantId, digest: &str) -> bool {
        lock(&self.pins).contains_key(&(tenant.clone(), digest.to_owned()))
    }

    /// Removes archives that neither a name nor a build uses. The name `without` does not count. Returns
    /// the size of the others, in bytes.
    fn remove_unused(&self, tenant: &TenantId, without: Option<&Path>) -> u64 {
        let directory = self.directory(tenant);
        let pointers = files_of(&directory, "json").into_iter();
        let pointers = pointers.filter(|pointer| Some(&*pointer.path) != without);
        let used: HashSet<String> =
            pointers.filter_map(|pointer| Some(read_pointer(&pointer.path)?.digest)).collect();
        let mut bytes = 0;
        for archive in files_of(&directory, "tar") {
            if used.contains(&archive.stem) || self.is_pinned(tenant, &archive.stem) {
                bytes += archive.bytes;
            } else {
                let _ = fs::remove_file(archive.path);
            }
        }
        bytes
    }

    /// Removes the oldest uploads of a tenant, so that one more, which is being received, is within
    /// the limits.
    ///
    /// # Errors
    /// [`Error::FilesTooLarge`] if builds use too many.
    fn make_room(&self, tenant: &TenantId, own: &Path) -> Result<(), Error> {
        let directory = self.directory(tenant);
        let parts: u64 = files_of(&directory, "part").iter().map(|part| part.bytes).sum();
        let mut pointers = files_of(&directory, "json");
        pointers.retain(|pointer| pointer.path != own);
        pointers.sort_by_key(|pointer| pointer.modified);
        let mut count = pointers.len() + 1;
        let mut oldest = pointers.into_iter();
        loop {
            let bytes = self.remove_unused(tenant, Some(own)) + parts;
            if bytes <= TENANT_BYTES_MAX && count <= TENANT_FILES_MAX {
                return Ok(());
            }
            // One that a build uses frees nothing.
            let next = oldest.by_ref().find(|pointer| {
                let summary = read_pointer(&pointer.path);
                !summary.is_some_and(|summary| self.is_pinned(tenant, &summary.digest))
            });
            let Some(next) = next else {
                let quantity =
                    "all uploads of the tenant, of which builds use the others".to_owned();
                let limit = format!("{TENANT_FILES_MAX}, or {} GiB", TENANT_BYTES_MAX >> 30);
                return Err(Error::FilesTooLarge { quantity, limit });
            };
            let _ = fs::remove_file(next.path);
            count -= 1;
        }
    }

    /// Puts an archive that was checked in its place, under a name.
    fn install(
        &self,
        tenant: &TenantId,
        name: &FilesName,
        from: &Path,
        summary: &ArchiveSummary,
    ) -> Result<(), Error> {
        let directory = self.directory(tenant);
        let pointer = directory.join(format!("{}.json", name.0));
        let text = serde_json::to_vec(summary).map_err(|error| Error::Disk(error.to_string()))?;
        let _changing = lock(&self.changes);
        self.make_room(tenant, &pointer)?;
        fs::rename(from, self.archive(tenant, &summary.digest))?;
        let fresh = from.with_extension("about.part");
        let mut file = fs::File::create(&fresh)?;
        file.write_all(&text)?;
        file.sync_all()?;
        // Last, so that a name never leads to another content than it says.
        fs::rename(&fresh, pointer)?;
        Ok(fs::File::open(directory)?.sync_all()?)
    }
}

/// A file in the directory of a tenant's uploads.
struct StoredFile {
    path: PathBuf,
    /// Its name without the extension.
    stem: String,
    bytes: u64,
    modified: SystemTime,
}

/// The files in a directory whose names end so.
fn files_of(directory: &Path, extension: &str) -> Vec<StoredFile> {
    let all = fs::read_dir(directory).into_iter().flatten().flatten();
    let all = all.filter_map(|entry| {
        let path = entry.path();
        if path.extension().is_none_or(|end| end != extension) {
            return None;
        }
        let about = entry.metadata().ok()?;
        let stem = path.file_stem()?.to_str()?.to_owned();
        Some(StoredFile { path, stem, bytes: about.len(), modified: about.modified().ok()? })
    });
    all.collect()
}

fn read_pointer(path: &Path) -> Option<ArchiveSummary> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

impl Upload {
    /// Writes more bytes.
    ///
    /// # Errors
    /// [`Error::FilesTooLarge`], [`Error::Disk`], and errors of the free space and the quota.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes += bytes.len() as u64;
        if self.bytes > FILE_BYTES_MAX {
            let limit = format!("{} MiB", FILE_BYTES_MAX >> 20);
            return Err(Error::FilesTooLarge { quantity: "one upload".to_owned(), limit });
        }
        (self.reserve)(bytes.len() as u64)?;
        Ok(self.file.write_all(bytes).await?)
    }

    /// Checks what was received, and puts it in its place.
    ///
    /// # Errors
    /// [`Error::BadFiles`], [`Error::FilesTooLarge`], [`Error::Disk`].
    pub async fn finish(mut self) -> Result<ArchiveSummary, Error> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        // The semaphore is never closed.
        let permit = Arc::clone(&self.files.inspections).acquire_owned().await.ok();
        let finishing = tokio::task::spawn_blocking(move || {
            let summary = inspect(&self.path)?;
            drop(permit);
            self.files.install(&self.tenant, &self.name, &self.path, &summary)?;
            Ok(summary)
        });
        finishing.await.map_err(|error| Error::Disk(error.to_string()))?
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(self.path.with_extension("about.part"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::tests::tar;
    use tar::EntryType;

    fn tenant(id: &str) -> TenantId {
        TenantId::parse(id).unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let all = fs::read_dir(directory).unwrap().map(|one| one.unwrap().file_name());
        let mut all: Vec<String> = all.map(|name| name.to_string_lossy().into_owned()).collect();
        all.sort();
        all
    }

    #[test]
    fn a_name_is_a_hash_in_hexadecimal() {
        assert!(FilesName::parse(&"0a".repeat(32)).is_some());
        for bad in
            ["", "../../etc", &"0A".repeat(32), &"0a".repeat(33), &format!("{}/", "a".repeat(63))]
        {
            assert!(FilesName::parse(bad).is_none(), "{bad}");
        }
    }

    fn file(letter: &str) -> FilesName {
        FilesName::parse(&letter.repeat(64)).unwrap()
    }

    fn archive(text: &[u8]) -> Vec<u8> {
        tar(&[(EntryType::Regular, "a", "", 0o644, text)])
    }

    async fn receive(files: &Arc<Files>, owner: &str, name: &FilesName) -> Upload {
        let reserve: Reserve = Box::new(|_| Ok(()));
        files.receive(&tenant(owner), name.clone(), reserve).await.unwrap()
    }

    async fn upload(files: &Arc<Files>, name: &FilesName, text: &[u8]) -> ArchiveSummary {
        let mut upload = receive(files, "one", name).await;
        upload.write(&archive(text)).await.unwrap();
        upload.finish().await.unwrap()
    }

    #[tokio::test]
    async fn an_upload_belongs_to_its_tenant_and_a_bad_one_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let files = Arc::new(Files::new(home.path().to_owned()));
        let name = file("a");
        let summary = upload(&files, &name, b"1").await;
        assert_eq!(files.find(&tenant("one"), &name), Some(summary.clone()));
        assert_eq!(files.find(&tenant("two"), &name), None);
        let other = file("b");
        let mut bad = receive(&files, "one", &other).await;
        bad.write(b"no archive").await.unwrap();
        assert!(matches!(bad.finish().await, Err(Error::BadFiles(_))));
        assert_eq!(files.find(&tenant("one"), &other), None);
        drop(receive(&files, "one", &other).await);
        let mut left = vec![format!("{}.json", name.0), format!("{}.tar", summary.digest)];
        left.sort();
        assert_eq!(names(&files.directory(&tenant("one"))), left);
    }

    #[tokio::test]
    async fn each_piece_of_an_upload_asks_for_space() {
        let home = tempfile::tempdir().unwrap();
        let files = Arc::new(Files::new(home.path().to_owned()));
        let left = AtomicU64::new(1024);
        let reserve: Reserve = Box::new(move |bytes| {
            let enough = left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
            enough.map(|_| ()).map_err(|_| Error::Disk("full".to_owned()))
        });
        let mut upload = files.receive(&tenant("one"), file("a"), reserve).await.unwrap();
        upload.write(&[0; 1024]).await.unwrap();
        assert!(upload.write(&[0; 1]).await.unwrap_err().to_string().contains("full"));
    }

    #[tokio::test]
    async fn what_a_build_uses_stays_when_its_name_gets_another_content() {
        let home = tempfile::tempdir().unwrap();
        let files = Arc::new(Files::new(home.path().to_owned()));
        let name = file("a");
        let first = upload(&files, &name, b"1").await;
        let steps = [None, Some(name.clone())];
        let pinned = files.pin(&tenant("one"), &steps).unwrap();
        assert_eq!(pinned.digests(), [None, Some(first.digest.clone())]);
        assert_eq!(pinned.archive(0), None);
        let second = upload(&files, &name, b"2").await;
        assert_ne!(first.digest, second.digest);
        assert_eq!(files.find(&tenant("one"), &name), Some(second));
        files.remove_all(&tenant("one"));
        assert_eq!(files.find(&tenant("one"), &name), None);
        let path = pinned.archive(1).unwrap();
        assert_eq!(inspect(&path).unwrap().digest, first.digest);
        drop(pinned);
        files.remove_all(&tenant("one"));
        assert!(names(&files.directory(&tenant("one"))).is_empty());
        assert!(matches!(files.pin(&tenant("one"), &steps), Err(Error::NoFiles(_))));
    }

    /// The archive was once renamed before its description, so that a server that stopped in between
    /// had the digest of one content with the bytes of another.
    #[tokio::test]
    async fn a_name_leads_to_what_it_says_when_an_install_was_not_finished() {
        let home = tempfile::tempdir().unwrap();
        let files = Arc::new(Files::new(home.path().to_owned()));
        let name = file("a");
        let first = upload(&files, &name, b"1").await;
        let part = home.path().join("one/files/9.part");
        fs::write(&part, archive(b"2")).unwrap();
        let second = inspect(&part).unwrap();
        fs::rename(&part, files.archive(&tenant("one"), &second.digest)).unwrap();
        let found = files.find(&tenant("one"), &name).unwrap();
        assert_eq!(found, first);
        let read = inspect(&files.archive(&tenant("one"), &found.digest)).unwrap();
        assert_eq!(read, first);
        // What no name leads to goes with the next upload.
        upload(&files, &file("b"), b"3").await;
        assert!(!files.archive(&tenant("one"), &second.digest).is_file());
    }

    #[test]
    fn what_uploads_have_left_is_cleared_for_all_tenants() {
        let home = tempfile::tempdir().unwrap();
        for owner in ["one", "two"] {
            let directory = home.path().join(owner).join("files");
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("1.part"), "x").unwrap();
        }
        let files = Files::new(home.path().to_owned());
        files.clear();
        for owner in ["one", "two"] {
            assert!(names(&files.directory(&tenant(owner))).is_empty());
        }
    }

    #[test]
    fn the_oldest_uploads_make_room() {
        let home = tempfile::tempdir().unwrap();
        let files = Arc::new(Files::new(home.path().to_owned()));
        let owner = tenant("one");
        let directory = files.directory(&owner);
        fs::create_dir_all(&directory).unwrap();
        let digest = |number: usize| format!("{number:064x}");
        for number in 0..TENANT_FILES_MAX + 2 {
            let path = directory.join(format!("{}.json", digest(number)));
            let summary = ArchiveSummary { digest: digest(number), entries: 1, unpacked_bytes: 1 };
            fs::write(&path, serde_json::to_vec(&summary).unwrap()).unwrap();
            fs::write(files.archive(&owner, &digest(number)), "x").unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            fs::File::options().append(true).open(&path).unwrap().set_modified(at).unwrap();
        }
        let first = FilesName::parse(&digest(0)).unwrap();
        let pinned = files.pin(&owner, &[Some(first)]).unwrap();
        files.make_room(&owner, &directory.join("own.json")).unwrap();
        let left = names(&directory);
        assert_eq!(left.len(), 2 * (TENANT_FILES_MAX - 1));
        assert!(files.archive(&owner, &digest(0)).is_file(), "a build uses it");
        assert!(!files.archive(&owner, &digest(1)).is_file());
        drop(pinned);
    }
}
