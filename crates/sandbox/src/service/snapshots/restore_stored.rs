//! Restores a sandbox of the class `store` on this node, under its id, from the newest snapshot in the
//! object store. The snapshot holds the whole record of the sandbox.
//!
//! The record of the fleet says which snapshot that is. So a store that answers "not found", or sends something
//! else than what was written, is read again for [`READ_AGAIN`]; then the restore fails. It never uses another
//! snapshot.

use crate::lifecycle::driver::Source;
use crate::live::failpoint::{limit, pass};
use crate::live::inner::Inner;
use crate::live::registry::Reserved;
use crate::live::snapshots::PinnedSnapshot;
use crate::model::clock::now_ms;
use crate::model::command::{DriverCommand, SleepMode};
use crate::model::error::Error;
use crate::model::ids::{SandboxId, SnapshotId, TenantId};
use crate::model::info::Lost;
use crate::model::info::ownership::{LostSince, PushedSnapshot, RestoredFrom, StoredSandbox};
use crate::model::record::RecordBody;
use crate::model::record::snapshot::SnapshotRecord;
use crate::service::create::made;
use crate::service::{Service, request};
use isolet_repository::Progress;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

/// Lifetime of the pulled snapshot in milliseconds, if the restore cannot delete it.
const TEMPORARY_MS: i64 = 3_600_000;
/// How long a snapshot is read again, counted from the first failure. The last attempt begins after it.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// The pause before a snapshot is read again for the first time. Each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl Service {
    /// Restores a sandbox that this node owns and does not have. Continues if the caller is dropped.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::SandboxExists`], limits of the tenant, and the errors of a pull
    /// and of a creation from a snapshot. Nothing of the sandbox is left here then.
    pub async fn restore_stored(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        stored: StoredSandbox,
    ) -> Result<RestoredFrom, Error> {
        self.inner.running()?;
        self.inner.snapshot_store.check()?;
        let inner = Arc::clone(&self.inner);
        let tenant = tenant.clone();
        let id = id.clone();
        let restoring = async move { inner.restore_stored(&tenant, &id, &stored).await };
        tokio::spawn(restoring).await.map_err(|error| Error::Fault(error.to_string()))?
    }
}

impl Inner {
    async fn restore_stored(
        self: &Arc<Self>,
        tenant: &TenantId,
        id: &SandboxId,
        stored: &StoredSandbox,
    ) -> Result<RestoredFrom, Error> {
        pass("restore_stored.begun").await?;
        let snapshot = &stored.snapshot.id;
        // One that this server has anyway, unless it is just being deleted.
        let here = self.snapshots.find(tenant, snapshot).is_ok_and(|found| found.id == *snapshot);
        if here && let Ok(mut from) = self.pin_snapshot(tenant, snapshot) {
            let mut record = SnapshotRecord::clone(&from.record);
            record.body.join_sessions();
            from.record = Arc::new(record);
            return self.restore_from(id, from, stored).await;
        }
        let pulled = self.fetch_again(tenant, snapshot).await?;
        let mut from = self.pin_snapshot(tenant, &pulled)?;
        from.gives_files = true;
        let restored = self.restore_from(id, from, stored).await;
        if let Err(error) = self.remove_snapshot(tenant, &pulled).await {
            warn!(snapshot = %pulled, %error, "a pulled snapshot is deleted later");
        }
        restored
    }

    /// Pulls a snapshot, again while the answers of the store say nothing certain. Returns the id of the copy.
    async fn fetch_again(
        self: &Arc<Self>,
        tenant: &TenantId,
        snapshot: &SnapshotId,
    ) -> Result<SnapshotId, Error> {
        let read_again = limit("restore_stored.read_again", READ_AGAIN);
        let mut pause = PAUSE_MIN;
        let mut until = None;
        loop {
            let error = match self.fetch_once(tenant, snapshot).await {
                Err(error) if error.is_uncertain_in_store() => error,
                ended => return ended,
            };
            let until = *until.get_or_insert_with(|| Instant::now() + read_again);
            if Instant::now() >= until {
                return Err(error);
            }
            warn!(%snapshot, %tenant, %error, "a snapshot cannot be read from the store; it is read again");
            sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
            self.snapshot_store.forget_indexes().await;
        }
    }

