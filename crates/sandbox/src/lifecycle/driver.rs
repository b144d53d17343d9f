//! The task that owns the state of a sandbox. It receives commands from a queue and reports from
//! the agent's connection, and it ends the sandbox when its ttl has passed. All other tasks see
//! only the state that it publishes.

mod change;
mod check;
mod end;
mod expiry;
mod from_image;
pub(crate) mod from_snapshot;
mod hold;
mod layer;
mod ownership;
mod pause;
pub(crate) mod reading;
mod restore;
mod sleep;
mod source;

use crate::agent_client::agent_activity::AgentActivity;
use crate::agent_client::stopped_clock::StoppedClock;
use crate::agent_client::watch::{AgentReports, watch_at};
use crate::agent_client::wire::{AgentEvent, Wire};
use crate::lifecycle::driver::expiry::Expiry;
use crate::live::cgroup_control::CgroupControl;
use crate::live::entry::SandboxEntry;
use crate::live::failpoint::pass;
use crate::live::inner::Inner;
use crate::live::state_receiver::{self, StateReceiver};
use crate::live::{idempotency, orphans};
use crate::model::agent_error::AgentError;
use crate::model::blocking::blocking;
use crate::model::clock::now_ms;
use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::ids::SessionId;
use crate::model::info::{EndedSandbox, IdempotencyKey};
use crate::model::record::snapshot_layers::FoldedLayers;
use crate::model::record::{Record, View};
use crate::model::state::{State, Transition};
use crate::sandbox::Sandbox;
use isolet_wire::launcher::Spec;
use isolet_wire::response::AgentResponse;
pub(crate) use source::Source;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tracing::{info, warn};

/// How long all processes of a sandbox may take to die. Even a fork bomb takes only milliseconds.
pub(crate) const KILL_WAIT: Duration = Duration::from_secs(4);
/// Pause before a failed removal or a failed driver is retried.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);
/// How long a new agent may take to answer.
pub(crate) const GREETING_WAIT: Duration = Duration::from_secs(10);
/// How long an agent that closed its connection may take to accept the next one.
pub(crate) const REATTACH_WAIT: Duration = Duration::from_secs(2);
/// Longer than any wait.
const NEVER: Duration = Duration::from_secs(400 * 24 * 3600);

/// The situation in which a driver starts.
pub(crate) enum Begin {
    /// The sandbox must be created: from nothing, from the warm pool or from a snapshot.
    Make { once: Option<IdempotencyKey>, source: Source },
    /// The sandbox's agent answers on this connection.
    Attached(AgentWatch),
    /// The sandbox has failed before.
    Failed,
    /// The sandbox is paused, or another node may own it: all its processes are frozen.
    Frozen,
    /// The sandbox was asleep, falling asleep or waking up when the server was killed.
    Asleep,
    /// The sandbox failed, fell silent or ended with its host while no server ran. The new state is
    /// already published.
    Lost,
    /// An earlier driver of the sandbox panicked.
    Broken,
}

pub(crate) struct Driver {
    inner: Arc<Inner>,
    entry: Arc<SandboxEntry>,
    record: Record,
    watch: Option<Wire>,
    seen: AgentActivity,
    /// The sandbox sleeps, but some of its processes may still run.
    cleanup_pending: bool,
    /// The sandbox has failed, and an agent for reading its files runs.
    reading: bool,
    /// The end of the sandbox's lifetime, by a clock without jumps.
    until: Option<Instant>,
    expiry: Expiry,
    saving: StateReceiver,
    /// The clocks of the agents while the sandbox is paused. Empty if the previous server paused it.
    clocks: Vec<StoppedClock>,
    /// The CA certificate may have changed during a pause.
    trust_pending: bool,
    /// Merged layers that the record names when the sandbox falls asleep.
    folds_pending: Vec<FoldedLayers>,
}

/// A connection for reports from an agent, with the inventory.
pub(crate) struct AgentWatch {
    wire: Wire,
    seen: AgentActivity,
    /// Sessions whose shells have ended.
    ended: Vec<SessionId>,
}

impl AgentWatch {
    /// The protocol version of the agent.
    pub(crate) fn version(&self) -> u16 {
        self.wire.version()
    }
}

