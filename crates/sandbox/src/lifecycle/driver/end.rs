//! The end of a sandbox, after a failed creation, a delete or a failure. Every step can be
//! repeated, and a failed step is retried.

use crate::lifecycle::driver::{AGAIN, Driver, KILL_WAIT};
use crate::live::failpoint::pass;
use crate::live::snapshots::COPY_KEPT_MS;
use crate::live::snapshots::restores::Restores;
use crate::model::blocking::blocking;
use crate::model::clock::now_ms;
use crate::model::error::Error;
use crate::model::info::EndedSandbox;
use crate::model::info::ownership::Departure;
use crate::model::state::{State, Transition};
use std::time::Instant;
use tokio::sync::oneshot;
use tracing::{info, warn};

impl Driver {
    /// Removes everything of a failed creation.
    pub(crate) async fn undo(&mut self, error: Error) {
        warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "not created");
        self.record.state = State::Destroying;
        self.publish(None);
        self.watch = None;
        while let Err(left) = self.clear(false).await {
            warn!(sandbox = %self.entry.id, error = %left, "remains of a failed creation are not removed yet");
            if matches!(left, Error::StoreBroken) {
                // Nothing runs, and the next start of the server removes what may be recorded.
                break;
            }
            // The client that requested the sandbox does not need to wait for the cleanup.
            self.publish(Some(Err(error.clone())));
            tokio::time::sleep(AGAIN).await;
        }
        self.record.state = State::Destroyed;
        self.inner.registry.remove(&self.entry);
        self.publish(Some(Err(error)));
    }

    /// Deletes the sandbox. Returns `false` if the deletion could not be recorded, in which case
    /// nothing was changed. The client gets its answer when nothing runs any more. Failed steps are
    /// retried until they succeed.
    pub(crate) async fn end(
        &mut self,
        answer: Option<oneshot::Sender<Result<EndedSandbox, Error>>>,
    ) -> bool {
        let mut answer = answer;
        if let Err(error) = self.announce_end().await {
            return self.not_ended(answer, error);
        }
        if let Err(error) = self.condemn().await {
            return self.not_ended(answer, error);
        }
        self.watch = None;
        self.entry.disconnect();
        self.publish(None);
        self.announce_departure(&mut answer).await;
        self.destroy(&mut answer).await;
        true
    }

    fn not_ended(
        &mut self,
        answer: Option<oneshot::Sender<Result<EndedSandbox, Error>>>,
        error: Error,
    ) -> bool {
        warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "not deleted");
        self.until = self.until.map(|until| until.max(Instant::now() + AGAIN));
        if let Some(answer) = answer {
            let _ = answer.send(Err(error));
        }
        false
    }

    /// Records in the fleet that the sandbox is deleted, so that no other node restores it. One that
    /// another node has taken over lives on there.
    async fn announce_end(&self) -> Result<(), Error> {
        let is_over = self.record.state == State::Destroying;
        if is_over || self.record.body.lives_on() {
            return Ok(());
        }
        self.inner.ownership.deleted(&self.entry).await
    }

    /// Records the deletion before it starts, so that a killed server does not bring the sandbox
    /// back.
    ///
    /// # Errors
    /// [`Error::StoreFull`] if the disk and the reserve for deletions are full.
    async fn condemn(&mut self) -> Result<(), Error> {
        if self.record.state == State::Destroying {
            return Ok(());
        }
        let before = self.record.clone();
        self.record.rest();
        self.shift(Transition::Delete)?;
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
                // A broken disk must not keep the sandbox running.
                warn!(sandbox = %self.entry.id, %error, "deletion is not recorded; continuing");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Kills and removes a sandbox whose deletion is recorded.
    async fn destroy(&mut self, answer: &mut Option<oneshot::Sender<Result<EndedSandbox, Error>>>) {
        let usage = loop {
            let done = match pass("delete.recorded").await {
                // One that lives on elsewhere takes its usage along.
                Ok(()) => self.clear(self.record.body.departure.is_none()).await,
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
        let ended = EndedSandbox {
            info: self.record.info(),
            usage: self.record.usage(usage),
            snapshot: None,
        };
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "destroyed");
        // The order matters: the id is free before any client learns that the sandbox is gone, and
        // the client that asked for the deletion receives the full answer.
        self.inner.registry.remove(&self.entry);
        self.leave_no_snapshots();
        if let Some(answer) = answer.take() {
            let _ = answer.send(Ok(ended.clone()));
        }
        self.publish(Some(Ok(ended)));
        // Unacknowledged data can keep the namespace alive for a while.
        if let Err(error) = self.inner.egress.release(&self.entry).await {
            info!(sandbox = %self.entry.id, %error, "veth pair could not be released; it ends with its namespace");
        }
    }

    /// Has the automatic snapshots of a sandbox that is gone deleted; of one that is moved, only after the other
    /// node has it. The files that are kept of a superseded one may be those of a snapshot, so they stay as long.
    fn leave_no_snapshots(&self) {
        let body = &self.record.body;
        if body.superseded.is_none() {
            let is_moved = body.departure == Some(Departure::Moved);
            let at_ms = if is_moved { now_ms().saturating_add(COPY_KEPT_MS) } else { 0 };
            let snapshots = &self.inner.snapshots;
            snapshots.expire_automatic(&self.entry.tenant, &self.entry.name, at_ms);
        }
    }

    /// Ends a sandbox of which only the record is left. The next start finds the record without a
    /// sandbox.
    fn end_unrecorded(
        &mut self,
        answer: Option<oneshot::Sender<Result<EndedSandbox, Error>>>,
        error: Error,
    ) {
        warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "destroyed, but the record remains");
        self.record.state = State::Destroyed;
        self.inner.registry.remove(&self.entry);
        self.leave_no_snapshots();
        if let Some(answer) = answer {
            let _ = answer.send(Err(error.clone()));
        }
        self.publish(Some(Err(error)));
    }

    /// Kills all processes, removes the files and forgets the sandbox. With `past`, the usage is
    /// kept in the tenant's account.
    pub(crate) async fn clear(&self, past: bool) -> Result<isolet_jail::Usage, Error> {
        let usage = self.kill().await?;
        self.inner.ownership.ended(&self.entry).await;
        pass("delete.killed").await?;
        self.entry.secret_store.end().await?;
        self.remove_files().await?;
        if let Some(token) = self.record.body.restore.clone() {
            let restores = Restores::new(&self.inner.jail.data_dir);
            let discarded = blocking(move || restores.discard(&token)).await?;
            discarded.map_err(|error| Error::Fault(format!("cannot remove a copy: {error}")))?;
        }
        self.inner.trash.notify_one();
        pass("delete.removed").await?;
        if past {
            self.inner.store.remove_ended(&self.record.name, self.record.past(usage)?).await?;
        } else {
            self.inner.store.remove(&self.record.name).await?;
        }
        Ok(usage)
    }

    /// Kills all processes and returns the total usage.
    pub(crate) async fn kill(&self) -> Result<isolet_jail::Usage, Error> {
        let handle = self.handle();
        let (killed, empty, usage) = blocking(move || {
            let handle = handle.open();
            let killed = handle.kill();
            (killed, handle.wait_empty(KILL_WAIT), handle.usage())
        })
        .await?;
        killed.map_err(|error| Error::Fault(format!("cannot kill the sandbox: {error}")))?;
        if empty { Ok(usage) } else { Err(Error::TooLate("killing what runs in the sandbox")) }
    }

    /// Marks the sandbox as failed, kills what is left and keeps the disk.
    pub(crate) async fn fail(&mut self, cause: &str) {
        warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, cause, "failed");
        self.watch = None;
        self.clocks.clear();
        self.entry.disconnect();
        self.record.rest();
        if self.shift(Transition::Died).is_err() {
            return;
        }
        self.record.body.cause = Some(cause.to_owned());
        self.entry.sessions.ended();
        self.publish(None);
        self.settle().await;
    }

    /// Finishes a published change of state: ends what is left after a failure, and writes the
    /// record.
    pub(crate) async fn settle(&mut self) {
        if self.record.state == State::Failed
            && let Err(error) = self.kill().await
        {
            warn!(sandbox = %self.entry.id, %error, "some processes still run");
        }
        self.settle_record().await;
    }

    /// Writes the record and continues if that fails.
    pub(crate) async fn settle_record(&mut self) {
        if let Err(error) = self.write(None).await {
            warn!(sandbox = %self.entry.id, %error, state = self.record.state.word(), "state is not recorded");
        }
    }
}