    async fn fetch_once(
        self: &Arc<Self>,
        tenant: &TenantId,
        snapshot: &SnapshotId,
    ) -> Result<SnapshotId, Error> {
        let _turn = self.snapshot_store.restores().await;
        let pulled = SnapshotId::random();
        let own = pulled.clone();
        let (progress, _) = watch::channel(Progress::default());
        let temporary = move |record: &mut SnapshotRecord| {
            record.id = own;
            record.body.name = None;
            record.body.temporary = true;
            record.body.join_sessions();
            record.body.expires_at_ms = Some(now_ms().saturating_add(TEMPORARY_MS));
        };
        self.fetch(tenant, snapshot, temporary, progress).await?;
        Ok(pulled)
    }

    async fn restore_from(
        self: &Arc<Self>,
        id: &SandboxId,
        from: PinnedSnapshot,
        stored: &StoredSandbox,
    ) -> Result<RestoredFrom, Error> {
        let tenant = from.record.tenant.clone();
        let (body, restored) = restored_record(id, &from, stored)?;
        // Its end deletes it for good, also from the store.
        if !body.pause_on_expiry
            && body.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms())
            && let Err(reason) = self.check_clock().await
        {
            return Err(Error::Transfer {
                id: stored.snapshot.id.to_string(),
                what: "restored",
                reason: isolet_repository::Error::Refused(reason),
            });
        }
        self.egress.check(&body.network).await?;
        self.layers_there(&body)?;
        // Not earlier: until then, a request that was on its way to it must not create an empty one.
        // It slept, or a client had paused it. Nobody has asked yet for something that wakes it.
        let sleeps = stored.snapshot.asleep && !stored.has_run_since || body.lifetime_is_stopped();
        let absence = self.registry.returns(&tenant, id);
        let source = Source::Snapshot(from);
        let begun = self.begin(&tenant, id, &body, None, &stored.credentials, source).await;
        if begun.is_err()
            && let Some(absence) = absence
        {
            self.registry.leaves(&tenant, id, absence);
        }
        match begun? {
            Reserved::New(entry) => {
                made(&entry).await?;
                let sleep = |answer| DriverCommand::Sleep(SleepMode::Unused, answer);
                if sleeps && let Err(error) = request(&entry, sleep).await {
                    warn!(sandbox = %id, %tenant, %error, "restored, and does not sleep");
                }
                let snapshot = &restored.snapshot;
                let node = &restored.node;
                info!(sandbox = %id, %tenant, %snapshot, node, "restored from the object store");
                Ok(restored)
            }
            Reserved::Existing(_) => Err(Error::SandboxExists(id.clone())),
        }
    }
}

/// The record of the restored sandbox.
fn restored_record(
    id: &SandboxId,
    from: &PinnedSnapshot,
    stored: &StoredSandbox,
) -> Result<(RecordBody, RestoredFrom), Error> {
    let body = &from.record.body;
    let refused = |reason: &str| Error::Transfer {
        id: stored.snapshot.id.to_string(),
        what: "restored",
        reason: isolet_repository::Error::Refused(reason.to_owned()),
    };
    let identity = body.identity.as_ref().filter(|_| body.sandbox == *id);
    let identity = identity.ok_or_else(|| refused("it is not one of this sandbox"))?;
    let now = now_ms();
    let given: Vec<_> = stored.credentials.iter().map(|given| given.credential.clone()).collect();
    let mut items = body.lost_with(&given);
    let mut seconds = 0;
    if stored.has_run_since {
        items.push(Lost::Processes);
        items.sort_unstable();
        items.dedup();
        let passed_ms = u64::try_from(now.saturating_sub(body.created_at_ms)).unwrap_or(0);
        // The snapshot may be of a node whose clock is ahead, and something is lost in any case.
        seconds = passed_ms.div_ceil(1000).max(1);
    }
    let is_whole = items.is_empty() && !stored.has_run_since;
    let lost = (!is_whole).then_some(LostSince { seconds, items });
    let restored = RestoredFrom {
        snapshot: stored.snapshot.id.clone(),
        created_at_ms: body.created_at_ms,
        node: stored.node.clone(),
        restored_at_ms: now,
        lost,
        skipped: stored.skipped.clone(),
    };
    let pushed = PushedSnapshot { number: 0, ..stored.snapshot.clone() };
    let record =
        identity.restored_elsewhere(&body.settings, pushed, restored.clone(), &stored.credentials);
    Ok((record, restored))
}
