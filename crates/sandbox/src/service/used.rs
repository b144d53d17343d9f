//! Usage of a tenant's sandboxes.

use crate::{
    live::{cgroup_control::CgroupControl, inner::Inner},
    model::{
        blocking::blocking,
        error::Error,
        ids::TenantId,
        info::Usage,
        record::Record,
        used::{Account, Past},
    },
    service::Service,
};

impl Service {
    /// A tenant's ended sandboxes, the last one first; at most 1,000.
    ///
    /// # Errors
    /// What the records refuse.
    pub async fn history(&self, tenant: &TenantId) -> Result<Vec<Past>, Error> {
        let rows = self.inner.store.history(tenant.as_str()).await?;
        // One that does not read hides no other.
        Ok(rows.iter().filter_map(|row| serde_json::from_str(row).ok()).collect())
    }

    /// What all of a tenant's sandboxes have used, those that have ended too.
    ///
    /// # Errors
    /// What the records refuse.
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
        // Behind them: one that ends meanwhile is counted twice for a moment, and never not at all.
        let ended = self.inner.store.totals(tenant.as_str()).await?;
        Ok(Account {
            ended: ended.count,
            cpu_us: active.cpu_us + ended.cpu_us,
            memory_mib_ms: active.memory_mib_ms.saturating_add(ended.memory_mib_ms),
            ..active
        })
    }
}

/// What one might use of memory, in MiB, and has used. Blocks.
fn now(inner: &Inner, record: &Record) -> (u64, Usage) {
    let cage = CgroupControl { config: inner.jail.clone(), name: record.name.clone() };
    (record.body.limits.memory_mib, record.usage(cage.open().usage()))
}
