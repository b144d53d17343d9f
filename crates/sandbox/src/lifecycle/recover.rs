//! The start of a server: compares the records with what exists on the machine.
//!
//! | record | found | result |
//! |---|---|---|
//! | running, unreachable | agent answers | reattached |
//! | running, unreachable | agent is silent | unreachable; the server keeps retrying |
//! | running, unreachable | agent of an unsupported version | unreachable; the server keeps retrying |
//! | running, unreachable | no agent, but cgroups | failed and killed; the disk is kept |
//! | running, unreachable | no cgroups, because the host was rebooted | sleeping |
//! | paused | all processes are frozen | paused |
//! | paused | some process is not frozen | reattached, and paused again |
//! | paused | no processes, but cgroups | failed and killed; the disk is kept |
//! | paused | no cgroups, because the host was rebooted | sleeping |
//! | running, unreachable, paused | suspended: another node may own it | left frozen, until the lease guard lets it continue |
//! | sleeping | anything | sleeping and killed; a persistent sandbox keeps its disk |
//! | failed | anything | failed |
//! | creating, destroying | anything | killed and removed |
//! | of a fork that is not complete | anything | killed and removed |
//! | none | directory | killed; removed if no client used it, otherwise moved to `orphaned/` |
//!
//! Before that, the data directory tells whether its last server ran on this machine and in this
//! boot ([`isolet_jail::identity`]). After a reboot, or if the directory is a copy, none of its
//! sandboxes is running.
//!
//! A kill may interrupt every row, and each step can be repeated.

mod suspended;
mod unfinished;

use crate::agent_client::pool::Watched;
use crate::lifecycle::driver::reading::crashed;
use crate::lifecycle::driver::{AgentWatch, Begin, watch};
use crate::lifecycle::recover::unfinished::{sweep_restores, undo_forks};
use crate::live::disk_quota::DiskQuotas;
use crate::live::egress::Egress;
use crate::live::entry::{SandboxEntry, secret_store};
use crate::live::failpoint::pass;
use crate::live::inner::Inner;
use crate::live::launch_queue::Launch;
use crate::live::launch_queue::lease_guard::Guard;
use crate::live::launch_queue::permits::Ownership;
use crate::live::orphans;
use crate::live::registry::Registry;
use crate::live::snapshot_store::SnapshotStore;
use crate::live::snapshots::Snapshots;
use crate::live::space::Space;
use crate::model::agent_error::AgentError;
use crate::model::command::DriverCommand;
use crate::model::config::Config;
use crate::model::error::{Error, OpenError};
use crate::model::ids::{SandboxId, SessionId};
use crate::model::record::snapshot_layers::LayerStack;
use crate::model::record::{Record, View};
use crate::model::state::{State, Transition};
use isolet_jail::SandboxHandle;
use isolet_jail::identity::{self, Identity, Origin};
use isolet_metrics::Metrics;
use isolet_store::Store;
use isolet_store::audit::Audit;
use isolet_store::check_or_write_format;
use isolet_store::keys::Keys;
use rustix::fs::FlockOperation;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tracing::{info, warn};

/// The file that marks a directory whose restore is not complete.
const RESTORING: &str = "restore-incomplete";
/// The mode of directories that hold files of tenants.
const PRIVATE_MODE: u32 = 0o700;
/// How long an ending server may take to release the data directory.
const RELEASE_WAIT: Duration = Duration::from_secs(1);
/// Pause between two attempts to lock the data directory.
const RELEASE_LOOK: Duration = Duration::from_millis(10);

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Fault(error.to_string())
    }
}

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.display().to_string();
    |source| OpenError::Io { path, source }
}

