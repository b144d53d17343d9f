//! Falls asleep and wakes up. The driver does both, one after the other, and nothing comes in
//! between.
//!
//! To sleep, the driver stops admitting calls ([`crate::model::activity`]) and asks the agent once
//! more, which saves the state of its shells. It records `sleeping`, and only then kills anything.
//! To wake, it creates a sandbox on the same directories, and records `running` before it admits a
//! call.
//!
//! A server that is killed at any step finds one of two records. `sleeping` beside processes that
//! may still run: they are killed, because no call was admitted. `running` beside an agent that
//! answers: it continues.

use crate::{
    agent_client::{agent_activity::AgentActivity, watch::watch_at},
    lifecycle::driver::{
        Driver, GREETING_WAIT, KILL_WAIT, REATTACH_WAIT, reading::READING_IDLE, watch,
    },
    live::{failpoint::pass, saving::Saving},
    model::{
        activity::ActivityGuard,
        agent_error::AgentError,
        blocking::blocking,
        error::Error,
        info::{Info, Lost},
        record::failed,
        state::{Event, State},
    },
    sandbox::Sandbox,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::{info, warn};

/// How often, and with what pause, it is looked whether a process is ending.
const ENDING_LOOKS: u32 = 5;
const ENDING_PAUSE: Duration = Duration::from_millis(4);

impl Driver {
    /// How long nobody may work in it until it falls asleep; `None`: it does not now.
    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        if self.reading {
            return Some(READING_IDLE);
        }
        let awake =
            self.record.state != State::Running || self.seen.busy() || self.entry.scopes.busy();
        let after = self.record.body.sleep_after_s.filter(|_| !awake)?;
        Some(Duration::from_secs(after))
    }

    /// Nobody has worked in it for long enough.
    pub(crate) async fn drowse(&mut self) {
        if self.reading {
            return self.end_reading().await;
        }
        if let Err(error) = self.sleep().await {
            // In use after all, or not recorded: its time begins anew.
            self.entry.activity.touch();
            if !matches!(error, Error::InUse(_)) {
                warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "does not sleep");
            }
        }
    }

    /// Puts it to sleep, unless somebody works in it.
    pub(crate) async fn sleep(&mut self) -> Result<Info, Error> {
        match self.record.state {
            State::Running => {}
            State::Sleeping => return Ok(self.record.info()),
            _ => return Err(self.no_work()),
        }
        if !self.entry.activity.close() {
            return Err(Error::InUse(self.entry.id.clone()));
        }
        if let Err(error) = self.fall_asleep().await {
            self.entry.activity.open();
            return Err(error);
        }
        self.retry_cleanup().await;
        Ok(self.record.info())
    }

    async fn fall_asleep(&mut self) -> Result<(), Error> {
        pass("sleep.closed").await?;
        let lost = self.at_stake().await?;
        self.keep_ends().await;
        let old = self.record.clone();
        let cage = self.cage();
        let groups = blocking(move || cage.open().usage()).await?;
        self.record.rest();
        self.record.counted(groups);
        self.record.carried(self.inner.egress.traffic(&self.entry).await);
        self.shift(Event::Sleep)?;
        self.record.body.lost = Some(lost);
        self.keep_activity().await;
        if let Err(error) = self.write(None).await {
            self.record = old;
            return Err(error);
        }
        // From here on it is asleep, whatever happens.
        let _ = pass("sleep.recorded").await;
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "sleeping");
        self.watch = None;
        self.seen = AgentActivity::default();
        self.entry.let_go();
        self.entry.sessions.ended();
        self.publish(None);
        Ok(())
    }

    /// What is lost when it ends now; refused while a command runs that no client waits for.
    async fn at_stake(&mut self) -> Result<Vec<Lost>, Error> {
        self.follow(watch(&self.entry, REATTACH_WAIT).await?);
        if self.seen.busy() {
            return Err(Error::InUse(self.entry.id.clone()));
        }
        let mut unsaved = self.save_all().await?;
        // By now all shells were told of, also where they are many.
        if self.seen.busy() {
            return Err(Error::InUse(self.entry.id.clone()));
        }
        let mut private = self.seen.private();
        let mut shells = self.seen.shells();
        let mut terminals = self.seen.terminals();
        let mut contexts = self.seen.contexts();
        let mut tasks = self.seen.context_tasks();
        for (id, scope) in self.entry.scopes.all() {
            let (mut wire, open, execs) = watch_at(&scope.directory, REATTACH_WAIT).await?;
            let now = AgentActivity::inventory(&open, execs);
            if now.busy() {
                return Err(Error::InUse(self.entry.id.clone()));
            }
            unsaved.extend(Saving::new(&self.entry, Some(id)).all(&mut wire, |_, _| {}).await?);
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

    /// Notes how processes in the background have ended, which their agents know alone.
    async fn keep_ends(&self) {
        let sandbox = Sandbox::new(Arc::clone(&self.inner), Arc::clone(&self.entry));
        let told = tokio::time::timeout(REATTACH_WAIT, sandbox.processes()).await;
        if let Ok(Ok(told)) = told {
            self.entry.process_records.ended(told).await;
        }
    }

    async fn save_all(&mut self) -> Result<Vec<Lost>, Error> {
        let mut wire = self.watch.take().ok_or(AgentError::Silent)?;
        let mut saving = Saving::new(&self.entry, None);
        let unsaved = saving.all(&mut wire, |shell, execs| self.changed(shell, execs)).await;
        // Also one that broke: who hears it next connects anew.
        self.watch = Some(wire);
        unsaved
    }

    /// Whether anything but its shells runs. What saved them may just be ending.
    async fn more_than(&self, shells: u64) -> Result<bool, Error> {
        for _ in 0..ENDING_LOOKS {
            let cage = self.cage();
            let usage = blocking(move || cage.open().usage()).await?;
            if usage.pids <= shells {
                return Ok(false);
            }
            tokio::time::sleep(ENDING_PAUSE).await;
        }
        Ok(true)
    }

    /// Ends what runs of a sleeping one; tried again until nothing does.
    pub(crate) async fn retry_cleanup(&mut self) {
        self.cleanup_pending = false;
        if let Err(error) = self.rest().await {
            warn!(sandbox = %self.entry.id, %error, "asleep, and something of it is left");
            self.cleanup_pending = true;
        }
        // Its namespace may outlive it for a while, by what was sent and not answered.
        if let Err(error) = self.inner.egress.release(&self.entry).await {
            info!(sandbox = %self.entry.id, %error, "its link ends by itself");
        }
    }

    /// Nothing of it runs after this; an ephemeral one has no files either. May have been done.
    async fn rest(&self) -> Result<(), Error> {
        let cage = self.cage();
        let persistent = self.record.body.persistent;
        let rested = blocking(move || {
            let cage = cage.open();
            cage.kill()?;
            if !cage.wait_empty(KILL_WAIT) || !cage.wait_unmounted(KILL_WAIT) {
                return Ok(false);
            }
            if persistent {
                cage.remove_cgroups()?
            } else {
                cage.remove()?
            }
            Ok::<_, std::io::Error>(true)
        });
        let rested = rested.await?.map_err(|error| {
            Error::Fault(format!("cannot end what runs in the sandbox: {error}"))
        })?;
        if !self.record.body.persistent {
            self.inner.trash.notify_one();
        }
        let _ = pass("sleep.rested").await;
        if rested { Ok(()) } else { Err(Error::TooLate("killing what runs in the sandbox")) }
    }

    /// Makes it anew on its directories. Who comes second finds it awake.
    pub(crate) async fn wake(&mut self) -> Result<ActivityGuard, Error> {
        match self.record.state {
            State::Running => return self.hold(),
            State::Sleeping => {}
            _ => return Err(self.no_work()),
        }
        let begun = Instant::now();
        self.rest().await?;
        self.cleanup_pending = false;
        if let Err(error) = self.make_anew().await {
            warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "does not wake");
            self.watch = None;
            self.record.state = State::Sleeping;
            self.retry_cleanup().await;
            return Err(error);
        }
        let ms = begun.elapsed().as_micros() as f64 / 1000.0;
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, ms, "woke");
        self.hold()
    }

    /// Only this driver closes the door, and it is here.
    pub(crate) fn hold(&self) -> Result<ActivityGuard, Error> {
        self.entry
            .activity
            .enter()
            .ok_or_else(|| Error::Fault("running, and its door is closed".into()))
    }

    async fn make_anew(&mut self) -> Result<(), Error> {
        pass("wake.begun").await?;
        self.inner.layers_there(&self.record.body)?;
        self.launch(self.spec(self.record.body.persistent)).await?;
        pass("wake.launched").await?;
        self.adopt(watch(&self.entry, GREETING_WAIT).await?).await;
        self.trust().await;
        self.shift(Event::Greeted)?;
        self.record.woke();
        self.write(None).await?;
        let _ = pass("wake.recorded").await;
        self.entry.lost().clone_from(&self.record.body.lost);
        self.entry.activity.open();
        self.publish(None);
        Ok(())
    }

    /// Somebody has been told what was lost: nobody else is.
    pub(crate) async fn told_lost(&mut self) {
        if self.record.state != State::Running {
            return;
        }
        self.record.body.lost = self.entry.lost().clone();
        if let Err(error) = self.write(None).await {
            warn!(sandbox = %self.entry.id, %error, "what a sleep has lost may be told again");
        }
        self.publish(None);
    }

    /// Why it can neither sleep nor wake.
    pub(crate) fn no_work(&self) -> Error {
        match self.record.state {
            State::Failed => failed(&self.record),
            State::Unreachable => Error::Unreachable(self.entry.id.clone()),
            _ => Error::NoSandbox(self.entry.id.clone()),
        }
    }
}
