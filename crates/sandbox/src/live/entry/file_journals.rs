//! The journals of the files of sandboxes: one for each directory whose changes clients ask for,
//! separately for each view of the files.
//!
//! Journals are in memory only: after a restart of the server, all versions have expired. The number
//! of journals of a sandbox and the memory of all journals are limited. Above the limits, the
//! journals that were not used for longest are dropped, first those of the tenant that has most. A
//! journal that was not used for an hour is dropped in any case.

pub(crate) mod journal;

use crate::live::entry::running_scopes::Scope;
use crate::model::clock::steady_ms;
use crate::model::ids::TenantId;
use isolet_wire::response::FileFingerprint;
use journal::{Delta, FileJournal, Version};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Maximum number of journals of one sandbox.
const JOURNALS_MAX: usize = 16;
/// Maximum size of the journals of all sandboxes, in bytes.
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// Maximum number of directories that are read at once, of all sandboxes. A reading that is not in its
/// journal yet takes up to about 30 MiB, which the limits of journals do not count.
const READINGS_MAX: usize = 8;
/// Maximum number of directories of one tenant that are read at once.
const TENANT_READINGS_MAX: usize = 2;
/// How long a journal is held without being used, in ms.
const IDLE_MS: i64 = 60 * 60 * 1000;

/// What a journal is about.
#[derive(Debug, Clone)]
pub(crate) struct JournalKey {
    /// The running scope that sees the files; `None` for all files. A scope that starts again may
    /// see other files, so it has other journals.
    pub(crate) scope: Option<Weak<Scope>>,
    /// The absolute path of the directory.
    pub(crate) path: Vec<u8>,
    /// Whether directories below it belong to it.
    pub(crate) recursive: bool,
}

impl PartialEq for JournalKey {
    fn eq(&self, other: &Self) -> bool {
        let scope = match (&self.scope, &other.scope) {
            (None, None) => true,
            (Some(one), Some(other)) => Weak::ptr_eq(one, other),
            _ => false,
        };
        scope && self.path == other.path && self.recursive == other.recursive
    }
}

impl JournalKey {
    /// Whether the scope has ended, so that no request can use the journal.
    fn is_over(&self) -> bool {
        self.scope.as_ref().is_some_and(|scope| scope.strong_count() == 0)
    }
}

/// The journal of one directory.
#[derive(Debug)]
pub(crate) struct Journal {
    key: JournalKey,
    tenant: TenantId,
    /// Serialises readings of the directory.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// `None` before the first reading, and after it was dropped.
    held: Mutex<Option<FileJournal>>,
    bytes: AtomicUsize,
    used_ms: AtomicI64,
}

impl Journal {
    fn new(key: JournalKey, tenant: TenantId) -> Self {
        let turn = tokio::sync::Mutex::default();
        let used_ms = AtomicI64::new(steady_ms());
        Self { key, tenant, turn, held: Mutex::default(), bytes: AtomicUsize::new(0), used_ms }
    }

    fn held(&self) -> MutexGuard<'_, Option<FileJournal>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`FileJournal::since`].
    pub(crate) fn since(
        &self,
        version: Version,
        limit: usize,
        admits: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Delta> {
        self.held().as_ref()?.since(version, limit, admits)
    }

    /// Adds a reading. With `begins`, it may be the first one. Returns the version behind it; `None`
    /// if the journal was dropped.
    pub(crate) fn update(&self, files: Vec<FileFingerprint>, begins: bool) -> Option<Version> {
        let mut held = self.held();
        match held.as_mut() {
            Some(journal) => journal.update(files),
            None if begins => *held = Some(FileJournal::new(random(), files)),
            None => return None,
        }
        let journal = held.as_ref()?;
        self.bytes.store(journal.bytes(), Ordering::Relaxed);
        Some(journal.version())
    }

    fn drop_held(&self) {
        *self.held() = None;
        self.bytes.store(0, Ordering::Relaxed);
    }

    fn touch(&self) {
        self.used_ms.store(steady_ms(), Ordering::Relaxed);
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("random bytes");
    u64::from_ne_bytes(bytes)
}

/// The journals of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct FileJournals {
    /// The one that was used last is at the end.
    all: Mutex<Vec<Arc<Journal>>>,
}

impl FileJournals {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Journal>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The journal of a directory; `None` if there is none.
    pub(crate) fn find(&self, key: &JournalKey) -> Option<Arc<Journal>> {
        take(&mut self.lock(), key)
    }

