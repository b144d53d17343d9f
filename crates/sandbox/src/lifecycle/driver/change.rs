//! Changes of a sandbox by its callers: limits, times, ports, network.

use crate::{
    agent_client::trust,
    lifecycle::driver::{Driver, until},
    model::{
        blocking::blocking,
        error::Error,
        events::Happened,
        exposed::{self, Change, Exposed},
        info::{Info, Patch},
        network::{
            Mode,
            change::NetworkChange,
            lent::{self, CredentialSpec, InjectedCredential},
        },
        state::State,
    },
};
use isolet_wire::launcher::{Limits, Spec};
use tracing::{info, warn};

impl Driver {
    pub(crate) async fn patch(&mut self, patch: Patch) -> Result<Info, Error> {
        let body = self.record.body.patched(&self.inner.config, patch)?;
        let old = std::mem::replace(&mut self.record.body, body);
        let was = old.limits;
        let is = self.record.body.limits;
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

    pub(crate) async fn expose(&mut self, change: Change) -> Result<Exposed, Error> {
        let old = self.record.body.exposed.clone();
        let hidden = change.hides();
        let done = exposed::apply(&mut self.record.body.exposed, change, &self.entry.id)?;
        let written = match (self.write(None).await, hidden) {
            // A link that was withdrawn must not lead in again, however full the disk is.
            (Err(Error::StoreFull), Some(port)) => {
                let withdrawn = exposed::member(port, &done);
                let removed = self.inner.store.remove_member(&self.record.name, withdrawn).await;
                removed.map_err(Error::from)
            }
            (written, _) => written,
        };
        if let Err(error) = written {
            self.record.body.exposed = old;
            return Err(error);
        }
        self.publish(None);
        Ok(done)
    }

    pub(crate) async fn limit(&self, limits: Limits) -> Result<(), Error> {
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
    pub(crate) async fn launch(&self, spec: Spec) -> Result<(), Error> {
        let network = self.inner.egress.birth(&self.entry, &self.record.body).await?;
        self.inner.launch.launch(spec, network).await.map(drop)
    }

    /// One that was made ahead gets what it is to have.
    pub(crate) async fn dress(&self, limits: Limits) -> Result<(), Error> {
        if limits != self.inner.config.limits {
            self.limit(limits).await?;
        }
        match self.link().await {
            Err(Error::WayLost(why)) => {
                // Its link went while it waited: it gets another.
                warn!(sandbox = %self.entry.id, why, "its link is gone");
                *self.entry.link() = None;
                self.link().await
            }
            done => done,
        }
    }

    /// Gives it the link that its record says.
    pub(crate) async fn link(&self) -> Result<(), Error> {
        let runs =
            matches!(self.record.state, State::Creating | State::Running | State::Unreachable);
        match self.record.body.network.mode() {
            Mode::None => Ok(()),
            _ if !runs => Ok(()),
            _ => {
                self.inner.egress.apply(&self.entry, &self.record.body).await?;
                self.trust().await;
                Ok(())
            }
        }
    }

    /// Puts the authority of its credentials where its programs look, or takes it from there. Where
    /// that fails it runs all the same: hosts that it has credentials for fail it then.
    pub(crate) async fn trust(&self) {
        let runs = matches!(self.record.state, State::Creating | State::Running | State::Sleeping);
        if !runs || self.watch.is_none() {
            return;
        }
        let known = self.entry.secret_store.authority().clone();
        let lent = self.record.body.lent.iter().any(InjectedCredential::within_tls);
        let certificate = known.filter(|_| lent);
        if lent && certificate.is_none() {
            // Without a way out there is nobody to trust; what is there stays until there is.
            return;
        }
        let given = self.inner.jail.given_dir(&self.record.name);
        let put = trust::put(&self.entry.directory, given, certificate.as_deref()).await;
        if let Err(error) = put {
            warn!(sandbox = %self.entry.id, %error, "it does not trust the authority of its credentials");
        }
    }

    /// Another network, or other credentials: carried out first, then recorded. What is not
    /// recorded is taken back.
    pub(crate) async fn network(&mut self, change: NetworkChange) -> Result<Info, Error> {
        let new = self.record.body.network.changed(&change)?;
        let held = self.entry.secret_store.all(&self.record.body.lent).await?;
        let lent = lent::changed(&held, &change.lend, &change.unlend)?;
        let known: Vec<InjectedCredential> = lent.iter().map(|one| one.lent.clone()).collect();
        let other = lent != held || known != self.record.body.lent;
        if new == self.record.body.network && !other {
            return Ok(self.record.info());
        }
        self.inner.egress.check(&new).await?;
        let runs = matches!(self.record.state, State::Running | State::Unreachable);
        let ends = runs && new.mode() == Mode::None;
        let went = if ends { self.inner.egress.traffic(&self.entry).await } else { None };
        let old = self.record.body.clone();
        (self.record.body.network, self.record.body.lent) = (new, known);
        self.record.carried(went);
        if let Err(error) = self.changed_to(other.then_some(lent)).await {
            self.record.body = old;
            if let Err(error) = self.changed_to(other.then_some(held)).await {
                warn!(sandbox = %self.entry.id, %error, "its network is not what its record says");
            }
            return Err(error);
        }
        let mode = self.record.body.network.mode();
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, network = mode.word(), "network changed");
        self.publish(None);
        self.inner.events.say(&self.entry, Happened::NetworkChanged(mode));
        Ok(self.record.info())
    }

    /// Carries out and writes what the record says by now.
    async fn changed_to(&self, lent: Option<Vec<CredentialSpec>>) -> Result<(), Error> {
        if let Some(lent) = lent {
            self.entry.secret_store.keep(lent).await?;
        }
        if matches!(self.record.state, State::Running | State::Unreachable) {
            self.inner.egress.apply(&self.entry, &self.record.body).await?;
            self.trust().await;
        }
        self.write(None).await
    }
}
