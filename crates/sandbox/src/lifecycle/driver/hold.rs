//! Standing still for a backup or a snapshot: the shells are saved, all processes are frozen, and the driver
//! waits, so that nothing wakes, changes or deletes the sandbox while its files are copied.

use crate::agent_client::agent_activity::AgentActivity;
use crate::agent_client::agent_version::AgentVersion;
use crate::agent_client::watch::{AgentReports, watch_at};
use crate::lifecycle::driver::from_snapshot::copy_failed;
use crate::lifecycle::driver::{Driver, REATTACH_WAIT};
use crate::live::failpoint::limit;
use crate::live::state_receiver::StateReceiver;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::held::{self, BriefStop, HeldContents, HeldSandbox, HoldEnd, HoldPurpose};
use crate::model::ids::SessionId;
use crate::model::info::Lost;
use crate::model::state::State;
use isolet_jail::FrozenSandbox;
use isolet_storage::StillMoment;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

/// How long saving all shells may take before the sandbox is frozen without it.
const SAVE_WAIT: Duration = Duration::from_secs(15);
/// How long freezing may take. A process that waits for a disk delays it.
const FREEZE_WAIT: Duration = Duration::from_secs(5);
/// The longest time that a sandbox stands still. A copy that takes longer is discarded.
const HOLD_MAX: Duration = Duration::from_secs(15 * 60);

/// Shells whose latest state could not be saved.
#[derive(Default)]
struct Unsaved {
    count: usize,
    /// What a copy of the files does not contain.
    lost: Vec<Lost>,
}

/// The numbers of what runs.
struct Running {
    private: usize,
    shells: usize,
    terminals: usize,
    contexts: usize,
    context_tasks: usize,
}

