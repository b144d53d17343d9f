//! How many archives are on their way here, in all and of each tenant.

use crate::error::Error;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Imports at once, of all tenants: each holds a connection and a part of the disk.
const IMPORTS_MAX: usize = 32;
/// Imports at once of one tenant, which leaves room for others.
const TENANT_IMPORTS_MAX: usize = 8;

/// Imports that are under way, by tenant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Imports(Arc<Mutex<HashMap<String, usize>>>);

/// One import that is under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Import {
    all: Imports,
    tenant: String,
}

impl Imports {
    /// Lets one more in.
    ///
    /// # Errors
    /// [`Error::Busy`].
    pub(crate) fn begin(&self, tenant: &str) -> Result<Import, Error> {
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
        Ok(Import { all: self.clone(), tenant: tenant.to_owned() })
    }
}

impl Drop for Import {
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