/// Runs the driver and restarts it after a panic, so that only this sandbox is affected.
pub(crate) async fn supervise(inner: Arc<Inner>, entry: Arc<SandboxEntry>, mut begin: Begin) {
    loop {
        let record = (*entry.view().record).clone();
        let driver = Driver {
            inner: Arc::clone(&inner),
            entry: Arc::clone(&entry),
            watch: None,
            seen: AgentActivity::default(),
            cleanup_pending: false,
            reading: false,
            until: until(record.body.expires_at_ms),
            expiry: Expiry::default(),
            saving: StateReceiver::new(&entry, None),
            clocks: Vec::new(),
            trust_pending: false,
            folds_pending: Vec::new(),
            record,
        };
        // A `JoinSet` ends the driver together with its supervisor.
        let mut task = JoinSet::new();
        task.spawn(driver.run(begin));
        match task.join_next().await {
            Some(Err(error)) if error.is_panic() => {
                warn!(sandbox = %entry.id, tenant = %entry.tenant, "driver panicked; starting another");
                begin = Begin::Broken;
                // A panic that repeats at once must not use up a processor.
                tokio::time::sleep(AGAIN).await;
            }
            _ => return,
        }
    }
}

/// Connects to the agent for reports.
pub(crate) async fn watch(entry: &SandboxEntry, wait: Duration) -> Result<AgentWatch, AgentError> {
    let AgentReports { wire, activities, execs } =
        watch_at(&entry.directory, &entry.pool.version, wait).await?;
    entry.sessions.inventory(&activities);
    Ok(AgentWatch {
        wire,
        seen: AgentActivity::inventory(&activities, execs),
        ended: state_receiver::ended(&activities),
    })
}

/// Converts a wall-clock time. Later changes of the wall clock do not move the result.
pub(crate) fn until(expires_at_ms: Option<i64>) -> Option<Instant> {
    let left = Duration::from_millis(u64::try_from(expires_at_ms? - now_ms()).unwrap_or(0));
    Some(Instant::now() + left.min(NEVER))
}

impl Driver {
    async fn run(mut self, begin: Begin) {
        match begin {
            Begin::Make { once, source } => {
                if let Err(error) = self.make(once, source).await {
                    self.inner.metrics.lifecycle.create_failures.inc();
                    return self.undo(error).await;
                }
            }
            Begin::Attached(watch) => {
                self.adopt(watch).await;
                self.find_scopes();
            }
            Begin::Failed => self.end_reading().await,
            Begin::Frozen => {}
            Begin::Asleep => self.retry_cleanup().await,
            Begin::Lost => {
                self.settle().await;
                self.cleanup_pending = self.record.state == State::Sleeping;
            }
            Begin::Broken => match self.record.state {
                State::Creating => {
                    return self.undo(Error::Fault("the creation ended with a panic".into())).await;
                }
                State::Destroying => {
                    self.end(None).await;
                    return;
                }
                State::Running => self.find_again().await,
                State::Paused => self.pause_again().await,
                State::Sleeping => self.retry_cleanup().await,
                State::Failed => self.end_reading().await,
                State::Unreachable => {}
                State::Destroyed => return,
            },
        }
        self.serve().await;
    }

    /// Reconnects to the agent after a panic.
    async fn find_again(&mut self) {
        // The sandbox may have been on its way to a pause.
        let handle = self.handle();
        let _ = blocking(move || handle.open().freeze(false)).await;
        match watch(&self.entry, REATTACH_WAIT).await {
            Ok(watch) => {
                self.adopt(watch).await;
                self.find_scopes();
                // The sandbox may have been on its way to sleep.
                self.entry.activity.open();
                self.settle().await;
            }
            Err(_) => self.fail("internal fault").await,
        }
    }