/// Locks a data directory. The kernel releases the lock when this process ends in any way. Waits up
/// to `wait` for a server that is just ending. Blocks.
///
/// # Errors
/// [`OpenError::Held`], [`OpenError::Io`].
pub fn lock(data: &Path, wait: Duration) -> Result<fs::File, OpenError> {
    let path = data.join("lock");
    let open = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    let mut file = open.map_err(at(&path))?;
    let until = Instant::now() + wait;
    while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= until {
            let mut holder = String::new();
            let _ = (&file).take(32).read_to_string(&mut holder);
            let path = path.display().to_string();
            return Err(OpenError::Held { path, holder: holder.trim().to_owned() });
        }
        std::thread::sleep(RELEASE_LOOK);
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(at(&path))?;
    writeln!(file, "{}", std::process::id()).map_err(at(&path))?;
    Ok(file)
}

/// Creates a directory of files of tenants, and closes it to users of the host, also if it exists: on
/// disk the files have ids of the host, and programs may have set-user-id bits.
fn close(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(PRIVATE_MODE).create(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(PRIVATE_MODE))
}

/// What the blocking part of a start has opened.
struct OpenedServer {
    /// With the cgroup that the data directory's identity names.
    config: Config,
    origin: Origin,
    lock: fs::File,
    store: Store,
    keys: Keys,
    audit: Audit,
    launch: Launch,
    /// The lease guard of a node of a fleet.
    guard: Option<Arc<Guard>>,
    metrics: Arc<Metrics>,
}

/// The blocking part of a start: format, directories, lock, store, identity, launcher.
fn prepare(mut config: Config) -> Result<OpenedServer, OpenError> {
    let data = config.data_dir.clone();
    check_or_write_format(&data)?;
    let lock = lock(&data, RELEASE_WAIT)?;
    for path in [data.join("sandboxes"), data.join("trash")] {
        close(&path).map_err(at(&path))?;
    }
    let incomplete = data.join(RESTORING);
    if incomplete.try_exists().map_err(at(&incomplete))? {
        return Err(OpenError::Restoring(data.display().to_string()));
    }
    let file = data.join("isolet.db");
    if identity::is_copy(&data).map_err(at(&data))? {
        Store::check(&file)?;
    }
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
    let store = Store::open(&file)?.with_metrics(metrics.store.clone());
    let keys = Keys::open(&file)?;
    let audit = Audit::open(&data)?;
    let Identity { origin, cgroup, foreign } =
        identity::adopt(&config.jail()).map_err(at(&data))?;
    config.cgroup = cgroup;
    match origin {
        Origin::Copied => info!(
            foreign,
            "this data directory is a copy, or was restored: its sandboxes are asleep, and those of the original are not touched"
        ),
        _ if foreign > 0 => {
            warn!(foreign, "sandboxes of another data directory are running; they are left alone");
        }
        _ => {}
    }
    let guard = match config.fleet {
        None => None,
        Some(_) => Some(Guard::start(config.jail()).map(Arc::new).map_err(|error| {
            OpenError::Launcher(format!("cannot start the lease guard: {error}"))
        })?),
    };
    let launch = Launch::start(config.jail(), metrics.restarts.launcher.clone(), guard.clone())
        .map_err(OpenError::Launcher)?;
    Ok(OpenedServer { config, origin, lock, store, keys, audit, launch, guard, metrics })
}

/// What the store contains.
struct StoredRecords {
    records: Vec<Record>,
    sessions: HashMap<String, Vec<(SessionId, String)>>,
    /// Names of all records, readable or not; `None` if the names could not be read.
    names: Option<HashSet<String>>,
    /// Whether a record was skipped because it is invalid.
    skipped: bool,
    /// Sandboxes that must not continue, because another node may own them.
    suspended: HashSet<String>,
}

async fn records(config: &Config, store: &Store) -> Result<StoredRecords, OpenError> {
    let (rows, bad) = store.sandboxes().await?;
    let mut names = Some(rows.iter().map(|row| row.name.clone()).collect::<HashSet<_>>());
    for error in &bad {
        warn!(
            error,
            "the record of a sandbox does not read; it and what has no record stay as they are"
        );
        names = None;
    }
    let mut records = Vec::with_capacity(rows.len());
    let mut skipped = false;
    for row in rows {
        let name = row.name.clone();
        match Record::read(config, row) {
            Ok(record) => records.push(record),
            Err(error) => {
                warn!(sandbox = %name, error, "record with invalid ids skipped");
                skipped = true;
            }
        }
    }
    let mut sessions: HashMap<String, Vec<(SessionId, String)>> = HashMap::new();
    for row in store.sessions().await?.0 {
        if let Ok(id) = SessionId::parse(&row.id) {
            sessions.entry(row.sandbox).or_default().push((id, row.body));
        }
    }
    Ok(StoredRecords { records, sessions, names, skipped, suspended: HashSet::new() })
}

