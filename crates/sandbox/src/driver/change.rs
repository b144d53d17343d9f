//! What its callers change of a sandbox: limits, times, ports, its network.

use super::{Driver, blocking, until};
use crate::{
    Error, Info, NetworkChange, Patch,
    events::Happened,
    exposed::{self, Change, Exposed},
    network::{Mode, Network},
    state::State,
};
use isolet_wire::launch::{Limits, Spec};
use tracing::{info, warn};

impl Driver {
    pub(super) async fn patch(&mut self, patch: Patch) -> Result<Info, Error> {
        let body = self.record.body.patched(&self.inner.config, patch)?;
        let old = std::mem::replace(&mut self.record.body, body);
        let (was, is) = (old.limits, self.record.body.limits);
        if was != is
            && let Err(error) = self.limit(is).await
        {
            self.record.body = old;
            return Err(error);
        }
        if let Err(error) = self.write(None).await {
            self.record.body = old;
            if was != is {
                let _ = self.limit(was).await;
            }
            return Err(error);
        }
        if old.expires_at_ms != self.record.body.expires_at_ms {
            self.until = until(self.record.body.expires_at_ms);
        }
        self.publish(None);
        Ok(self.record.info())
    }

    pub(super) async fn expose(&mut self, change: Change) -> Result<Exposed, Error> {
        let old = self.record.body.exposed.clone();
        let done = exposed::apply(&mut self.record.body.exposed, change, &self.entry.id)?;
        if let Err(error) = self.write(None).await {
            self.record.body.exposed = old;
            return Err(error);
        }
        self.publish(None);
        Ok(done)
    }

    pub(super) async fn limit(&self, limits: Limits) -> Result<(), Error> {
        if !matches!(self.record.state, State::Creating | State::Running | State::Unreachable) {
            return Ok(());
        }
        let cage = self.cage();
        let done = blocking(move || cage.open().set_limits(&limits)).await?;
        done.map_err(|error| Error::BadField {
            field: "limits",
            reason: format!("the kernel refuses them: {error}"),
        })
    }

    /// Makes it, born with its link where it is to have one.
    pub(super) async fn launch(&self, spec: Spec) -> Result<(), Error> {
        let network = self.inner.way.birth(&self.entry, &self.record.body.network).await?;
        self.inner.launch.launch(spec, network).await.map(drop)
    }

    /// Gives it the link that its record says.
    pub(super) async fn link(&self) -> Result<(), Error> {
        let runs =
            matches!(self.record.state, State::Creating | State::Running | State::Unreachable);
        match self.record.body.network.mode() {
            Mode::None => Ok(()),
            _ if !runs => Ok(()),
            _ => self.inner.way.apply(&self.entry, &self.record.body.network).await,
        }
    }

    /// Another network: carried out first, then recorded. What is not recorded is taken back.
    pub(super) async fn network(&mut self, change: NetworkChange) -> Result<Network, Error> {
        let new = self.record.body.network.changed(&change)?;
        if new == self.record.body.network {
            return Ok(new);
        }
        let way = &self.inner.way;
        way.check(&new).await?;
        let runs = matches!(self.record.state, State::Running | State::Unreachable);
        if runs {
            let ends = new.mode() == Mode::None;
            let went = if ends { way.traffic(&self.entry).await } else { None };
            way.apply(&self.entry, &new).await?;
            self.record.carried(went);
        }
        let old = std::mem::replace(&mut self.record.body.network, new.clone());
        if let Err(error) = self.write(None).await {
            if runs && let Err(error) = self.inner.way.apply(&self.entry, &old).await {
                warn!(sandbox = %self.entry.id, %error, "its network is not what its record says");
            }
            self.record.body.network = old;
            return Err(error);
        }
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, network = new.mode().word(), "network changed");
        self.publish(None);
        let (tenant, id) = (&self.entry.tenant, &self.entry.id);
        self.inner.events.say(tenant, id, Happened::NetworkChanged(new.mode()));
        Ok(new)
    }
}
