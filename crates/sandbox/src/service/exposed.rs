//! Exposes ports of a sandbox to links, and hides them.

use crate::{
    model::{
        command::DriverCommand,
        error::Error,
        exposed::{All, Change, Exposed, NAME_BYTES_MAX},
        ids::{SandboxId, TenantId},
    },
    service::{Service, order},
};

impl Service {
    /// The ports of a sandbox that links lead to, and the server's own name of this life of it. Of
    /// one that sleeps too; nothing is woken.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    pub fn exposed(&self, tenant: &TenantId, id: &SandboxId) -> Result<(String, All), Error> {
        let entry = self.entry(tenant, id)?;
        let all = entry.view.borrow().record.body.exposed.clone();
        Ok((entry.name.clone(), all))
    }

    /// Lets links lead to a port; one that they lead to already keeps its secret.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::BadField`], [`Error::TooManyExposed`], and what the records
    /// refuse.
    pub async fn expose(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        (port, name): (u16, Option<String>),
    ) -> Result<Exposed, Error> {
        if name.as_ref().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            let reason = format!("at most {NAME_BYTES_MAX} bytes");
            return Err(Error::BadField { field: "name", reason });
        }
        let entry = self.entry(tenant, id)?;
        order(&entry, |answer| DriverCommand::Expose(Change::Expose(port, name), answer)).await
    }

    /// Ends all links to a port.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::NotExposed`], and what the records refuse.
    pub async fn hide(&self, tenant: &TenantId, id: &SandboxId, port: u16) -> Result<(), Error> {
        let entry = self.entry(tenant, id)?;
        order(&entry, |answer| DriverCommand::Expose(Change::Hide(port), answer)).await.map(drop)
    }
}
