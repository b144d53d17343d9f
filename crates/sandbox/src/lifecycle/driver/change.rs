//! Changes to a running sandbox: limits, times, exposed ports and the network.

use crate::agent_client::agent_version::AgentAddress;
use crate::agent_client::ca_bundle;
use crate::lifecycle::driver::Driver;
use crate::live::launch_queue::Admission;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::events::EventKind;
use crate::model::exposed_ports::{self, ExposeChange, ExposedPort};
use crate::model::info::{Patch, SandboxInfo};
use crate::model::network::Mode;
use crate::model::network::change::NetworkChange;
use crate::model::network::injected_credential::{self, CredentialSpec, InjectedCredential};
use crate::model::state::State;
use isolet_wire::launcher::{Limits, Spec};
use tracing::{info, warn};

impl Driver {
    pub(crate) async fn patch(&mut self, patch: Patch) -> Result<SandboxInfo, Error> {
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
        self.follow_lifetime(old.expires_at_ms);
        self.publish(None);
        Ok(self.record.info())
    }

    pub(crate) async fn expose(&mut self, change: ExposeChange) -> Result<ExposedPort, Error> {
        let old = self.record.body.exposed.clone();
        let hidden = change.hides();
        // While the keys cannot be read, each counts as valid.
        let is_valid = |key: &str| self.inner.keys.is_valid(key).unwrap_or(true);
        let exposed = &mut self.record.body.exposed;
        let done = exposed_ports::apply(exposed, change, &self.entry.id, &is_valid)?;
        let written = match (self.write(None).await, hidden) {
            // A hidden port must not become reachable again, even if the disk is full.
            (Err(Error::StoreFull), Some(port)) => {
                let withdrawn = exposed_ports::member(port, &done);
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

    /// Gives all exposed ports other secrets, which invalidates their links.
    pub(crate) async fn rotate_links(&mut self) -> Result<usize, Error> {
        let old = self.record.body.exposed.clone();
        if old.is_empty() {
            return Ok(0);
        }
        exposed_ports::rotate(&mut self.record.body.exposed);
        if let Err(error) = self.write(None).await {
            self.record.body.exposed = old;
            return Err(error);
        }
        self.publish(None);
        Ok(old.len())
    }

    pub(crate) async fn limit(&self, limits: Limits) -> Result<(), Error> {
        if self.record.state != State::Creating && !self.record.state.has_processes() {
            return Ok(());
        }
        let handle = self.handle();
        let done = blocking(move || handle.open().set_limits(&limits)).await?;
        done.map_err(|error| Error::BadField {
            field: "limits",
            reason: format!("the kernel refuses them: {error}"),
        })
    }

    /// What the launcher needs to start the sandbox.
    pub(super) fn spec(&self, directory_exists: bool) -> Spec {
        Spec {
            name: self.record.name.clone(),
            slot: self.record.slot,
            hostname: crate::live::warm_pool::HOSTNAME.to_owned(),
            limits: self.record.body.limits,
            root: self.record.body.root.as_ref().map(crate::model::record::layers),
            directory_exists,
            has_veth: false,
            id_base: self.record.body.id_base,
            snapshot_layers: self.record.body.layers.to_spec(),
        }
    }

    /// Launches the sandbox, in the namespace of a veth pair if it needs one.
    pub(crate) async fn launch(&self, spec: Spec) -> Result<(), Error> {
        let admission = self.admission().await?;
        let network = self.inner.egress.birth(&self.entry, &self.record.body).await?;
        self.inner.launch.launch(spec, network, admission).await.map(drop)
    }

    /// What the lease guard is asked before a process tree of the sandbox starts. `None` for the class
    /// `node`.
    pub(super) async fn admission(&self) -> Result<Option<Admission>, Error> {
        let permitted = self.inner.ownership.permit(&self.entry).await?;
        let id = self.entry.id.clone();
        Ok(permitted.map(|registration| Admission { id, registration }))
    }

    /// Applies the limits and the network to a sandbox from the warm pool.
    pub(crate) async fn dress(&self, limits: Limits) -> Result<(), Error> {
        if limits != self.inner.config.limits {
            self.limit(limits).await?;
        }
        match self.link().await {
            Err(Error::WayLost(reason)) => {
                // The veth pair was lost while the sandbox waited in the pool, so it gets another.
                warn!(sandbox = %self.entry.id, reason, "its link is gone");
                *self.entry.link() = None;
                self.link().await
            }
            done => done,
        }
    }

    /// Creates the veth pair that the record asks for.
    pub(crate) async fn link(&self) -> Result<(), Error> {
        let runs = self.record.state == State::Creating || self.record.state.has_processes();
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

    /// Installs the CA certificate for injected credentials, or removes it. If that fails, the
    /// sandbox still runs, but requests to the hosts of its credentials fail.
    pub(crate) async fn trust(&self) {
        let runs = matches!(self.record.state, State::Creating | State::Running | State::Sleeping);
        if !runs || self.watch.is_none() {
            return;
        }
        let known = self.entry.secret_store.authority().clone();
        let needs_ca = self.record.body.credentials.iter().any(InjectedCredential::within_tls);
        let certificate = known.filter(|_| needs_ca);
        if needs_ca && certificate.is_none() {
            // Without a network there is no CA to trust. The installed files stay until there is
            // one.
            return;
        }
        let given = self.inner.jail.given_dir(&self.record.name);
        let agent =
            AgentAddress { directory: &self.entry.directory, version: &self.entry.pool.version };
        let put = ca_bundle::put(agent, given, certificate.as_deref()).await;
        if let Err(error) = put {
            warn!(sandbox = %self.entry.id, %error, "CA certificate could not be installed");
        }
    }

    /// Installs or removes the CA certificate; after the pause if the sandbox is paused, because a
    /// frozen agent installs nothing.
    pub(crate) async fn trust_or_later(&mut self) {
        self.trust_pending |= self.record.state == State::Paused;
        self.trust().await;
    }

    /// Changes the network policy or the credentials: first in the kernel and the egress proxy,
    /// then in the record. The change is undone if it cannot be recorded.
    pub(crate) async fn network(&mut self, change: NetworkChange) -> Result<SandboxInfo, Error> {
        let new = self.record.body.network.changed(&change)?;
        let held = self.entry.secret_store.all(&self.record.body.credentials).await?;
        let new_credentials = injected_credential::changed(
            &held,
            &change.add_credentials,
            &change.remove_credentials,
        )?;
        let known: Vec<InjectedCredential> =
            new_credentials.iter().map(|one| one.credential.clone()).collect();
        let other = new_credentials != held || known != self.record.body.credentials;
        if new == self.record.body.network && !other {
            return Ok(self.record.info());
        }
        self.inner.egress.check(&new).await?;
        let runs = self.record.state.has_processes();
        let ends = runs && new.mode() == Mode::None;
        let went = if ends { self.inner.egress.traffic(&self.entry).await } else { None };
        let old = self.record.body.clone();
        (self.record.body.network, self.record.body.credentials) = (new, known);
        self.record.carried(went);
        if let Err(error) = self.changed_to(other.then_some(new_credentials)).await {
            self.record.body = old;
            if let Err(error) = self.changed_to(other.then_some(held)).await {
                warn!(sandbox = %self.entry.id, %error, "network differs from the record");
            }
            return Err(error);
        }
        let mode = self.record.body.network.mode();
        info!(sandbox = %self.entry.id, tenant = %self.entry.tenant, network = mode.word(), "network changed");
        self.publish(None);
        self.inner.events.emit(&self.entry, EventKind::NetworkChanged(mode));
        Ok(self.record.info())
    }

    /// Applies and records the current policy.
    async fn changed_to(
        &mut self,
        new_credentials: Option<Vec<CredentialSpec>>,
    ) -> Result<(), Error> {
        if let Some(new_credentials) = new_credentials {
            self.entry.secret_store.keep(new_credentials).await?;
        }
        if self.record.state.has_processes() {
            self.inner.egress.apply(&self.entry, &self.record.body).await?;
            self.trust_or_later().await;
        }
        self.write(None).await
    }
}
