//! Ends a sandbox: after a failed creation, by a delete, or by a failure. Each step may have been
//! done before, and a failed step is retried.

use crate::{
    lifecycle::driver::{AGAIN, Driver, KILL_WAIT},
    live::failpoint::pass,
    model::{
        blocking::blocking,
        error::Error,
        info::Ended,
        state::{Event, State},
    },
};
use std::time::Instant;
use tokio::sync::oneshot;
use tracing::{info, warn};

impl Driver {
    /// A making that failed leaves nothing.
    pub(crate) async fn undo(&mut self, error: Error) {
        warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "not created");
        self.record.state = State::Destroying;
        self.publish(None);
        self.watch = None;
        while let Err(left) = self.clear(false).await {
            warn!(sandbox = %self.entry.id, error = %left, "half-made sandbox is not removed yet");
            if matches!(left, Error::StoreBroken) {
                // Nothing of it runs, and what may be recorded is the next start's to remove.
                break;
            }
            // Who asked for it need not wait for that.
            self.publish(Some(Err(error.clone())));
            tokio::time::sleep(AGAIN).await;
        }
        self.record.state = State::Destroyed;
        self.inner.registry.remove(&self.entry);
        self.publish(Some(Err(error)));
    }

    /// Ends it; `false` when that cannot be recorded and nothing was changed. The answer comes when
    /// nothing of it runs; what fails is tried again until it is done.
    pub(crate) async fn end(
        &mut self,
        answer: Option<oneshot::Sender<Result<Ended, Error>>>,
    ) -> bool {
        let mut answer = answer;
        if let Err(error) = self.condemn().await {
            warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "not deleted");
            self.until = self.until.map(|until| until.max(Instant::now() + AGAIN));
            if let Some(answer) = answer {
                let _ = answer.send(Err(error));
            }
            return false;
        }
        self.watch = None;
        self.entry.let_go();
        self.publish(None);
        self.destroy(&mut answer).await;
        true
    }

    /// Records its end before anything of it is touched: no kill of the server brings it back.
    ///
    /// # Errors
    /// [`Error::StoreFull`] when the disk is full and so is the reserve for this.
    async fn condemn(&mut self) -> Result<(), Error> {
        if self.record.state == State::Destroying {
            return Ok(());
        }
        let before = self.record.clone();
        self.record.rest();
        self.shift(Event::Delete)?;
        let condemned = match self.record.body.json() {
            Ok(body) => {
                let condemned = self.inner.store.mark_destroying(&self.record.name, body).await;
                condemned.map_err(Error::from)
            }
            Err(error) => Err(error),
        };
        match condemned {
            Err(Error::StoreFull) => {
                self.record = before;
                Err(Error::StoreFull)
            }
            Err(error) => {
                // A broken disk must not keep what runs.
                warn!(sandbox = %self.entry.id, %error, "delete is not recorded; goes on");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Kills and removes one whose end is recorded.
    async fn destroy(&mut self, answer: &mut Option<oneshot::Sender<Result<Ended, Error>>>) {
        let usage = loop {
            let done = match pass("delete.recorded").await {
                Ok(()) => self.clear(true).await,
                Err(error) => Err(error),
            };
            match done {
                Ok(usage) => break usage,
                Err(error @ Error::StoreBroken) => {
                    return self.end_unrecorded(answer.take(), error);
                }
                Err(error) => {
                    warn!(sandbox = %self.entry.id, %error, "not removed yet");
                    if let Some(answer) = answer.take() {
                        let _ = answer.send(Err(error));
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        };
        self.record.state = State::Destroyed;
        let ended = Ended { info: self.record.info(), usage: self.record.usage(usage) };
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "destroyed");
        // In this order: the id is free before anybody hears that it is gone, and who asked for
        // it hears the answer and not only that it is gone.
        self.inner.registry.remove(&self.entry);
        if let Some(answer) = answer.take() {
            let _ = answer.send(Ok(ended.clone()));
        }
        self.publish(Some(Ok(ended)));
        // Its namespace may outlive it for a while, by what was sent and not answered.
        if let Err(error) = self.inner.egress.release(&self.entry).await {
            info!(sandbox = %self.entry.id, %error, "its link ends by itself");
        }
    }

    /// Nothing of it is left but its record, which the next start finds without a sandbox.
    fn end_unrecorded(
        &mut self,
        answer: Option<oneshot::Sender<Result<Ended, Error>>>,
        error: Error,
    ) {
        warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "destroyed, and its record stays");
        self.record.state = State::Destroyed;
        self.inner.registry.remove(&self.entry);
        if let Some(answer) = answer {
            let _ = answer.send(Err(error.clone()));
        }
        self.publish(Some(Err(error)));
    }

    /// Kills, takes apart and forgets; each step may have been done before. What it had used is
    /// kept where it was one that could be worked in.
    pub(crate) async fn clear(&self, past: bool) -> Result<isolet_jail::Usage, Error> {
        let usage = self.kill().await?;
        pass("delete.killed").await?;
        let cage = self.cage();
        self.entry.secret_store.end().await?;
        let removed = blocking(move || cage.open().remove()).await?;
        removed.map_err(|error| Error::Fault(format!("cannot remove the sandbox: {error}")))?;
        self.inner.trash.notify_one();
        pass("delete.removed").await?;
        if past {
            self.inner.store.remove_ended(&self.record.name, self.record.past(usage)?).await?;
        } else {
            self.inner.store.remove(&self.record.name).await?;
        }
        Ok(usage)
    }

    /// Kills everything in it; what it had used.
    pub(crate) async fn kill(&self) -> Result<isolet_jail::Usage, Error> {
        let cage = self.cage();
        let (killed, empty, usage) = blocking(move || {
            let cage = cage.open();
            let killed = cage.kill();
            (killed, cage.wait_empty(KILL_WAIT), cage.usage())
        })
        .await?;
        killed.map_err(|error| Error::Fault(format!("cannot kill the sandbox: {error}")))?;
        if empty { Ok(usage) } else { Err(Error::TooLate("killing what runs in the sandbox")) }
    }

    /// What is left is killed, the disk kept.
    pub(crate) async fn fail(&mut self, cause: &str) {
        warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, cause, "failed");
        self.watch = None;
        self.entry.let_go();
        self.record.rest();
        if self.shift(Event::Died).is_err() {
            return;
        }
        self.record.body.cause = Some(cause.to_owned());
        self.entry.sessions.ended();
        self.publish(None);
        self.settle().await;
    }

    /// What follows a state that is published: after a failure an end to what is left, and the
    /// record.
    pub(crate) async fn settle(&mut self) {
        if self.record.state == State::Failed
            && let Err(error) = self.kill().await
        {
            warn!(sandbox = %self.entry.id, %error, "something of it still runs");
        }
        self.settle_record().await;
    }

    /// Writes the record, and goes on where that fails.
    pub(crate) async fn settle_record(&mut self) {
        if let Err(error) = self.write(None).await {
            warn!(sandbox = %self.entry.id, %error, state = self.record.state.word(), "its state is not recorded");
        }
    }
}
