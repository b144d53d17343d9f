//! The one task that owns the state of a sandbox. Commands arrive in its queue, reports of the
//! agent on its connection, and timeouts from the clock. Everything else reads the state that it
//! publishes.

mod change;
mod check;
mod end;
pub(crate) mod reading;
mod sleep;

use crate::{
    agent_client::{
        agent_activity::AgentActivity,
        watch::watch_at,
        wire::{AgentEvent, Wire},
    },
    live::{
        cgroup_control::CgroupControl,
        entry::Entry,
        failpoint::pass,
        idempotency,
        inner::Inner,
        orphans,
        saving::{self, Saving},
    },
    model::{
        agent_error::AgentError,
        blocking::blocking,
        clock::now_ms,
        command::DriverCommand,
        error::Error,
        ids::SessionId,
        info::{Ended, IdempotencyKey},
        record::{Record, View},
        state::{Event, State},
    },
    sandbox::Sandbox,
};
use isolet_wire::{activity::Activity, launcher::Spec, response::AgentResponse};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use tracing::{info, warn};

/// How long everything of a sandbox may take to die. A fork bomb takes milliseconds.
pub(crate) const KILL_WAIT: Duration = Duration::from_secs(4);
/// How long after a removal or a driver failed it is tried again.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);
/// How long an agent that was just started may take to answer.
pub(crate) const GREETING_WAIT: Duration = Duration::from_secs(10);
/// How long one that has dropped its connection may take to take the next.
pub(crate) const REATTACH_WAIT: Duration = Duration::from_secs(2);
/// Further away than anybody waits.
const NEVER: Duration = Duration::from_secs(400 * 24 * 3600);

/// How a driver begins.
pub(crate) enum Begin {
    /// It is to be made, or was made ahead.
    Make { once: Option<IdempotencyKey>, ready: bool },
    /// Its agent answers on this connection.
    Attached(Watch),
    /// It has failed before.
    Failed,
    /// It was asleep, or falling asleep or waking up when the server was killed.
    Asleep,
    /// It has failed, fallen silent or ended with its host while no server ran, and is published
    /// as such.
    Lost,
    /// An earlier driver of it ended by a fault.
    Broken,
}

pub(crate) struct Driver {
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    record: Record,
    watch: Option<Wire>,
    seen: AgentActivity,
    /// It sleeps, and something of it may still run.
    cleanup_pending: bool,
    /// It has failed, and an agent runs that reads its files.
    reading: bool,
    /// When its time is over, by a clock that nobody sets.
    until: Option<Instant>,
    saving: Saving,
}

/// A connection for news of an agent's shells, and what it has said so far.
pub(crate) struct Watch {
    wire: Wire,
    seen: AgentActivity,
    /// Sessions whose shells have ended.
    ended: Vec<SessionId>,
}

/// Starts the driver, and another when it ends by a fault: only this sandbox suffers.
pub(crate) async fn supervise(inner: Arc<Inner>, entry: Arc<Entry>, mut begin: Begin) {
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
            saving: Saving::new(&entry, None),
            record,
        };
        // A set, so that a driver ends with its supervisor.
        let mut task = JoinSet::new();
        task.spawn(driver.run(begin));
        match task.join_next().await {
            Some(Err(error)) if error.is_panic() => {
                warn!(sandbox = %entry.id, tenant = %entry.tenant, "driver ended by a fault; starting another");
                begin = Begin::Broken;
                // A fault that comes again at once must not take a processor.
                tokio::time::sleep(AGAIN).await;
            }
            _ => return,
        }
    }
}

/// Connects for news of an agent's shells.
pub(crate) async fn watch(entry: &Entry, wait: Duration) -> Result<Watch, AgentError> {
    let (wire, shells, execs) = watch_at(&entry.directory, wait).await?;
    entry.sessions.inventory(&shells);
    Ok(Watch {
        wire,
        seen: AgentActivity::inventory(&shells, execs),
        ended: saving::ended(&shells),
    })
}

/// The moment that the wall clock means now. Later changes of that clock do not move it.
pub(crate) fn until(expires_at_ms: Option<i64>) -> Option<Instant> {
    let left = Duration::from_millis(u64::try_from(expires_at_ms? - now_ms()).unwrap_or(0));
    Some(Instant::now() + left.min(NEVER))
}

impl Driver {
    async fn run(mut self, begin: Begin) {
        match begin {
            Begin::Make { once, ready } => {
                if let Err(error) = self.make(once, ready).await {
                    return self.undo(error).await;
                }
            }
            Begin::Attached(watch) => {
                self.adopt(watch).await;
                self.find_scopes();
            }
            Begin::Failed => self.end_reading().await,
            Begin::Asleep => self.retry_cleanup().await,
            Begin::Lost => {
                self.settle().await;
                self.cleanup_pending = self.record.state == State::Sleeping;
            }
            Begin::Broken => match self.record.state {
                State::Creating => {
                    return self.undo(Error::Fault("the making ended by a fault".into())).await;
                }
                State::Destroying => {
                    self.end(None).await;
                    return;
                }
                State::Running => match watch(&self.entry, REATTACH_WAIT).await {
                    Ok(watch) => {
                        self.adopt(watch).await;
                        self.find_scopes();
                        // It may have been on its way to sleep.
                        self.entry.activity.open();
                        self.settle().await;
                    }
                    Err(_) => self.fail("internal fault").await,
                },
                State::Sleeping => self.retry_cleanup().await,
                State::Failed => self.end_reading().await,
                State::Unreachable => {}
                State::Destroyed => return,
            },
        }
        self.serve().await;
    }

