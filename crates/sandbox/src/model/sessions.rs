//! The sessions of one sandbox: their settings, and the state of their shells.
//!
//! The session `default` always exists. It is recorded only after a client has created it.

use crate::model::access::FileAccess;
use crate::model::agent_error::AgentError;
use crate::model::clock::now_ms;
use crate::model::error::Error;
use crate::model::ids::{SandboxId, SessionId};
use crate::model::info::{Life, SESSIONS_MAX, SessionInfo, SessionPatch, SessionSpec, TTL_S_MAX};
use crate::model::input::{WorkingDirectory, check_merged_size};
use isolet_wire::activity::{Activity, ShellKey};
use isolet_wire::launcher::Grant;
use isolet_wire::response::RefusalReason;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

mod lifetime;
mod replace;

pub(crate) use lifetime::{Lifetime, OpeningGuard};
pub(crate) use replace::ReplacedSessions;

/// The directory in which shells and programs start unless the image sets another, and to which
/// relative paths refer.
pub const WORKSPACE: &str = "/workspace";

/// Maximum number of terminals of a sandbox. The agent holds the screen and the output of each in
/// memory that no limit of the sandbox covers.
const TERMINALS_MAX: usize = 32;

/// The part of a session that the store holds as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) cwd: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) command_timeout_ms: u64,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) created_at_ms: i64,
    pub(crate) last_activity_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) life: Option<Life>,
    /// The part of the workspace that the session sees; `None` means all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file_access: Option<FileAccess>,
}

/// A session and the last reported state of its shell.
#[derive(Debug)]
struct SessionEntry {
    session: Session,
    /// A command is running in the shell.
    busy: bool,
    queued: u32,
    clients: u32,
    /// Programs without a shell that run in the session hold the receivers.
    programs: watch::Sender<()>,
    /// Shared with the clients of the shell, which learn from it when the session ends.
    lifetime: Arc<Lifetime>,
    pid: Option<i32>,
    /// Number of clients of the session's terminal, if it runs.
    terminal: Option<u32>,
    /// Number of calls that may be opening the terminal.
    opening: u32,
    /// Time of creation, by a clock without jumps.
    made: Instant,
    used: Instant,
    /// The store does not have the latest `last_activity_ms`.
    dirty: bool,
}

/// All sessions of a sandbox. The lock `turn` serialises changes of the set so that two calls that
/// name the same new session create it once.
#[derive(Debug)]
pub(crate) struct Sessions {
    sandbox: SandboxId,
    held: Mutex<BTreeMap<SessionId, SessionEntry>>,
    pub(crate) turn: tokio::sync::Mutex<()>,
}

/// See [`Sessions::counts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionCounts {
    pub(crate) sessions: usize,
    pub(crate) terminals: usize,
}

/// Reserves one of the sandbox's terminals while it may be opened.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    sessions: &'a Sessions,
    id: SessionId,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.sessions.lock().get_mut(&self.id) {
            held.opening = held.opening.saturating_sub(1);
        }
    }
}

/// Selects sessions by their use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Only {
    /// Only sessions without a running or queued command.
    pub idle: bool,
    /// Only sessions that have not been used for this long.
    pub older_than: Option<Duration>,
}

impl Only {
    fn fits(self, held: &SessionEntry) -> bool {
        let young = |least| held.used.elapsed() < least;
        !(self.idle && held.works() || self.older_than.is_some_and(young))
    }
}

impl Session {
    /// A session that was created because a call named it.
    pub(crate) fn plain(created_at_ms: i64, home: &str) -> Self {
        Self {
            cwd: home.to_owned(),
            env: BTreeMap::new(),
            command_timeout_ms: 0,
            metadata: Map::new(),
            created_at_ms,
            last_activity_ms: created_at_ms,
            life: None,
            file_access: None,
        }
    }

    /// The session that a client requests, which starts in `home` unless the request names another
    /// directory.
    pub(crate) fn plan(spec: SessionSpec, home: String) -> Result<Self, Error> {
        if spec.life.is_some_and(|life| life.ttl_s == 0 || life.ttl_s > TTL_S_MAX) {
            let reason = format!("1 to {TTL_S_MAX} (a year)");
            return Err(Error::BadField { field: "ttl", reason });
        }
        let cwd = spec.cwd.map_or(home, WorkingDirectory::into_inner);
        let now = now_ms();
        Ok(Self {
            cwd: if cwd.starts_with('/') { cwd } else { format!("{WORKSPACE}/{cwd}") },
            env: spec.env.into_inner(),
            command_timeout_ms: spec.command_timeout_ms.unwrap_or(0),
            metadata: spec.metadata.into_inner(),
            created_at_ms: now,
            last_activity_ms: now,
            life: spec.life,
            file_access: spec.file_access.filter(|access| !access.whole()),
        })
    }