/// Starts a server on a data directory.
pub(crate) async fn open(config: Config) -> Result<Arc<Inner>, OpenError> {
    let prepared = tokio::task::spawn_blocking(move || prepare(config)).await;
    let OpenedServer { config, origin, lock, store, keys, audit, launch, guard, metrics } =
        prepared.map_err(|error| OpenError::Fault(error.to_string()))??;
    let mut found = records(&config, &store).await?;
    pass("recover.listed").await?;
    let all_known = found.names.is_some() && !found.skipped;
    if let Some(names) = found.names.take() {
        sweep(&config.jail(), names).await;
    }
    sweep_restores(&config, &found.records).await;
    found.suspended = suspended::find(&store, guard.as_ref(), &found.records).await?;
    let slots: Vec<u32> = found.records.iter().map(|record| record.slot).collect();
    let images = config.images.clone();
    let floor = config.free_space_floor_mib;
    let image_metrics = metrics.images.clone();
    let images = tokio::task::spawn_blocking(move || {
        let limits = isolet_image::Limits { floor_mib: floor, ..images.limits };
        isolet_image::Images::open(isolet_image::Config { limits, ..images }, image_metrics)
    });
    let images = images.await.map_err(|error| OpenError::Fault(error.to_string()))?;
    let images = images.map_err(|error| OpenError::Fault(error.to_string()))?;
    let (snapshots, forks) =
        Snapshots::open(&config, &store, &mut found.records, all_known).await?;
    undo_forks(&store, &mut found.records, forks).await;
    let inner = Arc::new(Inner {
        images,
        snapshots,
        snapshot_store: Arc::new(SnapshotStore::new(config.store.clone())),
        space: Arc::new(Space::new(&config)),
        quotas: Arc::new(DiskQuotas::new(&config)),
        egress: Egress::new(&config),
        jail: config.jail(),
        config,
        store,
        keys,
        audit,
        launch,
        registry: Registry::new(&slots),
        ownership: Ownership::new(guard),
        ready: crate::live::warm_pool::pool::WarmPool::default(),
        idempotency: crate::live::idempotency::IdempotencyStore::default(),
        watched: Arc::new(Watched::default()),
        events: crate::model::events::Events::default(),
        trash: Arc::new(Notify::new()),
        metrics,
        journal_memory: crate::live::entry::file_journals::JournalMemory::default(),
        stopping: false.into(),
        tasks: Mutex::default(),
        _lock: lock,
    });
    attach(&inner, found, origin).await;
    pass("recover.attached").await?;
    inner.spawn(empty(inner.jail.clone(), Arc::clone(&inner.trash)));
    if inner.launch.missing().is_empty() {
        inner.spawn(crate::live::warm_pool::keep(Arc::clone(&inner)));
    }
    let watched = Arc::clone(&inner.watched);
    inner.spawn(async move { watched.run().await });
    inner.spawn(crate::live::egress::keep(Arc::clone(&inner)));
    Ok(inner)
}

/// Ends sandboxes without a record. This comes before any creation, because such a sandbox may
/// occupy a free uid range.
async fn sweep(jail: &isolet_jail::Config, names: HashSet<String>) {
    let Ok(entries) = fs_names(jail).await else { return };
    let mut work = JoinSet::new();
    for name in entries.into_iter().filter(|name| !names.contains(name)) {
        let jail = jail.clone();
        work.spawn_blocking(move || orphans::end(&jail, &name));
    }
    while work.join_next().await.is_some() {}
    let data = jail.data_dir.clone();
    let swept = crate::model::blocking::blocking(move || {
        for name in &names {
            let _ = orphans::unmark(&data.join("sandboxes").join(name));
        }
        secret_store::sweep(&data, &names)
    });
    match swept.await {
        Ok(Ok(())) => {}
        done => warn!(?done, "credentials of deleted sandboxes are not removed yet"),
    }
}

