//! Falling asleep and waking up. The driver does both, one step after the other.
//!
//! To sleep, the driver refuses new uses ([`crate::model::activity`]), lets the agent report once
//! more and save its shells, and records `sleeping`. Only then does it kill anything. To wake, it
//! launches the sandbox on its directories and records `running` before it admits any use. If the
//! server is killed in between, the next one finds either a record that says `sleeping` (it kills
//! what still runs, which no client could use) or one that says `running` with an agent that
//! answers.

use crate::agent_client::agent_activity::AgentActivity;
use crate::agent_client::watch::{AgentReports, watch_at};
use crate::lifecycle::driver::reading::READING_IDLE;
use crate::lifecycle::driver::{Driver, GREETING_WAIT, KILL_WAIT, REATTACH_WAIT, watch};
use crate::live::failpoint::pass;
use crate::live::state_receiver::StateReceiver;
use crate::model::activity::ActivityGuard;
use crate::model::agent_error::AgentError;
use crate::model::blocking::blocking;
use crate::model::command::{ResumedFor, SleepMode};
use crate::model::error::Error;
use crate::model::info::{LossReason, Lost, LostState, SandboxInfo};
use crate::model::record::failed;
use crate::model::record::snapshot_layers::LayerStack;
use crate::model::state::{State, Transition};
use crate::sandbox::Sandbox;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tracing::{info, warn};

/// Number of checks whether the remaining processes are just ending.
const ENDING_LOOKS: u32 = 5;
const ENDING_PAUSE: Duration = Duration::from_millis(4);
/// How long all agents of a sandbox together may take to save their shells before a forced sleep ends
/// them. Deliberately shorter than what one agent may take that keeps reporting something, because the
/// client does not wait for what runs, and an agent gives up on each shell after 3 s.
const FORCED_WAIT: Duration = Duration::from_secs(30);