    /// Applies a change to a copy. An error changes nothing.
    pub(crate) fn patched(&self, patch: SessionPatch) -> Result<Self, Error> {
        let mut new = self.clone();
        patch.env.apply(&mut new.env);
        check_merged_size(&new.env)?;
        new.command_timeout_ms = patch.command_timeout_ms.unwrap_or(new.command_timeout_ms);
        if let Some(metadata) = patch.metadata {
            new.metadata = metadata.into_inner();
        }
        Ok(new)
    }

    pub(crate) fn json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::Fault(error.to_string()))
    }

    pub(crate) fn info(&self, id: &SessionId, sandbox: &SandboxId) -> SessionInfo {
        SessionInfo {
            id: id.clone(),
            sandbox_id: sandbox.clone(),
            cwd: self.cwd.clone(),
            env_names: self.env.keys().cloned().collect(),
            command_timeout_ms: self.command_timeout_ms,
            metadata: self.metadata.clone(),
            created_at_ms: self.created_at_ms,
            last_activity_ms: self.last_activity_ms,
            busy: false,
            shell_pid: None,
            terminal: false,
            life: self.life,
            file_access: self.file_access.clone(),
        }
    }
}

impl SessionEntry {
    /// An entry for a recorded or new session. Its age is computed from the wall clock.
    fn new(session: Session) -> Self {
        let now = Instant::now();
        let wall = now_ms();
        let ago = |ms: i64| {
            let past = Duration::from_millis(u64::try_from(wall - ms).unwrap_or(0));
            now.checked_sub(past).unwrap_or(now)
        };
        let made = ago(session.created_at_ms);
        let used = ago(session.last_activity_ms);
        Self {
            session,
            busy: false,
            queued: 0,
            clients: 0,
            programs: watch::Sender::new(()),
            lifetime: Arc::default(),
            pid: None,
            terminal: None,
            opening: 0,
            made,
            used,
            dirty: false,
        }
    }

    fn works(&self) -> bool {
        self.busy || self.queued > 0 || self.programs.receiver_count() > 0
    }

    fn scoped(&self) -> bool {
        self.session.file_access.is_some()
    }

    fn has_terminal(&self) -> bool {
        self.terminal.is_some() || self.opening > 0
    }

    /// Resets the state: neither the shell nor the terminal is open.
    fn all_gone(&mut self) {
        (self.busy, self.queued, self.clients, self.pid) = (false, 0, 0, None);
        self.terminal = None;
    }

    /// Records that the terminal opened or ended, or that its number of clients changed. Each
    /// counts as use.
    fn terminal_changed(&mut self, clients: Option<u32>, now: bool) {
        if std::mem::replace(&mut self.terminal, clients) != clients && now {
            self.use_now();
        }
    }

    fn use_now(&mut self) {
        self.session.last_activity_ms = now_ms();
        self.used = Instant::now();
        self.dirty = true;
    }

    fn info(&self, id: &SessionId, sandbox: &SandboxId) -> SessionInfo {
        SessionInfo {
            busy: self.works(),
            shell_pid: self.pid,
            terminal: self.terminal.is_some(),
            ..self.session.info(id, sandbox)
        }
    }
}

