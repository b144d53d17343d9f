//! The end of a sandbox whose lifetime has passed. With `snapshot_on_destroy` a snapshot is taken
//! first. If that fails, it is retried a limited number of times; then the sandbox is destroyed
//! without one. With `pause_on_expiry` the sandbox is paused instead, and its lifetime begins again
//! when it is resumed.

use crate::lifecycle::driver::{Driver, until};
use crate::model::error::Error;
use crate::model::events::EventKind;
use crate::model::held::HoldPurpose;
use crate::model::info::Trigger;
use crate::model::record::{Record, expiry};
use crate::model::state::State;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::{info, warn};

/// The pauses between the attempts to take the last snapshot: long enough for an operator to free
/// space on a full disk, short enough that no sandbox outlives its time for long.
const RETRIES: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_secs(60), Duration::from_secs(300)];

/// The pause between two attempts to pause a sandbox at its end.
const PAUSE_AGAIN: Duration = Duration::from_secs(10);

/// The last snapshot of a sandbox whose lifetime has passed.
#[derive(Default)]
pub(super) struct Expiry {
    /// Receives why the current attempt failed.
    running: Option<oneshot::Receiver<Error>>,
    failures: usize,
}

impl Expiry {
    /// Whether the snapshot is being taken. The lifetime does not end the sandbox then.
    pub(super) fn copying(&self) -> bool {
        self.running.is_some()
    }

    /// Forgets earlier failures, because the lifetime was changed.
    pub(super) fn restart(&mut self) {
        self.failures = 0;
    }

    /// Resolves when the current attempt has failed; `None` if it ended without a result. Never
    /// resolves without an attempt.
    pub(super) async fn failed(&mut self) -> Option<Error> {
        match &mut self.running {
            Some(running) => running.await.ok(),
            None => std::future::pending().await,
        }
    }
}

impl Driver {
    /// Whether the lifetime has passed.
    pub(super) fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// Whether the sandbox has something that a pause keeps.
    fn pauses_at_end(&self) -> bool {
        matches!(self.record.state, State::Running | State::Paused | State::Sleeping)
    }

    /// Pauses the sandbox because its lifetime has passed. A sleeping one stays asleep, and needs no
    /// pause. If it cannot be paused, the next attempt follows.
    async fn pause_expired(&mut self) {
        let was_running = self.record.state == State::Running;
        if was_running && let Err(error) = self.pause().await {
            let sandbox = &self.entry.id;
            warn!(%sandbox, tenant = %self.entry.tenant, %error, "not paused at its end");
            self.until = Some(Instant::now() + PAUSE_AGAIN);
            return;
        }
        self.until = None;
        self.record.body.expires_at_ms = None;
        self.settle_record().await;
        self.publish(None);
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "paused at its end");
    }

    /// Begins the lifetime of a sandbox again that was paused at its end, or whose lifetime was stopped.
    /// Only a resume or a wake for a client does that.
    pub(super) fn restart_lifetime(&mut self) {
        let was = self.record.body.expires_at_ms;
        if was.is_none() {
            self.record.body.expires_at_ms = expiry(self.record.body.ttl_s);
            self.follow_lifetime(was);
        }
    }

    /// Restores the record from before a change that failed, and the end of the lifetime with it.
    pub(super) fn reset_record(&mut self, old: Record) {
        let was = std::mem::replace(&mut self.record, old).body.expires_at_ms;
        self.follow_lifetime(was);
    }

    /// Takes the end of the lifetime from the record, if it differs from `was`. An end that was only
    /// postponed for another attempt stays otherwise.
    pub(super) fn follow_lifetime(&mut self, was: Option<i64>) {
        if self.record.body.expires_at_ms != was {
            self.until = until(self.record.body.expires_at_ms);
            self.expiry.restart();
        }
    }

    /// Whether the files of the sandbox are copied before it is destroyed.
    fn copied_before_end(&self) -> bool {
        let has_files = self.record.state != State::Sleeping || self.record.body.persistent;
        self.record.body.snapshots.on_destroy && has_files
    }

    /// Ends the sandbox because its lifetime has passed, or begins the snapshot before that. Returns
    /// `true` if it was ended.
    pub(super) async fn expire(&mut self) -> bool {
        if self.record.body.pause_on_expiry && self.pauses_at_end() {
            self.pause_expired().await;
            return false;
        }
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, "its time is over");
        if !self.copied_before_end() || self.expiry.failures > RETRIES.len() {
            return self.end(None).await;
        }
        let (failed, running) = oneshot::channel();
        self.expiry.running = Some(running);
        let inner = Arc::clone(&self.inner);
        let entry = Arc::clone(&self.entry);
        self.inner.spawn(async move {
            let taken = inner.snapshot_and_delete(&entry, HoldPurpose::Expiry).await;
            if let Err(error) = taken {
                let _ = failed.send(error);
            }
        });
        false
    }

    /// Decides what follows after the last snapshot failed.
    pub(super) fn not_copied(&mut self, failed: Option<Error>) {
        self.expiry.running = None;
        // Extended in the meantime.
        if !self.is_over() || matches!(failed, Some(Error::NotOver(_))) {
            return;
        }
        let retry = RETRIES.get(self.expiry.failures);
        self.expiry.failures += 1;
        let next = match retry {
            Some(pause) => format!("retried in {} s", pause.as_secs()),
            None => "the sandbox is destroyed without a snapshot".to_owned(),
        };
        let cause = failed.map_or_else(|| "no result".to_owned(), |error| error.to_string());
        let cause = format!("{cause}; {next}");
        warn!(sandbox = %self.entry.id, tenant = %self.entry.tenant, cause, "snapshot before the end failed");
        let trigger = Trigger::Destroy;
        self.inner.events.emit(&self.entry, EventKind::SnapshotFailed { trigger, cause });
        self.until = Some(Instant::now() + retry.copied().unwrap_or_default());
    }
}
