//! The open connections of clients. When the limit is reached, idle connections make room for new
//! ones.
//!
//! A connection is *busy* while one of its requests holds a permit (see
//! [`crate::limits::limiter`]). There are fewer permits than connections, so some connection is
//! always idle: it has sent nothing yet, or its last request was answered. Connections that never
//! sent a request are closed first, then those that have been idle longest. A client without a key
//! can therefore not keep others out, however many connections it opens.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// When the limit is reached, this fraction (one in N) of the connections is closed at once, so
/// that a flood of new connections does not scan the list for each of them.
const CLOSED_FRACTION: usize = 32;
/// How long to wait for closed connections to end before more are closed.
const SLOT_WAIT: Duration = Duration::from_millis(50);

/// The open connections of clients, and the limit on them.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    slots: Arc<Semaphore>,
    began: Instant,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<ClientConnection>>>,
}

/// One connection. Its slot becomes free when the last clone is dropped: a WebSocket outlives the
/// HTTP that it began with.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    began: Instant,
    /// The number of requests that hold a permit.
    busy: AtomicUsize,
    /// Whether any request has arrived.
    has_sent_request: AtomicBool,
    /// When it was last used, in ms since `began`.
    used_ms: AtomicU64,
    close: Notify,
    _slot: OwnedSemaphorePermit,
}

/// Keeps a connection in the list while HTTP is spoken on it.
#[derive(Debug)]
pub(crate) struct RegisteredConnection {
    all: Arc<Connections>,
    id: u64,
    connection: Arc<ClientConnection>,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            slots: Arc::new(Semaphore::new(most)),
            began: Instant::now(),
            next: AtomicU64::new(0),
            open: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<ClientConnection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot for the next connection, and closes idle connections to get one.
    pub(crate) async fn acquire_slot(&self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
                return slot;
            }
            self.close_idle();
            let freed = timeout(SLOT_WAIT, Arc::clone(&self.slots).acquire_owned()).await;
            if let Ok(Ok(slot)) = freed {
                return slot;
            }
        }
    }

    /// Adds a connection to the list.
    pub(crate) fn register(self: &Arc<Self>, slot: OwnedSemaphorePermit) -> RegisteredConnection {
        let connection = Arc::new(ClientConnection {
            began: self.began,
            busy: AtomicUsize::new(0),
            has_sent_request: AtomicBool::new(false),
            used_ms: AtomicU64::new(ms(self.began)),
            close: Notify::new(),
            _slot: slot,
        });
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(id, Arc::clone(&connection));
        RegisteredConnection { all: Arc::clone(self), id, connection }
    }

    /// Asks the least important connections to close: see the order at the head of this module.
    fn close_idle(&self) {
        let open = self.lock();
        let idle = open.values().filter(|one| one.idle());
        let mut idle: Vec<_> = idle.map(|one| (one.close_order(), one)).collect();
        idle.sort_unstable_by_key(|(order, _)| *order);
        let most = (self.most / CLOSED_FRACTION).max(1);
        idle.iter().take(most).for_each(|(_, one)| one.close.notify_one());
    }

    pub(crate) fn count(&self) -> usize {
        self.most - self.slots.available_permits()
    }

    /// Waits until all connections have ended.
    pub(crate) async fn drained(&self) {
        let all = u32::try_from(self.most).unwrap_or(u32::MAX);
        let _ = self.slots.acquire_many(all).await;
    }
}

fn ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl ClientConnection {
    /// Records that a request has arrived.
    pub(crate) fn mark_request(&self) {
        self.has_sent_request.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_sent_request(&self) -> bool {
        self.has_sent_request.load(Ordering::Relaxed)
    }

    /// Keeps the connection open while the guard is held.
    pub(crate) fn busy(self: &Arc<Self>) -> BusyGuard {
        self.busy.fetch_add(1, Ordering::Relaxed);
        BusyGuard(Arc::clone(self))
    }

    fn idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    /// Connections are closed in ascending order.
    fn close_order(&self) -> (bool, u64) {
        (self.has_sent_request(), self.used_ms.load(Ordering::Relaxed))
    }

    /// Waits until the slot is needed for another connection while this one is idle. Cancel-safe.
    pub(crate) async fn close_requested(&self) {
        loop {
            self.close.notified().await;
            if self.idle() {
                return;
            }
        }
    }
}

/// A request is being answered.
#[derive(Debug)]
pub(crate) struct BusyGuard(Arc<ClientConnection>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.used_ms.store(ms(self.0.began), Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RegisteredConnection {
    pub(crate) fn connection(&self) -> &Arc<ClientConnection> {
        &self.connection
    }
}

impl Drop for RegisteredConnection {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills all slots; connections with even numbers have sent a request.
    async fn full(all: &Arc<Connections>, most: usize) -> Vec<RegisteredConnection> {
        let mut open = Vec::new();
        for n in 0..most {
            let registered = all.register(all.acquire_slot().await);
            if n % 2 == 0 {
                registered.connection().mark_request();
            }
            open.push(registered);
        }
        open
    }

    fn is_asked_to_close(registered: &RegisteredConnection) -> bool {
        let mut request = Box::pin(registered.connection().close_requested());
        futures_util::FutureExt::now_or_never(&mut request).is_some()
    }

    #[tokio::test]
    async fn t19_a_connection_that_sent_nothing_is_closed_first_and_a_busy_one_never() {
        let all = Connections::new(4);
        let mut open = full(&all, 4).await;
        let _busy = open[1].connection().busy();
        all.close_idle();
        assert_eq!(
            open.iter().map(is_asked_to_close).collect::<Vec<_>>(),
            [false, false, false, true]
        );
        drop(open.pop());
        assert_eq!((all.count(), all.lock().len()), (3, 3));
    }

    /// Promises: T20.
    #[tokio::test]
    async fn t19_a_new_connection_gets_the_place_of_an_idle_one() {
        let all = Connections::new(2);
        let mut open = full(&all, 2).await;
        let second = open.pop().unwrap();
        let closing = tokio::spawn(async move {
            second.connection().close_requested().await;
            drop(second);
        });
        let third = all.register(all.acquire_slot().await);
        closing.await.unwrap();
        let socket = third.connection().busy();
        drop((third, open));
        assert_eq!(all.count(), 1, "the socket keeps its place");
        drop(socket);
        all.drained().await;
    }
}