    /// Serves commands and events until the sandbox is deleted or detached.
    async fn serve(&mut self) {
        let entry = Arc::clone(&self.entry);
        let mut command_queue = entry.command_queue.lock().await;
        loop {
            let left = self.left();
            let watching = self.watch.is_some();
            let silent = self.record.state == State::Unreachable;
            let idle_timeout = self.idle_timeout();
            let cleanup_pending = self.cleanup_pending;
            tokio::select! {
                command = command_queue.recv() => match command {
                    Some(DriverCommand::Patch(patch, answer)) => {
                        let _ = answer.send(self.patch(*patch).await);
                    }
                    Some(DriverCommand::Expose(change, answer)) => {
                        let _ = answer.send(self.expose(change).await);
                    }
                    Some(DriverCommand::Network(change, answer)) => {
                        let _ = answer.send(self.network(*change).await);
                    }
                    Some(DriverCommand::RotateLinks(answer)) => {
                        let _ = answer.send(self.rotate_links().await);
                    }
                    Some(DriverCommand::StopBriefly(directory, answer)) => {
                        let _ = answer.send(self.stop_briefly(directory).await);
                    }
                    Some(DriverCommand::Hold(purpose, answer)) => {
                        if self.stand_still(purpose, answer).await {
                            return;
                        }
                    }
                    Some(DriverCommand::Link(answer)) => {
                        let _ = answer.send(self.link().await);
                    }
                    Some(DriverCommand::Fold(folded)) => self.fold(folded).await,
                    Some(DriverCommand::Trust) => self.trust_or_later().await,
                    Some(DriverCommand::Sleep(how, answer)) => {
                        let _ = answer.send(self.sleep(how).await);
                    }
                    Some(DriverCommand::Pause(answer)) => {
                        let _ = answer.send(self.pause().await);
                    }
                    Some(DriverCommand::Resume(resumed_for, answer)) => {
                        let _ = answer.send(self.resume(resumed_for).await);
                    }
                    Some(DriverCommand::Wake(answer)) => {
                        let _ = answer.send(self.wake().await);
                    }
                    Some(DriverCommand::Read(answer)) => {
                        let _ = answer.send(self.read().await);
                    }
                    Some(DriverCommand::Restore(request, answer)) => {
                        let _ = answer.send(self.restore_in_place(*request).await);
                    }
                    Some(DriverCommand::Recover(answer)) => {
                        let _ = answer.send(self.recover().await);
                    }
                    Some(DriverCommand::LossReported) => self.told_lost().await,
                    Some(DriverCommand::Pushed(snapshot)) => self.pushed(snapshot).await,
                    Some(DriverCommand::Check) => self.check().await,
                    Some(DriverCommand::Continue) => self.continue_running().await,
                    Some(DriverCommand::Supersede(answer)) => {
                        if self.supersede(answer).await {
                            return;
                        }
                    }
                    Some(DriverCommand::Delete(answer)) => {
                        if self.end(Some(answer)).await {
                            return;
                        }
                    }
                    Some(DriverCommand::Detach(answer)) => {
                        self.detach().await;
                        let _ = answer.send(());
                        return;
                    }
                    None => return,
                },
                () = tokio::time::sleep(left), if !self.expiry.copying() => {
                    if self.expire().await {
                        return;
                    }
                }
                failed = self.expiry.failed() => self.not_copied(failed),
                () = entry.activity.idle(idle_timeout.unwrap_or(NEVER)), if idle_timeout.is_some() => self.auto_sleep().await,
                () = tokio::time::sleep(AGAIN), if cleanup_pending => self.retry_cleanup().await,
                heard = next(&mut self.watch), if watching => self.on_event(heard).await,
                found = call(&entry), if silent => self.found(found).await,
            }
        }
    }

    /// Remaining lifetime of the sandbox.
    fn left(&self) -> Duration {
        self.until.map_or(NEVER, |until| until.saturating_duration_since(Instant::now()))
    }

    fn follow(&mut self, watch: AgentWatch) {
        self.record.agent_version = Some(watch.version());
        (self.watch, self.seen) = (Some(watch.wire), watch.seen);
        self.saving = StateReceiver::new(&self.entry, None);
    }

    /// Follows the agent, and prepares the saved states of shells that are not open for their next
    /// start.
    async fn adopt(&mut self, watch: AgentWatch) {
        for id in &watch.ended {
            self.entry.shell_states.forget(id).await;
        }
        self.follow(watch);
        let seen = &self.seen;
        self.entry.shell_states.await_shells(|id| seen.open(id)).await;
    }

    /// Runs in the background, because calls that need a scope find it themselves.
    fn find_scopes(&self) {
        let sandbox = Sandbox::new(Arc::clone(&self.inner), Arc::clone(&self.entry));
        self.inner.spawn(async move {
            sandbox.find_scopes().await;
            sandbox.resume_recordings().await;
        });
    }

