//! The events of a tenant's sandboxes, in order, for the clients that follow them.
//!
//! There is one ring per tenant, and a reader has only its position in it. A reader that falls
//! behind the ring is disconnected with an error, and never costs memory. Ids grow by one within a
//! tenant. A server begins at the microseconds of its start, so that ids of an earlier one are
//! lower.

pub(crate) mod follow;

pub use follow::{Follow, Gap, TooSlow};

use crate::model::{
    clock::now_ms,
    ids::{ProcessId, SandboxId, SessionId, TenantId},
    network::Mode,
};
use isolet_wire::network::Refused;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Notify, watch};

/// Events that are held for one tenant.
pub const EVENTS_MAX: usize = 4096;

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// It was made.
    Created,
    /// It takes work, for the first time or again.
    Running,
    /// Its agent does not answer; nothing of it was killed.
    Unreachable {
        /// In words.
        cause: String,
    },
    /// It fell asleep.
    Sleeping,
    /// It woke up.
    Woke,
    /// It ended by a fault.
    Failed {
        /// In words.
        cause: String,
    },
    /// It was ended and removed; its last event.
    Destroyed,
    /// A session was made.
    SessionCreated(SessionId),
    /// A session was ended.
    SessionDeleted(SessionId),
    /// A command or program has begun.
    CommandStarted(Command),
    /// It has ended.
    CommandExited {
        /// Which.
        command: Command,
        /// Its exit code; `None`: it could not begin, or its client went away and it was killed.
        code: Option<i32>,
    },
    /// Something listens on a port. Seen only while somebody follows.
    PortOpened(u16),
    /// Nothing listens on it any more. Likewise.
    PortClosed(u16),
    /// A process was started in the background.
    ProcessStarted {
        /// Which.
        process: ProcessId,
        /// The session that it was started in.
        session: Option<SessionId>,
    },
    /// It has ended. Where it ends by itself, seen only while somebody follows.
    ProcessExited {
        /// Which.
        process: ProcessId,
        /// The session that it was started in.
        session: Option<SessionId>,
        /// How; `None`: it was lost or forgotten.
        exit: Option<Exit>,
    },
    /// A session's terminal was opened.
    TerminalOpened(SessionId),
    /// It has ended. Seen only while somebody follows.
    TerminalEnded(SessionId),
    /// Its network was changed to this kind.
    NetworkChanged(Mode),
    /// Something in it was refused: at most ten events a second, whatever it tries.
    NetworkDenied(Refused),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; 128 and the signal where one ended it.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// A command of a shell, or a program without one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// Its session; `None` for a private shell, and for a program outside of sessions.
    pub session: Option<Arc<str>>,
    /// The client's name for it, or the server's; empty for a program.
    pub id: String,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its place in the tenant's order.
    pub id: u64,
    /// Milliseconds since 1970, by the wall clock: for people, not for order.
    pub at_ms: i64,
    /// Whose.
    pub sandbox: SandboxId,
    /// The server's own name of that life of it.
    pub incarnation: Arc<str>,
    /// What.
    pub what: Happened,
}

/// All rings. A ring stays as long as the server: there are as many as tenants that ever worked.
#[derive(Debug)]
pub(crate) struct Events {
    first: u64,
    logs: Mutex<HashMap<TenantId, Arc<Log>>>,
    /// Somebody has begun to follow.
    more: Arc<Notify>,
}

/// One tenant's.
#[derive(Debug)]
pub(crate) struct Log {
    ring: Mutex<Ring>,
    followers: Mutex<Followers>,
    more: Arc<Notify>,
    /// The next event's id, for who waits.
    next: watch::Sender<u64>,
}

/// How many follow one sandbox each, or (`None`) all.
type Followers = HashMap<Option<SandboxId>, usize>;

/// Which sandboxes of a tenant are followed; `None`: all.
pub(crate) type Followed = (TenantId, Option<Vec<SandboxId>>);

#[derive(Debug)]
struct Ring {
    held: VecDeque<Arc<Event>>,
    next: u64,
}

impl Ring {
    /// The first id that can still be had.
    fn first(&self) -> u64 {
        self.next - self.held.len() as u64
    }
}

impl Default for Events {
    fn default() -> Self {
        let first = u64::try_from(now_ms()).unwrap_or(0).saturating_mul(1000).max(1);
        Self { first, logs: Mutex::default(), more: Arc::default() }
    }
}

impl Events {
    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<Log> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = logs.get(tenant) {
            return Arc::clone(log);
        }
        let ring = Mutex::new(Ring { held: VecDeque::new(), next: self.first });
        let followers = Mutex::default();
        let more = Arc::clone(&self.more);
        let log = Arc::new(Log { ring, followers, more, next: watch::Sender::new(self.first) });
        logs.insert(tenant.clone(), Arc::clone(&log));
        log
    }

    /// Who is followed now.
    pub(crate) fn followed(&self) -> Vec<Followed> {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let all = logs.iter().map(|(tenant, log)| (tenant, log.followers()));
        let some = all.filter(|(_, followers)| !followers.is_empty());
        let which = |followers: &Followers| followers.keys().cloned().collect();
        some.map(|(tenant, followers)| (tenant.clone(), which(&followers))).collect()
    }

    /// Ends once somebody has begun to follow; a permit of earlier only makes it end at once.
    pub(crate) async fn somebody(&self) {
        self.more.notified().await;
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn followers(&self) -> MutexGuard<'_, Followers> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn say(&self, sandbox: &SandboxId, incarnation: &Arc<str>, what: Happened) {
        let at_ms = now_ms();
        let mut ring = self.lock();
        if ring.held.len() >= EVENTS_MAX {
            ring.held.pop_front();
        }
        let sandbox = sandbox.clone();
        let incarnation = Arc::clone(incarnation);
        let event = Event { id: ring.next, at_ms, sandbox, incarnation, what };
        ring.held.push_back(Arc::new(event));
        ring.next += 1;
        // Within the lock: readers never see an id that is not there.
        self.next.send_replace(ring.next);
    }
}