impl Driver {
    /// Idle time after which the sandbox falls asleep; `None` if it must not sleep now.
    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        if self.reading {
            return Some(READING_IDLE);
        }
        let must_not_sleep = self.entry.is_suspended()
            || self.record.state != State::Running
            || self.seen.busy()
            || self.entry.scopes.busy();
        let after = self.record.body.sleep_after_s.filter(|_| !must_not_sleep)?;
        Some(Duration::from_secs(after))
    }

    /// Puts an idle sandbox to sleep.
    pub(crate) async fn auto_sleep(&mut self) {
        if self.reading {
            return self.end_reading().await;
        }
        if let Err(error) = self.sleep(SleepMode::Unused).await {
            // The sandbox is in use after all, or the sleep could not be recorded. The idle time
            // starts again.
            self.entry.activity.touch();
            if !matches!(error, Error::InUse(_)) {
                warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "does not sleep");
            }
        }
    }

    /// Puts the sandbox to sleep, unless it is in use and `how` respects that. A paused sandbox must continue for that,
    /// because its agents save the shells. If it does not fall asleep, it is paused again. A lifetime that
    /// was stopped stays so in both cases, until a client resumes or wakes the sandbox.
    pub(crate) async fn sleep(&mut self, how: SleepMode) -> Result<SandboxInfo, Error> {
        if self.record.state != State::Paused {
            return self.sleep_awake(how).await;
        }
        self.resume(ResumedFor::Server).await?;
        let slept = self.sleep_awake(how).await;
        if slept.is_err()
            && self.record.state == State::Running
            && let Err(error) = self.pause().await
        {
            warn!(sandbox = %self.entry.id, %error, "neither asleep nor paused again; it runs");
        }
        slept
    }

    async fn sleep_awake(&mut self, how: SleepMode) -> Result<SandboxInfo, Error> {
        match self.record.state {
            State::Running => {}
            State::Sleeping => return Ok(self.record.info()),
            _ => return Err(self.no_work()),
        }
        match how {
            SleepMode::Forced => self.entry.activity.close_in_use(),
            SleepMode::Unused if self.entry.activity.close() => {}
            SleepMode::Unused => return Err(Error::InUse(self.entry.id.clone())),
        }
        let begun = Instant::now();
        if let Err(error) = self.fall_asleep(how).await {
            self.entry.activity.open();
            if !matches!(error, Error::InUse(_)) {
                self.inner.metrics.lifecycle.sleep_failures.inc();
            }
            return Err(error);
        }
        self.retry_cleanup().await;
        self.inner.metrics.lifecycle.sleeps.observe(begun.elapsed());
        Ok(self.record.info())
    }

    async fn fall_asleep(&mut self, how: SleepMode) -> Result<(), Error> {
        pass("sleep.closed").await?;
        let lost = match how {
            SleepMode::Forced => self.losses_of_forced_sleep().await?,
            SleepMode::Unused => self.losses_of_sleep(how).await?,
        };
        self.keep_ends().await;
        let old = self.record.clone();
        let handle = self.handle();
        let groups = blocking(move || handle.open().usage()).await?;
        self.record.rest();
        self.record.counted(groups);
        self.record.carried(self.inner.egress.traffic(&self.entry).await);
        self.shift(Transition::Sleep)?;
        self.record.body.lost = Some(lost);
        if !self.record.body.persistent {
            // Its files are removed, also those in layers.
            self.record.body.layers = LayerStack::default();
        }
        self.apply_folds();
        self.keep_activity().await;
        if let Err(error) = self.write(None).await {
            self.record = old;
            return Err(error);
        }
        // From here on the sandbox is asleep, whatever happens.
        let _ = pass("sleep.recorded").await;
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "sleeping");
        self.watch = None;
        self.seen = AgentActivity::default();
        self.entry.disconnect();
        self.entry.sessions.ended();
        self.publish(None);
        self.list_layers().await;
        if self.record.body.layers.to_fold().is_some() {
            self.inner.snapshots.files.layers.more.notify_one();
        }
        Ok(())
    }

    /// Returns what a forced sleep loses. If an agent does not answer, all that it may have is lost.
    ///
    /// # Errors
    /// Errors that are not the agent's, such as [`AgentError::Short`].
    async fn losses_of_forced_sleep(&mut self) -> Result<Vec<Lost>, Error> {
        let known = timeout(FORCED_WAIT, self.losses_of_sleep(SleepMode::Forced)).await;
        let error = match known {
            // A shortage of this server says nothing of the agent: nothing is lost, and it is refused.
            Ok(Err(Error::Link(error))) if error != AgentError::Short => error,
            Ok(known) => return known,
            Err(_) => AgentError::Silent,
        };
        warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "is put to sleep, although its agent does not answer");
        let mut lost = self.entry.lost().clone().unwrap_or_default();
        lost.extend([Lost::Shells, Lost::Processes]);
        if self.seen.terminals() > 0 {
            lost.push(Lost::Terminals);
        }
        if self.seen.contexts() > 0 {
            lost.push(Lost::Contexts);
        }
        if !self.record.body.persistent {
            lost.push(Lost::Files);
        }
        let saved = self.entry.shell_states.saved_at_ms().into_iter();
        lost.extend(saved.map(|(session, saved_at_ms)| {
            let reason = LossReason::NoAnswer;
            Lost::ShellState(LostState { session, reason, saved_at_ms: Some(saved_at_ms) })
        }));
        lost.sort_unstable();
        lost.dedup();
        Ok(lost)
    }

    /// Returns what a sleep would lose. Unless it is forced, refuses while a command runs that no
    /// client waits for.
    async fn losses_of_sleep(&mut self, how: SleepMode) -> Result<Vec<Lost>, Error> {
        self.follow(watch(&self.entry, REATTACH_WAIT).await?);
        let forced = how == SleepMode::Forced;
        if !forced && self.seen.busy() {
            return Err(Error::InUse(self.entry.id.clone()));
        }
        let mut unsaved = self.save_all().await?;
        // By now the agent has reported all shells, even if there are many.
        if !forced && self.seen.busy() {
            return Err(Error::InUse(self.entry.id.clone()));
        }
        let mut private = self.seen.private();
        let mut shells = self.seen.shells();
        let mut terminals = self.seen.terminals();
        let mut contexts = self.seen.contexts();
        let mut tasks = self.seen.context_tasks();
        for (id, scope) in self.entry.scopes.all() {
            let AgentReports { mut wire, activities: open, execs } =
                watch_at(&scope.directory, &scope.pool.version, REATTACH_WAIT).await?;
            let now = AgentActivity::inventory(&open, execs);
            if !forced && now.busy() {
                return Err(Error::InUse(self.entry.id.clone()));
            }
            unsaved
                .extend(StateReceiver::new(&self.entry, Some(id)).all(&mut wire, |_, _| {}).await?);
            private += now.private();
            shells += now.shells();
            terminals += now.terminals();
            contexts += now.contexts();
            tasks += now.context_tasks();
        }
        let mut lost = self.entry.lost().clone().unwrap_or_default();
        lost.extend(unsaved);
        let persistent = self.record.body.persistent;
        if private > 0 || shells > 0 && !persistent {
            lost.push(Lost::Shells);
        }
        if terminals > 0 {
            lost.push(Lost::Terminals);
        }
        if contexts > 0 {
            lost.push(Lost::Contexts);
        }
        if self.more_than((shells + terminals + tasks) as u64).await? {
            lost.push(Lost::Processes);
        }
        if !persistent {
            lost.push(Lost::Files);
        }
        lost.sort_unstable();
        lost.dedup();
        Ok(lost)
    }

    /// Records the results of background processes, which only their agents know.
    pub(super) async fn keep_ends(&self) {
        let sandbox = Sandbox::new(Arc::clone(&self.inner), Arc::clone(&self.entry));
        let processes = timeout(REATTACH_WAIT, sandbox.processes()).await;
        if let Ok(Ok(processes)) = processes {
            self.entry.process_records.ended(processes).await;
        }
    }

    /// Lets the sandbox's own agent save its shells, and returns what could not be saved. The driver
    /// keeps the connection, also if this is cancelled or the connection breaks: its next reader
    /// reconnects then.
    pub(crate) async fn save_all(&mut self) -> Result<Vec<Lost>, Error> {
        let Self { watch, seen, entry, .. } = self;
        let wire = watch.as_mut().ok_or(AgentError::Silent)?;
        let mut saving = StateReceiver::new(entry, None);
        saving.all(wire, |activity, execs| entry.reported(seen, activity.as_ref(), execs)).await
    }

    /// Whether processes other than the shells are running. A process that helped to save the
    /// shells may be about to exit.
    pub(crate) async fn more_than(&self, shells: u64) -> Result<bool, Error> {
        for _ in 0..ENDING_LOOKS {
            let handle = self.handle();
            let usage = blocking(move || handle.open().usage()).await?;
            if usage.pids <= shells {
                return Ok(false);
            }
            tokio::time::sleep(ENDING_PAUSE).await;
        }
        Ok(true)
    }

    /// Kills what still runs of a sleeping sandbox; repeated until nothing does.
    pub(crate) async fn retry_cleanup(&mut self) {
        self.cleanup_pending = false;
        match self.rest().await {
            Ok(()) => self.end_restore().await,
            Err(Error::Failed { cause, .. }) => self.fail_asleep(cause).await,
            Err(error) => {
                warn!(sandbox = %self.entry.id, %error, "asleep, but some processes are left");
                self.cleanup_pending = true;
            }
        }
        // Unacknowledged data can keep the namespace alive for a while.
        if let Err(error) = self.inner.egress.release(&self.entry).await {
            info!(sandbox = %self.entry.id, %error, "veth pair could not be released; it ends with its namespace");
        }
    }

    /// Marks a sleeping sandbox as failed, because its files are not those of its record.
    async fn fail_asleep(&mut self, cause: String) {
        warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, cause, "failed");
        self.record.state = State::Failed;
        self.record.body.cause = Some(cause);
        self.entry.activity.open();
        self.publish(None);
        self.settle_record().await;
    }

    /// Whether the sandbox starts on the files in its directory.
    fn keeps_files(&self) -> bool {
        self.record.body.persistent || self.record.body.restore.is_some()
    }

    /// Kills all processes, removes the files of an ephemeral sandbox, and puts those of a restore in
    /// place. Can be repeated.
    async fn rest(&self) -> Result<(), Error> {
        let handle = self.handle();
        let persistent = self.keeps_files();
        let rested = blocking(move || {
            let handle = handle.open();
            handle.kill()?;
            if !handle.wait_empty(KILL_WAIT) || !handle.wait_unmounted(KILL_WAIT) {
                return Ok(false);
            }
            if persistent {
                handle.remove_cgroups()?
            } else {
                handle.remove()?
            }
            Ok::<_, std::io::Error>(true)
        });
        let rested = rested.await?.map_err(|error| {
            Error::Fault(format!("cannot end what runs in the sandbox: {error}"))
        })?;
        if !persistent {
            self.inner.trash.notify_one();
        }
        let _ = pass("sleep.rested").await;
        if !rested {
            return Err(Error::TooLate("killing what runs in the sandbox"));
        }
        self.place_restored().await
    }

    /// Launches a sleeping sandbox on its directories, or resumes a paused one if its `auto_resume`
    /// is set. If another caller already did, returns at once.
    pub(crate) async fn wake(&mut self) -> Result<ActivityGuard, Error> {
        match self.record.state {
            State::Running => return self.hold(),
            State::Paused if self.record.body.auto_resume => {
                self.resume(ResumedFor::Client).await?;
                return self.hold();
            }
            State::Sleeping => {}
            _ => return Err(self.no_work()),
        }
        let begun = Instant::now();
        let lifecycle = &self.inner.metrics.lifecycle;
        self.rest().await.inspect_err(|_| _ = lifecycle.wake_failures.inc())?;
        self.cleanup_pending = false;
        if let Err(error) = self.make_anew().await {
            warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "does not wake");
            self.watch = None;
            self.inner.metrics.lifecycle.wake_failures.inc();
            self.record.state = State::Sleeping;
            self.retry_cleanup().await;
            return Err(error);
        }
        let elapsed = begun.elapsed();
        self.inner.metrics.lifecycle.wakes.observe(elapsed);
        let ms = elapsed.as_micros() as f64 / 1000.0;
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, ms, "woke");
        self.hold()
    }

    /// Returns a guard. It cannot fail, because only this driver refuses new uses.
    pub(crate) fn hold(&self) -> Result<ActivityGuard, Error> {
        self.entry
            .activity
            .enter()
            .ok_or_else(|| Error::Fault("running, and its door is closed".into()))
    }

    async fn make_anew(&mut self) -> Result<(), Error> {
        pass("wake.begun").await?;
        self.inner.layers_there(&self.record.body)?;
        self.launch(self.spec(self.keeps_files())).await?;
        pass("wake.launched").await?;
        self.adopt(watch(&self.entry, GREETING_WAIT).await?).await;
        self.trust().await;
        let old = self.record.clone();
        self.shift(Transition::Greeted)?;
        self.record.woke();
        self.restart_lifetime();
        self.record.body.restore = None;
        let recorded = async {
            pass("wake.before_record").await?;
            self.write(None).await
        };
        if let Err(error) = recorded.await {
            self.reset_record(old);
            return Err(error);
        }
        let _ = pass("wake.recorded").await;
        self.entry.lost().clone_from(&self.record.body.lost);
        self.entry.activity.open();
        self.publish(None);
        Ok(())
    }

    /// Forgets the losses after a client has received them.
    pub(crate) async fn told_lost(&mut self) {
        if self.record.state != State::Running {
            return;
        }
        self.record.body.lost = self.entry.lost().clone();
        if let Err(error) = self.write(None).await {
            warn!(sandbox = %self.entry.id, %error, "losses of a sleep may be reported again");
        }
        self.publish(None);
    }

    /// Why the sandbox can neither sleep, wake nor pause.
    pub(crate) fn no_work(&self) -> Error {
        match self.record.state {
            State::Paused => Error::Paused(self.entry.id.clone()),
            State::Failed => failed(&self.record),
            State::Unreachable => Error::Unreachable(self.entry.id.clone()),
            _ => Error::NoSandbox(self.entry.id.clone()),
        }
    }
}
