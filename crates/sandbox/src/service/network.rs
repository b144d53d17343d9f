//! Reads and changes the network policy of a sandbox.

use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::ids::{SandboxId, TenantId};
use crate::model::info::SandboxInfo;
use crate::model::network::change::NetworkChange;
use crate::model::network::{Network, NetworkSpec};
use crate::service::{Service, request};

impl Service {
    /// Turns a request into a network policy: checks rules and looks up profiles.
    ///
    /// # Errors
    /// [`Error::BadField`] for invalid rules or an unknown profile, and errors of the store.
    pub async fn network_of(&self, tenant: &TenantId, spec: NetworkSpec) -> Result<Network, Error> {
        match spec {
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

    /// Changes the network policy of a running or sleeping sandbox, completely or not at all.
    /// Connections that the new rules forbid are closed.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], [`Error::BadField`], [`Error::NoWay`], [`Error::WayLost`].
    pub async fn network(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        change: NetworkChange,
    ) -> Result<SandboxInfo, Error> {
        let entry = self.entry(tenant, id)?;
        request(&entry, |answer| DriverCommand::Network(Box::new(change), answer)).await
    }
}
