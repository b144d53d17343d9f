//! The audit log: an append-only record of who did what to each tenant's sandboxes, and from where.
//!
//! Each tenant has a log in `DATA/audit/tenants/<tenant>/`. Its lines are chained by HMAC with the key in
//! `DATA/audit/key` (0600): without that key, nobody can change or remove a line unnoticed. Callers put
//! entries into a queue and continue; one thread writes.

mod follow;
mod keyring;
mod line;
mod log;
mod read;
mod rotation;
mod verify;

pub use follow::{AuditBounds, AuditGap, AuditPosition, Followed, Follower, GapReason, ReadEntry};
pub use read::Export;
pub use rotation::KeyRotation;
pub use verify::{Expected, Finding, Verdict, verify};

pub use crate::error::Error as AuditError;

use crate::error::Error;
use keyring::{KeyRing, TenantKeys};
use log::TenantLog;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot, watch};
use tracing::warn;

/// Maximum size of one segment of a log, in bytes.
pub const SEGMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum number of segments of one log; then the oldest is removed.
pub const SEGMENTS_MAX: usize = 8;
/// Queued entries above which [`Audit::room`] waits.
const QUEUE_MAX: usize = 8192;
/// How long entries are gathered before they are written. A killed server loses at most this.
const GATHER: Duration = Duration::from_millis(20);
/// How long written entries may stay in the page cache. A power failure loses at most this.
const SYNC: Duration = Duration::from_secs(1);
/// Maximum number of exports that read at the same time.
const READERS_MAX: usize = 4;

/// One recorded action, which becomes one line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// The tenant whose log gets the entry.
    pub tenant: String,
    /// The sandbox that the action affected; `None`: none, or more than one.
    pub sandbox: Option<String>,
    /// The kind of action, as in `sandbox.destroy`.
    pub event: Cow<'static, str>,
    /// When it happened, in ms since 1970.
    pub at_ms: i64,
    /// Details: the caller, its address, parameters. Never secrets or output.
    pub data: Map<String, Value>,
}

impl AuditEntry {
    /// Creates an entry with the current time and no details.
    #[must_use]
    pub fn now(tenant: &str, sandbox: Option<&str>, event: &'static str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            sandbox: sandbox.map(str::to_owned),
            event: event.into(),
            at_ms: isolet_clock::now_ms(),
            data: Map::new(),
        }
    }

    /// Adds one member to the details.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }
}

/// All logs of a data directory. Clones share them; dropping the last one writes all queued entries.
#[derive(Clone)]
pub struct Audit {
    writer: Arc<Writer>,
}

struct Writer {
    shared: Arc<WriterState>,
    thread: Option<JoinHandle<()>>,
}

struct WriterState {
    /// Replaced when the key is rotated.
    place: RwLock<Arc<AuditDirectory>>,
    queue: Mutex<Queue>,
    more: Condvar,
    /// Number of entries that were written or lost.
    written: watch::Sender<u64>,
    readers: Arc<Semaphore>,
    /// The bounds of the logs that are followed, by tenant; `None` until a log was opened.
    followed: Mutex<HashMap<String, watch::Sender<Option<AuditBounds>>>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<AuditEntry>,
    /// Number of entries ever queued.
    put: u64,
    /// A caller waits until the queue is written.
    urgent: bool,
    closed: bool,
    /// Tenants whose log is followed from now on.
    opened: Vec<String>,
    /// Callers that wait for another key.
    rotations: Vec<oneshot::Sender<Result<KeyRotation, Error>>>,
}

/// The directory of the logs, and the key that they are signed with. Readers open it beside a running
/// server.
#[derive(Clone)]
pub struct AuditDirectory {
    directory: PathBuf,
    keys: Arc<KeyRing>,
}

impl AuditDirectory {
    /// Opens the logs of a data directory for reading. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`] if the key cannot be read, for instance because no server has used the directory.
    pub fn open(data: &Path) -> Result<Self, Error> {
        let directory = data.join("audit");
        let keys = Arc::new(KeyRing::read(&directory)?);
        Ok(Self { directory, keys })
    }

