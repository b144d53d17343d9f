//! Uploads of tenants that are kept beside their sandboxes, such as files for builds of images.

use crate::live::inner::Inner;
use crate::model::error::Error;
use crate::model::ids::TenantId;
use crate::service::Service;
use isolet_image::UploadSlot;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of an upload between two checks of the quota.
const CHECK_INTERVAL_BYTES: u64 = 1024 * 1024;

/// Permits one upload, and watches the free space and the quota while it is written.
pub struct UploadPermit {
    inner: Arc<Inner>,
    tenant: TenantId,
    slot: UploadSlot,
    /// Bytes since the last check of the quota.
    unchecked_bytes: AtomicU64,
}

impl UploadPermit {
    /// Counts bytes that are about to be written.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::QuotaExceeded`], [`Error::Image`].
    pub fn reserve(&self, bytes: u64) -> Result<(), Error> {
        self.slot.reserve(bytes)?;
        let unchecked = self.unchecked_bytes.fetch_add(bytes, Ordering::Relaxed);
        if unchecked.saturating_add(bytes) < CHECK_INTERVAL_BYTES {
            return Ok(());
        }
        self.unchecked_bytes.store(0, Ordering::Relaxed);
        self.inner.space.check()?;
        self.inner.quotas.check(&self.tenant)
    }
}

impl Service {
    /// Permits an upload of a tenant.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::QuotaExceeded`], [`Error::Image`] if too many run.
    pub fn begin_upload(&self, tenant: &TenantId) -> Result<UploadPermit, Error> {
        self.check_upload(tenant)?;
        let slot = self.inner.images.upload_slot(tenant.as_str())?;
        Ok(UploadPermit {
            inner: Arc::clone(&self.inner),
            tenant: tenant.clone(),
            slot,
            unchecked_bytes: AtomicU64::new(0),
        })
    }
}