async fn fs_names(jail: &isolet_jail::Config) -> Result<Vec<String>, Error> {
    let path = jail.data_dir.join("sandboxes");
    let names = crate::model::blocking::blocking(move || -> io::Result<Vec<String>> {
        fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    });
    names.await?.map_err(|error| Error::Fault(error.to_string()))
}

/// Reconnects to all agents at once, within one timeout for all.
async fn attach(inner: &Arc<Inner>, mut found: StoredRecords, origin: Origin) {
    let sandboxes = inner.jail.data_dir.join("sandboxes");
    let mut tries: JoinSet<(Arc<SandboxEntry>, Result<AgentWatch, AgentError>)> = JoinSet::new();
    for mut record in found.records {
        let state = record.state;
        let sessions = found.sessions.remove(&record.name).unwrap_or_default();
        let found_paused = Paused::find(inner, &record);
        let is_suspended = found.suspended.contains(&record.name);
        let stays_frozen = is_suspended
            && state.has_processes()
            && SandboxHandle::open(&inner.jail, &record.name).populated();
        match state {
            State::Creating => record.state = State::Destroying,
            State::Unreachable => {
                record.state = State::Running;
                record.body.cause = None;
            }
            State::Paused if found_paused == Paused::Partly && !stays_frozen => {
                record.state = State::Running;
            }
            _ => {}
        }
        let entry = SandboxEntry::new(record, &sandboxes, sessions, &inner.watched, &inner.metrics);
        entry.set_suspended(is_suspended);
        inner.registry.insert(&entry);
        match state {
            _ if stays_frozen => inner.drive(entry, Begin::Frozen),
            State::Paused if found_paused == Paused::Frozen => inner.drive(entry, Begin::Frozen),
            State::Paused if found_paused == Paused::Gone => absent(inner, entry, origin),
            State::Running | State::Unreachable | State::Paused => {
                // A server that was killed during a backup leaves the sandbox frozen.
                let _ = SandboxHandle::open(&inner.jail, &entry.name).freeze(false);
                let wait = inner.config.recover;
                if state == State::Paused {
                    // The driver answers commands in order, and nobody waits for this one.
                    let pause = DriverCommand::Pause(oneshot::channel().0);
                    let _ = entry.commands.try_send(pause);
                }
                tries.spawn(async move {
                    let found = watch(&entry, wait).await;
                    (entry, found)
                });
            }
            State::Failed => inner.drive(entry, Begin::Failed),
            State::Sleeping => {
                entry.activity.close();
                inner.drive(entry, Begin::Asleep);
            }
            State::Creating | State::Destroying | State::Destroyed => {
                inner.drive(entry, Begin::Broken)
            }
        }
    }
    while let Some(tried) = tries.join_next().await {
        match tried {
            Ok((entry, Ok(found))) => {
                reached(&entry, found.version());
                inner.drive(entry, Begin::Attached(found));
            }
            Ok((entry, Err(error))) if error.is_unsupported() => {
                let cause = format!("{error}; it keeps running, and nothing of it was changed");
                lost(inner, entry, Transition::Silent, &cause);
            }
            Ok((entry, Err(AgentError::Silent))) => {
                lost(inner, entry, Transition::Silent, "agent does not answer")
            }
            Ok((entry, Err(error))) => {
                info!(sandbox = %entry.id, tenant = %entry.tenant, %error, "its agent is gone");
                absent(inner, entry, origin);
            }
            Err(error) => warn!(%error, "task that finds a sandbox failed"),
        }
    }
}

/// What runs of a sandbox whose record says `paused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paused {
    /// Its record says something else.
    Not,
    /// All its processes are frozen.
    Frozen,
    /// The server was killed between the record and the freeze.
    Partly,
    /// No process is left.
    Gone,
}

