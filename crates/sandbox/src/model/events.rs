//! The ordered events of each tenant's sandboxes, for clients that follow them.
//!
//! Each tenant has one ring buffer, and a reader is only a position in it. A reader that falls
//! behind the ring is disconnected with an error and never costs memory. Ids increase by one within
//! a tenant. The first id of a server is the time of its start in microseconds, so the ids of
//! previous servers are smaller.

pub(crate) mod follow;

pub use follow::{Follow, Gap, TooSlow};

use crate::model::clock::now_ms;
use crate::model::ids::{ProcessId, SandboxId, SessionId, SnapshotId, TenantId};
use crate::model::info::Trigger;
use crate::model::network::Mode;
use isolet_wire::network::NetworkDenial;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// Maximum number of events in the ring of one tenant.
pub const EVENTS_MAX: usize = 4096;

/// The kind of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The sandbox was created.
    Created,
    /// The sandbox is running, for the first time or again.
    Running,
    /// The sandbox's agent does not answer. Nothing was killed.
    Unreachable {
        /// The cause in words.
        cause: String,
    },
    /// The sandbox fell asleep.
    Sleeping,
    /// The sandbox woke up.
    Woke,
    /// The files and sessions were replaced by those of a snapshot.
    Restored(SnapshotId),
    /// All processes of the sandbox were frozen.
    Paused,
    /// The processes of the paused sandbox continue.
    Resumed,
    /// The sandbox failed and does not run any more.
    Failed {
        /// The cause in words.
        cause: String,
    },
    /// The sandbox was deleted. It is the sandbox's last event.
    Destroyed,
    /// Another node has taken the sandbox over. It is the last event of the sandbox on this node.
    Superseded,
    /// The sandbox has slept for long, and only the object store has it now. It is the last event of
    /// the sandbox on this node.
    Evicted,
    /// The sandbox is moved to another node. It is the last event of the sandbox on this node.
    Moved,
    /// A session was created.
    SessionCreated(SessionId),
    /// A session was deleted.
    SessionDeleted(SessionId),
    /// A command or a program has started.
    CommandStarted(Command),
    /// A command or a program has ended.
    CommandExited {
        /// The command or program.
        command: Command,
        /// The exit code; `None` if the command could not start, or if it was killed because its
        /// client disconnected.
        code: Option<i32>,
    },
    /// A program listens on a port. Detected only while a client follows the events.
    PortOpened(u16),
    /// No program listens on the port any more. Detected only while a client follows the events.
    PortClosed(u16),
    /// A background process was started.
    ProcessStarted {
        /// The id of the process.
        process: ProcessId,
        /// The session in which the process was started.
        session: Option<SessionId>,
    },
    /// A background process has ended. An exit that nobody requested is noticed only while a
    /// client follows events.
    ProcessExited {
        /// The id of the process.
        process: ProcessId,
        /// The session in which the process was started.
        session: Option<SessionId>,
        /// The result; `None` if the process was lost or forgotten.
        exit: Option<Exit>,
    },
    /// The terminal of a session was opened.
    TerminalOpened(SessionId),
    /// The terminal of a session has ended. Detected only while a client follows the events.
    TerminalEnded(SessionId),
    /// The server took a snapshot of the sandbox without a request.
    SnapshotTaken {
        /// The id of the snapshot.
        snapshot: SnapshotId,
        /// Why it was taken.
        trigger: Trigger,
    },
    /// A snapshot that the server takes without a request failed.
    SnapshotFailed {
        /// Why it was to be taken.
        trigger: Trigger,
        /// The cause in words, and what happens next.
        cause: String,
    },
    /// The network mode of the sandbox has changed.
    NetworkChanged(Mode),
    /// The network denied a connection, packet or lookup. At most ten such events per second are
    /// reported.
    NetworkDenied(NetworkDenial),
}

/// The result of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// The exit code; 128 + signal if a signal ended the process.
    pub code: i32,
    /// The signal that ended the process.
    pub signal: Option<i32>,
}

/// A command of a shell, or a program without a shell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// The session; `None` for a private shell or a program outside sessions.
    pub session: Option<Arc<str>>,
    /// The id that the client or the server gave the command; empty for a program.
    pub id: String,
}

/// An event of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxEvent {
    /// The id, which increases by one within the tenant.
    pub id: u64,
    /// Wall-clock time in milliseconds since 1970, for people; ids define the order.
    pub at_ms: i64,
    /// The id of the sandbox.
    pub sandbox: SandboxId,
    /// The internal name of the sandbox, which differs between sandboxes that used the same id.
    pub incarnation: Arc<str>,
    /// The kind of the event.
    pub kind: EventKind,
}

/// The rings of all tenants. A ring lives as long as the server, one for each tenant that was ever
/// active.
#[derive(Debug)]
pub(crate) struct Events {
    first: u64,
    logs: Mutex<HashMap<TenantId, Arc<EventLog>>>,
    /// Notified when a reader starts to follow.
    more: Arc<Notify>,
}

/// The events of one tenant.
#[derive(Debug)]
pub(crate) struct EventLog {
    ring: Mutex<EventRing>,
    followers: Mutex<Followers>,
    more: Arc<Notify>,
    /// Sends the id of the next event to waiting readers.
    next: watch::Sender<u64>,
}

/// Number of readers of each sandbox, or of all sandboxes (`None`).
type Followers = HashMap<Option<SandboxId>, usize>;

