//! The connections that are open. When there are as many as there may be, one that does nothing
//! makes room for the next.
//!
//! A connection is *busy* while a request of it holds a permit (see [`crate::limits::limiter`]). There are
//! fewer permits than connections, so some connection always idles: it was opened and has said
//! nothing yet, or its last request was answered. Those that never sent a request are closed first,
//! then those that idle longest. A client without a key can therefore not keep others out, however
//! many connections it opens.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Of all connections, one in so many is closed at once when room is needed, so that a flood of
/// new ones does not look through all of them each time.
const CLOSED_SHARE: usize = 32;
/// How long to wait for the end of those that were closed before more are.
const ROOM_WAIT: Duration = Duration::from_millis(50);

/// All of them.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    room: Arc<Semaphore>,
    began: Instant,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
}

/// One of them. Its place is free again when the last clone is dropped: a socket outlives the HTTP
/// that it began with.
#[derive(Debug)]
pub(crate) struct Connection {
    began: Instant,
    /// Requests that hold a permit.
    busy: AtomicUsize,
    /// A request has come.
    spoke: AtomicBool,
    /// When it was last used, in ms since `began`.
    used_ms: AtomicU64,
    close: Notify,
    _room: OwnedSemaphorePermit,
}

/// Listed as long as HTTP is spoken on it.
#[derive(Debug)]
pub(crate) struct Listed {
    all: Arc<Connections>,
    id: u64,
    connection: Arc<Connection>,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            room: Arc::new(Semaphore::new(most)),
            began: Instant::now(),
            next: AtomicU64::new(0),
            open: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the next connection; waits for one, and has idle ones closed meanwhile.
    pub(crate) async fn room(&self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(room) = Arc::clone(&self.room).try_acquire_owned() {
                return room;
            }
            self.close_idle();
            let freed = timeout(ROOM_WAIT, Arc::clone(&self.room).acquire_owned()).await;
            if let Ok(Ok(room)) = freed {
                return room;
            }
        }
    }

    /// Lists a connection in its place.
    pub(crate) fn add(self: &Arc<Self>, room: OwnedSemaphorePermit) -> Listed {
        let connection = Arc::new(Connection {
            began: self.began,
            busy: AtomicUsize::new(0),
            spoke: AtomicBool::new(false),
            used_ms: AtomicU64::new(ms(self.began)),
            close: Notify::new(),
            _room: room,
        });
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(id, Arc::clone(&connection));
        Listed { all: Arc::clone(self), id, connection }
    }

    /// Tells those to close that are needed least.
    fn close_idle(&self) {
        let open = self.lock();
        let idle = open.values().filter(|one| one.idle());
        let mut idle: Vec<_> = idle.map(|one| (one.needed(), one)).collect();
        idle.sort_unstable_by_key(|(needed, _)| *needed);
        let most = (self.most / CLOSED_SHARE).max(1);
        idle.iter().take(most).for_each(|(_, one)| one.close.notify_one());
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.most - self.room.available_permits()
    }

    /// Waits until there is none.
    pub(crate) async fn ended(&self) {
        let all = u32::try_from(self.most).unwrap_or(u32::MAX);
        let _ = self.room.acquire_many(all).await;
    }
}

fn ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Connection {
    /// A request has come.
    pub(crate) fn spoke(&self) {
        self.spoke.store(true, Ordering::Relaxed);
    }

    /// Whether any request has come.
    pub(crate) fn has_spoken(&self) -> bool {
        self.spoke.load(Ordering::Relaxed)
    }

    /// Keeps it open while this is held.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    fn idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    /// Small numbers are closed first.
    fn needed(&self) -> (bool, u64) {
        (self.has_spoken(), self.used_ms.load(Ordering::Relaxed))
    }

    /// Waits until its place is needed for another, and it idles. Cancel-safe.
    pub(crate) async fn unneeded(&self) {
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
pub(crate) struct Busy(Arc<Connection>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.used_ms.store(ms(self.0.began), Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Listed {
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills all places; those at even numbers have sent a request.
    async fn full(all: &Arc<Connections>, most: usize) -> Vec<Listed> {
        let mut open = Vec::new();
        for n in 0..most {
            let listed = all.add(all.room().await);
            if n % 2 == 0 {
                listed.connection().spoke();
            }
            open.push(listed);
        }
        open
    }

    fn told(listed: &Listed) -> bool {
        let mut told = Box::pin(listed.connection().unneeded());
        futures_util::FutureExt::now_or_never(&mut told).is_some()
    }

    #[tokio::test]
    async fn t19_the_one_that_never_spoke_makes_room_first_and_a_busy_one_never() {
        let all = Connections::new(4);
        let mut open = full(&all, 4).await;
        let _busy = open[1].connection().busy();
        all.close_idle();
        assert_eq!(open.iter().map(told).collect::<Vec<_>>(), [false, false, false, true]);
        drop(open.pop());
        assert_eq!((all.count(), all.lock().len()), (3, 3));
    }

    #[tokio::test]
    async fn t19_a_new_connection_gets_the_place_of_an_idle_one() {
        let all = Connections::new(2);
        let mut open = full(&all, 2).await;
        let second = open.pop().unwrap();
        let closing = tokio::spawn(async move {
            second.connection().unneeded().await;
            drop(second);
        });
        let third = all.add(all.room().await);
        closing.await.unwrap();
        let socket = third.connection().busy();
        drop((third, open));
        assert_eq!(all.count(), 1, "the socket keeps its place");
        drop(socket);
        all.ended().await;
    }
}
