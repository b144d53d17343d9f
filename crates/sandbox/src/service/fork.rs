//! Forks: copies of a sandbox, all of them or none.
//!
//! A fork takes a temporary snapshot and creates sandboxes from it, whose records name it. The last
//! one gets the files of the snapshot themselves, the others copies. The
//! transaction that stores the answer of the fork removes the record of the temporary snapshot. If
//! the server is killed before it, the next start finds that record, and removes all sandboxes
//! that name it ([`crate::lifecycle::recover`]).

use crate::live::failpoint::pass;
use crate::live::idempotency;
use crate::live::inner::Inner;
use crate::model::error::Error;
use crate::model::ids::{SandboxId, TenantId};
use crate::model::info::{IdempotencyKey, SandboxInfo, SandboxSpec};
use crate::model::network::injected_credential::CredentialSpec;
use crate::model::record::snapshot::{FORKS_MAX, SnapshotRecord, SnapshotSpec};
use crate::service::Service;
use crate::service::create::ForkMember;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::task::JoinSet;
use tracing::{info, warn};

/// How many sandboxes of one fork are created at the same time.
const FORKS_AT_ONCE: usize = 4;

/// The new sandboxes, in the stored answer of an idempotency key.
#[derive(Serialize, Deserialize)]
struct Forked {
    forks: Vec<SandboxInfo>,
    /// The internal name of the original, so that an answer about an earlier sandbox with the same id
    /// does not count.
    incarnation: String,
}

/// The sandbox that is forked.
struct Original<'a> {
    id: &'a SandboxId,
    incarnation: String,
}

impl Service {
    /// Creates copies of a sandbox, with new ids and with its credentials. If one of them cannot be
    /// created or the server is killed, none is left. Returns them in the order of their ids, and
    /// `true` if an earlier request with the same idempotency key created them. Continues if the
    /// caller is dropped.
    ///
    /// # Errors
    /// Those of [`Service::create_snapshot`] and [`Service::create`].
    pub async fn fork(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        count: usize,
        once: Option<IdempotencyKey>,
    ) -> Result<(Vec<SandboxInfo>, bool), Error> {
        if count == 0 || count > FORKS_MAX {
            let reason = format!("{count} is not within 1 and {FORKS_MAX}");
            return Err(Error::BadField { field: "count", reason });
        }
        self.inner.running()?;
        let incarnation = self.entry(tenant, id)?.name.clone();
        let service = self.clone();
        let owner = tenant.clone();
        let id = id.clone();
        let Some(once) = once else {
            let forking = async move { service.fork_all(&owner, &id, count, None).await };
            let forked = tokio::spawn(forking).await;
            let forked = forked.map_err(|error| Error::Fault(error.to_string()))??;
            return Ok((forked.forks, false));
        };
        let key = once.clone();
        let work = async move {
            let forked = service.fork_all(&owner, &id, count, Some(key)).await?;
            serde_json::to_string(&forked).map_err(|error| Error::Fault(error.to_string()))
        };
        let own = move |answer: &str| {
            let forked = serde_json::from_str::<Forked>(answer);
            forked.is_ok_and(|forked| forked.incarnation == incarnation)
        };
        let idempotency = &self.inner.idempotency;
        let run = idempotency.run_in(&self.inner.store, tenant, &once, own, work);
        let (text, replayed) = run.await?;
        let forked: Forked = serde_json::from_str(&text).map_err(|_| Error::OtherBody)?;
        Ok((forked.forks, replayed))
    }

    async fn fork_all(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        count: usize,
        once: Option<IdempotencyKey>,
    ) -> Result<Forked, Error> {
        let ids: Vec<SandboxId> = (0..count).map(|_| SandboxId::random()).collect();
        // Before they exist, so that forks without an owner are never left, and never deleted.
        let ownership = &self.inner.ownership;
        ownership.claim(tenant, &ids).await?;
        let forked = self.fork_as(tenant, id, &ids, once).await;
        if forked.is_err() {
            ownership.settle(tenant, &ids);
        }
        forked
    }

    async fn fork_as(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        ids: &[SandboxId],
        once: Option<IdempotencyKey>,
    ) -> Result<Forked, Error> {
        let inner = &self.inner;
        let incarnation = self.entry(tenant, id)?.name.clone();
        let spec = SnapshotSpec::default();
        let snapshot = inner.take_snapshot(tenant, id, spec, None, true).await?;
        // Its lifetime must not end it before the fork is complete.
        let pinned = inner.pin_snapshot(tenant, &snapshot.id);
        let forked = match &pinned {
            Ok(_) => {
                let original = Original { id, incarnation };
                self.complete_fork(tenant, original, &snapshot, ids, once).await
            }
            Err(error) => Err(error.clone()),
        };
        drop(pinned);
        if let Err(error) = inner.remove_snapshot(tenant, &snapshot.id).await {
            warn!(%error, "snapshot of a fork is not deleted yet");
        }
        forked
    }

