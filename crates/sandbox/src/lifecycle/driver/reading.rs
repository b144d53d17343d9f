//! Reading the files of a failed sandbox, and recovering it.
//!
//! A failed sandbox keeps its files. To read them, the server starts an agent on the sandbox's
//! directories, without a network, and ends it soon after the last reader. The sandbox stays
//! `failed` with its cause. A recovered sandbox is asleep, and the next call that needs it wakes
//! it.

use crate::agent_client::watch::watch_at;
use crate::lifecycle::driver::{Driver, GREETING_WAIT, KILL_WAIT, REATTACH_WAIT};
use crate::live::entry::SandboxEntry;
use crate::model::activity::ActivityGuard;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::ids::SessionId;
use crate::model::info::{LossReason, Lost, LostState, RecoveredSandbox};
use crate::model::record::UNREAD;
use crate::model::state::{State, Transition};
use std::time::Duration;
use tracing::{info, warn};

/// How long the agent runs after the last reader.
pub(crate) const READING_IDLE: Duration = Duration::from_secs(10);

impl Driver {
    /// Starts an agent that reads the files of a failed sandbox. The agent runs as long as the
    /// guard is held, and a little longer.
    pub(crate) async fn read(&mut self) -> Result<ActivityGuard, Error> {
        match self.record.state {
            State::Failed => {}
            State::Running => return self.hold(),
            _ => return Err(self.no_work()),
        }
        if self.reading
            && watch_at(&self.entry.directory, &self.entry.pool.version, REATTACH_WAIT)
                .await
                .is_ok()
        {
            return self.hold();
        }
        self.let_read().await.inspect_err(|error| {
            warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "files of a failed sandbox cannot be read");
        })?;
        self.hold()
    }

    async fn let_read(&mut self) -> Result<(), Error> {
        let counted = self.record.body.used;
        self.take_apart().await?;
        if self.record.body.used != counted {
            // If that fails, the usage stays in memory until the record is written again.
            self.settle_record().await;
            self.publish(None);
        }
        self.inner.layers_there(&self.record.body)?;
        self.reading = true;
        let begun = async {
            let admission = self.admission().await?;
            self.inner.launch.launch(self.spec(true), None, admission).await?;
            Ok::<_, Error>(
                watch_at(&self.entry.directory, &self.entry.pool.version, GREETING_WAIT).await?,
            )
        };
        if let Err(error) = begun.await {
            self.end_reading().await;
            return Err(error);
        }
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "agent started to read the files of a failed sandbox");
        Ok(())
    }

    /// Ends the agent of a failed sandbox.
    pub(crate) async fn end_reading(&mut self) {
        self.reading = false;
        if let Err(error) = self.kill().await {
            warn!(sandbox = %self.entry.id, %error, "some processes still run");
        }
    }

    /// Kills all processes and removes the cgroups; the files stay. The usage of the cgroups and
    /// the veth pair is added to the record, which the caller writes.
    async fn take_apart(&mut self) -> Result<(), Error> {
        self.reading = false;
        let handle = self.handle();
        let traffic = self.inner.egress.traffic(&self.entry).await;
        let apart = blocking(move || {
            let handle = handle.open();
            handle.kill()?;
            if !handle.wait_empty(KILL_WAIT) || !handle.wait_unmounted(KILL_WAIT) {
                return Ok(None);
            }
            let usage = handle.usage();
            handle.remove_cgroups()?;
            Ok::<_, std::io::Error>(Some(usage))
        });
        let usage = match apart.await? {
            Ok(Some(usage)) => usage,
            Ok(None) => return Err(Error::TooLate("killing what runs in the sandbox")),
            Err(error) => {
                let message = format!("cannot end what runs in the sandbox: {error}");
                return Err(Error::Fault(message));
            }
        };
        // Cgroups that were created to read files do not count; see `UsageCounters::counted`.
        if !self.record.body.used.counted() {
            self.record.counted(usage);
            self.record.carried(traffic);
        }
        // The old namespace may live on, but the next one needs a veth pair of its own.
        if let Err(error) = self.inner.egress.release(&self.entry).await {
            info!(sandbox = %self.entry.id, %error, "veth pair could not be released; it ends with its namespace");
        }
        Ok(())
    }

    /// Turns a failed sandbox into a sleeping one, with its files and the saved states of its
    /// shells. An ephemeral sandbox has nothing to restore, and a sandbox whose record cannot be
    /// read would come back changed, so both are refused.
    pub(crate) async fn recover(&mut self) -> Result<RecoveredSandbox, Error> {
        match self.record.state {
            State::Failed => {}
            State::Running | State::Sleeping => return Ok(self.recovered()),
            _ => return Err(self.no_work()),
        }
        let unread = self.record.body.cause.as_deref() == Some(UNREAD);
        if unread || !self.record.body.persistent {
            return Err(self.no_work());
        }
        if !self.entry.activity.close() {
            return Err(Error::InUse(self.entry.id.clone()));
        }
        if let Err(error) = self.take_apart().await {
            self.entry.activity.open();
            return Err(error);
        }
        let old = self.record.clone();
        let done = async {
            self.shift(Transition::Recover)?;
            self.record.body.cause = None;
            self.record.body.lost = Some(crashed(&self.entry, true));
            self.write(None).await
        };
        if let Err(error) = done.await {
            self.record = old;
            self.entry.activity.open();
            return Err(error);
        }
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "failed sandbox recovered; it is asleep");
        self.publish(None);
        Ok(self.recovered())
    }

    /// The answer to a recovery. The next command of a client reports the same losses again.
    fn recovered(&self) -> RecoveredSandbox {
        RecoveredSandbox { info: self.record.info(), lost: self.record.body.lost.clone() }
    }
}

/// What the end of the host has lost: all processes, and changes since the shells were last saved.
pub(crate) fn crashed(entry: &SandboxEntry, persistent: bool) -> Vec<Lost> {
    let mut lost = vec![Lost::Shells, Lost::Processes];
    if !persistent {
        lost.push(Lost::Files);
        return lost;
    }
    let known = |id: &SessionId| entry.sessions.info(id).is_ok();
    for (session, at) in entry.shell_states.saved_at_ms().into_iter().filter(|(id, _)| known(id)) {
        let saved_at_ms = Some(at);
        lost.push(Lost::ShellState(LostState { session, reason: LossReason::Crash, saved_at_ms }));
    }
    lost
}