impl Running {
    fn of(seen: &AgentActivity) -> Self {
        Self {
            private: seen.private(),
            shells: seen.shells(),
            terminals: seen.terminals(),
            contexts: seen.contexts(),
            context_tasks: seen.context_tasks(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.private += other.private;
        self.shells += other.shells;
        self.terminals += other.terminals;
        self.contexts += other.contexts;
        self.context_tasks += other.context_tasks;
    }
}

impl Driver {
    /// Stands still until the holder in the answer is dropped. Returns `true` if the sandbox was
    /// deleted then, or has left this node, as the holder wished.
    pub(crate) async fn stand_still(
        &mut self,
        purpose: HoldPurpose,
        answer: oneshot::Sender<Result<HeldSandbox, Error>>,
    ) -> bool {
        // The request waited in the queue for longer than its sender.
        if answer.is_closed() {
            return false;
        }
        if purpose == (HoldPurpose::Depart { only_asleep: true })
            && self.record.state != State::Sleeping
        {
            let _ = answer.send(Err(Error::InUse(self.entry.id.clone())));
            return false;
        }
        if purpose == HoldPurpose::Expiry && !self.is_over() {
            let _ = answer.send(Err(Error::NotOver(self.entry.id.clone())));
            return false;
        }
        let entry = Arc::clone(&self.entry);
        // While it is held, no scope starts: the launcher would wait for a process that is frozen from
        // its start, and with it all other sandboxes.
        let _turn = entry.scopes.turn.lock().await;
        let (mut frozen, mut holder) = match self.freeze().await {
            Ok((held, frozen, holder)) => {
                if answer.send(Ok(held)).is_err() {
                    return false;
                }
                (frozen, holder)
            }
            Err(error) => {
                let _ = answer.send(Err(error));
                return false;
            }
        };
        let until = std::time::Instant::now() + limit("hold.max", HOLD_MAX);
        while let Some(wanted) = holder.layer_wanted(until).await {
            let taken = self.give_layer(wanted.layer, frozen.is_some()).await;
            let _ = wanted.answer.send(taken);
        }
        let left = until.saturating_duration_since(std::time::Instant::now());
        // Still frozen, so that the copy has everything that was written.
        let ended = match holder.wait(left).await {
            Some(HoldEnd::Delete(answer)) => self.end(Some(answer)).await,
            Some(HoldEnd::Depart(why, answer)) => self.depart(why, answer).await,
            None => false,
        };
        if ended {
            return true;
        }
        if self.entry.is_suspended() {
            // The lease guard would freeze it again, but only a moment later.
            frozen.iter_mut().for_each(FrozenSandbox::stay_frozen);
        }
        drop(frozen);
        let is_use =
            !matches!(purpose, HoldPurpose::Scheduled | HoldPurpose::Depart { only_asleep: true });
        if is_use {
            // The idle time does not count while nothing could be used.
            self.entry.activity.touch();
        }
        false
    }

    /// Freezes the sandbox for the moment at which the first pass of a copy begins. `None` if nothing
    /// runs.
    pub(crate) async fn stop_briefly(
        &mut self,
        directory: PathBuf,
    ) -> Result<Option<BriefStop>, Error> {
        let state = self.record.state;
        if !matches!(state, State::Running | State::Paused) {
            return Ok(None);
        }
        let entry = Arc::clone(&self.entry);
        let _turn = entry.scopes.turn.lock().await;
        let handle = self.handle();
        let of = Arc::clone(&self.entry);
        let stopped = blocking(move || -> std::io::Result<_> {
            let since = std::time::Instant::now();
            let paused = state == State::Paused;
            let stopped = FrozenSandbox::freeze(handle.open(), FREEZE_WAIT, paused)?;
            let Some(mut frozen) = stopped else { return Ok(None) };
            let moment = StillMoment::now(&directory);
            if of.is_suspended() {
                frozen.stay_frozen();
            }
            drop(frozen);
            let stood = since.elapsed();
            Ok(Some(moment.map(|moment| BriefStop { moment, stood })))
        });
        let stopped = stopped.await?.map_err(|error| self.not_frozen(&error))?;
        let of = || format!("sandbox {}", self.entry.id);
        stopped.transpose().map_err(|error| copy_failed(&of(), error))
    }

    fn not_frozen(&self, error: &std::io::Error) -> Error {
        Error::Fault(format!("sandbox {} cannot be frozen: {error}", self.entry.id))
    }

    async fn freeze(
        &mut self,
    ) -> Result<(HeldSandbox, Option<FrozenSandbox>, held::Holder), Error> {
        let state = self.record.state;
        let mut unsaved = Unsaved::default();
        match state {
            State::Running => {
                self.save_shells(&mut unsaved).await;
                self.add_running(&mut unsaved.lost).await;
                // The state of its shells ends with them.
                if !self.record.body.persistent && self.open_shells() > 0 {
                    unsaved.lost.push(Lost::Shells);
                }
            }
            State::Sleeping => {
                if self.cleanup_pending {
                    self.retry_cleanup().await;
                }
                // Its files are not those of its record yet.
                if self.cleanup_pending && self.record.body.restore.is_some() {
                    return Err(Error::TooLate("the end of a restore in place"));
                }
            }
            // A frozen agent saves nothing. What it saved before the pause is copied.
            State::Unreachable | State::Paused => {
                unsaved.count = self.open_shells();
                if unsaved.count > 0 {
                    unsaved.lost.push(Lost::Shells);
                }
            }
            State::Failed => {}
            State::Creating | State::Destroying | State::Destroyed => {
                return Err(Error::NoSandbox(self.entry.id.clone()));
            }
        }
        unsaved.lost.extend(self.record.body.lost.clone().unwrap_or_default());
        unsaved.lost.sort_unstable();
        unsaved.lost.dedup();
        self.keep_activity().await;
        let handle = self.handle();
        let since = std::time::Instant::now();
        let paused = state == State::Paused;
        let frozen =
            blocking(move || FrozenSandbox::freeze(handle.open(), FREEZE_WAIT, paused)).await?;
        let frozen = frozen.map_err(|error| self.not_frozen(&error))?;
        info!(sandbox = %self.entry.id, frozen = frozen.is_some(), "stands still for a copy");
        let contents = HeldContents {
            record: self.record.clone(),
            sessions: self.entry.sessions.copied(),
            own_sessions: self.entry.sessions.uncopied(),
            lost: unsaved.lost,
        };
        let (held, holder) = held::hold(state, frozen.is_some(), unsaved.count, contents, since);
        Ok((held, frozen, holder))
    }

    /// Saves the state of all shells as for a sleep. A shell that does not answer keeps the state
    /// that was saved before.
    async fn save_shells(&mut self, unsaved: &mut Unsaved) {
        let until = Instant::now() + SAVE_WAIT;
        let open = self.seen.shells();
        let saved = timeout_at(until, self.save_all()).await;
        self.count_unsaved(open, saved, unsaved);
        for (id, scope) in self.entry.scopes.all() {
            let open = scope.seen().shells();
            let saved = self.save_scope(id, &scope.directory, &scope.pool.version);
            let saved = timeout_at(until, saved).await;
            self.count_unsaved(open, saved, unsaved);
        }
    }

    /// Adds the shells that an agent with `open` shells could not save.
    fn count_unsaved(
        &self,
        open: usize,
        saved: Result<Result<Vec<Lost>, Error>, Elapsed>,
        unsaved: &mut Unsaved,
    ) {
        let error = match saved {
            Ok(Ok(lost)) => {
                unsaved.count += lost.len();
                unsaved.lost.extend(lost);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(elapsed) => elapsed.to_string(),
        };
        warn!(sandbox = %self.entry.id, error, open, "shells are not saved for the copy");
        unsaved.count += open;
        if open > 0 {
            unsaved.lost.push(Lost::Shells);
        }
    }

    /// Adds what runs in the sandbox, which a copy of its files does not contain.
    pub(super) async fn add_running(&self, lost: &mut Vec<Lost>) {
        let mut running = Running::of(&self.seen);
        for (_, scope) in self.entry.scopes.all() {
            running.add(&Running::of(&scope.seen()));
        }
        let tasks = running.shells + running.terminals + running.context_tasks;
        if running.private > 0 {
            lost.push(Lost::Shells);
        }
        if running.terminals > 0 {
            lost.push(Lost::Terminals);
        }
        if running.contexts > 0 {
            lost.push(Lost::Contexts);
        }
        if self.more_than(tasks as u64).await.unwrap_or(true) {
            lost.push(Lost::Processes);
        }
    }

    /// The number of shells that were open at the agents' last reports.
    pub(super) fn open_shells(&self) -> usize {
        let scopes = self.entry.scopes.all();
        self.seen.shells() + scopes.iter().map(|(_, scope)| scope.seen().shells()).sum::<usize>()
    }

    async fn save_scope(
        &self,
        id: SessionId,
        directory: &Path,
        version: &Arc<AgentVersion>,
    ) -> Result<Vec<Lost>, Error> {
        let AgentReports { mut wire, .. } = watch_at(directory, version, REATTACH_WAIT).await?;
        StateReceiver::new(&self.entry, Some(id)).all(&mut wire, |_, _| {}).await
    }
}
