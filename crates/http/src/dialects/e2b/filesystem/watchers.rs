//! Watchers that clients poll. Each collects events in a task of its own, until it is removed, is no
//! longer polled, or its sandbox ends.

use crate::dialects::e2b::connect::{Code, RpcError};
use crate::dialects::e2b::filesystem::changes::{FilesystemEvent, lost};
use crate::dialects::e2b::filesystem::directory_watch::DirectoryWatch;
use isolet_sandbox::{SandboxId, TenantId, ids};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

/// How many watchers one sandbox may have.
const OF_SANDBOX_MAX: usize = 32;
/// How many watchers the server has: 40 MiB of events at most.
const WATCHERS_MAX: usize = 1024;
/// How many events wait to be polled. Of more, the client learns that it must read the directory.
const EVENTS_MAX: usize = 1024;
/// After this time without a poll a watcher ends.
const UNPOLLED: Duration = Duration::from_secs(10 * 60);
/// How long a poll waits for the events of changes that were made just before.
const FRESH_WAIT: Duration = Duration::from_millis(100);

/// Whose watcher it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatcherOwner {
    pub(crate) tenant: TenantId,
    pub(crate) sandbox: SandboxId,
}

/// All watchers of a server.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    all: Arc<Mutex<HashMap<String, Entry>>>,
}

#[derive(Debug)]
struct Entry {
    owner: WatcherOwner,
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<Collected>,
    arrived: Notify,
}

#[derive(Debug)]
struct Collected {
    events: Vec<FilesystemEvent>,
    is_incomplete: bool,
    polled_at: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchers {
    /// Checks that there is room for a watcher.
    pub(super) fn check(&self, owner: &WatcherOwner) -> Result<(), RpcError> {
        room(&lock(&self.all), owner)
    }

    /// Adds a watcher, and returns its id.
    pub(super) fn add(
        &self,
        owner: WatcherOwner,
        watcher: DirectoryWatch,
    ) -> Result<String, RpcError> {
        let id = ids::random();
        let state =
            Collected { events: Vec::new(), is_incomplete: false, polled_at: Instant::now() };
        let shared = Arc::new(Shared { state: Mutex::new(state), arrived: Notify::new() });
        let mut all = lock(&self.all);
        room(&all, &owner)?;
        let own = Arc::clone(&self.all);
        let collecting = Arc::clone(&shared);
        let name = id.clone();
        let task = tokio::spawn(async move {
            collect(watcher, &collecting).await;
            lock(&own).remove(&name);
        });
        all.insert(id.clone(), Entry { owner, shared, task: task.abort_handle() });
        Ok(id)
    }

    /// Takes the events since the last call.
    pub(super) async fn take(
        &self,
        owner: &WatcherOwner,
        id: &str,
    ) -> Result<Vec<FilesystemEvent>, RpcError> {
        let shared = Arc::clone(&find(&lock(&self.all), owner, id)?.shared);
        let arrived = shared.arrived.notified();
        let is_empty = {
            let mut state = lock(&shared.state);
            state.polled_at = Instant::now();
            state.events.is_empty() && !state.is_incomplete
        };
        if is_empty {
            let _ = timeout(FRESH_WAIT, arrived).await;
        }
        let mut state = lock(&shared.state);
        if std::mem::take(&mut state.is_incomplete) {
            state.events.clear();
            return Err(lost());
        }
        Ok(std::mem::take(&mut state.events))
    }

    /// Ends a watcher.
    pub(super) fn remove(&self, owner: &WatcherOwner, id: &str) -> Result<(), RpcError> {
        let mut all = lock(&self.all);
        find(&all, owner, id)?.task.abort();
        all.remove(id);
        Ok(())
    }
}

fn room(all: &HashMap<String, Entry>, owner: &WatcherOwner) -> Result<(), RpcError> {
    let own = all.values().filter(|entry| entry.owner == *owner).count();
    if own >= OF_SANDBOX_MAX || all.len() >= WATCHERS_MAX {
        let message = "there are too many watchers; remove one first";
        return Err(RpcError::new(Code::ResourceExhausted, message));
    }
    Ok(())
}

fn find<'a>(
    all: &'a HashMap<String, Entry>,
    owner: &WatcherOwner,
    id: &str,
) -> Result<&'a Entry, RpcError> {
    let found = all.get(id).filter(|entry| entry.owner == *owner);
    found
        .ok_or_else(|| RpcError::new(Code::NotFound, "there is no such watcher; it may have ended"))
}

/// Collects events until the watch ends or nobody polls them.
async fn collect(mut watcher: DirectoryWatch, shared: &Shared) {
    loop {
        let ends_at = lock(&shared.state).polled_at + UNPOLLED;
        let events = match timeout_at(ends_at, watcher.next()).await {
            Err(_) if lock(&shared.state).polled_at + UNPOLLED <= Instant::now() => return,
            Err(_) => continue,
            Ok(Ok(Some(events))) => Some(events),
            Ok(Err(error)) if error == lost() => None,
            Ok(Ok(None) | Err(_)) => return,
        };
        let mut state = lock(&shared.state);
        match events {
            Some(events) => state.events.extend(events),
            None => state.is_incomplete = true,
        }
        if state.events.len() > EVENTS_MAX {
            state.events.clear();
            state.is_incomplete = true;
        }
        drop(state);
        shared.arrived.notify_waiters();
    }
}