    /// Everything after its making, until it is deleted or let go.
    async fn serve(&mut self) {
        let entry = Arc::clone(&self.entry);
        let mut post = entry.post.lock().await;
        loop {
            let left = self.left();
            let watching = self.watch.is_some();
            let silent = self.record.state == State::Unreachable;
            let idle_timeout = self.idle_timeout();
            let cleanup_pending = self.cleanup_pending;
            tokio::select! {
                order = post.recv() => match order {
                    Some(DriverCommand::Patch(patch, answer)) => {
                        let _ = answer.send(self.patch(*patch).await);
                    }
                    Some(DriverCommand::Expose(change, answer)) => {
                        let _ = answer.send(self.expose(change).await);
                    }
                    Some(DriverCommand::Network(change, answer)) => {
                        let _ = answer.send(self.network(*change).await);
                    }
                    Some(DriverCommand::Link(answer)) => {
                        let _ = answer.send(self.link().await);
                    }
                    Some(DriverCommand::Trust) => self.trust().await,
                    Some(DriverCommand::Sleep(answer)) => {
                        let _ = answer.send(self.sleep().await);
                    }
                    Some(DriverCommand::Wake(answer)) => {
                        let _ = answer.send(self.wake().await);
                    }
                    Some(DriverCommand::Read(answer)) => {
                        let _ = answer.send(self.read().await);
                    }
                    Some(DriverCommand::Recover(answer)) => {
                        let _ = answer.send(self.recover().await);
                    }
                    Some(DriverCommand::LossReported) => self.told_lost().await,
                    Some(DriverCommand::Check) => self.check().await,
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
                () = tokio::time::sleep(left) => {
                    info!(sandbox = %entry.id, tenant = %entry.tenant, "its time is over");
                    if self.end(None).await {
                        return;
                    }
                }
                () = entry.activity.idle(idle_timeout.unwrap_or(NEVER)), if idle_timeout.is_some() => self.drowse().await,
                () = tokio::time::sleep(AGAIN), if cleanup_pending => self.retry_cleanup().await,
                heard = next(&mut self.watch), if watching => self.hear(heard).await,
                found = call(&entry), if silent => self.found(found).await,
            }
        }
    }

    /// How long it still has.
    fn left(&self) -> Duration {
        self.until.map_or(NEVER, |until| until.saturating_duration_since(Instant::now()))
    }

    fn follow(&mut self, watch: Watch) {
        (self.watch, self.seen) = (Some(watch.wire), watch.seen);
        self.saving = Saving::new(&self.entry, None);
    }

    /// Likewise; and what was saved of shells that are not open waits for them.
    async fn adopt(&mut self, watch: Watch) {
        for id in &watch.ended {
            self.entry.shell_states.forget(id).await;
        }
        self.follow(watch);
        let seen = &self.seen;
        self.entry.shell_states.await_shells(|id| seen.open(id)).await;
    }

    fn changed(&mut self, activity: Option<Activity>, execs: u32) {
        if self.seen.busy() {
            self.entry.activity.touch();
        }
        self.seen.changed(activity.as_ref(), execs);
        if let Some(activity) = activity {
            self.entry.sessions.changed(&activity, true);
        }
    }

    /// Beside everything else: calls that need one find it themselves.
    fn find_scopes(&self) {
        let sandbox = Sandbox::new(Arc::clone(&self.inner), Arc::clone(&self.entry));
        self.inner.spawn(async move {
            sandbox.find_scopes().await;
            sandbox.resume_recordings().await;
        });
    }

    async fn hear(&mut self, heard: Result<AgentEvent, AgentError>) {
        let error = match heard {
            Ok(AgentEvent::Response(AgentResponse::Changed { activity, execs })) => {
                return self.changed(activity, execs);
            }
            Ok(AgentEvent::Response(AgentResponse::Saved { shell, what })) => {
                if let Some(wire) = &mut self.watch {
                    // What is not saved now is told by the sleep that finds it so.
                    let _ = self.saving.told(wire, shell, what).await;
                }
                return;
            }
            Ok(_) => AgentError::Turn("unasked on the driver's connection"),
            Err(error) => error,
        };
        self.watch = None;
        self.entry.pool.drop_links(None);
        match watch(&self.entry, REATTACH_WAIT).await {
            Ok(watch) => {
                warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "connection to the agent replaced");
                self.adopt(watch).await;
            }
            Err(AgentError::Silent) => self.fall_silent().await,
            Err(AgentError::Frame(_) | AgentError::Turn(_)) => {
                self.fail("agent sent a bad frame").await
            }
            Err(_) => self.fail("agent killed").await,
        }
    }

