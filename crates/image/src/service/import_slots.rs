//! Limits on parallel imports, in all and of each tenant.

use crate::error::Error;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Parallel imports of all tenants: each holds a connection and a part of the disk.
const IMPORTS_MAX: usize = 32;
/// Parallel imports of one tenant, which leaves slots for others.
const TENANT_IMPORTS_MAX: usize = 8;

/// Imports under way, by tenant.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImportSlots(Arc<Mutex<HashMap<String, usize>>>);

/// One import under way; it ends on drop.
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
            return Err(Error::Busy { what: "imports at once", limit: IMPORTS_MAX });
        }
        let own = all.entry(tenant.to_owned()).or_default();
        if *own >= TENANT_IMPORTS_MAX {
            return Err(Error::Busy {
                what: "imports of one tenant at once",
                limit: TENANT_IMPORTS_MAX,
            });
        }
        *own += 1;
        Ok(ImportSlot { all: self.clone(), tenant: tenant.to_owned() })
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
