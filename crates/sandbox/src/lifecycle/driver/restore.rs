//! Restoring a snapshot in place, which keeps the id, the links and the network of the sandbox.
//!
//! The files of the snapshot are copied before, while the sandbox runs. The driver records the
//! snapshot's settings and sessions, the token of the copied files and the state `sleeping` in one
//! transaction. Until then an error changes nothing, and from then on the restore is finished: by
//! the steps of a sleep, which end what runs, and one rename. [`crate::live::snapshots::restores`]
//! says what a killed server leaves. A sandbox that ran is started again.

use crate::agent_client::agent_activity::AgentActivity;
use crate::lifecycle::driver::{Driver, REATTACH_WAIT};
use crate::live::entry::CONNECTIONS_MAX;
use crate::live::failpoint::pass;
use crate::live::idempotency;
use crate::live::snapshots::restores::Restores;
use crate::model::blocking::blocking;
use crate::model::command::RestoreRequest;
use crate::model::error::Error;
use crate::model::events::EventKind;
use crate::model::ids::{SessionId, SnapshotId};
use crate::model::info::{IdempotencyKey, Lost, RestoredSandbox};
use crate::model::sessions::ReplacedSessions;
use crate::model::state::{State, Transition};
use std::future::Future;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;
use tracing::{info, warn};

/// How long a restore waits for sessions that are being created or deleted. In a paused sandbox
/// they wait for its resume.
const TURN_WAIT: Duration = Duration::from_secs(10);