    /// Its agent may only be slow: nothing of it is killed.
    async fn fall_silent(&mut self) {
        if self.shift(Event::Silent).is_ok() {
            let cause = "agent does not answer";
            warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, cause, "unreachable");
            self.record.body.cause = Some(cause.to_owned());
            self.publish(None);
            self.settle().await;
        }
    }

    /// A silent agent was asked again.
    async fn found(&mut self, found: Result<Watch, AgentError>) {
        match found {
            Ok(watch) => {
                if self.shift(Event::Greeted).is_ok() {
                    info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "it answers again");
                    self.record.body.cause = None;
                    self.adopt(watch).await;
                    self.publish(None);
                    self.settle().await;
                }
            }
            Err(AgentError::Silent) => {}
            Err(_) => self.fail("agent is gone").await,
        }
    }

    fn spec(&self, kept: bool) -> Spec {
        Spec {
            name: self.record.name.clone(),
            slot: self.record.slot,
            hostname: crate::live::warm_pool::HOSTNAME.to_owned(),
            limits: self.record.body.limits,
            root: self.record.body.root.as_ref().map(crate::model::record::layers),
            kept,
            linked: false,
        }
    }

    /// Recorded and launched at the same time: a directory without a record, or a record that
    /// still says `creating`, is removed by the next start of the server.
    async fn make(&mut self, once: Option<IdempotencyKey>, ready: bool) -> Result<(), Error> {
        let begun = Instant::now();
        pass("create.before_record").await?;
        let spec = self.spec(false);
        let row = self.record.row()?;
        let recorded = async {
            self.entry.secret_store.write().await?;
            self.inner.store.insert(row).await?;
            pass("create.recorded").await
        };
        let launched = async {
            match ready {
                true => self.dress(spec.limits).await?,
                false => self.launch(spec).await?,
            }
            pass("create.jailed").await
        };
        let (recorded, launched) = tokio::join!(recorded, launched);
        recorded.and(launched)?;
        self.follow(watch(&self.entry, GREETING_WAIT).await?);
        pass("create.greeted").await?;
        self.trust().await;
        // Whole microseconds: they read as three decimals.
        self.record.body.create_ms = begun.elapsed().as_micros() as f64 / 1000.0;
        self.shift(Event::Greeted)?;
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
            // Not yet published: for everybody else it is still being made.
            self.record.state = State::Creating;
            return Err(error);
        }
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, ms = self.record.body.create_ms, "created");
        self.publish(None);
        if ready {
            self.claimed();
        }
        Ok(())
    }

    /// Its record says whose it is. Behind the answer: only a loss of that record makes this matter.
    fn claimed(&self) {
        let directory = self.entry.directory.clone();
        self.inner.spawn(async move {
            let _ = blocking(move || orphans::unmark(&directory)).await;
        });
    }

    /// The server stops: what is only in memory is written.
    async fn detach(&mut self) {
        if self.reading {
            self.end_reading().await;
        }
        self.watch = None;
        self.entry.let_go();
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
            warn!(sandbox = %self.entry.id, %error, "last activity of its sessions is not recorded");
        }
    }

    fn cage(&self) -> CgroupControl {
        CgroupControl { config: self.inner.jail.clone(), name: self.record.name.clone() }
    }

    fn shift(&mut self, event: Event) -> Result<(), Error> {
        self.record.state = self.record.state.next(event).map_err(|refused| {
            warn!(sandbox = %self.entry.id, %refused, "a move that does not exist");
            Error::Fault(refused.to_string())
        })?;
        Ok(())
    }

    async fn write(&self, answer: Option<isolet_store::StoredAnswer>) -> Result<(), Error> {
        let (record, body) = (&self.record, self.record.body.json()?);
        Ok(self.inner.store.update(&record.name, record.state.word(), body, answer).await?)
    }

    fn publish(&self, end: Option<Result<Ended, Error>>) {
        let made = !matches!(end, Some(Err(_)));
        let view = View { record: Arc::new(self.record.clone()), end };
        let was = self.entry.state();
        // What could not be made was never told of.
        if made {
            let cause = self.record.body.cause.as_ref();
            // Before anybody is answered: who follows events after that hears what comes then.
            self.inner.moved(&self.entry, (was, self.record.state), cause);
        }
        self.entry.view.send_replace(view);
    }
}

/// Asks a silent agent whether it answers by now.
async fn call(entry: &Entry) -> Result<Watch, AgentError> {
    let found = watch(entry, REATTACH_WAIT).await;
    if matches!(found, Err(AgentError::Silent)) {
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
    pub(crate) fn drive(self: &Arc<Self>, entry: Arc<Entry>, begin: Begin) {
        self.spawn(supervise(Arc::clone(self), entry, begin));
    }
}
