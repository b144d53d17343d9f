//! The quota of a tenant's images: the unpacked bytes of its layers, and the saved sessions.
//!
//! A layer counts for each tenant that has an image with it, once, although tenants share it on the
//! disk. A finished layer whose image was never recorded counts for the tenants that unpacked it.

use super::images::{Images, Inner};
use super::layers::blocking;
use crate::error::Error;
use crate::store::{Store, layer};
use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// The name of the lock of a tenant's quota among the locks of its layers, whose names are digests.
const LOCK: &str = "quota";

/// What is left of a tenant's quota.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    used: u64,
    quota: u64,
}

impl Allowance {
    /// The error of a layer that does not fit.
    fn exceeded(self) -> Error {
        Error::QuotaExceeded { used_mib: self.used >> 20, quota_mib: self.quota >> 20 }
    }

    /// The bytes that are left.
    pub(super) fn bytes(self) -> u64 {
        self.quota.saturating_sub(self.used)
    }

    /// Replaces the error of a layer that was larger than what is left.
    pub(super) fn explain(self, error: Error, limit: u64) -> Error {
        match error {
            Error::TooLarge { .. } if self.bytes() < limit => self.exceeded(),
            other => other,
        }
    }
}

impl Images {
    /// The unpacked bytes that count for a tenant's quota. Blocks.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn bytes_of(&self, tenant: &str) -> Result<u64, Error> {
        used(&self.inner.store, tenant)
    }
}

impl Inner {
    /// What is left of the tenant's quota; `None` without a quota.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`] if nothing is.
    pub(super) async fn allowance(&self, tenant: &str) -> Result<Option<Allowance>, Error> {
        let Some(quota) = self.config.quotas.bytes_of(tenant) else { return Ok(None) };
        let store = Arc::clone(&self.store);
        let tenant = tenant.to_owned();
        let used = blocking(move || used(&store, &tenant)).await?;
        let allowance = Allowance { used, quota };
        if used >= quota { Err(allowance.exceeded()) } else { Ok(Some(allowance)) }
    }

    /// Checks that a layer of this size fits into the tenant's quota. The quota stays locked until the guard is
    /// dropped, after the layer was recorded as the tenant's.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(super) async fn reserve(
        &self,
        tenant: &str,
        bytes: u64,
    ) -> Result<Option<OwnedMutexGuard<()>>, Error> {
        if self.config.quotas.bytes_of(tenant).is_none() {
            return Ok(None);
        }
        let guard = self.lock_layer(tenant, LOCK).await;
        match self.allowance(tenant).await? {
            Some(allowance) if bytes > allowance.bytes() => Err(allowance.exceeded()),
            _ => Ok(Some(guard)),
        }
    }
}

fn used(store: &Store, tenant: &str) -> Result<u64, Error> {
    let of = |tree: &String| tree.strip_prefix("layers/")?.strip_suffix("/tree").map(str::to_owned);
    let own: HashSet<String> = store
        .list(tenant)
        .iter()
        .flat_map(|image| image.root.layers.iter().filter_map(of))
        .collect();
    let recorded: HashSet<String> =
        store.all().iter().flat_map(|image| image.root.layers.iter().filter_map(of)).collect();
    let sessions =
        store.list(tenant).into_iter().filter_map(|image| Some(image.sessions.as_ref()?.bytes));
    let mut bytes = sessions.fold(0_u64, u64::saturating_add);
    for entry in fs::read_dir(store.root.join(layer::DIRECTORY))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let unfinished = !recorded.contains(&name) && store.has_proof(&name, tenant);
        if own.contains(&name) || unfinished {
            bytes = bytes.saturating_add(store.layer(&name).map_or(0, |stats| stats.bytes));
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::layer::make_tree;
    use crate::unpack::LayerStats;

    #[test]
    fn layers_count_for_the_tenants_that_unpacked_them() {
        let folder = tempfile::tempdir().expect("makes");
        let store = Store::open(folder.path().to_owned()).expect("opens");
        let add = |name: &str, bytes: u64, tenant: &str| {
            if store.layer(name).is_none() {
                let staged = store.staging.stage().expect("stages");
                make_tree(&staged.0).expect("makes");
                let stats = LayerStats { bytes, ..LayerStats::default() };
                store.install(&staged, name, &stats).expect("installs");
            }
            store.record_proof(name, tenant).expect("writes");
        };
        add("aa", 10, "one");
        add("bb", 5, "one");
        add("aa", 10, "two");
        assert_eq!(used(&store, "one"), Ok(15));
        assert_eq!(used(&store, "two"), Ok(10));
        assert_eq!(used(&store, "three"), Ok(0));
    }
}
