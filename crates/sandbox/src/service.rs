//! The entry point: every sandbox of every tenant.

mod create;
mod events;
pub(crate) mod exposed;
mod images;
mod network;
mod profiles;
pub(crate) mod tenant_sessions;
mod used;

use crate::{
    lifecycle::{listeners, recover},
    live::{entry::Entry, inner::Inner, registry::Reserved, warm_pool},
    model::{
        command::DriverCommand,
        config::Config,
        error::{Error, OpenError},
        ids::{SandboxId, TenantId},
        info::{Created, Ended, IdempotencyKey, Info, Page, Patch, SandboxSpec},
        record::{Body, failed},
        state::State,
    },
    sandbox::Sandbox,
};
use isolet_store::{audit::Audit, keys::Keys};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};
use tokio::{sync::oneshot, time::timeout};

/// The most that one page lists.
pub const PAGE_MAX: usize = 1000;
/// How long a stopping server waits for its drivers.
const DETACH_WAIT: Duration = Duration::from_secs(5);
/// How long a delete is waited for: its driver may be making the sandbox, with a launcher that does
/// not answer. It goes on without who asked.
const DELETE_WAIT: Duration = Duration::from_secs(10);

/// All sandboxes of this server. Clones share one.
#[derive(Clone)]
pub struct Service {
    pub(crate) inner: Arc<Inner>,
}

/// Whether a call may make the sandbox that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The first call that works in a sandbox creates it.
    CreateIfMissing,
    /// Dialects that say so: 404 instead.
    MustExist,
    /// 404 likewise; one that sleeps is left asleep, and refused with [`Error::Sleeping`].
    Awake,
    /// Reading calls: 404 likewise, and one that sleeps is left asleep.
    Look,
    /// Calls that read files: 404 likewise, one that sleeps is woken, and of one that has failed the
    /// files are read, and nothing else is done.
    Read,
}