/// Tells of the commands of one connection.
#[derive(Debug)]
pub(crate) struct EventEmitter {
    pub(crate) log: Arc<Log>,
    pub(crate) sandbox: SandboxId,
    pub(crate) incarnation: Arc<str>,
    pub(crate) session: Option<Arc<str>>,
}

impl EventEmitter {
    fn command(&self, id: &str) -> Command {
        Command { session: self.session.clone(), id: id.to_owned() }
    }

    pub(crate) fn started(&self, id: &str) {
        self.say(Happened::CommandStarted(self.command(id)));
    }

    pub(crate) fn exited(&self, id: &str, code: Option<i32>) {
        self.say(Happened::CommandExited { command: self.command(id), code });
    }

    pub(crate) fn say(&self, what: Happened) {
        self.log.say(&self.sandbox, &self.incarnation, what);
    }
}

/// A program that runs: told of when it begins, and when it ends or is let go.
#[derive(Debug)]
pub(crate) struct CommandEvents {
    teller: EventEmitter,
    code: Option<i32>,
}

impl CommandEvents {
    pub(crate) fn new(teller: EventEmitter) -> Self {
        teller.started("");
        Self { teller, code: None }
    }

    pub(crate) fn exited(mut self, code: i32) {
        self.code = Some(code);
    }
}

impl Drop for CommandEvents {
    fn drop(&mut self) {
        self.teller.exited("", self.code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::events::follow::{Follow, Gap, TooSlow};

    fn log() -> (Arc<Log>, SandboxId) {
        let events = Events { first: 100, logs: Mutex::default(), more: Arc::default() };
        (events.of(&TenantId::default_tenant()), SandboxId::parse("box").unwrap())
    }

    fn life() -> Arc<str> {
        Arc::from("a-life")
    }

    async fn ids(follow: &mut Follow) -> Vec<u64> {
        follow.next().await.unwrap().iter().map(|event| event.id).collect()
    }

    #[tokio::test]
    async fn a_reader_that_comes_back_goes_on_behind_its_last_event() {
        let (log, sandbox) = log();
        (0..3).for_each(|_| log.say(&sandbox, &life(), Happened::Running));
        let follow = |last| Follow::new(Arc::clone(&log), None, last);
        let (mut back, gap) = follow(Some(100));
        assert_eq!((ids(&mut back).await, gap), (vec![101, 102], None));
        let (mut all, gap) = follow(Some(0));
        assert_eq!(
            (ids(&mut all).await, gap),
            (vec![100, 101, 102], Some(Gap { from: 1, to: 100 }))
        );
        let (mut ahead, gap) = follow(Some(5000));
        assert_eq!(gap, Some(Gap { from: 0, to: 100 }), "all before is unknown");
        assert_eq!(ids(&mut ahead).await.len(), 3);
        let (mut fresh, gap) = follow(None);
        log.say(&sandbox, &life(), Happened::Sleeping);
        assert_eq!((ids(&mut fresh).await, gap), (vec![103], None));
        assert!(follow(Some(u64::MAX - 1)).1.is_some());
    }

    /// Promises: L9.
    #[tokio::test]
    async fn a_slow_reader_is_cut_and_nothing_grows() {
        let (log, sandbox) = log();
        let (mut slow, _) = Follow::new(Arc::clone(&log), None, None);
        (0..=EVENTS_MAX).for_each(|_| log.say(&sandbox, &life(), Happened::Running));
        assert_eq!(log.lock().held.len(), EVENTS_MAX);
        assert_eq!(slow.next().await, Err(TooSlow(Gap { from: 100, to: 101 })));
    }

    #[tokio::test]
    async fn a_reader_of_one_sandbox_sees_no_other() {
        let (log, sandbox) = log();
        let other = SandboxId::parse("other").unwrap();
        let others: Arc<str> = Arc::from("another-life");
        let (mut one, _) =
            Follow::new(Arc::clone(&log), Some((other.clone(), Arc::clone(&others))), None);
        (0..1000).for_each(|_| log.say(&sandbox, &life(), Happened::Running));
        log.say(&other, &others, Happened::Sleeping);
        assert_eq!(ids(&mut one).await, [1100]);
    }

    /// Promises: E49.
    #[tokio::test]
    async fn e49_a_reader_of_one_sandbox_sees_no_earlier_one_of_its_id() {
        let (log, sandbox) = log();
        log.say(&sandbox, &life(), Happened::Created);
        log.say(&sandbox, &life(), Happened::Destroyed);
        let next: Arc<str> = Arc::from("the-next");
        let (mut one, _) =
            Follow::new(Arc::clone(&log), Some((sandbox.clone(), Arc::clone(&next))), Some(0));
        log.say(&sandbox, &next, Happened::Created);
        log.say(&sandbox, &life(), Happened::SessionDeleted(SessionId::default_session()));
        assert_eq!(ids(&mut one).await, [102]);
    }
}
