//! The table `[quotas]`, and the limits of single tenants in `[tenants]`.

use anyhow::{Result, bail};
use isolet_sandbox::{Config, TenantId, TenantLimits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The limits of one tenant.
#[derive(Debug, Default, Clone, Copy, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TenantFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    sandboxes_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_mib: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    images_mib: Option<u64>,
}

/// The quotas of tenants that have none of their own, in MiB.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QuotasFile {
    pub(super) disk_mib: u64,
    pub(super) images_mib: u64,
}

/// Applies the quotas and the limits of single tenants.
pub(super) fn set_quotas(
    sandboxes: &mut Config,
    quotas: QuotasFile,
    tenants: BTreeMap<TenantId, TenantFile>,
) -> Result<()> {
    let own_quota = tenants.values().any(|tenant| tenant.disk_mib.is_some_and(|mib| mib > 0));
    if sandboxes.limits.disk_mib == 0 && (quotas.disk_mib > 0 || own_quota) {
        bail!("a disk quota counts sandboxes with a limited disk only: set `disk_mib` in [limits]");
    }
    sandboxes.disk_quota_mib = quotas.disk_mib;
    sandboxes.images.quotas.default_mib = quotas.images_mib;
    for (id, TenantFile { sandboxes_max, disk_mib, images_mib }) in tenants {
        if let Some(mib) = images_mib {
            sandboxes.images.quotas.tenants.insert(id.to_string(), mib);
        }
        sandboxes.tenants.insert(id, TenantLimits { sandboxes_max, disk_mib });
    }
    Ok(())
}

/// The effective limits of a tenant, for `--print-config`.
pub(super) fn shown_tenant(all: &Config, id: &TenantId, limits: &TenantLimits) -> TenantFile {
    TenantFile {
        sandboxes_max: limits.sandboxes_max,
        disk_mib: limits.disk_mib,
        images_mib: all.images.quotas.tenants.get(id.as_str()).copied(),
    }
}
