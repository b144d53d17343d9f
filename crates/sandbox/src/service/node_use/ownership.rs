//! What the driver of the fleet's protocol does with the sandboxes of this node. It decides; the
//! service performs.

use crate::live::entry::SandboxEntry;
use crate::live::inner::Inner;
use crate::live::launch_queue::lease_guard::Guard;
use crate::live::orphans::superseded;
use crate::model::blocking::blocking;
use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::ids::{SandboxId, TenantId};
use crate::model::info::class::SandboxClass;
use crate::model::info::ownership::{
    GuardReport, IdClaims, LocalSandbox, SnapshotRecords, StartPermits, StoredOwnership,
};
use crate::service::{Service, request_always};
use isolet_jail::{GuardError, SandboxHandle};
use isolet_store::OwnershipRow;
use isolet_wire::lease::{Epoch, LeaseDeadline};
use isolet_wire::lease_guard::{GuardedSandbox, GuardedState};
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tracing::{info, warn};

/// How long the lease guard may take to stop sandboxes before the server freezes them itself. The
/// margin of the shortest lease is longer.
const GUARD_ANSWER: Duration = Duration::from_millis(300);
/// The interval at which the server freezes sandboxes again while the lease guard does not answer: a
/// copy of their files that ends lets them continue.
const FREEZE_AGAIN: Duration = Duration::from_millis(100);
/// How often files of superseded sandboxes are deleted that are old enough.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Whether the lease guard lets a sandbox run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may run, and continues if it was stopped.
    Admitted,
    /// It must not run now.
    Refused(String),
}

impl Service {
    /// Names who decides whether sandboxes of the class `store` may start. Until then, none starts.
    /// Only the first call counts.
    pub fn set_start_permits(&self, permits: Arc<dyn StartPermits>) {
        let _ = self.inner.ownership.permits.set(permits);
    }

    /// Names who makes this node the owner of forks. Until then, nothing is forked on a node of a
    /// fleet. Only the first call counts.
    pub fn set_id_claims(&self, claims: Arc<dyn IdClaims>) {
        let _ = self.inner.ownership.claims.set(claims);
    }

    /// Names who records which snapshots other nodes restore. Until then, none is pushed on this
    /// server's own account. Only the first call counts.
    pub fn set_snapshot_records(&self, records: Arc<dyn SnapshotRecords>) {
        let _ = self.inner.ownership.records.set(records);
    }

    /// The sandboxes of this server, except those that are being removed.
    #[must_use]
    pub fn local_sandboxes(&self) -> Vec<LocalSandbox> {
        let all = self.inner.registry.all().into_iter();
        all.filter(|entry| entry.state().visible()).map(|entry| entry.local()).collect()
    }

    /// Whether something of this sandbox exists, also if it is being removed.
    #[must_use]
    pub fn exists(&self, sandbox: &LocalSandbox) -> bool {
        self.named(sandbox).is_some()
    }

    /// The sandbox that has this id now.
    #[must_use]
    pub fn local_sandbox(&self, tenant: &TenantId, id: &SandboxId) -> Option<LocalSandbox> {
        Some(self.entry(tenant, id).ok()?.local())
    }

    /// What the records hold about ownership, also that of sandboxes that are gone.
    ///
    /// # Errors
    /// Errors of the store. Rows with invalid ids are skipped and logged.
    pub async fn stored_ownership(&self) -> Result<Vec<StoredOwnership>, Error> {
        let rows = self.inner.store.ownership().await?;
        let read = |row: OwnershipRow| {
            let ids = TenantId::parse(&row.tenant).ok().zip(SandboxId::parse(&row.id).ok());
            let Some((tenant, id)) = ids else {
                warn!(sandbox = %row.name, "record of ownership with invalid ids skipped");
                return None;
            };
            let OwnershipRow { name, suspended, view, .. } = row;
            Some(StoredOwnership { name, tenant, id, suspended, view })
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }

    /// Records views, all or none.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn store_ownership(&self, views: Vec<StoredOwnership>) -> Result<(), Error> {
        let rows = views.into_iter().map(|one| OwnershipRow {
            name: one.name,
            tenant: one.tenant.to_string(),
            id: one.id.to_string(),
            suspended: one.suspended,
            view: one.view,
        });
        Ok(self.inner.store.put_ownership(rows.collect()).await?)
    }

    /// Forgets a sandbox of which nothing is left: its view, and its entry in the lease guard.
    ///
    /// # Errors
    /// Errors of the store and of the guard. It can be repeated.
    pub async fn forget_ownership(&self, name: &str) -> Result<(), Error> {
        let released = name.to_owned();
        self.guarded(move |guard| guard.release(&released)).await?.map_err(fault)?;
        Ok(self.inner.store.remove_ownership(name).await?)
    }

    /// Tells the lease guard the deadline.
    ///
    /// # Errors
    /// [`Error::Fault`]: the guard does not run and cannot be started.
    pub async fn extend_lease(&self, deadline: LeaseDeadline) -> Result<GuardReport, Error> {
        self.guarded(move |guard| guard.extend(deadline)).await?.map_err(fault)
    }

    /// The internal names of the sandboxes that the lease guard has stopped.
    ///
    /// # Errors
    /// As [`Self::extend_lease`].
    pub async fn stopped_by_guard(&self) -> Result<Vec<String>, Error> {
        let all = self.guarded(Guard::list).await?.map_err(fault)?;
        let stopped = |one: &GuardedSandbox| one.state != GuardedState::Watched;
        Ok(all.into_iter().filter(stopped).map(|one| one.name).collect())
    }

