//! Creates sandboxes: checks limits, takes one of the warm pool if possible, and records it.

use crate::lifecycle::driver::{Begin, Source};
use crate::live::entry::SandboxEntry;
use crate::live::failpoint::pass;
use crate::live::inner::Inner;
use crate::live::registry::Reserved;
use crate::live::warm_pool;
use crate::model::error::Error;
use crate::model::ids::{SandboxId, TenantId};
use crate::model::info::{IdempotencyKey, SandboxInfo, SandboxSpec};
use crate::model::network::injected_credential::{self, CredentialSpec};
use crate::model::record::{Record, RecordBody};
use isolet_image::User;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
/// How long a create waits for the removal of an earlier sandbox with the same id.
const REMOVED_WAIT: Duration = Duration::from_secs(10);

/// One of the sandboxes of a fork.
pub(super) struct ForkMember {
    /// The name of the temporary snapshot.
    pub(super) snapshot: String,
    /// Whether no other one is created from the snapshot at the same time or later.
    pub(super) is_last: bool,
}

impl Inner {
    /// Reserves the id and starts the driver. Waits for the removal of an earlier sandbox with the
    /// same id.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        tenant: &TenantId,
        id: &SandboxId,
        body: &RecordBody,
        once: Option<IdempotencyKey>,
        credentials: &[CredentialSpec],
        from: Source,
    ) -> Result<Reserved, Error> {
        loop {
            self.running()?;
            self.space.check()?;
            self.quotas.check_disk_mib(tenant, body.limits.disk_mib)?;
            self.quotas.check(tenant)?;
            let max = self.config.sandboxes_max(tenant);
            let sandboxes = self.jail.data_dir.join("sandboxes");
            let sessions = from.sessions();
            let make = |mut record: Record| {
                record.body.set_id_base(&self.config, record.slot);
                SandboxEntry::new(record, &sandboxes, sessions, &self.watched, &self.metrics)
            };
            // Sandboxes of the warm pool have the configured disk size, which cannot change later, and
            // the lease guard does not know them.
            // Those with a workspace or sessions of an image are not created in advance.
            let is_empty = body.root.as_ref().is_none_or(|root| root.workspace.is_none());
            let fits = matches!(from, Source::Empty)
                && body.class.is_node()
                && is_empty
                && body.limits.disk_mib == self.config.limits.disk_mib;
            let mut made = if fits { warm_pool::take(self, &body.kind()).await } else { None };
            let ready = made.is_some();
            let link = made.as_ref().and_then(|made| made.link);
            // Files of a snapshot keep the ids that they have on disk.
            let id_base = match &from {
                Source::Snapshot(_) => body.id_base,
                _ => self.launch.files_id_base(),
            };
            let mut body = body.clone();
            body.id_base = id_base;
            let reserved = self.registry.reserve(tenant, id, max, body, &mut made, make);
            if let Some(unused) = made {
                self.ready.put(unused);
            }
            match reserved? {
                Reserved::New(entry) => {
                    if self.config.warm_pool_size > 0 {
                        let lifecycle = &self.metrics.lifecycle;
                        if ready { &lifecycle.pool_hits } else { &lifecycle.pool_misses }.inc();
                    }
                    *entry.link() = link;
                    entry.secret_store.fill(credentials.to_vec());
                    let source = if ready { Source::WarmPool } else { from };
                    self.drive(Arc::clone(&entry), Begin::Make { once, source });
                    return Ok(Reserved::New(entry));
                }
                Reserved::Existing(entry) if entry.state().visible() => {
                    return Ok(Reserved::Existing(entry));
                }
                Reserved::Existing(entry) => {
                    let settled = timeout(REMOVED_WAIT, entry.settled()).await;
                    settled.map_err(|_| Error::TooLate("removing the sandbox that had this id"))?;
                }
            }
        }
    }

    pub(crate) async fn create(
        self: Arc<Self>,
        tenant: TenantId,
        spec: SandboxSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<SandboxInfo, Error> {
        self.create_of(tenant, spec, once, None).await
    }

    /// Creates a sandbox; with `fork`, as one of a fork.
    pub(super) async fn create_of(
        self: Arc<Self>,
        tenant: TenantId,
        spec: SandboxSpec,
        once: Option<IdempotencyKey>,
        fork: Option<ForkMember>,
    ) -> Result<SandboxInfo, Error> {
        let id = spec.id.clone().unwrap_or_else(SandboxId::random);
        let _creating = self.registry.creating(&tenant, &id);
        let as_root = spec.as_root;
        let credentials = injected_credential::changed(&[], &spec.credentials, &[])?;
        let spec = SandboxSpec { credentials: credentials.clone(), ..spec };
        let mut from = match &spec.snapshot {
            Some(snapshot) => Some(self.pin_snapshot(&tenant, snapshot)?),
            None => None,
        };
        let mut body = match &from {
            Some(from) => from.settings(&self.config, spec)?,
            None => RecordBody::plan(&self.config, spec)?,
        };
        if let Some(from) = &mut from {
            from.gives_files = fork.as_ref().is_some_and(|fork| fork.is_last);
        }
        body.fork = fork.map(|fork| fork.snapshot);
        self.egress.check(&body.network).await?;
        // An existing sandbox needs no pull of its image.
        if self.registry.find(&tenant, &id).is_some_and(|entry| entry.state().visible()) {
            return Err(Error::SandboxExists(id));
        }
        let (_pin, source) = match from {
            Some(from) => {
                self.layers_there(&body)?;
                (None, Source::Snapshot(from))
            }
            None => match self.image(&tenant, &mut body).await? {
                Some((pin, Some(sessions))) => (Some(pin), Source::Image(sessions)),
                Some((pin, None)) => (Some(pin), Source::Empty),
                None => (None, Source::Empty),
            },
        };
        if as_root && let Some(root) = &mut body.root {
            root.user = User::root();
        }
        match self.begin(&tenant, &id, &body, once, &credentials, source).await? {
            Reserved::New(entry) => {
                let info = made(&entry).await?;
                pass("create.answered").await?;
                Ok(info)
            }
            Reserved::Existing(_) => Err(Error::SandboxExists(id)),
        }
    }
}

/// The result of a creation.
pub(super) async fn made(entry: &SandboxEntry) -> Result<SandboxInfo, Error> {
    let view = entry.made().await;
    match view.end {
        Some(Err(error)) => Err(error),
        // The sandbox was deleted right after its creation, so the creation succeeded.
        _ => Ok(view.record.info()),
    }
}