impl Driver {
    /// Replaces the files, sessions and settings of files by those of a snapshot.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub(crate) async fn restore_in_place(
        &mut self,
        request: RestoreRequest,
    ) -> Result<RestoredSandbox, Error> {
        if self.cleanup_pending {
            self.retry_cleanup().await;
        }
        let was = self.record.state;
        match was {
            State::Sleeping if self.cleanup_pending => {
                return Err(Error::TooLate("ending what ran before the last sleep"));
            }
            State::Running | State::Paused | State::Sleeping => {}
            _ => return Err(self.no_work()),
        }
        let entry = Arc::clone(&self.entry);
        // While they are held, no session is created or deleted, and no scope starts.
        let _sessions = turn(entry.sessions.turn.lock()).await?;
        let _scopes = turn(entry.scopes.turn.lock()).await?;
        let lost = self.losses_of_restore(request.lost.clone()).await;
        if was == State::Running {
            self.keep_ends().await;
        }
        let snapshot = request.snapshot.clone();
        let replaced = self.record_restore(request, lost.clone()).await?;
        self.announce_restore(was, &snapshot, replaced);
        let _ = pass("in_place.recorded").await;
        if was == State::Running {
            self.end_recordings().await;
        }
        self.retry_cleanup().await;
        if was == State::Running
            && let Err(error) = self.wake().await
        {
            warn!(sandbox = %self.entry.id, %error, "restored, and does not start; the next call retries");
        }
        let info = self.record.info();
        Ok(RestoredSandbox { info, lost, incarnation: self.entry.name.clone() })
    }

    /// What the restore ends, with what the snapshot does not contain.
    async fn losses_of_restore(&self, mut lost: Vec<Lost>) -> Vec<Lost> {
        if self.record.state.has_processes() {
            if self.open_shells() > 0 {
                lost.push(Lost::Shells);
            }
            self.add_running(&mut lost).await;
            if self.entry.ports.available_permits() < CONNECTIONS_MAX {
                lost.push(Lost::Connections);
            }
        }
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    /// The transaction that decides about the restore.
    async fn record_restore(
        &mut self,
        request: RestoreRequest,
        lost: Vec<Lost>,
    ) -> Result<ReplacedSessions, Error> {
        let RestoreRequest { token, recorded, settings, sessions, once, .. } = request;
        let old = self.record.clone();
        let ran = old.state == State::Running;
        if old.state.has_processes() {
            let handle = self.handle();
            let groups = blocking(move || handle.open().usage()).await?;
            let traffic = self.inner.egress.traffic(&self.entry).await;
            self.record.rest();
            self.record.counted(groups);
            self.record.carried(traffic);
        }
        self.record.body = self.record.body.restored_in_place(&settings, lost.clone(), token);
        let done = async {
            if old.state != State::Sleeping {
                self.shift(Transition::Restore)?;
            }
            pass("in_place.before_record").await?;
            let answer = self.restore_answer(ran, lost, once)?;
            recorded.store(true, Ordering::Release);
            self.write_restore(&sessions, answer).await
        };
        if let Err(error) = done.await {
            // A broken disk may have the new record nevertheless.
            recorded.fetch_and(matches!(error, Error::StoreBroken), Ordering::AcqRel);
            self.record = old;
            return Err(error);
        }
        let body = &self.record.body;
        Ok(self.entry.sessions.replace(body.created_at_ms, body.home(), sessions))
    }

    /// The answer for a repeated request: as if the sandbox had been started again.
    fn restore_answer(
        &self,
        runs: bool,
        lost: Vec<Lost>,
        once: Option<IdempotencyKey>,
    ) -> Result<Option<isolet_store::StoredAnswer>, Error> {
        let Some(once) = once else { return Ok(None) };
        let mut record = self.record.clone();
        if runs {
            record.state = State::Running;
            record.agent_version = Some(isolet_wire::VERSION);
        }
        let incarnation = self.entry.name.clone();
        let restored = RestoredSandbox { info: record.info(), lost, incarnation };
        let text = serde_json::to_string(&restored).map_err(|e| Error::Fault(e.to_string()))?;
        Ok(Some(idempotency::row(&self.record.tenant, &once, text)))
    }

    async fn write_restore(
        &self,
        sessions: &[(SessionId, String)],
        answer: Option<isolet_store::StoredAnswer>,
    ) -> Result<(), Error> {
        let record = &self.record;
        let rows = sessions.iter().map(|(id, body)| isolet_store::SessionRow {
            sandbox: record.name.clone(),
            id: id.to_string(),
            body: body.clone(),
        });
        let row = record.row()?;
        Ok(self.inner.store.replace_sessions(row, rows.collect(), answer).await?)
    }

    /// Publishes the recorded restore. Calls wait for the driver from here on.
    fn announce_restore(&mut self, was: State, snapshot: &SnapshotId, all: ReplacedSessions) {
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, %snapshot, %was, "restored in place");
        self.watch = None;
        self.seen = AgentActivity::default();
        self.clocks.clear();
        self.trust_pending = false;
        self.entry.activity.close_in_use();
        self.entry.disconnect();
        *self.entry.lost() = None;
        self.publish(None);
        let emit = |kind: EventKind| self.inner.events.emit(&self.entry, kind);
        all.deleted.into_iter().for_each(|id| emit(EventKind::SessionDeleted(id)));
        all.created.into_iter().for_each(|id| emit(EventKind::SessionCreated(id)));
        emit(EventKind::Restored(snapshot.clone()));
    }

    /// Lets recordings end with what they have.
    async fn end_recordings(&self) {
        let recordings = &self.entry.recordings;
        for recording in recordings.all_growing().into_values() {
            let _ = timeout(REATTACH_WAIT, recordings.stop(&recording.session)).await;
        }
    }

    /// Puts the files of a recorded restore in place. Requires that nothing of the sandbox runs. Can
    /// be repeated.
    ///
    /// # Errors
    /// [`Error::Failed`] if the copied files are missing.
    pub(super) async fn place_restored(&self) -> Result<(), Error> {
        let Some(token) = &self.record.body.restore else { return Ok(()) };
        pass("in_place.ended").await?;
        let restores = Restores::new(&self.inner.jail.data_dir);
        let step = |step: fn(&Restores, &str, &std::path::Path) -> std::io::Result<()>| {
            let restores = restores.clone();
            let token = token.clone();
            let directory = self.entry.directory.clone();
            blocking(move || step(&restores, &token, &directory))
        };
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => Error::Failed {
                id: self.entry.id.clone(),
                cause: "the files of its restore are missing".to_owned(),
            },
            _ => Error::Fault(format!("cannot put the files of a snapshot in place: {error}")),
        };
        step(Restores::exchange).await?.map_err(failed)?;
        pass("in_place.exchanged").await?;
        step(Restores::discard_old).await?.map_err(failed)?;
        self.inner.trash.notify_one();
        pass("in_place.discarded").await
    }

    /// Records that the files of a restore are in place. An ephemeral sandbox keeps the mark until it
    /// runs, because its files would be removed.
    pub(super) async fn end_restore(&mut self) {
        if !self.record.body.persistent {
            return;
        }
        let Some(token) = self.record.body.restore.take() else { return };
        if let Err(error) = self.write(None).await {
            warn!(sandbox = %self.entry.id, %error, "end of a restore is recorded later");
            self.record.body.restore = Some(token);
        }
    }
}

async fn turn<T>(lock: impl Future<Output = T>) -> Result<T, Error> {
    let locked = timeout(TURN_WAIT, lock).await;
    locked.map_err(|_| Error::TooLate("a change of the sandbox's sessions"))
}
