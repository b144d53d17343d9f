//! Reads and changes the network of a sandbox.

use crate::{
    model::{
        command::DriverCommand,
        error::Error,
        ids::{SandboxId, TenantId},
        info::Info,
        network::{Network, NetworkSpec, change::NetworkChange},
    },
    service::{Service, order},
};

impl Service {
    /// What a wish becomes for this tenant: rules checked, profiles looked up.
    ///
    /// # Errors
    /// [`Error::BadField`] for bad rules and for a profile that is not there, and what the records
    /// refuse.
    pub async fn network_of(&self, tenant: &TenantId, wish: NetworkSpec) -> Result<Network, Error> {
        match wish {
            NetworkSpec::None => Ok(Network::none()),
            NetworkSpec::Open => Ok(Network::open()),
            NetworkSpec::Rules { allow, deny } => Network::rules(&allow, &deny),
            NetworkSpec::Profile(name) => match self.profile(tenant, &name).await {
                Ok(profile) => Network::of(&profile),
                Err(error @ Error::NoProfile(_)) => {
                    let reason = error.to_string();
                    Err(Error::BadField { field: "network_profile", reason })
                }
                Err(error) => Err(error),
            },
        }
    }

    /// Changes where a sandbox may connect to, while it runs or sleeps; all of the change or
    /// nothing. What the new rules forbid is cut.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::BadField`], [`Error::NoWay`], [`Error::WayLost`].
    pub async fn network(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        change: NetworkChange,
    ) -> Result<Info, Error> {
        let entry = self.entry(tenant, id)?;
        order(&entry, |answer| DriverCommand::Network(Box::new(change), answer)).await
    }
}