    /// Freezes sandboxes and drops their packets. Requests for them are refused with
    /// [`Error::Suspended`]. While the lease guard does not answer, the server freezes them itself,
    /// and their packets are dropped by the guard that replaces it.
    ///
    /// # Errors
    /// As [`Self::extend_lease`]. Requests are refused anyway, and the processes are frozen.
    pub async fn suspend(&self, sandboxes: &[LocalSandbox]) -> Result<(), Error> {
        let mut names = Vec::with_capacity(sandboxes.len());
        for entry in sandboxes.iter().filter_map(|one| self.named(one)) {
            if !entry.is_suspended() {
                info!(sandbox = %entry.id, tenant = %entry.tenant, "suspended: another node may own it");
            }
            entry.set_suspended(true);
            names.push(entry.name.clone());
        }
        let stopped = names.clone();
        let mut stopped = pin!(self.guarded(move |guard| guard.stop(&stopped)));
        match timeout(GUARD_ANSWER, &mut stopped).await {
            Ok(Ok(Ok(()))) => return Ok(()),
            Ok(failed) => {
                self.freeze(&names).await?;
                return failed?.map_err(fault);
            }
            Err(_) => {}
        }
        warn!(
            count = names.len(),
            "the lease guard does not answer: the server freezes the sandboxes itself"
        );
        loop {
            self.freeze(&names).await?;
            if let Ok(stopped) = timeout(FREEZE_AGAIN, &mut stopped).await {
                return stopped?.map_err(fault);
            }
        }
    }

    /// Freezes the processes of sandboxes without the lease guard.
    async fn freeze(&self, names: &[String]) -> Result<(), Error> {
        let names = names.to_vec();
        let jail = self.inner.jail.clone();
        let frozen = blocking(move || {
            let failed = names.iter().filter(|name| {
                let frozen = SandboxHandle::open(&jail, name).freeze(true);
                // One without control groups has no processes.
                frozen.is_err_and(|error| error.kind() != ErrorKind::NotFound)
            });
            failed.count()
        });
        match frozen.await? {
            0 => Ok(()),
            count => {
                warn!(count, "sandboxes cannot be frozen; the lease guard kills them");
                Ok(())
            }
        }
    }

    /// Asks the lease guard to let a sandbox run that this node owns under this registration. One of
    /// the class `node` needs no permission.
    ///
    /// # Errors
    /// As [`Self::extend_lease`].
    pub async fn admit(
        &self,
        sandbox: &LocalSandbox,
        registration: Epoch,
    ) -> Result<Admission, Error> {
        let name = sandbox.name.clone();
        let Some(entry) = self.named(sandbox) else {
            return Ok(Admission::Refused("it does not exist any more".to_owned()));
        };
        let is_suspended = entry.is_suspended();
        let admitted = match sandbox.class {
            SandboxClass::Node if !is_suspended => return Ok(Admission::Admitted),
            SandboxClass::Node => self.guarded(move |guard| guard.free(&name)).await?,
            SandboxClass::Store => {
                self.guarded(move |guard| guard.admit(&name, registration)).await?
            }
        };
        match admitted {
            Ok(()) => {}
            Err(error @ GuardError::Gone(_)) => return Err(fault(error)),
            Err(error) => return Ok(Admission::Refused(error.to_string())),
        }
        if is_suspended {
            entry.set_suspended(false);
            // Its driver may be busy with a copy of its files for minutes.
            self.inner.spawn(async move {
                let _ = entry.commands.send(DriverCommand::Continue).await;
            });
        }
        Ok(Admission::Admitted)
    }

    /// Ends a sandbox that another node has taken over: its processes end, its files are moved to
    /// `DATA/superseded/TENANT/ID-TIME`, and its record is removed. It can be repeated. A server that
    /// is killed in between continues at its next start.
    ///
    /// # Errors
    /// Errors of the store. Failed steps are repeated until they succeed.
    pub async fn end_superseded(&self, sandbox: &LocalSandbox) -> Result<(), Error> {
        let Some(entry) = self.named(sandbox) else { return Ok(()) };
        entry.copies.cancel();
        let ended = request_always(&entry, DriverCommand::Supersede).await;
        match ended {
            Ok(_) | Err(Error::NoSandbox(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn named(&self, sandbox: &LocalSandbox) -> Option<Arc<SandboxEntry>> {
        let found = self.inner.registry.find(&sandbox.tenant, &sandbox.id);
        found.filter(|entry| entry.name == sandbox.name)
    }

    /// Calls the lease guard on a thread that may block.
    async fn guarded<R: Send + 'static>(
        &self,
        call: impl FnOnce(&Guard) -> Result<R, GuardError> + Send + 'static,
    ) -> Result<Result<R, GuardError>, Error> {
        let guard = self.inner.ownership.guard.clone();
        let none = || GuardError::Gone("this server is no node of a fleet".to_owned());
        blocking(move || guard.ok_or_else(none).and_then(|guard| call(&guard))).await
    }
}

fn fault(error: GuardError) -> Error {
    Error::Fault(error.to_string())
}

/// Deletes files of superseded sandboxes that are old enough.
pub(crate) async fn keep(inner: Arc<Inner>) {
    let Some(keep) = inner.config.fleet.map(|fleet| fleet.superseded_keep) else { return };
    loop {
        let jail = inner.jail.clone();
        let swept = blocking(move || superseded::sweep(&jail.data_dir, &jail.trash(), keep)).await;
        match swept {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => {
                info!(count, "files of superseded sandboxes deleted");
                inner.trash.notify_one();
            }
            failed => warn!(?failed, "files of superseded sandboxes are not deleted yet"),
        }
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}