    /// Like [`AuditDirectory::open`], but creates what is missing.
    fn make(data: &Path) -> Result<Self, Error> {
        let directory = data.join("audit");
        let tenants = directory.join("tenants");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&tenants);
        made.map_err(|error| Error::io(&tenants, &error))?;
        let file = directory.join("key");
        match keyring::make_key(&file) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(Error::io(&file, &error)),
            _ => Self::open(data),
        }
    }

    /// The tenants that have a log. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn tenants(&self) -> Result<Vec<String>, Error> {
        let path = self.directory.join("tenants");
        let names = || -> io::Result<Vec<String>> {
            let all = fs::read_dir(&path)?;
            all.map(|one| Ok(one?.file_name().to_string_lossy().into_owned())).collect()
        };
        let mut names = names().map_err(|error| Error::io(&path, &error))?;
        names.sort();
        Ok(names)
    }

    fn of(&self, tenant: &str) -> PathBuf {
        self.directory.join("tenants").join(tenant)
    }

    fn keys(&self, tenant: &str) -> TenantKeys {
        self.keys.of(tenant)
    }
}

impl Audit {
    /// Opens the logs of a data directory for writing; its lock must be held. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(data: &Path) -> Result<Self, Error> {
        let shared = Arc::new(WriterState {
            place: RwLock::new(Arc::new(AuditDirectory::make(data)?)),
            queue: Mutex::default(),
            more: Condvar::new(),
            written: watch::Sender::new(0),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            followed: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("audit".into());
        let thread = thread
            .spawn(move || own.run())
            .map_err(|error| Error::io(&shared.place().directory, &error))?;
        Ok(Self { writer: Arc::new(Writer { shared, thread: Some(thread) }) })
    }

    /// Queues an entry. Never waits.
    pub fn put(&self, entry: AuditEntry) {
        let shared = &self.writer.shared;
        let mut queue = shared.lock();
        queue.waiting.push_back(entry);
        queue.put += 1;
        // The writer sleeps while the queue is empty; otherwise it wakes up without a notification.
        if queue.waiting.len() == 1 {
            shared.more.notify_one();
        }
    }

    /// Waits until the queue has room. Callers wait before an action, and queue its entry afterwards.
    pub async fn room(&self) {
        let mut written = self.writer.shared.written.subscribe();
        while self.writer.shared.lock().waiting.len() >= QUEUE_MAX {
            self.writer.shared.wake_writer();
            if written.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until all entries that were queued so far are written or lost.
    pub async fn flush(&self) {
        let mut written = self.writer.shared.written.subscribe();
        let put = self.writer.shared.wake_writer();
        let _ = written.wait_for(|written| *written >= put).await;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.more.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the writer thread.
#[derive(Default)]
struct WriterLogs {
    logs: HashMap<String, TenantLog>,
    /// Entries that could not be written, by tenant.
    lost: HashMap<String, u64>,
    /// Tenants whose log was written and not synced yet.
    dirty: Vec<String>,
    synced: Option<Instant>,
}

impl WriterState {
    fn place(&self) -> Arc<AuditDirectory> {
        Arc::clone(&self.place.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the writer start at once. Returns the number of entries ever queued.
    fn wake_writer(&self) -> u64 {
        let mut queue = self.lock();
        queue.urgent = true;
        self.more.notify_one();
        queue.put
    }

    fn run(&self) {
        let mut writing = WriterLogs::default();
        while let Some((batch, put)) = self.batch(&mut writing) {
            let mut changed = writing.write(&self.place(), batch);
            for tenant in std::mem::take(&mut self.lock().opened) {
                if let Err(error) = writing.append(&self.place(), &tenant, Vec::new()) {
                    warn!(tenant, %error, "cannot open an audit log; it is tried again");
                }
                changed.push(tenant);
            }
            self.publish(&writing, &changed);
            self.written.send_replace(put);
            let rotations = std::mem::take(&mut self.lock().rotations);
            for answer in rotations {
                let rotated = self.rotate(&mut writing);
                let all: Vec<String> = writing.logs.keys().cloned().collect();
                self.publish(&writing, &all);
                let _ = answer.send(rotated);
            }
        }
        writing.sync();
    }

    /// The bounds of a tenant's log from now on.
    fn follow(&self, tenant: &str) -> watch::Receiver<Option<AuditBounds>> {
        let bounds = self.followed().entry(tenant.to_owned()).or_default().subscribe();
        if bounds.borrow().is_none() {
            self.lock().opened.push(tenant.to_owned());
            self.wake_writer();
        }
        bounds
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Option<AuditBounds>>>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells followers where the logs of these tenants end.
    fn publish(&self, writing: &WriterLogs, tenants: &[String]) {
        let followed = self.followed();
        for tenant in tenants {
            if let (Some(sender), Some(log)) = (followed.get(tenant), writing.logs.get(tenant)) {
                sender.send_replace(Some(log.bounds()));
            }
        }
    }

    /// Waits for entries to write, and returns them with the number of entries ever queued; `None` at the
    /// end.
    fn batch(&self, writing: &mut WriterLogs) -> Option<(VecDeque<AuditEntry>, u64)> {
        let mut queue = self.lock();
        loop {
            if !queue.waiting.is_empty() || queue.urgent {
                break;
            }
            if queue.closed {
                return None;
            }
            let wait = if writing.dirty.is_empty() { Duration::from_secs(3600) } else { SYNC };
            let waited = self.more.wait_timeout(queue, wait);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            if queue.waiting.is_empty() && !writing.dirty.is_empty() {
                drop(queue);
                writing.sync();
                queue = self.lock();
            }
        }
        let busy = |queue: &mut Queue| {
            !(queue.urgent || queue.closed || queue.waiting.len() >= QUEUE_MAX / 2)
        };
        let gathered = self.more.wait_timeout_while(queue, GATHER, busy);
        queue = gathered.unwrap_or_else(PoisonError::into_inner).0;
        queue.urgent = false;
        Some((std::mem::take(&mut queue.waiting), queue.put))
    }
}

impl WriterLogs {
    /// Writes entries. Returns the tenants whose logs have changed.
    fn write(&mut self, place: &AuditDirectory, batch: VecDeque<AuditEntry>) -> Vec<String> {
        let mut changed = Vec::new();
        let mut by_tenant: HashMap<String, Vec<AuditEntry>> = HashMap::new();
        for entry in batch {
            by_tenant.entry(entry.tenant.clone()).or_default().push(entry);
        }
        for (tenant, entries) in by_tenant {
            let count = entries.len() as u64;
            match self.append(place, &tenant, entries) {
                Ok(()) => changed.push(tenant),
                Err(error) => {
                    warn!(tenant, count, %error, "cannot write entries of the audit log; they are lost");
                    *self.lost.entry(tenant).or_default() += count;
                }
            }
        }
        if self.synced.is_none_or(|synced| synced.elapsed() >= SYNC) {
            self.sync();
        }
        changed
    }

    fn append(
        &mut self,
        place: &AuditDirectory,
        tenant: &str,
        entries: Vec<AuditEntry>,
    ) -> io::Result<()> {
        let mut all = Vec::with_capacity(entries.len() + 2);
        if !self.logs.contains_key(tenant) {
            let (log, repaired) = TenantLog::open(&place.of(tenant), place.keys(tenant))?;
            if repaired != log::Repaired::default() {
                let log::Repaired { torn_bytes, lost, no_head } = repaired;
                warn!(tenant, torn_bytes, lost, no_head, "repaired an incomplete audit log");
                let entry = AuditEntry::now(tenant, None, "audit.repaired");
                let entry = entry.with("torn_bytes", torn_bytes).with("lost", lost);
                all.push(entry.with("no_head", no_head));
            }
            self.logs.insert(tenant.to_owned(), log);
        }
        let Some(log) = self.logs.get_mut(tenant) else { return Ok(()) };
        if let Some(lost) = self.lost.get(tenant) {
            all.push(AuditEntry::now(tenant, None, "audit.lost").with("count", *lost));
        }
        all.extend(entries);
        if all.is_empty() {
            return Ok(());
        }
        log.append(&all)?;
        self.lost.remove(tenant);
        if !self.dirty.iter().any(|dirty| dirty == tenant) {
            self.dirty.push(tenant.to_owned());
        }
        Ok(())
    }

    fn sync(&mut self) {
        for tenant in std::mem::take(&mut self.dirty) {
            if let Some(Err(error)) = self.logs.get(&tenant).map(TenantLog::sync) {
                warn!(tenant, %error, "cannot sync the audit log");
            }
        }
        self.synced = Some(Instant::now());
    }
}
