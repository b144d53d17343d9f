//! What maintenance does with the sandboxes of all tenants.

use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::held::{HeldSandbox, HoldPurpose};
use crate::model::ids::{SandboxId, TenantId};
use crate::service::{Service, request_always};

impl Service {
    /// Makes a sandbox stand still, for a copy of its files. `None` if no sandbox has this internal
    /// name.
    ///
    /// # Errors
    /// An error of the sandbox, which continues to run then.
    pub async fn hold(&self, name: &str) -> Result<Option<HeldSandbox>, Error> {
        let Some(entry) = self.inner.registry.named(name) else { return Ok(None) };
        let hold = |answer| DriverCommand::Hold(HoldPurpose::Copy, answer);
        match request_always(&entry, hold).await {
            Ok(held) => Ok(Some(held)),
            Err(Error::NoSandbox(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives the exposed ports of these sandboxes other secrets, which invalidates all their links
    /// at once. Returns the number of ports.
    ///
    /// # Errors
    /// The first error of a sandbox; the links of sandboxes before it are rotated.
    pub async fn rotate_links(
        &self,
        tenant: Option<&TenantId>,
        sandbox: Option<&SandboxId>,
    ) -> Result<usize, Error> {
        let mut count = 0;
        let mut found = false;
        for entry in self.inner.registry.all() {
            let wanted = tenant.is_none_or(|tenant| entry.tenant == *tenant)
                && sandbox.is_none_or(|id| entry.id == *id);
            if !wanted {
                continue;
            }
            found = true;
            match request_always(&entry, DriverCommand::RotateLinks).await {
                Ok(ports) => count += ports,
                Err(Error::NoSandbox(_)) => {}
                Err(error) => return Err(error),
            }
        }
        match sandbox {
            Some(id) if !found => Err(Error::NoSandbox(id.clone())),
            _ => Ok(count),
        }
    }
}