impl Sessions {
    /// The session `default` and the recorded sessions, given as ids and JSON. A session whose JSON
    /// cannot be read gets default settings so that a client can see and delete it.
    pub(crate) fn new(
        sandbox: &SandboxId,
        created_at_ms: i64,
        home: &str,
        rows: Vec<(SessionId, String)>,
    ) -> Self {
        let plain = || SessionEntry::new(Session::plain(created_at_ms, home));
        let mut held = BTreeMap::from([(SessionId::default_session(), plain())]);
        for (id, body) in rows {
            let session = serde_json::from_str(&body).map_or_else(|_| plain(), SessionEntry::new);
            held.insert(id, session);
        }
        Self {
            sandbox: sandbox.clone(),
            held: Mutex::new(held),
            turn: tokio::sync::Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, SessionEntry>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn list(&self) -> Vec<SessionInfo> {
        self.lock().iter().map(|(id, held)| held.info(id, &self.sandbox)).collect()
    }

    /// The numbers of sessions and of their running terminals.
    pub(crate) fn counts(&self) -> SessionCounts {
        let all = self.lock();
        let terminals = all.values().filter(|held| held.terminal.is_some()).count();
        SessionCounts { sessions: all.len(), terminals }
    }

    pub(crate) fn info(&self, id: &SessionId) -> Result<SessionInfo, Error> {
        let none = || Error::NoSession { id: self.sandbox.clone(), session: id.clone() };
        self.lock().get(id).map(|held| held.info(id, &self.sandbox)).ok_or_else(none)
    }

    /// The settings for a new shell or program. Also marks the session as used now.
    pub(crate) fn touch(&self, id: &SessionId) -> Option<Session> {
        let mut all = self.lock();
        let held = all.get_mut(id)?;
        held.use_now();
        Some(held.session.clone())
    }

    /// The lifetime of a session, and a guard that delays its deletion. Hold the guard until the
    /// shell or terminal is open.
    ///
    /// # Errors
    /// [`AgentError::SessionEnded`].
    pub(crate) fn opening(&self, id: &SessionId) -> Result<(Arc<Lifetime>, OpeningGuard), Error> {
        let lifetime = self.lock().get(id).map(|held| Arc::clone(&held.lifetime));
        let opening = lifetime.and_then(|lifetime| {
            let guard = lifetime.opening()?;
            Some((lifetime, guard))
        });
        opening.ok_or_else(|| AgentError::SessionEnded.into())
    }

    /// Checks that a session with this id can be created.
    pub(crate) fn free(&self, id: &SessionId) -> Result<(), Error> {
        let all = self.lock();
        if all.contains_key(id) {
            return Err(Error::SessionExists(id.clone()));
        }
        if all.len() >= SESSIONS_MAX {
            Err(Error::TooManySessions { max: SESSIONS_MAX })
        } else {
            Ok(())
        }
    }

    /// Reserves a terminal for a session. The agent also counts its terminals, but sessions with a
    /// scope have agents of their own.
    pub(crate) fn terminal_place(&self, id: &SessionId) -> Result<Opening<'_>, Error> {
        let mut all = self.lock();
        let others = all.iter().filter(|(other, held)| *other != id && held.has_terminal()).count();
        if others >= TERMINALS_MAX {
            let message = format!(
                "at most {TERMINALS_MAX} terminals of a sandbox run at once; end one of them"
            );
            return Err(Error::Refused { reason: RefusalReason::TooMany, message });
        }
        if let Some(held) = all.get_mut(id) {
            held.opening += 1;
        }
        Ok(Opening { sessions: self, id: id.clone() })
    }

    /// The record of a session.
    pub(crate) fn recorded(&self, id: &SessionId) -> Result<Session, Error> {
        let none = || Error::NoSession { id: self.sandbox.clone(), session: id.clone() };
        self.lock().get(id).map(|held| held.session.clone()).ok_or_else(none)
    }

    /// Replaces the settings of a session by those of a changed record. Its use stays.
    pub(crate) fn change(&self, id: &SessionId, new: &Session) {
        let mut all = self.lock();
        let Some(held) = all.get_mut(id) else { return };
        held.session.env.clone_from(&new.env);
        held.session.command_timeout_ms = new.command_timeout_ms;
        held.session.metadata.clone_from(&new.metadata);
    }

    pub(crate) fn insert(&self, id: SessionId, session: Session) {
        self.lock().insert(id, SessionEntry::new(session));
    }

    /// Ends a session after its removal was recorded, with the lock `turn` held. The session is
    /// unknown at once. Returns when no call is opening a shell any more, so that the open ones can
    /// be closed.
    pub(crate) async fn end(&self, id: &SessionId) {
        let held = self.lock().remove(id);
        if let Some(held) = held {
            held.lifetime.end().await;
        }
    }

    /// A session with default settings.
    pub(crate) fn plain(home: &str) -> Session {
        Session::plain(now_ms(), home)
    }

    /// Whether the session sees only a part of the workspace.
    pub(crate) fn scoped(&self, id: &SessionId) -> bool {
        self.lock().get(id).is_some_and(SessionEntry::scoped)
    }

    /// All sessions that see only a part of the workspace.
    pub(crate) fn all_scoped(&self) -> Vec<SessionId> {
        self.lock().iter().filter(|(_, held)| held.scoped()).map(|(id, _)| id.clone()).collect()
    }

    /// The session's grants; `None` for a session that sees the whole workspace or is gone.
    pub(crate) fn grants(&self, id: &SessionId) -> Result<Option<Vec<Grant>>, Error> {
        let all = self.lock();
        let access = all.get(id).and_then(|held| held.session.file_access.as_ref());
        access.map(|access| access.grants(id)).transpose()
    }

    /// Replaces what is known of one session by the inventory of the agent of its scope.
    pub(crate) fn inventory_of(&self, id: &SessionId, activities: &[Activity]) {
        if let Some(held) = self.lock().get_mut(id) {
            held.all_gone();
        }
        activities
            .iter()
            .filter(|activity| activity.key().id() == id.as_str())
            .for_each(|activity| self.changed(activity, false));
    }

    /// Replaces what is known of all sessions without a scope by the inventory of the sandbox's agent.
    pub(crate) fn inventory(&self, activities: &[Activity]) {
        self.lock().values_mut().filter(|held| !held.scoped()).for_each(SessionEntry::all_gone);
        for activity in activities {
            self.changed(activity, false);
        }
    }

    /// Applies a change of a session's shell or terminal. With `now`, it happened just now and
    /// counts as use of the session.
    pub(crate) fn changed(&self, activity: &Activity, now: bool) {
        let mut all = self.lock();
        match activity {
            Activity::Shell { key: ShellKey::Session(id), pid, busy, queued, clients, closed } => {
                let Some(held) = all.get_mut(id.as_str()) else { return };
                let open = closed.is_none();
                let before = (held.busy, held.queued, held.pid);
                held.busy = open && *busy;
                held.queued = if open { *queued } else { 0 };
                held.clients = if open { *clients } else { 0 };
                held.pid = open.then_some(*pid);
                // A client that comes or goes is no use: the server's own clients come and go
                // with calls.
                if now && before != (held.busy, held.queued, held.pid) {
                    held.use_now();
                }
            }
            Activity::Terminal { session, clients, closed, .. } => {
                let Some(held) = all.get_mut(session.as_str()) else { return };
                held.terminal_changed(closed.is_none().then_some(*clients), now);
            }
            Activity::Shell { .. } | Activity::Context { .. } | Activity::SpareKernel { .. } => {}
        }
    }

    /// Marks a program as running in the session until the receiver is dropped. The receiver
    /// reports the end of the session.
    pub(crate) fn program(&self, id: &SessionId) -> Result<watch::Receiver<()>, Error> {
        let mut all = self.lock();
        let none = || Error::NoSession { id: self.sandbox.clone(), session: id.clone() };
        let held = all.get_mut(id).ok_or_else(none)?;
        held.use_now();
        Ok(held.programs.subscribe())
    }

    /// Sessions whose ttl has passed or that have been idle for `idle`. `parked` returns how many
    /// clients of a session are idle connections of this server. Any other client counts as use.
    pub(crate) fn over(
        &self,
        idle: Duration,
        parked: impl Fn(&SessionId) -> usize,
    ) -> Vec<SessionId> {
        let mut over = Vec::new();
        for (id, held) in self.lock().iter_mut() {
            let Some(life) = held.session.life else { continue };
            let attached = held.clients as usize > parked(id) || held.terminal > Some(0);
            if held.works() || attached {
                held.used = Instant::now();
            }
            let old = held.made.elapsed() >= Duration::from_secs(life.ttl_s);
            if old || life.ends_idle && held.used.elapsed() >= idle {
                over.push(id.clone());
            }
        }
        over
    }

    /// Restarts the idle times of all sessions, because none of them could be used in a pause.
    pub(crate) fn restart_idle_times(&self) {
        self.lock().values_mut().for_each(|held| held.used = Instant::now());
    }

    /// Whether a session exists and matches the filter.
    pub(crate) fn fits(&self, id: &SessionId, only: Only) -> bool {
        self.lock().get(id).is_some_and(|held| only.fits(held))
    }

    /// Records that no shell is open any more.
    pub(crate) fn ended(&self) {
        self.lock().values_mut().for_each(SessionEntry::all_gone);
    }

    /// Sessions whose last activity is not in the store yet, as ids and JSON.
    /// Ids and records of the sessions that a copy of the sandbox gets: all but those that a tenant
    /// addresses by their id alone, because there can be only one of each.
    pub(crate) fn copied(&self) -> Vec<(SessionId, String)> {
        let all = self.lock();
        let copied = all.iter().filter(|(_, held)| held.session.life.is_none());
        copied.filter_map(|(id, held)| Some((id.clone(), held.session.json().ok()?))).collect()
    }

    /// Ids and records of the other sessions, which move with the sandbox only.
    pub(crate) fn uncopied(&self) -> Vec<(SessionId, String)> {
        let all = self.lock();
        let own = all.iter().filter(|(_, held)| held.session.life.is_some());
        own.filter_map(|(id, held)| Some((id.clone(), held.session.json().ok()?))).collect()
    }

    pub(crate) fn unwritten(&self) -> Vec<(SessionId, String)> {
        let all = self.lock();
        let dirty = all.iter().filter(|(_, held)| held.dirty);
        dirty.filter_map(|(id, held)| Some((id.clone(), held.session.json().ok()?))).collect()
    }
}

#[cfg(test)]
mod tests;
