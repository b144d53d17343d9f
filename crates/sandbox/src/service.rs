//! The service: the entry point to all sandboxes of all tenants.

pub(crate) mod commit;
mod create;
mod disk_usage;
mod events;
pub(crate) mod exposed_ports;
mod fork;
mod hold;
pub(crate) mod images;
mod key_uses;
mod metrics;
mod network;
pub(crate) mod node_use;
mod profiles;
mod repeat;
mod resource_usage;
mod restore;
pub(crate) mod snapshots;
pub(crate) mod tenant_sessions;
pub(crate) mod trace;
mod upkeep;

use crate::lifecycle::driver::Source;
use crate::lifecycle::{listeners, recover};
use crate::live::entry::SandboxEntry;
use crate::live::inner::Inner;
use crate::live::launch_queue::permits::suspended;
use crate::live::registry::Reserved;
use crate::live::warm_pool;
use crate::model::activity::ActivityGuard;
use crate::model::command::{DriverCommand, ResumedFor, SleepMode};
use crate::model::config::Config;
use crate::model::error::{Error, OpenError};
use crate::model::ids::{SandboxId, TenantId};
use crate::model::info::{
    Created, EndedSandbox, IdempotencyKey, Page, Patch, RecoveredSandbox, SandboxInfo, SandboxSpec,
};
use crate::model::record::{Record, RecordBody, failed};
use crate::model::state::State;
use crate::sandbox::Sandbox;
use crate::service::trace::TRACE_TARGET;
use isolet_store::audit::Audit;
use isolet_store::keys::Keys;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{Instrument, info_span};

/// Maximum number of sandboxes in one page of a list.
pub const PAGE_MAX: usize = 1000;
/// How long a stopping server waits for its drivers.
const DETACH_WAIT: Duration = Duration::from_secs(5);
/// How long a delete waits for the driver, which may be busy with a launcher that does not answer.
/// The deletion then continues without the caller.
const DELETE_WAIT: Duration = Duration::from_secs(10);

/// All sandboxes of this server. Clones share their state.
#[derive(Clone)]
pub struct Service {
    pub(crate) inner: Arc<Inner>,
}

/// How a call finds its sandbox: whether it may create or wake it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Creates a missing sandbox, wakes a sleeping one, and resumes a paused one if its
    /// `auto_resume` is set.
    CreateIfMissing,
    /// Refuses a missing sandbox; otherwise like [`Access::CreateIfMissing`].
    MustExist,
    /// Refuses a missing sandbox, and also a sleeping one with [`Error::Sleeping`] and a paused
    /// one with [`Error::Paused`].
    Awake,
    /// Refuses a missing sandbox and does not wake a sleeping one; for calls that only read.
    Look,
    /// Refuses a missing sandbox and a paused one, wakes a sleeping one, and allows reading the
    /// files of a failed one.
    Read,
}

