//! Access to the files of a failed sandbox. An agent is started on the sandbox's directories when a
//! call needs it, without a network and without any program of the tenant, and ends soon after the
//! last reader. The sandbox stays `failed`, with its cause. A recovered sandbox is `sleeping`, and
//! the next call that works in it wakes it.

use crate::{
    agent_client::watch::watch_at,
    lifecycle::driver::{Driver, GREETING_WAIT, KILL_WAIT, REATTACH_WAIT},
    live::entry::Entry,
    model::{
        activity::ActivityGuard,
        blocking::blocking,
        error::Error,
        ids::SessionId,
        info::{Info, Lost, LostState, WhyLost},
        record::UNREAD,
        state::{Event, State},
    },
};
use std::time::Duration;
use tracing::{info, warn};

/// How long after the last reader its agent ends.
pub(crate) const READING_IDLE: Duration = Duration::from_secs(10);

impl Driver {
    /// An agent that reads the files of one that has failed; it runs for as long as the answer is
    /// held, and a little longer.
    pub(crate) async fn read(&mut self) -> Result<ActivityGuard, Error> {
        match self.record.state {
            State::Failed => {}
            State::Running => return self.hold(),
            _ => return Err(self.no_work()),
        }
        if self.reading && watch_at(&self.entry.directory, REATTACH_WAIT).await.is_ok() {
            return self.hold();
        }
        self.let_read().await.inspect_err(|error| {
            warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "its files cannot be read");
        })?;
        self.hold()
    }

    async fn let_read(&mut self) -> Result<(), Error> {
        let counted = self.record.body.used;
        self.take_apart().await?;
        if self.record.body.used != counted {
            // Where that fails, what it had used stands in memory until the next record of it.
            self.settle_record().await;
            self.publish(None);
        }
        self.inner.layers_there(&self.record.body)?;
        self.reading = true;
        let begun = async {
            self.inner.launch.launch(self.spec(true), None).await?;
            Ok::<_, Error>(watch_at(&self.entry.directory, GREETING_WAIT).await?)
        };
        if let Err(error) = begun.await {
            self.end_reading().await;
            return Err(error);
        }
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "failed, and its files are read");
        Ok(())
    }

    /// Ends what runs of one that has failed.
    pub(crate) async fn end_reading(&mut self) {
        self.reading = false;
        if let Err(error) = self.kill().await {
            warn!(sandbox = %self.entry.id, %error, "something of it still runs");
        }
    }

    /// Nothing of it runs and no group of it is left; its files stay. What its groups and its link
    /// had counted is added to the record, which the caller writes.
    async fn take_apart(&mut self) -> Result<(), Error> {
        self.reading = false;
        let cage = self.cage();
        let traffic = self.inner.egress.traffic(&self.entry).await;
        let apart = blocking(move || {
            let cage = cage.open();
            cage.kill()?;
            if !cage.wait_empty(KILL_WAIT) || !cage.wait_unmounted(KILL_WAIT) {
                return Ok(None);
            }
            let usage = cage.usage();
            cage.remove_cgroups()?;
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
        // Groups that were made to read files count for nothing: see `Used::counted`.
        if !self.record.body.used.counted() {
            self.record.counted(usage);
            self.record.carried(traffic);
        }
        // Its namespace may outlive it, and the next one is to have a link of its own.
        if let Err(error) = self.inner.egress.release(&self.entry).await {
            info!(sandbox = %self.entry.id, %error, "its link ends by itself");
        }
        Ok(())
    }

    /// One that has failed is asleep after this, with its files and what was saved of its shells.
    /// An ephemeral one has nothing to come back to, and one whose record does not read would come
    /// back as another.
    pub(crate) async fn recover(&mut self) -> Result<Info, Error> {
        match self.record.state {
            State::Failed => {}
            State::Running | State::Sleeping => return Ok(self.record.info()),
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
            self.shift(Event::Recover)?;
            self.record.body.cause = None;
            self.record.body.lost = Some(crashed(&self.entry, true));
            self.write(None).await
        };
        if let Err(error) = done.await {
            self.record = old;
            self.entry.activity.open();
            return Err(error);
        }
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "recovered: it sleeps");
        self.publish(None);
        Ok(self.record.info())
    }
}

/// What the end of the host has cost: what was done since shells were last saved, and all that ran.
pub(crate) fn crashed(entry: &Entry, persistent: bool) -> Vec<Lost> {
    let mut lost = vec![Lost::Shells, Lost::Processes];
    if !persistent {
        lost.push(Lost::Files);
        return lost;
    }
    let known = |id: &SessionId| entry.sessions.info(id).is_ok();
    for (session, at) in entry.shell_states.saved_at_ms().into_iter().filter(|(id, _)| known(id)) {
        let saved_at_ms = Some(at);
        lost.push(Lost::ShellState(LostState { session, why: WhyLost::Crash, saved_at_ms }));
    }
    lost
}
