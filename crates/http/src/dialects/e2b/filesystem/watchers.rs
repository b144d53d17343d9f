//! Watchers that clients poll. Each collects events in a task of its own, until it is removed, is no
//! longer polled, or its sandbox ends.

use crate::dialects::e2b::connect::{Code, RpcError};
use crate::dialects::e2b::filesystem::changes::{FilesystemEvent, lost};
use crate::dialects::e2b::filesystem::directory_watch::DirectoryWatch;
use crate::dialects::e2b::filesystem::held_events::{HeldEvents, SharedBudget};
use isolet_sandbox::{SandboxId, TenantId, ids};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

/// How many watchers one sandbox may have.
const OF_SANDBOX_MAX: usize = 32;
/// How many watchers the server has.
const WATCHERS_MAX: usize = 1024;
/// How many of them one tenant may have.
const OF_TENANT_MAX: usize = WATCHERS_MAX / 4;
/// How many events of a watcher wait to be polled. Of more, the client learns that it must read the
/// directory.
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
    /// What the events of all watchers take.
    budget: Arc<SharedBudget>,
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
    events: HeldEvents,
    is_incomplete: bool,
    polled_at: Instant,
}

impl Collected {
    /// Adds events, unless they are more than may wait. Those before them are of no use then either.
    fn push(&mut self, events: Vec<FilesystemEvent>) {
        if self.is_incomplete {
            return;
        }
        let fits = self.events.len() + events.len() <= EVENTS_MAX && self.events.push(events);
        if !fits {
            self.lose();
        }
    }

    /// The client must read the directory again.
    fn lose(&mut self) {
        self.events.take();
        self.is_incomplete = true;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchers {
    /// Checks that there is room for a watcher.
    pub(super) fn check(&self, owner: &WatcherOwner) -> Result<(), RpcError> {
        room(lock(&self.all).values().map(|entry| &entry.owner), owner)
    }

    /// Adds a watcher, and returns its id.
    pub(super) fn add(
        &self,
        owner: WatcherOwner,
        watcher: DirectoryWatch,
    ) -> Result<String, RpcError> {
        let id = ids::random();
        let events = HeldEvents::new(Arc::clone(&self.budget), owner.tenant.clone());
        let state = Collected { events, is_incomplete: false, polled_at: Instant::now() };
        let shared = Arc::new(Shared { state: Mutex::new(state), arrived: Notify::new() });
        let mut all = lock(&self.all);
        room(all.values().map(|entry| &entry.owner), &owner)?;
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
            state.events.len() == 0 && !state.is_incomplete
        };
        if is_empty {
            let _ = timeout(FRESH_WAIT, arrived).await;
        }
        let mut state = lock(&shared.state);
        if std::mem::take(&mut state.is_incomplete) {
            return Err(lost());
        }
        Ok(state.events.take())
    }

    /// Ends a watcher.
    pub(super) fn remove(&self, owner: &WatcherOwner, id: &str) -> Result<(), RpcError> {
        let mut all = lock(&self.all);
        find(&all, owner, id)?.task.abort();
        all.remove(id);
        Ok(())
    }
}

/// Checks that there is room for a watcher beside those of `owners`.
fn room<'a>(
    owners: impl Iterator<Item = &'a WatcherOwner>,
    owner: &WatcherOwner,
) -> Result<(), RpcError> {
    let mut all = 0;
    let mut of_tenant = 0;
    let mut of_sandbox = 0;
    for other in owners {
        all += 1;
        of_tenant += usize::from(other.tenant == owner.tenant);
        of_sandbox += usize::from(other == owner);
    }
    if of_sandbox >= OF_SANDBOX_MAX || of_tenant >= OF_TENANT_MAX || all >= WATCHERS_MAX {
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
            Some(events) => state.push(events),
            None => state.lose(),
        }
        drop(state);
        shared.arrived.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(tenant: &str, sandbox: &str) -> WatcherOwner {
        WatcherOwner {
            tenant: TenantId::parse(tenant).unwrap(),
            sandbox: SandboxId::parse(sandbox).unwrap(),
        }
    }

    #[test]
    fn a_tenant_has_at_most_a_quarter_of_the_places() {
        let mut owners = Vec::new();
        for number in 0..OF_TENANT_MAX {
            let new = owner("a", &format!("s{}", number / OF_SANDBOX_MAX));
            room(owners.iter(), &new).unwrap();
            owners.push(new);
        }
        assert!(room(owners.iter(), &owner("a", "another")).is_err());
        room(owners.iter(), &owner("b", "s0")).unwrap();
        let of_one = vec![owner("a", "s"); OF_SANDBOX_MAX];
        assert!(room(of_one.iter(), &owner("a", "s")).is_err());
        room(of_one.iter(), &owner("a", "t")).unwrap();
    }
}