impl Service {
    /// Locks the data directory, starts the launcher and finds the sandboxes that still run.
    ///
    /// # Errors
    /// [`OpenError`] if another server uses the directory or the directory cannot be used. A
    /// machine that cannot create sandboxes is no error here; see [`Service::missing`].
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        let inner = recover::open(config).await?;
        inner.spawn(tenant_sessions::keep(Arc::clone(&inner)));
        inner.spawn(listeners::keep(Arc::clone(&inner)));
        inner.spawn(disk_usage::keep(Arc::clone(&inner)));
        inner.spawn(upkeep::page_out::keep(Arc::clone(&inner)));
        inner.spawn(snapshots::keep(Arc::clone(&inner)));
        inner.spawn(snapshots::schedule::keep(Arc::clone(&inner)));
        inner.spawn(snapshots::durable::keep(Arc::clone(&inner)));
        inner.spawn(snapshots::depart::keep(Arc::clone(&inner)));
        inner.spawn(snapshots::layers::keep(Arc::clone(&inner)));
        inner.spawn(snapshots::layers::fold(Arc::clone(&inner)));
        inner.spawn(key_uses::keep(Arc::clone(&inner)));
        inner.spawn(upkeep::answers::delete_expired(Arc::clone(&inner)));
        inner.spawn(upkeep::file_journals::keep(Arc::clone(&inner)));
        inner.spawn(upkeep::processors::keep(Arc::clone(&inner)));
        inner.spawn(upkeep::meminfo::keep(Arc::clone(&inner)));
        inner.spawn(node_use::ownership::keep(Arc::clone(&inner)));
        Ok(Self { inner })
    }

    /// What this machine lacks for sandboxes, with one sentence for each item; empty if nothing is
    /// missing.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        self.inner.launch.missing()
    }

    /// Whether the disk of the store has failed. Nothing can be recorded until the server restarts,
    /// but sandboxes continue to run.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.inner.store.broken()
    }

    /// What the file system of the data directory offers for snapshots.
    #[must_use]
    pub fn storage(&self) -> isolet_storage::Backend {
        self.inner.snapshots.files.backend()
    }

    /// The current and the configured size of the warm pool.
    #[must_use]
    pub fn ready(&self) -> (usize, usize) {
        let size = self.inner.config.warm_pool_size.min(warm_pool::READY_MAX);
        (self.inner.ready.count(), size as usize)
    }

    /// Replaces the sandboxes of the warm pool.
    pub async fn renew_ready(&self) {
        warm_pool::renew(&self.inner).await;
    }

    /// The number of a tenant's sandboxes, and its limit.
    #[must_use]
    pub fn quota(&self, tenant: &TenantId) -> (usize, u32) {
        (self.inner.registry.of(tenant).len(), self.inner.config.sandboxes_max(tenant))
    }

    /// The store of API keys.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.inner.keys
    }

    /// The audit log of all tenants.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.inner.audit
    }

    /// Creates a sandbox and returns when its agent has answered. Continues if the caller is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::SandboxExists`], errors in the request, limits, and errors of the machine.
    pub async fn create(
        &self,
        tenant: &TenantId,
        spec: SandboxSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<Created, Error> {
        self.inner.running()?;
        let inner = Arc::clone(&self.inner);
        let span = info_span!(target: TRACE_TARGET, "create");
        let Some(once) = once else {
            let info = inner.create(tenant.clone(), spec, None).instrument(span).await?;
            return Ok(Created { info, replayed: false });
        };
        let owner = tenant.clone();
        let key = once.clone();
        let work = async move {
            let info = inner.create(owner, spec, Some(key)).await?;
            serde_json::to_string(&info).map_err(|error| Error::Fault(error.to_string()))
        };
        let run = self.inner.idempotency.run(&self.inner.store, tenant, &once, work);
        let (text, replayed) = run.instrument(span).await?;
        // A key that created something else was used with another route, and therefore another
        // body.
        let info = serde_json::from_str(&text).map_err(|_| Error::OtherBody)?;
        Ok(Created { info, replayed })
    }

    /// Runs work that creates something which is no sandbox, unless the key has been used. The work
    /// must record its answer with the key in one transaction. Returns the answer, and whether it is an
    /// earlier one. The work continues if the caller is dropped.
    ///
    /// # Errors
    /// [`Error::OtherBody`], and errors of the work and of the store.
    pub async fn once(
        &self,
        tenant: &TenantId,
        once: &IdempotencyKey,
        work: impl Future<Output = Result<String, Error>> + Send + 'static,
    ) -> Result<(String, bool), Error> {
        self.inner.running()?;
        self.inner.idempotency.run(&self.inner.store, tenant, once, work).await
    }

    /// The description of a sandbox.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::Suspended`].
    pub async fn get(&self, tenant: &TenantId, id: &SandboxId) -> Result<SandboxInfo, Error> {
        let entry = self.entry(tenant, id)?;
        if entry.is_suspended() {
            return Err(suspended(&entry));
        }
        Ok(entry.view().record.info())
    }

    /// The internal name of the sandbox with this id; `None` if there is none.
    #[must_use]
    pub fn incarnation(&self, tenant: &TenantId, id: &SandboxId) -> Option<String> {
        Some(self.entry(tenant, id).ok()?.name.clone())
    }

    /// The tenant's sandboxes after `after`, at most `limit` (1 to [`PAGE_MAX`]).
    ///
    /// # Errors
    /// [`Error::BadField`] for an invalid limit.
    pub async fn list(
        &self,
        tenant: &TenantId,
        after: Option<&SandboxId>,
        limit: usize,
    ) -> Result<Page, Error> {
        if limit == 0 || limit > PAGE_MAX {
            return Err(Error::BadField {
                field: "limit",
                reason: format!("{limit} is not within 1 and {PAGE_MAX}"),
            });
        }
        Ok(self.inner.registry.list(tenant, after, limit))
    }

    /// Changes a sandbox, completely or not at all.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::BadField`].
    pub async fn patch(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        patch: Patch,
    ) -> Result<SandboxInfo, Error> {
        let entry = self.entry(tenant, id)?;
        request(&entry, |answer| DriverCommand::Patch(Box::new(patch), answer)).await
    }

    /// Deletes a sandbox as [`Service::delete`] does, but takes no snapshot before. Ends
    /// copies of the sandbox that run.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], or [`Error::TooLate`] if a process did not end in time, in which case
    /// the driver keeps trying.
    pub async fn delete_without_snapshot(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<EndedSandbox, Error> {
        let entry = self.entry(tenant, id)?;
        entry.copies.cancel();
        let deleted = timeout(DELETE_WAIT, request(&entry, DriverCommand::Delete)).await;
        deleted.unwrap_or(Err(Error::TooLate("the delete")))
    }

    /// Puts a sandbox to sleep and returns when nothing of it runs. A sleeping sandbox stays
    /// asleep.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::InUse`], [`Error::Failed`], [`Error::Unreachable`], and
    /// errors of the store.
    pub async fn sleep(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        how: SleepMode,
    ) -> Result<SandboxInfo, Error> {
        let entry = self.entry(tenant, id)?;
        request(&entry, |answer| DriverCommand::Sleep(how, answer)).await
    }

    /// Freezes all processes of a sandbox, which keep their memory. A paused sandbox stays paused.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::NotPaused`] if a process does not stop, [`Error::Sleeping`],
    /// [`Error::Failed`], [`Error::Unreachable`], [`Error::Link`] if its agent is too old, and
    /// errors of the store.
    pub async fn pause(&self, tenant: &TenantId, id: &SandboxId) -> Result<SandboxInfo, Error> {
        let entry = self.entry(tenant, id)?;
        request(&entry, DriverCommand::Pause).await
    }

    /// Lets the processes of a paused sandbox continue. A running or sleeping sandbox stays
    /// unchanged.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::Failed`], [`Error::Unreachable`], and errors of the store.
    pub async fn resume(&self, tenant: &TenantId, id: &SandboxId) -> Result<SandboxInfo, Error> {
        let entry = self.entry(tenant, id)?;
        request(&entry, |answer| DriverCommand::Resume(ResumedFor::Client, answer)).await
    }

    /// Turns a failed sandbox into a sleeping one with its files. Any other sandbox stays
    /// unchanged.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::Failed`] if the sandbox cannot be recovered, [`Error::InUse`]
    /// while its files are being read, and errors of the store.
    pub async fn recover(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<RecoveredSandbox, Error> {
        let entry = self.entry(tenant, id)?;
        request(&entry, DriverCommand::Recover).await
    }

    /// Whether a sandbox has failed.
    #[must_use]
    pub fn failed(&self, tenant: &TenantId, id: &SandboxId) -> bool {
        self.entry(tenant, id).is_ok_and(|entry| entry.state() == State::Failed)
    }

    /// A handle to a running sandbox. The first of several concurrent calls creates or wakes it.
    /// The sandbox stays awake while the handle or one of its connections is held.
    ///
    /// # Errors
    /// [`Error::NoSandbox`] with [`Access::MustExist`], [`Error::Failed`], and the errors of
    /// `create`.
    pub async fn reach(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        reach: Access,
    ) -> Result<Sandbox, Error> {
        let span = info_span!(target: TRACE_TARGET, "reach", isolet.sandbox = %id);
        self.reach_in_span(tenant, id, reach).instrument(span).await
    }

    async fn reach_in_span(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        reach: Access,
    ) -> Result<Sandbox, Error> {
        self.inner.running()?;
        loop {
            let entry = match (self.inner.registry.find(tenant, id), reach) {
                (Some(entry), _) if entry.state().visible() => entry,
                (Some(entry), _) if entry.lives_on() => return Err(Error::Departed(id.clone())),
                (_, Access::MustExist | Access::Awake | Access::Look | Access::Read) => {
                    return Err(self.inner.registry.absence(tenant, id));
                }
                (_, Access::CreateIfMissing) => {
                    let body = RecordBody::plan(&self.inner.config, SandboxSpec::default())?;
                    self.inner.egress.check(&body.network).await?;
                    let span = info_span!(target: TRACE_TARGET, "create");
                    let begun = self.inner.begin(tenant, id, &body, None, &[], Source::Empty);
                    let entry = match begun.instrument(span.clone()).await? {
                        Reserved::New(entry) | Reserved::Existing(entry) => entry,
                    };
                    entry.settled().instrument(span).await;
                    entry
                }
            };
            let view = entry.settled().await;
            if entry.is_suspended() && view.record.state.visible() {
                return Err(suspended(&entry));
            }
            match (view.record.state, view.end) {
                (State::Running | State::Sleeping, _) => {
                    let inner = Arc::clone(&self.inner);
                    if reach == Access::Look {
                        return Ok(Sandbox::new(inner, entry));
                    }
                    let entered = match entry.activity.enter() {
                        Some(awake) => Ok(awake),
                        None if reach == Access::Awake => {
                            return Err(Error::Sleeping(id.clone()));
                        }
                        // Asleep or about to be. The driver handles its commands in order.
                        None => {
                            let span = info_span!(target: TRACE_TARGET, "wake");
                            request(&entry, DriverCommand::Wake).instrument(span).await
                        }
                    };
                    match entered {
                        Ok(awake) => return Ok(Sandbox::held(inner, entry, awake)),
                        // The sandbox was deleted in the meantime, so look it up again.
                        Err(Error::NoSandbox(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                (State::Paused, _) if reach == Access::Look => {
                    return Ok(Sandbox::new(Arc::clone(&self.inner), entry));
                }
                (State::Paused, _) => match self.resume_for(&entry, reach, &view.record).await {
                    Ok(awake) => return Ok(Sandbox::held(Arc::clone(&self.inner), entry, awake)),
                    // The sandbox was deleted in the meantime, so look it up again.
                    Err(Error::NoSandbox(_)) => {}
                    Err(error) => return Err(error),
                },
                (State::Failed, _) if reach == Access::Read => {
                    let awake = request(&entry, DriverCommand::Read).await?;
                    return Ok(Sandbox::reading(Arc::clone(&self.inner), entry, awake));
                }
                (State::Failed, _) => return Err(failed(&view.record)),
                (State::Unreachable, _) => return Err(Error::Unreachable(id.clone())),
                (_, Some(Err(error))) => return Err(error),
                // The sandbox was deleted while this call waited, so look it up again.
                _ => {}
            }
        }
    }

    /// Resumes a paused sandbox for a call, if the sandbox and the call allow it.
    async fn resume_for(
        &self,
        entry: &SandboxEntry,
        reach: Access,
        record: &Record,
    ) -> Result<ActivityGuard, Error> {
        let resumes = matches!(reach, Access::CreateIfMissing | Access::MustExist);
        if !(resumes && record.body.auto_resume) {
            return Err(Error::Paused(entry.id.clone()));
        }
        let span = info_span!(target: TRACE_TARGET, "resume");
        request(entry, DriverCommand::Wake).instrument(span).await
    }

    /// Refuses new work, disconnects from the agents and writes unwritten state. Sandboxes continue
    /// to run.
    pub async fn shutdown(&self) {
        self.inner.stopping.store(true, Ordering::SeqCst);
        self.inner.snapshots.files.stop();
        warm_pool::end(&self.inner).await;
        let detach = async {
            for entry in self.inner.registry.all() {
                entry.settled().await;
                let _ = disconnect(&entry).await;
            }
        };
        if timeout(DETACH_WAIT, detach).await.is_err() {
            tracing::warn!("some drivers did not stop in time");
        }
        key_uses::record(&self.inner).await;
        self.inner.registry.clear();
        let mut tasks =
            std::mem::take(&mut *self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.shutdown().await;
        self.inner.audit.flush().await;
    }

    pub(crate) fn entry(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<Arc<SandboxEntry>, Error> {
        let found = self.inner.registry.find(tenant, id).filter(|entry| entry.state().visible());
        found.ok_or_else(|| self.inner.registry.absence(tenant, id))
    }
}

/// Sends a command to a sandbox's driver, unless the sandbox is suspended. A sandbox that is deleted in
/// the meantime is gone for the caller.
pub(crate) async fn request<R>(
    entry: &SandboxEntry,
    make: impl FnOnce(oneshot::Sender<Result<R, Error>>) -> DriverCommand,
) -> Result<R, Error> {
    if entry.is_suspended() && entry.state().visible() {
        return Err(suspended(entry));
    }
    request_always(entry, make).await
}

/// As [`request`], also while the sandbox is suspended.
pub(crate) async fn request_always<R>(
    entry: &SandboxEntry,
    make: impl FnOnce(oneshot::Sender<Result<R, Error>>) -> DriverCommand,
) -> Result<R, Error> {
    let (answer, answered) = oneshot::channel();
    let none = || match entry.lives_on() {
        true => Error::Departed(entry.id.clone()),
        false => Error::NoSandbox(entry.id.clone()),
    };
    entry.commands.send(make(answer)).await.map_err(|_| none())?;
    let mut seen = entry.view.subscribe();
    tokio::select! {
        biased;
        answer = answered => answer.unwrap_or_else(|_| {
            if entry.state().visible() { Err(Error::Fault("its driver ended by a fault".into())) } else { Err(none()) }
        }),
        // The driver accepts no more commands because another delete came first.
        _ = seen.wait_for(|view| view.record.state == State::Destroyed) => Err(none()),
    }
}

async fn disconnect(entry: &SandboxEntry) -> Result<(), Error> {
    if !entry.state().visible() {
        return Ok(());
    }
    let (answer, answered) = oneshot::channel();
    entry.commands.send(DriverCommand::Detach(answer)).await.map_err(|_| Error::Stopping)?;
    answered.await.map_err(|_| Error::Stopping)
}