impl Service {
    /// Takes the data directory, starts the launcher and finds again what ran before.
    ///
    /// # Errors
    /// [`OpenError`] when another server holds the directory, or it cannot be used. A machine that
    /// cannot make sandboxes is no error here: see [`Service::missing`].
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        let inner = recover::open(config).await?;
        inner.spawn(tenant_sessions::keep(Arc::clone(&inner)));
        inner.spawn(listeners::keep(Arc::clone(&inner)));
        Ok(Self { inner })
    }

    /// What this machine lacks for sandboxes, one sentence each; empty when all is there.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        self.inner.launch.missing()
    }

    /// Whether the disk of the records has failed: nothing is recorded until the server is started
    /// anew, sandboxes live on.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.inner.store.broken()
    }

    /// How many sandboxes are made ahead, and how many are to be.
    #[must_use]
    pub fn ready(&self) -> (usize, usize) {
        let size = self.inner.config.warm_pool_size.min(warm_pool::READY_MAX);
        (self.inner.ready.count(), size as usize)
    }

    /// Ends the sandboxes that were made ahead; others are made in their stead at once.
    pub async fn renew_ready(&self) {
        warm_pool::renew(&self.inner).await;
    }

    /// How many sandboxes a tenant has, and may have.
    #[must_use]
    pub fn quota(&self, tenant: &TenantId) -> (usize, u32) {
        (self.inner.registry.of(tenant).len(), self.inner.config.sandboxes_max(tenant))
    }

    /// The API keys.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.inner.keys
    }

    /// What was done to sandboxes, by whom.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.inner.audit
    }

    /// Makes a sandbox; answers when its agent has answered. Goes on when the caller is dropped.
    ///
    /// # Errors
    /// [`Error::SandboxExists`], the wish's own faults, limits, and what the machine refuses.
    pub async fn create(
        &self,
        tenant: &TenantId,
        wish: SandboxSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<Created, Error> {
        self.inner.running()?;
        let inner = Arc::clone(&self.inner);
        let Some(once) = once else {
            return Ok(Created {
                info: inner.create(tenant.clone(), wish, None).await?,
                replayed: false,
            });
        };
        let owner = tenant.clone();
        let key = once.clone();
        let work = async move {
            let info = inner.create(owner, wish, Some(key)).await?;
            serde_json::to_string(&info).map_err(|error| Error::Fault(error.to_string()))
        };
        let (text, replayed) =
            self.inner.idempotency.run(&self.inner.store, tenant, &once, work).await?;
        // A key that made something else was used with another route, and so another body.
        let info = serde_json::from_str(&text).map_err(|_| Error::OtherBody)?;
        Ok(Created { info, replayed })
    }

    /// What is known of a sandbox.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    pub async fn get(&self, tenant: &TenantId, id: &SandboxId) -> Result<Info, Error> {
        Ok(self.entry(tenant, id)?.view().record.info())
    }

    /// The server's own name of the life that a sandbox is in; `None` where there is no such sandbox.
    #[must_use]
    pub fn incarnation(&self, tenant: &TenantId, id: &SandboxId) -> Option<String> {
        Some(self.entry(tenant, id).ok()?.name.clone())
    }

    /// The tenant's sandboxes after `after`, at most `limit` (1 to [`PAGE_MAX`]).
    ///
    /// # Errors
    /// [`Error::BadField`] for another limit.
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

    /// Changes a sandbox; all of the patch or nothing.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::BadField`].
    pub async fn patch(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        patch: Patch,
    ) -> Result<Info, Error> {
        let entry = self.entry(tenant, id)?;
        order(&entry, |answer| DriverCommand::Patch(Box::new(patch), answer)).await
    }

    /// Ends a sandbox; answers when nothing of it runs any more. Never waits behind commands.
    ///
    /// # Errors
    /// [`Error::NoSandbox`]; [`Error::TooLate`] when something could not be ended in its time (it
    /// goes on being tried).
    pub async fn delete(&self, tenant: &TenantId, id: &SandboxId) -> Result<Ended, Error> {
        let entry = self.entry(tenant, id)?;
        let deleted = timeout(DELETE_WAIT, order(&entry, DriverCommand::Delete)).await;
        deleted.unwrap_or(Err(Error::TooLate("the delete")))
    }

    /// Puts a sandbox to sleep; answers when nothing of it runs. One that sleeps stays so.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::InUse`] while somebody works in it, [`Error::Failed`],
    /// [`Error::Unreachable`], and what the records refuse.
    pub async fn sleep(&self, tenant: &TenantId, id: &SandboxId) -> Result<Info, Error> {
        let entry = self.entry(tenant, id)?;
        order(&entry, DriverCommand::Sleep).await
    }

    /// Makes a sandbox that has failed one to work in again: it sleeps then, with its files. One that
    /// has not failed stays as it is.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::Failed`] for one that cannot be recovered, [`Error::InUse`]
    /// while its files are read, and what the records refuse.
    pub async fn recover(&self, tenant: &TenantId, id: &SandboxId) -> Result<Info, Error> {
        let entry = self.entry(tenant, id)?;
        order(&entry, DriverCommand::Recover).await
    }

    /// Whether a sandbox has failed.
    #[must_use]
    pub fn failed(&self, tenant: &TenantId, id: &SandboxId) -> bool {
        self.entry(tenant, id).is_ok_and(|entry| entry.state() == State::Failed)
    }

    /// A running sandbox to work in: made, or woken, by the first of those who arrive together
    /// while it is not there or asleep. It stays awake as long as this handle, or a link of it, is
    /// held.
    ///
    /// # Errors
    /// [`Error::NoSandbox`] with [`Access::MustExist`], [`Error::Failed`], and those of `create`.
    pub async fn reach(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        reach: Access,
    ) -> Result<Sandbox, Error> {
        self.inner.running()?;
        loop {
            let entry = match (self.inner.registry.find(tenant, id), reach) {
                (Some(entry), _) if entry.state().visible() => entry,
                (_, Access::MustExist | Access::Awake | Access::Look | Access::Read) => {
                    return Err(Error::NoSandbox(id.clone()));
                }
                (_, Access::CreateIfMissing) => {
                    let body = Body::plan(&self.inner.config, SandboxSpec::default())?;
                    self.inner.egress.check(&body.network).await?;
                    match self.inner.begin(tenant, id, &body, None, &[]).await? {
                        Reserved::New(entry) | Reserved::Existing(entry) => entry,
                    }
                }
            };
            let view = entry.settled().await;
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
                        // Asleep, or about to be: its driver does one after the other.
                        None => order(&entry, DriverCommand::Wake).await,
                    };
                    match entered {
                        Ok(awake) => return Ok(Sandbox::held(inner, entry, awake)),
                        // Deleted meanwhile: look again.
                        Err(Error::NoSandbox(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                (State::Failed, _) if reach == Access::Read => {
                    let awake = order(&entry, DriverCommand::Read).await?;
                    return Ok(Sandbox::reading(Arc::clone(&self.inner), entry, awake));
                }
                (State::Failed, _) => return Err(failed(&view.record)),
                (State::Unreachable, _) => return Err(Error::Unreachable(id.clone())),
                (_, Some(Err(error))) => return Err(error),
                // Deleted while this call waited: look again.
                _ => {}
            }
        }
    }

    /// Takes no new work, lets go of the agents, writes what is not written. Sandboxes live on.
    pub async fn shutdown(&self) {
        self.inner.stopping.store(true, Ordering::Relaxed);
        warm_pool::end(&self.inner).await;
        let detach = async {
            for entry in self.inner.registry.all() {
                entry.settled().await;
                let _ = let_go(&entry).await;
            }
        };
        if timeout(DETACH_WAIT, detach).await.is_err() {
            tracing::warn!("some sandboxes were not let go in time");
        }
        self.inner.registry.clear();
        let mut tasks =
            std::mem::take(&mut *self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.shutdown().await;
        self.inner.audit.flush().await;
    }

    pub(crate) fn entry(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arc<Entry>, Error> {
        let found = self.inner.registry.find(tenant, id).filter(|entry| entry.state().visible());
        found.ok_or_else(|| Error::NoSandbox(id.clone()))
    }
}

/// Gives its driver an order. One that is being deleted meanwhile is gone for the caller.
pub(crate) async fn order<R>(
    entry: &Entry,
    make: impl FnOnce(oneshot::Sender<Result<R, Error>>) -> DriverCommand,
) -> Result<R, Error> {
    let (answer, answered) = oneshot::channel();
    let none = || Error::NoSandbox(entry.id.clone());
    entry.orders.send(make(answer)).await.map_err(|_| none())?;
    let mut seen = entry.view.subscribe();
    tokio::select! {
        biased;
        answer = answered => answer.unwrap_or_else(|_| {
            if entry.state().visible() { Err(Error::Fault("its driver ended by a fault".into())) } else { Err(none()) }
        }),
        // Its driver takes no more orders: another caller's delete came first.
        _ = seen.wait_for(|view| view.record.state == State::Destroyed) => Err(none()),
    }
}

async fn let_go(entry: &Entry) -> Result<(), Error> {
    if !entry.state().visible() {
        return Ok(());
    }
    let (answer, answered) = oneshot::channel();
    entry.orders.send(DriverCommand::Detach(answer)).await.map_err(|_| Error::Stopping)?;
    answered.await.map_err(|_| Error::Stopping)
}