    async fn on_event(&mut self, heard: Result<AgentEvent, AgentError>) {
        let error = match heard {
            Ok(AgentEvent::Response(AgentResponse::Changed { activity, execs })) => {
                return self.entry.reported(&mut self.seen, activity.as_ref(), execs);
            }
            Ok(AgentEvent::Response(AgentResponse::ShellState { shell, update })) => {
                if let Some(wire) = &mut self.watch {
                    // A state that cannot be saved now is reported by the next sleep.
                    let _ = self.saving.on_update(wire, shell, update).await;
                }
                return;
            }
            Ok(_) => AgentError::Turn("unexpected message on the driver's connection"),
            Err(error) => error,
        };
        self.watch = None;
        self.entry.pool.drop_links(None);
        self.reconnect(error).await;
    }

    /// Connects to the agent again after its connection broke.
    async fn reconnect(&mut self, error: AgentError) {
        match watch(&self.entry, REATTACH_WAIT).await {
            Ok(watch) => {
                warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "connection to the agent replaced");
                self.adopt(watch).await;
            }
            Err(AgentError::Silent) => self.fall_silent("agent does not answer").await,
            Err(error) if error.is_unsupported() => self.fall_silent(&error.to_string()).await,
            Err(AgentError::Frame(_) | AgentError::Turn(_)) => {
                self.inner.metrics.agents_lost.bad_frame.inc();
                self.fail("agent sent a bad frame").await
            }
            Err(_) => {
                self.inner.metrics.agents_lost.ended.inc();
                self.fail("agent killed").await
            }
        }
    }

    /// Marks the sandbox as unreachable. The agent may only be slow, or another server may support
    /// its version, so nothing is killed.
    async fn fall_silent(&mut self, cause: &str) {
        if self.shift(Transition::Silent).is_ok() {
            self.inner.metrics.agents_lost.silent.inc();
            warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, cause, "unreachable");
            self.record.body.cause = Some(cause.to_owned());
            self.publish(None);
            self.settle().await;
        }
    }

    /// Handles the result of another attempt to reach a silent agent.
    async fn found(&mut self, found: Result<AgentWatch, AgentError>) {
        match found {
            Ok(watch) => {
                if self.shift(Transition::Greeted).is_ok() {
                    info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "agent answers again");
                    self.record.body.cause = None;
                    self.adopt(watch).await;
                    self.publish(None);
                    self.settle().await;
                }
            }
            Err(AgentError::Silent) => {}
            Err(error) if error.is_unsupported() => {}
            Err(_) => {
                self.inner.metrics.agents_lost.ended.inc();
                self.fail("agent is gone").await
            }
        }
    }

    /// Records and launches the sandbox at the same time. The next start of the server removes a
    /// directory without a record, and a record that still says `creating`.
    async fn make(&mut self, once: Option<IdempotencyKey>, source: Source) -> Result<(), Error> {
        let begun = Instant::now();
        let lifecycle = &self.inner.metrics.lifecycle;
        let ready = matches!(source, Source::WarmPool);
        let durations =
            if ready { &lifecycle.creates_from_pool } else { &lifecycle.creates_new }.clone();
        pass("create.before_record").await?;
        let spec = self.spec(false);
        let row = self.record.row()?;
        let recorded = async {
            self.entry.secret_store.write().await?;
            self.inner.store.insert(row).await?;
            self.record_sessions(source.sessions()).await?;
            pass("create.recorded").await
        };
        let launched = async {
            match &source {
                Source::Empty => self.launch_new(spec).await?,
                Source::Image(from) => self.launch_with_states(spec, from).await?,
                Source::WarmPool => self.dress(spec.limits).await?,
                Source::Snapshot(from) => {
                    self.restore_files(from).await?;
                    self.launch(Spec { directory_exists: true, ..spec }).await?;
                }
            }
            pass("create.jailed").await
        };
        let (recorded, launched) = tokio::join!(recorded, launched);
        recorded.and(launched)?;
        let greeted = watch(&self.entry, GREETING_WAIT).await?;
        let marked = self.image_workspace().is_some() || !matches!(source, Source::Empty);
        let copied = matches!(source, Source::Snapshot(_));
        match &source {
            Source::Snapshot(_) | Source::Image(_) => self.adopt(greeted).await,
            Source::Empty | Source::WarmPool => self.follow(greeted),
        }
        // Before the answer, so that its receiver can delete the snapshot.
        drop(source);
        pass("create.greeted").await?;
        if copied {
            self.renew_identity().await;
        }
        self.trust().await;
        // Whole microseconds, so that the value has three decimals.
        self.record.body.create_ms = begun.elapsed().as_micros() as f64 / 1000.0;
        self.shift(Transition::Greeted)?;
        let answer = match once {
            Some(once) => {
                let text = serde_json::to_string(&self.record.info())
                    .map_err(|e| Error::Fault(e.to_string()))?;
                Some(idempotency::row(&self.record.tenant, &once, text))
            }
            None => None,
        };
        let written = self.write(answer).await;
        if let Err(error) = written {
            // Not published yet, so all other tasks still see a sandbox that is being created.
            self.record.state = State::Creating;
            return Err(error);
        }
        durations.observe(begun.elapsed());
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, ms = self.record.body.create_ms, "created");
        self.publish(None);
        if marked {
            self.claimed();
        }
        Ok(())
    }

    /// Removes the marker of the warm pool or of a restore, because the record now names the owner. This may happen
    /// after the answer: it matters only if the record is lost.
    fn claimed(&self) {
        let directory = self.entry.directory.clone();
        self.inner.spawn(async move {
            let _ = blocking(move || orphans::unmark(&directory)).await;
        });
    }

    /// Writes what is only in memory, because the server stops.
    async fn detach(&mut self) {
        if self.reading {
            self.end_reading().await;
        }
        self.watch = None;
        self.entry.disconnect();
        self.keep_activity().await;
    }

    async fn keep_activity(&self) {
        let name = &self.entry.name;
        let rows = self.entry.sessions.unwritten().into_iter();
        let rows = rows.map(|(id, body)| isolet_store::SessionRow {
            sandbox: name.clone(),
            id: id.to_string(),
            body,
        });
        let rows: Vec<_> = rows.collect();
        if !rows.is_empty()
            && let Err(error) = self.inner.store.update_sessions(rows).await
        {
            warn!(sandbox = %self.entry.id, %error, "last activity of sessions is not recorded");
        }
    }

    fn handle(&self) -> CgroupControl {
        CgroupControl { config: self.inner.jail.clone(), name: self.record.name.clone() }
    }

    fn shift(&mut self, event: Transition) -> Result<(), Error> {
        let next = self.record.state.next(event).map_err(|refused| {
            warn!(sandbox = %self.entry.id, %refused, "invalid state transition");
            Error::Fault(refused.to_string())
        })?;
        self.record.set_state(next);
        Ok(())
    }

    async fn write(&self, answer: Option<isolet_store::StoredAnswer>) -> Result<(), Error> {
        let record = &self.record;
        let body = record.body.json()?;
        Ok(self.inner.store.update(&record.name, record.stored_state(), body, answer).await?)
    }

    fn publish(&self, end: Option<Result<EndedSandbox, Error>>) {
        let made = !matches!(end, Some(Err(_)));
        let view = View { record: Arc::new(self.record.clone()), end };
        let was = self.entry.state();
        // A sandbox that could not be created was never announced.
        if made {
            let cause = self.record.body.cause.as_ref();
            // Events come before the answer, so that a client which then follows the events sees
            // only later ones.
            let body = &self.record.body;
            match (self.record.state, &body.superseded, body.departure) {
                (State::Destroyed, Some(_), _) => self.inner.superseded(&self.entry),
                (State::Destroyed, None, Some(why)) => self.inner.departed(&self.entry, why),
                (state, ..) => self.inner.moved(&self.entry, was, state, cause),
            }
        }
        self.entry.view.send_replace(view);
    }
}

/// Tries again to reach a silent agent.
async fn call(entry: &SandboxEntry) -> Result<AgentWatch, AgentError> {
    let found = watch(entry, REATTACH_WAIT).await;
    let retries = |error: &AgentError| *error == AgentError::Silent || error.is_unsupported();
    if found.as_ref().is_err_and(retries) {
        tokio::time::sleep(AGAIN).await;
    }
    found
}

async fn next(watch: &mut Option<Wire>) -> Result<AgentEvent, AgentError> {
    match watch {
        Some(wire) => wire.next().await,
        None => std::future::pending().await,
    }
}

impl Inner {
    pub(crate) fn drive(self: &Arc<Self>, entry: Arc<SandboxEntry>, begin: Begin) {
        self.spawn(supervise(Arc::clone(self), entry, begin));
    }
}