    /// The journal of a directory that was read, which is created if there is none.
    pub(crate) fn open(&self, key: JournalKey, tenant: &TenantId) -> Arc<Journal> {
        let mut all = self.lock();
        if let Some(found) = take(&mut all, &key) {
            return found;
        }
        all.retain(|one| !one.key.is_over());
        if all.len() >= JOURNALS_MAX {
            all.remove(0).drop_held();
        }
        let new = Arc::new(Journal::new(key, tenant.clone()));
        all.push(Arc::clone(&new));
        new
    }
}

/// Moves a journal to the end.
fn take(all: &mut Vec<Arc<Journal>>, key: &JournalKey) -> Option<Arc<Journal>> {
    let at = all.iter().position(|one| one.key == *key)?;
    let found = all.remove(at);
    found.touch();
    all.push(Arc::clone(&found));
    Some(found)
}

/// The memory of the journals of all sandboxes, and of the readings that are not in them yet.
#[derive(Debug)]
pub(crate) struct JournalMemory {
    journals: Mutex<Vec<Weak<Journal>>>,
    readings: Arc<Semaphore>,
    tenants: Mutex<BTreeMap<TenantId, Arc<Semaphore>>>,
}

impl Default for JournalMemory {
    fn default() -> Self {
        let readings = Arc::new(Semaphore::new(READINGS_MAX));
        Self { journals: Mutex::default(), readings, tenants: Mutex::default() }
    }
}

/// The right to read a directory, until the reading is in its journal.
#[derive(Debug)]
pub(crate) struct Reading {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl JournalMemory {
    /// Waits until another directory may be read for a tenant.
    pub(crate) async fn reading(&self, tenant: &TenantId) -> Result<Reading, AcquireError> {
        let own = {
            let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nothing uses are not kept.
            tenants.retain(|_, own| Arc::strong_count(own) > 1);
            let new = || Arc::new(Semaphore::new(TENANT_READINGS_MAX));
            Arc::clone(tenants.entry(tenant.clone()).or_insert_with(new))
        };
        // The one of the tenant first, so that its waiting calls do not hold what others could use.
        let of_tenant = own.acquire_owned().await?;
        let of_all = Arc::clone(&self.readings).acquire_owned().await?;
        Ok(Reading { _of_tenant: of_tenant, _of_all: of_all })
    }

    /// Counts a journal that has just been read, and drops others until all are within the limit.
    pub(crate) fn make_room(&self, read: &Arc<Journal>) {
        self.make_room_within(read, BYTES_MAX);
    }

