//! Creates sandboxes.

use crate::{
    lifecycle::driver::Begin,
    live::{entry::Entry, failpoint::pass, inner::Inner, registry::Reserved, warm_pool},
    model::{
        error::Error,
        ids::{SandboxId, TenantId},
        info::{IdempotencyKey, Info, SandboxSpec},
        network::lent::{self, CredentialSpec},
        record::Body,
    },
};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
/// How long a create waits until nothing is left of an earlier sandbox of its id.
const REMOVED_WAIT: Duration = Duration::from_secs(10);

impl Inner {
    /// Takes the id and starts the driver; waits behind one of the same id that is being removed.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        tenant: &TenantId,
        id: &SandboxId,
        body: &Body,
        once: Option<IdempotencyKey>,
        credentials: &[CredentialSpec],
    ) -> Result<Reserved, Error> {
        loop {
            self.running()?;
            self.space.check()?;
            let max = self.config.sandboxes_max(tenant);
            let sandboxes = self.jail.data_dir.join("sandboxes");
            let make = |record| Entry::new(record, &sandboxes, Vec::new(), &self.watched);
            // Those that wait have the disk of the configuration, and a disk stays as it was made.
            let fits = body.limits.disk_mib == self.config.limits.disk_mib;
            let mut made = if fits { warm_pool::take(self, &body.kind()).await } else { None };
            let ready = made.is_some();
            let link = made.as_ref().and_then(|made| made.link);
            let reserved = self.registry.reserve((tenant, id), max, body.clone(), &mut made, make);
            if let Some(unused) = made {
                self.ready.put(unused);
            }
            match reserved? {
                Reserved::New(entry) => {
                    *entry.link() = link;
                    entry.secret_store.fill(credentials.to_vec());
                    self.drive(Arc::clone(&entry), Begin::Make { once, ready });
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
        wish: SandboxSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<Info, Error> {
        let id = wish.id.clone().unwrap_or_else(SandboxId::random);
        let credentials = lent::changed(&[], &wish.credentials, &[])?;
        let wish = SandboxSpec { credentials: credentials.clone(), ..wish };
        let mut body = Body::plan(&self.config, wish)?;
        self.egress.check(&body.network).await?;
        // One that is there is no reason to pull an image.
        if self.registry.find(&tenant, &id).is_some_and(|entry| entry.state().visible()) {
            return Err(Error::SandboxExists(id));
        }
        let _pin = self.image(&tenant, &mut body).await?;
        match self.begin(&tenant, &id, &body, once, &credentials).await? {
            Reserved::New(entry) => {
                let info = made(&entry).await?;
                pass("create.answered").await?;
                Ok(info)
            }
            Reserved::Existing(_) => Err(Error::SandboxExists(id)),
        }
    }
}

/// How the making of a sandbox went.
async fn made(entry: &Entry) -> Result<Info, Error> {
    let view = entry.made().await;
    match view.end {
        Some(Err(error)) => Err(error),
        // Deleted as soon as it was made: it was made.
        _ => Ok(view.record.info()),
    }
}
