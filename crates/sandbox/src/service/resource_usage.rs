//! The resource usage of a tenant's sandboxes.

use crate::live::cgroup_control::CgroupControl;
use crate::live::inner::Inner;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::ids::TenantId;
use crate::model::info::Usage;
use crate::model::record::Record;
use crate::model::used::{Account, Past};
use crate::service::Service;

impl Service {
    /// The last deleted sandboxes of a tenant, the latest first; at most 1,000.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn history(&self, tenant: &TenantId) -> Result<Vec<Past>, Error> {
        let rows = self.inner.store.history(tenant.as_str()).await?;
        // A record that cannot be read does not hide the others.
        Ok(rows.iter().filter_map(|row| serde_json::from_str(row).ok()).collect())
    }

    /// The total usage of a tenant's sandboxes, including deleted ones.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn account(&self, tenant: &TenantId) -> Result<Account, Error> {
        let records: Vec<_> =
            self.inner.registry.of(tenant).iter().map(|entry| entry.view().record).collect();
        let inner = self.inner.clone();
        let active = blocking(move || {
            let all = records.iter().map(|record| now(&inner, record));
            all.fold(Account::default(), |sum, (memory_mib, usage)| Account {
                active: sum.active + 1,
                cpu_us: sum.cpu_us + usage.cpu_us,
                memory_mib_ms: sum
                    .memory_mib_ms
                    .saturating_add(memory_mib.saturating_mul(usage.awake_ms)),
                ..sum
            })
        });
        let active = active.await?;
        // Read after the current ones: a sandbox that ends in between may be counted twice for a
        // moment, but is never missing.
        let ended = self.inner.store.totals(tenant.as_str()).await?;
        Ok(Account {
            ended: ended.count,
            cpu_us: active.cpu_us + ended.cpu_us,
            memory_mib_ms: active.memory_mib_ms.saturating_add(ended.memory_mib_ms),
            ..active
        })
    }
}

/// The memory limit in MiB and the current usage. Blocks.
fn now(inner: &Inner, record: &Record) -> (u64, Usage) {
    let handle = CgroupControl { config: inner.jail.clone(), name: record.name.clone() };
    (record.body.limits.memory_mib, record.usage(handle.open().usage()))
}