    async fn complete_fork(
        &self,
        tenant: &TenantId,
        original: Original<'_>,
        snapshot: &SnapshotRecord,
        ids: &[SandboxId],
        once: Option<IdempotencyKey>,
    ) -> Result<Forked, Error> {
        pass("fork.copied").await?;
        let Original { id, incarnation } = original;
        let count = ids.len();
        let credentials = self.credentials_of(tenant, id, snapshot).await?;
        let mut forks = Vec::with_capacity(count);
        let created = self.create_forks(tenant, snapshot, &credentials, ids, &mut forks).await;
        forks.sort_by(|one, other| one.id.cmp(&other.id));
        let forked = Forked { forks, incarnation };
        let recorded = match created {
            Ok(()) => self.record_fork(snapshot, &forked, once).await,
            Err(error) => Err(error),
        };
        let Err(error) = recorded else {
            info!(sandbox = %id, %tenant, count, "forked");
            let _ = pass("fork.recorded").await;
            return Ok(forked);
        };
        for fork in forked.forks {
            if let Err(error) = self.delete(tenant, &fork.id).await {
                warn!(sandbox = %fork.id, %tenant, %error, "fork is not deleted");
            }
        }
        Err(error)
    }

    /// The credentials of the original with their values. A client that may fork it may also use its
    /// credentials: both need a key of the tenant that may change things.
    async fn credentials_of(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        snapshot: &SnapshotRecord,
    ) -> Result<Vec<CredentialSpec>, Error> {
        if snapshot.body.credentials.is_empty() {
            return Ok(Vec::new());
        }
        self.entry(tenant, id)?.secret_store.all(&snapshot.body.credentials).await
    }

    async fn create_forks(
        &self,
        tenant: &TenantId,
        snapshot: &SnapshotRecord,
        credentials: &[CredentialSpec],
        ids: &[SandboxId],
        forks: &mut Vec<SandboxInfo>,
    ) -> Result<(), Error> {
        let mut tasks = JoinSet::new();
        let mut left = ids;
        let mut done = Ok(());
        loop {
            while let Some((id, later)) = left.split_first()
                && done.is_ok()
                && tasks.len() < FORKS_AT_ONCE
            {
                // The last one takes the files of the snapshot, which the others need.
                if later.is_empty() && !tasks.is_empty() {
                    break;
                }
                left = later;
                let inner = Arc::clone(&self.inner);
                let spec = SandboxSpec {
                    id: Some(id.clone()),
                    snapshot: Some(snapshot.id.clone()),
                    credentials: credentials.to_vec(),
                    ..SandboxSpec::default()
                };
                let member =
                    ForkMember { snapshot: snapshot.name.clone(), is_last: later.is_empty() };
                tasks.spawn(inner.create_fork(tenant.clone(), spec, member));
            }
            match tasks.join_next().await {
                None => return done,
                Some(Ok(Ok(info))) => forks.push(info),
                Some(Ok(Err(error))) => done = Err(error),
                Some(Err(error)) => done = Err(Error::Fault(error.to_string())),
            }
        }
    }

    /// The transaction that completes the fork.
    async fn record_fork(
        &self,
        snapshot: &SnapshotRecord,
        forked: &Forked,
        once: Option<IdempotencyKey>,
    ) -> Result<(), Error> {
        pass("fork.created").await?;
        let answer = match once {
            Some(once) => {
                let text = serde_json::to_string(forked);
                let text = text.map_err(|error| Error::Fault(error.to_string()))?;
                Some(idempotency::row(&snapshot.tenant, &once, text))
            }
            None => None,
        };
        Ok(self.inner.store.remove_snapshot_with_answer(&snapshot.name, answer).await?)
    }
}

impl Inner {
    /// Creates one sandbox of a fork, which is not complete yet.
    async fn create_fork(
        self: Arc<Self>,
        tenant: TenantId,
        spec: SandboxSpec,
        member: ForkMember,
    ) -> Result<SandboxInfo, Error> {
        self.create_of(tenant, spec, None, Some(member)).await
    }
}