/// A tenant with the sandboxes that readers follow; `None` means all.
pub(crate) type Followed = (TenantId, Option<Vec<SandboxId>>);

#[derive(Debug)]
struct EventRing {
    held: VecDeque<Arc<SandboxEvent>>,
    next: u64,
}

impl EventRing {
    /// Id of the oldest event in the ring.
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
    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<EventLog> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = logs.get(tenant) {
            return Arc::clone(log);
        }
        let ring = Mutex::new(EventRing { held: VecDeque::new(), next: self.first });
        let followers = Mutex::default();
        let more = Arc::clone(&self.more);
        let log =
            Arc::new(EventLog { ring, followers, more, next: watch::Sender::new(self.first) });
        logs.insert(tenant.clone(), Arc::clone(&log));
        log
    }

    /// The sandboxes that readers follow at the moment.
    pub(crate) fn followed(&self) -> Vec<Followed> {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let all = logs.iter().map(|(tenant, log)| (tenant, log.followers()));
        let some = all.filter(|(_, followers)| !followers.is_empty());
        let which = |followers: &Followers| followers.keys().cloned().collect();
        some.map(|(tenant, followers)| (tenant.clone(), which(&followers))).collect()
    }

    /// Resolves when a reader has started to follow. A permit from an earlier call only makes it
    /// resolve at once.
    pub(crate) async fn wait_for_reader(&self) {
        self.more.notified().await;
    }
}

impl EventLog {
    fn lock(&self) -> MutexGuard<'_, EventRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn followers(&self) -> MutexGuard<'_, Followers> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn emit(&self, sandbox: &SandboxId, incarnation: &Arc<str>, kind: EventKind) {
        let at_ms = now_ms();
        let mut ring = self.lock();
        if ring.held.len() >= EVENTS_MAX {
            ring.held.pop_front();
        }
        let sandbox = sandbox.clone();
        let incarnation = Arc::clone(incarnation);
        let event = SandboxEvent { id: ring.next, at_ms, sandbox, incarnation, kind };
        ring.held.push_back(Arc::new(event));
        ring.next += 1;
        // Sent within the lock so that readers never see an id that is not in the ring.
        self.next.send_replace(ring.next);
    }
}

/// Publishes the events of the commands on one connection.
#[derive(Debug)]
pub(crate) struct EventEmitter {
    pub(crate) log: Arc<EventLog>,
    pub(crate) sandbox: SandboxId,
    pub(crate) incarnation: Arc<str>,
    pub(crate) session: Option<Arc<str>>,
}

impl EventEmitter {
    fn command(&self, id: &str) -> Command {
        Command { session: self.session.clone(), id: id.to_owned() }
    }

    pub(crate) fn started(&self, id: &str) {
        self.emit(EventKind::CommandStarted(self.command(id)));
    }

    pub(crate) fn exited(&self, id: &str, code: Option<i32>) {
        self.emit(EventKind::CommandExited { command: self.command(id), code });
    }

    pub(crate) fn emit(&self, kind: EventKind) {
        self.log.emit(&self.sandbox, &self.incarnation, kind);
    }
}

/// Publishes the start of a program, and its end when the program ends or this value is dropped.
#[derive(Debug)]
pub(crate) struct CommandEvents {
    emitter: EventEmitter,
    code: Option<i32>,
}

impl CommandEvents {
    pub(crate) fn new(emitter: EventEmitter) -> Self {
        emitter.started("");
        Self { emitter, code: None }
    }

    pub(crate) fn exited(mut self, code: i32) {
        self.code = Some(code);
    }
}

impl Drop for CommandEvents {
    fn drop(&mut self) {
        self.emitter.exited("", self.code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::events::follow::{Follow, Gap, TooSlow};

    fn log() -> (Arc<EventLog>, SandboxId) {
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
        (0..3).for_each(|_| log.emit(&sandbox, &life(), EventKind::Running));
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
        log.emit(&sandbox, &life(), EventKind::Sleeping);
        assert_eq!((ids(&mut fresh).await, gap), (vec![103], None));
        assert!(follow(Some(u64::MAX - 1)).1.is_some());
    }

    /// Promises: L9.
    #[tokio::test]
    async fn a_slow_reader_is_cut_and_nothing_grows() {
        let (log, sandbox) = log();
        let (mut slow, _) = Follow::new(Arc::clone(&log), None, None);
        (0..=EVENTS_MAX).for_each(|_| log.emit(&sandbox, &life(), EventKind::Running));
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
        (0..1000).for_each(|_| log.emit(&sandbox, &life(), EventKind::Running));
        log.emit(&other, &others, EventKind::Sleeping);
        assert_eq!(ids(&mut one).await, [1100]);
    }

    /// Promises: E49.
    #[tokio::test]
    async fn e49_a_reader_of_one_sandbox_sees_no_earlier_one_of_its_id() {
        let (log, sandbox) = log();
        log.emit(&sandbox, &life(), EventKind::Created);
        log.emit(&sandbox, &life(), EventKind::Destroyed);
        let next: Arc<str> = Arc::from("the-next");
        let (mut one, _) =
            Follow::new(Arc::clone(&log), Some((sandbox.clone(), Arc::clone(&next))), Some(0));
        log.emit(&sandbox, &next, EventKind::Created);
        log.emit(&sandbox, &life(), EventKind::SessionDeleted(SessionId::default_session()));
        assert_eq!(ids(&mut one).await, [102]);
    }
}
