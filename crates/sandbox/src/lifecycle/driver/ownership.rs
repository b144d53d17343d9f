//! What the driver does when another node may own the sandbox, or owns it.
//!
//! A suspended sandbox stays in its state; its processes are frozen by the lease guard, and no
//! request reaches it. [`Driver::continue_running`] follows when the guard lets it continue.
//!
//! A sandbox that leaves this node on purpose, because it is evicted or moved, is ended in the same way:
//! the object store has all of it, so its files go to the trash.
//!
//! A superseded sandbox is ended as a deleted one is: the end is recorded first, and each step can be
//! repeated. Its files are moved to `DATA/superseded/` instead of the trash.

use crate::lifecycle::driver::{AGAIN, Driver};
use crate::live::failpoint::pass;
use crate::live::orphans::superseded;
use crate::model::agent_error::AgentError;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::info::EndedSandbox;
use crate::model::info::ownership::{Departure, PushedSnapshot};
use crate::model::record::stored_description;
use crate::model::state::State;
use tokio::sync::oneshot;
use tracing::{info, warn};

/// Attempts to write the departure of a sandbox to the records of the fleet, until its client is answered.
const DEPARTURE_ATTEMPTS: usize = 60;

impl Driver {
    /// Ends the sandbox, because another node has taken it over. Returns `false` if that could not be
    /// recorded, in which case nothing was changed.
    pub(crate) async fn supersede(
        &mut self,
        answer: oneshot::Sender<Result<EndedSandbox, Error>>,
    ) -> bool {
        let target = superseded::target(&self.entry.id);
        self.record.body.superseded.get_or_insert(target);
        let ended = self.end(Some(answer)).await;
        if !ended {
            self.record.body.superseded = None;
        }
        ended
    }

    /// Removes the sandbox from this node without deleting it: its snapshot in the object store holds
    /// all of it. Returns `false` if that could not be recorded, in which case nothing was changed.
    pub(crate) async fn depart(
        &mut self,
        why: Departure,
        answer: oneshot::Sender<Result<EndedSandbox, Error>>,
    ) -> bool {
        self.record.body.departure = Some(why);
        let ended = self.end(Some(answer)).await;
        if !ended {
            self.record.body.departure = None;
        }
        ended
    }

    /// Records in the fleet that the snapshot in the object store has everything, after the removal
    /// from this node was recorded, so that it can never run here again. Repeats until that is written,
    /// also in the next server: until then the files here may be all that is left of the sandbox. The
    /// client is answered after [`DEPARTURE_ATTEMPTS`].
    pub(super) async fn announce_departure(
        &self,
        answer: &mut Option<oneshot::Sender<Result<EndedSandbox, Error>>>,
    ) {
        if self.record.body.departure.is_none() {
            return;
        }
        for attempt in 1_usize.. {
            let error = match self.announce_once().await {
                Ok(()) | Err(Error::Suspended { .. }) => return,
                Err(error) => error,
            };
            if attempt % DEPARTURE_ATTEMPTS == 1 {
                warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %error, "leaves this node, and the fleet does not know it yet; its files stay until then");
            }
            if attempt == DEPARTURE_ATTEMPTS
                && let Some(answer) = answer.take()
            {
                let _ = answer.send(Err(error));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn announce_once(&self) -> Result<(), Error> {
        pass("depart.recorded").await?;
        let description = stored_description::write(&self.record, &self.entry.sessions)?;
        self.inner.ownership.departs(&self.entry, &description).await
    }

    /// Moves the files of an ended sandbox to the trash, or aside if it was superseded.
    pub(super) async fn remove_files(&self) -> Result<(), Error> {
        let handle = self.handle();
        let Some(target) = &self.record.body.superseded else {
            let removed = blocking(move || handle.open().remove()).await?;
            return removed
                .map_err(|error| Error::Fault(format!("cannot remove the sandbox: {error}")));
        };
        let from = self.entry.directory.clone();
        let to = superseded::path(&self.inner.jail.data_dir, &self.entry.tenant, target);
        let record = self.record.body.json()?;
        let path = to.display().to_string();
        let moved = blocking(move || {
            handle.open().remove_cgroups()?;
            superseded::put(&from, &to, &record)
        });
        moved.await?.map_err(|error| {
            Error::Fault(format!("cannot move the files of the sandbox to {path}: {error}"))
        })?;
        warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, path, "another node has taken the sandbox over; its files were moved aside");
        Ok(())
    }

    /// A snapshot is in the object store, and another node restores the sandbox from it.
    pub(crate) async fn pushed(&mut self, snapshot: PushedSnapshot) {
        let known = self.record.body.pushed.as_ref();
        if known.is_some_and(|known| known.number > snapshot.number) {
            return;
        }
        self.record.body.pushed = Some(snapshot);
        self.settle_record().await;
        self.publish(None);
    }

    /// The lease guard lets the sandbox continue.
    pub(crate) async fn continue_running(&mut self) {
        match self.record.state {
            // The guard may have stopped it while it was just being paused.
            State::Paused => return self.pause_again().await,
            State::Running | State::Unreachable => {}
            _ => return,
        }
        // The guard leaves what was frozen before. That was for a copy, which has ended.
        let handle = self.handle();
        let _ = blocking(move || handle.open().freeze(false)).await;
        if self.record.state == State::Running && self.watch.is_none() {
            self.reconnect(AgentError::Ended).await;
            if self.record.state == State::Running {
                self.find_scopes();
            }
        }
        self.entry.sessions.restart_idle_times();
        self.entry.activity.touch();
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "continues after its node regained its lease");
    }
}
