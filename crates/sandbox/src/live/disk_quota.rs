//! The disk quota of tenants: what the files of all sandboxes of a tenant take on the server's disk.
//!
//! Sandboxes with a disk of their own are counted, by the blocks of its image: one `stat` for each.
//! A tenant with a quota gets no other sandboxes; those from before it are not counted. A background
//! task of the service counts, so that a check costs no disk access. Between two counts, running programs may
//! exceed the quota, each sandbox up to its `disk_mib`.

use crate::live::space::Space;
use crate::model::config::Config;
use crate::model::error::Error;
use crate::model::ids::TenantId;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

const MIB: u64 = 1024 * 1024;

/// The quotas, and what was last counted.
#[derive(Debug, Default)]
pub(crate) struct DiskQuotas {
    /// For tenants that are not in `tenants`, in MiB; 0 means no quota.
    default_mib: u64,
    tenants: BTreeMap<TenantId, u64>,
    used_bytes: Mutex<HashMap<TenantId, u64>>,
}

impl DiskQuotas {
    pub(crate) fn new(config: &Config) -> Self {
        let own = |tenant: &TenantId| (tenant.clone(), config.disk_quota_mib(tenant).unwrap_or(0));
        let tenants = config.tenants.keys().map(own).collect();
        Self { default_mib: config.disk_quota_mib, tenants, used_bytes: Mutex::default() }
    }

    fn quota_mib(&self, tenant: &TenantId) -> Option<u64> {
        let mib = self.tenants.get(tenant).copied().unwrap_or(self.default_mib);
        (mib > 0).then_some(mib)
    }

    /// Refuses a sandbox that could not be counted.
    pub(crate) fn check_disk_mib(&self, tenant: &TenantId, disk_mib: u64) -> Result<(), Error> {
        if disk_mib > 0 || self.quota_mib(tenant).is_none() {
            return Ok(());
        }
        let reason = "0 (no limit) is not possible for a tenant with a disk quota".to_owned();
        Err(Error::BadField { field: "disk_mib", reason })
    }

    /// Returns [`Error::QuotaExceeded`] if the tenant has used up its quota.
    pub(crate) fn check(&self, tenant: &TenantId) -> Result<(), Error> {
        let Some(quota_mib) = self.quota_mib(tenant) else { return Ok(()) };
        let used = self.used_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let used_mib = used.get(tenant).copied().unwrap_or(0) / MIB;
        if used_mib < quota_mib {
            Ok(())
        } else {
            Err(Error::QuotaExceeded { used_mib, quota_mib })
        }
    }

    /// Whether the files of this tenant are counted.
    pub(crate) fn counts(&self, tenant: &TenantId) -> bool {
        self.quota_mib(tenant).is_some()
    }

    /// Replaces what was last counted.
    pub(crate) fn set_used(&self, bytes: HashMap<TenantId, u64>) {
        *self.used_bytes.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    }

    /// Whether any tenant has a quota.
    pub(crate) fn any(&self) -> bool {
        self.default_mib > 0 || self.tenants.values().any(|mib| *mib > 0)
    }
}

/// Checks before something of a tenant is written to the disk.
#[derive(Debug, Clone)]
pub(crate) struct TenantSpace {
    pub(crate) space: Arc<Space>,
    pub(crate) quotas: Arc<DiskQuotas>,
    pub(crate) tenant: TenantId,
}

impl TenantSpace {
    /// # Errors
    /// [`Error::NoSpace`], [`Error::QuotaExceeded`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.space.check()?;
        self.quotas.check(&self.tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_at_its_quota_writes_nothing_more_and_others_do() {
        let own: TenantId = "own".parse().unwrap();
        let free: TenantId = "free".parse().unwrap();
        let other: TenantId = "other".parse().unwrap();
        let quotas = DiskQuotas {
            default_mib: 5,
            tenants: BTreeMap::from([(own.clone(), 2), (free.clone(), 0)]),
            used_bytes: Mutex::default(),
        };
        let tenants = [&own, &free, &other];
        assert!(tenants.iter().all(|tenant| quotas.check(tenant).is_ok()));
        let all = tenants.map(|tenant| (tenant.clone(), 3 * MIB));
        *quotas.used_bytes.lock().unwrap() = HashMap::from(all);
        assert!(matches!(
            quotas.check(&own),
            Err(Error::QuotaExceeded { used_mib: 3, quota_mib: 2 })
        ));
        assert!(quotas.check(&free).is_ok() && quotas.check(&other).is_ok());
        assert!(quotas.check_disk_mib(&own, 0).is_err());
        assert!(quotas.check_disk_mib(&own, 64).is_ok());
        assert!(quotas.check_disk_mib(&free, 0).is_ok());
    }

    #[test]
    fn quotas_stay_in_force_where_the_machine_has_no_disks_of_sandboxes() {
        let mut config = Config::new("/nowhere".into(), std::path::Path::new("/nowhere"));
        config.no_disk = Some("no ext4: modprobe ext4".into());
        config.disk_quota_mib = 5;
        let quotas = DiskQuotas::new(&config);
        let tenant: TenantId = "own".parse().unwrap();
        assert!(matches!(
            quotas.check_disk_mib(&tenant, 0),
            Err(Error::BadField { field: "disk_mib", .. })
        ));
        quotas.set_used(HashMap::from([(tenant.clone(), 5 * MIB)]));
        assert!(matches!(quotas.check(&tenant), Err(Error::QuotaExceeded { .. })));
    }
}