    /// Drops the journals that were not used for long, and those of scopes that have ended.
    pub(crate) fn drop_idle(&self) {
        let mut all = self.lock();
        let live = without_idle(&all);
        *all = live.iter().map(Arc::downgrade).collect();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Journal>>> {
        self.journals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_room_within(&self, read: &Arc<Journal>, bytes_max: usize) {
        let mut all = self.lock();
        let mut live = without_idle(&all);
        if !live.iter().any(|one| Arc::ptr_eq(one, read)) {
            live.push(Arc::clone(read));
        }
        live.sort_by_key(|one| one.used_ms.load(Ordering::Relaxed));
        while let Some(at) = above(&live, bytes_max) {
            live.remove(at).drop_held();
        }
        *all = live.iter().map(Arc::downgrade).collect();
    }
}

/// The journals that are in use. The others are dropped.
fn without_idle(all: &[Weak<Journal>]) -> Vec<Arc<Journal>> {
    let oldest = steady_ms().saturating_sub(IDLE_MS);
    let all = all.iter().filter_map(Weak::upgrade);
    let (live, idle): (Vec<_>, Vec<_>) =
        all.partition(|one| one.used_ms.load(Ordering::Relaxed) >= oldest && !one.key.is_over());
    idle.iter().for_each(|one| one.drop_held());
    live
}

/// The next journal to drop, if all together are above the limit: the oldest of the tenant whose
/// journals are largest.
fn above(live: &[Arc<Journal>], bytes_max: usize) -> Option<usize> {
    let mut tenants: BTreeMap<&TenantId, usize> = BTreeMap::new();
    for one in live {
        *tenants.entry(&one.tenant).or_default() += one.bytes.load(Ordering::Relaxed);
    }
    if tenants.values().sum::<usize>() <= bytes_max {
        return None;
    }
    let (largest, _) = tenants.into_iter().max_by_key(|(_, bytes)| *bytes)?;
    live.iter().position(|one| one.tenant == *largest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::response::FileKind;

    fn key(path: &str) -> JournalKey {
        JournalKey { scope: None, path: path.as_bytes().to_vec(), recursive: true }
    }

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).expect("a tenant")
    }

    fn files(count: usize) -> Vec<FileFingerprint> {
        let file = |n: usize| FileFingerprint {
            path: n.to_string().into_bytes(),
            kind: FileKind::File,
            inode: 1,
            stamp: 1,
            unsettled: false,
        };
        (0..count).map(file).collect()
    }

    fn is_held(journal: &Journal) -> bool {
        journal.held().is_some()
    }

    #[test]
    fn a_sandbox_drops_the_journal_that_was_used_first() {
        let all = FileJournals::default();
        let tenant = tenant("a");
        let first = all.open(key("/first"), &tenant);
        let second = all.open(key("/second"), &tenant);
        first.update(files(1), true);
        second.update(files(1), true);
        assert!(Arc::ptr_eq(&all.find(&key("/first")).expect("a journal"), &first));
        for n in 2..=JOURNALS_MAX {
            all.open(key(&format!("/{n}")), &tenant);
        }
        assert!(all.find(&key("/second")).is_none() && !is_held(&second));
        assert!(all.find(&key("/first")).is_some() && is_held(&first));
    }

    #[test]
    fn the_tenant_with_the_largest_journals_loses_one_first() {
        let memory = JournalMemory::default();
        let open = |name: &str, count: usize| {
            let journal = Arc::new(Journal::new(key("/"), tenant(name)));
            journal.update(files(count), true);
            journal
        };
        let small = open("small", 10);
        let large = [open("large", 10), open("large", 10)];
        let per = small.bytes.load(Ordering::Relaxed);
        for one in [&small, &large[0]] {
            memory.make_room_within(one, per * 2);
        }
        memory.make_room_within(&large[1], per * 2);
        assert!(is_held(&small), "the other tenant's journal is the oldest, and stays");
        assert!(!is_held(&large[0]) && is_held(&large[1]));
        assert_eq!(large[0].update(files(1), false), None, "a dropped journal does not go on");
    }

    #[tokio::test]
    async fn a_tenant_leaves_readings_to_others() {
        let memory = JournalMemory::default();
        let mut own = Vec::new();
        for _ in 0..TENANT_READINGS_MAX {
            own.push(memory.reading(&tenant("a")).await.expect("a place"));
        }
        let soon = std::time::Duration::from_millis(10);
        let third = tokio::time::timeout(soon, memory.reading(&tenant("a"))).await;
        assert!(third.is_err(), "it waits");
        assert!(memory.reading(&tenant("b")).await.is_ok());
        drop(own);
        assert!(memory.reading(&tenant("a")).await.is_ok());
    }

    #[test]
    fn a_journal_that_was_not_used_for_long_is_dropped_without_another_reading() {
        let memory = JournalMemory::default();
        let open = |path: &str| {
            let journal = Arc::new(Journal::new(key(path), tenant("a")));
            journal.update(files(1), true);
            memory.make_room(&journal);
            journal
        };
        let used = open("/used");
        let idle = open("/idle");
        idle.used_ms.fetch_sub(IDLE_MS + 1, Ordering::Relaxed);
        memory.drop_idle();
        assert!(is_held(&used) && !is_held(&idle));
    }
}
