//! Exposes and hides ports of a sandbox.

use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::exposed_ports::link_token::NewLinkToken;
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

    /// Exposes a port, with a token that the client chose. A port that is already exposed keeps its
    /// secret, and a token of the same key is renewed.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::BadField`], [`Error::TooManyExposed`],
    /// [`Error::LinkTokenInUse`], [`Error::TooManyLinkTokens`], and errors of the store.
    pub async fn expose(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        port: u16,
        name: Option<String>,
        token: Option<NewLinkToken>,
    ) -> Result<ExposedPort, Error> {
        if name.as_ref().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            let reason = format!("at most {NAME_BYTES_MAX} bytes");
            return Err(Error::BadField { field: "name", reason });
        }
        let entry = self.entry(tenant, id)?;
        let change = ExposeChange::Expose(port, name, token);
        request(&entry, |answer| DriverCommand::Expose(change, answer)).await
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
