//! Limits on parallel imports, exports, images from snapshots and other uploads, for all tenants
//! together and for each.

use super::images::Images;
use crate::disk::free_space::FreeSpace;
use crate::error::Error;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Parallel imports of all tenants. Each holds a connection and disk space.
const IMPORTS_MAX: usize = 32;
/// Parallel imports of one tenant, so that others find free slots.
const TENANT_IMPORTS_MAX: usize = 8;

/// The number of running imports by tenant.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImportSlots(Arc<Mutex<HashMap<String, usize>>>);

/// Permits one import; released on drop.
#[derive(Debug)]
pub(crate) struct ImportSlot {
    all: ImportSlots,
    tenant: String,
}

impl ImportSlots {
    /// Takes a slot.
    ///
    /// # Errors
    /// [`Error::Busy`].
    pub(crate) fn begin(&self, tenant: &str) -> Result<ImportSlot, Error> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.values().sum::<usize>() >= IMPORTS_MAX {
            return Err(Error::Busy {
                quantity: "imports and exports at once",
                limit: IMPORTS_MAX,
            });
        }
        let own = all.entry(tenant.to_owned()).or_default();
        if *own >= TENANT_IMPORTS_MAX {
            return Err(Error::Busy {
                quantity: "imports and exports of one tenant at once",
                limit: TENANT_IMPORTS_MAX,
            });
        }
        *own += 1;
        Ok(ImportSlot { all: self.clone(), tenant: tenant.to_owned() })
    }
}

/// Permits the upload of something that is no image, such as files for a build. It counts as an
/// import until it is dropped.
pub struct UploadSlot {
    _slot: ImportSlot,
    free_space: Arc<FreeSpace>,
}

impl UploadSlot {
    /// Counts bytes that are about to be written.
    ///
    /// # Errors
    /// [`Error::Full`] when the disk has too little free space.
    pub fn reserve(&self, bytes: u64) -> Result<(), Error> {
        self.free_space.reserve(bytes)
    }
}

impl Images {
    /// Permits an upload of a tenant.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Full`].
    pub fn upload_slot(&self, tenant: &str) -> Result<UploadSlot, Error> {
        let slot = self.inner.imports.begin(tenant)?;
        self.inner.free_space.check()?;
        Ok(UploadSlot { _slot: slot, free_space: Arc::clone(&self.inner.free_space) })
    }
}

impl Drop for ImportSlot {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                all.remove(&self.tenant);
            }
        }
    }
}
