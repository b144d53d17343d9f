//! Exposes and hides ports of a sandbox.

use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::exposed_ports::{ExposeChange, ExposedPort, ExposedPorts, NAME_BYTES_MAX};
use crate::model::ids::{SandboxId, TenantId};
use crate::service::{Service, request};

impl Service {
    /// The exposed ports of a sandbox, and the name with which their URLs are signed. Works for a sleeping sandbox without
    /// waking it.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    pub fn exposed(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<(String, ExposedPorts), Error> {
        let entry = self.entry(tenant, id)?;
        let view = entry.view.borrow();
        let body = &view.record.body;
        let name = body.signs_as.as_ref().unwrap_or(&entry.name).clone();
        Ok((name, body.exposed.clone()))
    }

    /// Exposes a port. A port that is already exposed keeps its secret.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::BadField`], [`Error::TooManyExposed`], and errors of the
    /// store.
    pub async fn expose(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        port: u16,
        name: Option<String>,
    ) -> Result<ExposedPort, Error> {
        if name.as_ref().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            let reason = format!("at most {NAME_BYTES_MAX} bytes");
            return Err(Error::BadField { field: "name", reason });
        }
        let entry = self.entry(tenant, id)?;
        request(&entry, |answer| DriverCommand::Expose(ExposeChange::Expose(port, name), answer))
            .await
    }

    /// Hides a port, which invalidates its URLs.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::NotExposed`], and errors of the store.
    pub async fn hide(&self, tenant: &TenantId, id: &SandboxId, port: u16) -> Result<(), Error> {
        let entry = self.entry(tenant, id)?;
        request(&entry, |answer| DriverCommand::Expose(ExposeChange::Hide(port), answer))
            .await
            .map(drop)
    }
}