impl Paused {
    fn find(inner: &Inner, record: &Record) -> Self {
        if record.state != State::Paused {
            return Self::Not;
        }
        let handle = SandboxHandle::open(&inner.jail, &record.name);
        match handle.is_frozen() {
            _ if !handle.populated() => Self::Gone,
            Ok(true) => Self::Frozen,
            _ => Self::Partly,
        }
    }
}

/// The agent of a sandbox is gone: with its host, or alone.
fn absent(inner: &Arc<Inner>, entry: Arc<SandboxEntry>, origin: Origin) {
    if !rebooted(inner, &entry) {
        return lost(inner, entry, Transition::Died, "agent is gone");
    }
    let cause = match origin {
        Origin::Copied => "its data directory is a copy",
        _ => "the host was restarted",
    };
    lost(inner, entry, Transition::Rebooted, cause);
}

/// Publishes the version of an agent before clients can see the sandbox.
fn reached(entry: &SandboxEntry, version: u16) {
    if version < isolet_wire::VERSION {
        info!(sandbox = %entry.id, tenant = %entry.tenant, version, "agent of an earlier version");
    }
    let publish = |view: &mut View| {
        Arc::make_mut(&mut view.record).agent_version = Some(version);
    };
    entry.view.send_modify(publish);
}

/// Whether the sandbox ended with its host, so that not even its cgroups exist, and can be launched
/// again.
fn rebooted(inner: &Inner, entry: &SandboxEntry) -> bool {
    let there = fs::symlink_metadata(&entry.directory).is_ok_and(|found| found.is_dir());
    let persistent = entry.view().record.body.persistent;
    (there || !persistent) && !SandboxHandle::open(&inner.jail, &entry.name).has_cgroups()
}

/// Publishes the new state before clients can see the sandbox. The sandbox's driver records it.
pub(crate) fn lost(inner: &Arc<Inner>, entry: Arc<SandboxEntry>, event: Transition, cause: &str) {
    let lost = &inner.metrics.agents_lost;
    match event {
        Transition::Silent => _ = lost.silent.inc(),
        Transition::Died => _ = lost.ended.inc(),
        _ => {}
    }
    let mut record = (*entry.view().record).clone();
    let was = record.state;
    // It is unknown when the host ended.
    if event != Transition::Rebooted {
        record.rest();
    }
    record.state = was.next(event).unwrap_or(State::Failed);
    let state = record.state;
    if state == State::Sleeping {
        record.body.lost = Some(crashed(&entry, record.body.persistent));
        if !record.body.persistent && record.body.restore.is_none() {
            // Its files are removed, also those in layers.
            record.body.layers = LayerStack::default();
        }
        entry.activity.close();
    } else {
        record.body.cause = Some(cause.to_owned());
    }
    let id: &SandboxId = &entry.id;
    warn!(sandbox = %id, tenant = %entry.tenant, cause, state = state.word(), "not found after a restart");
    inner.moved(&entry, was, state, record.body.cause.as_ref());
    entry.view.send_replace(View { record: Arc::new(record), end: None });
    inner.drive(entry, Begin::Lost);
}

/// Deletes the contents of the trash whenever something was moved there.
async fn empty(jail: isolet_jail::Config, more: Arc<Notify>) {
    loop {
        let config = jail.clone();
        if let Ok(Err(error)) =
            crate::model::blocking::blocking(move || isolet_jail::empty_trash(&config)).await
        {
            warn!(%error, "trash is not empty yet");
        }
        more.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_and_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path(), Duration::ZERO).unwrap();
        let Err(OpenError::Held { path, holder }) = lock(dir.path(), Duration::ZERO) else {
            panic!("taken twice")
        };
        assert!(path.ends_with("lock"));
        assert_eq!(holder, std::process::id().to_string());
        drop(held);
        // The file of a killed server does not matter, because the kernel has released its lock.
        fs::write(dir.path().join("lock"), "999999999\n").unwrap();
        let _again = lock(dir.path(), Duration::ZERO).unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join("lock")).unwrap(),
            format!("{}\n", std::process::id())
        );
    }
}
