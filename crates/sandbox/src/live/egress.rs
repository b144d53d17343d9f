//! Connects sandboxes to the network through the process that owns the veth pairs. The server finds
//! or starts that process on first use, sends it requests and handles its events. The process
//! outlives this server. When it ends, every sandbox that had a veth pair gets another.

mod denied;
mod traffic;

use crate::live::cgroup_control::CgroupControl;
use crate::live::entry::SandboxEntry;
use crate::live::inner::Inner;
use crate::live::prepared::ReservedVeth;
use crate::model::blocking::blocking;
use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::network::injected_credential::CredentialSpec;
use crate::model::network::{Mode, Network};
use crate::model::record::RecordBody;
use crate::model::state::State;
use isolet_jail::{VethClient, VethError, VethEvent};
use isolet_wire::network::Policy;
use isolet_wire::veth::VethSettings;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Notify, Semaphore, oneshot};
use tokio::time::timeout;
use tracing::{info, warn};

/// How long the end of a command waits for denials that are just being reported.
const SETTLE_WAIT: Duration = Duration::from_millis(200);
/// Maximum number of such waits at once, so that a process that does not answer cannot block every
/// thread.
const SETTLES_MAX: usize = 8;
/// How long the result of a failed check of this machine is cached.
const MISSING_FOR: Duration = Duration::from_secs(5);
/// First pause before veth pairs are created again after a failure.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum pause before veth pairs are created again.
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// The connection to the process that owns the veth pairs.
pub(crate) struct Egress {
    config: isolet_jail::Config,
    settings: VethSettings,
    up: Mutex<Up>,
    inner: Arc<OnceLock<Weak<Inner>>>,
    ended: Arc<Notify>,
    settles: Arc<Semaphore>,
}

#[derive(Default)]
struct Up {
    links: Option<Arc<VethClient>>,
    missing: Option<(Instant, String)>,
}

impl From<VethError> for Error {
    fn from(error: VethError) -> Self {
        match error {
            VethError::Missing(reason) => Self::NoWay(reason),
            other => Self::WayLost(other.to_string()),
        }
    }
}

impl Egress {
    pub(crate) fn new(config: &crate::model::config::Config) -> Self {
        let all = &config.network;
        let settings = VethSettings {
            range: all.range,
            connections_max: all.connections_max,
            opened: all.opened.clone(),
            resolvers: all.resolvers.clone(),
        };
        let settles = Arc::new(Semaphore::new(SETTLES_MAX));
        let (inner, ended) = Default::default();
        Self { config: config.jail(), settings, up: Mutex::default(), inner, ended, settles }
    }

    /// Checks that this machine supports the network policy.
    pub(crate) async fn check(&self, network: &Network) -> Result<(), Error> {
        match network.policy() {
            None => Ok(()),
            Some(policy) => {
                let links = self.links().await?;
                named(&links, &policy)
            }
        }
    }

    /// Checks that this machine can inject credentials.
    pub(crate) async fn check_credentials(&self) -> Result<(), Error> {
        match self.links().await?.names {
            true => Ok(()),
            false => Err(Error::NoWay(NO_EGRESS_PROXY.to_owned())),
        }
    }

    /// Finds or starts the process.
    async fn links(&self) -> Result<Arc<VethClient>, Error> {
        let mut up = self.up.lock().await;
        if let Some(links) = up.links.as_ref().filter(|links| !links.has_ended()) {
            return Ok(Arc::clone(links));
        }
        if let Some((since, reason)) = &up.missing
            && since.elapsed() < MISSING_FOR
        {
            return Err(Error::NoWay(reason.clone()));
        }
        let config = self.config.clone();
        let settings = self.settings.clone();
        let inner = Arc::clone(&self.inner);
        let ended = Arc::clone(&self.ended);
        let news = move |news| match inner.get().and_then(Weak::upgrade) {
            Some(inner) => inner.heard(news, &ended),
            None => ended.notify_one(),
        };
        match blocking(move || VethClient::start(&config, settings, news)).await? {
            Ok(links) => {
                for warning in &links.warnings {
                    warn!("{warning}");
                }
                let links = Arc::new(links);
                (up.links, up.missing) = (Some(Arc::clone(&links)), None);
                Ok(links)
            }
            Err(VethError::Missing(reason)) => {
                up.missing = Some((Instant::now(), reason.clone()));
                Err(Error::NoWay(reason))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the process runs. A new connection to the process closes the earlier one.
    async fn stands(&self) -> Result<bool, Error> {
        let up = self.up.lock().await;
        if up.links.as_ref().is_some_and(|links| !links.has_ended()) {
            return Ok(true);
        }
        let config = self.config.clone();
        blocking(move || VethClient::is_running(&config)).await
    }

    /// Applies the network policy to a running sandbox.
    pub(crate) async fn apply(&self, entry: &SandboxEntry, body: &RecordBody) -> Result<(), Error> {
        let Some(policy) = body.network.policy() else { return self.release(entry).await };
        let links = self.links().await?;
        named(&links, &policy)?;
        if let Some(id) = entry.veth_id(links.boot) {
            let setting = Arc::clone(&links);
            blocking(move || setting.set_policy(id, &policy)).await??;
            return self.set_credentials(&links, entry, body).await;
        }
        let handle = CgroupControl { config: self.config.clone(), name: entry.name.clone() };
        let boot = links.boot;
        let name = entry.name.clone();
        let attaching = Arc::clone(&links);
        let attached = blocking(move || {
            let space = handle.open().netns().map_err(|error| Error::WayLost(error.to_string()))?;
            Ok::<_, Error>(attaching.attach(&name, &policy, space.as_fd())?)
        });
        let id = attached.await??.id;
        *entry.link() = Some(ReservedVeth { boot, id, has_credentials: false });
        self.set_credentials(&links, entry, body).await
    }

    /// Sends the sandbox's credentials to the egress proxy and stores the CA certificate from the
    /// answer.
    async fn set_credentials(
        &self,
        links: &Arc<VethClient>,
        entry: &SandboxEntry,
        body: &RecordBody,
    ) -> Result<(), Error> {
        let all = entry.secret_store.all(&body.credentials).await?;
        let all: Vec<_> = all.iter().filter_map(CredentialSpec::credential).collect();
        let Some(veth) = *entry.link() else { return Ok(()) };
        if all.is_empty() && !veth.has_credentials {
            return Ok(());
        }
        if !all.is_empty() && !links.names {
            return Err(Error::NoWay(NO_EGRESS_PROXY.to_owned()));
        }
        let links = Arc::clone(links);
        let id = veth.id;
        let some = !all.is_empty();
        // The veth pair may have ended in the meantime.
        let note = |has_credentials| {
            if let Some(link) = entry.link().as_mut().filter(|link| link.id == id) {
                link.has_credentials = has_credentials;
            }
        };
        note(true);
        let certificate = blocking(move || links.set_credentials(id, all)).await??;
        note(some);
        *entry.secret_store.authority() = certificate;
        Ok(())
    }

    /// Assigns a veth pair to a sandbox that is being created and returns its network namespace.
    pub(crate) async fn birth(
        &self,
        entry: &SandboxEntry,
        body: &RecordBody,
    ) -> Result<Option<OwnedFd>, Error> {
        let Some(policy) = body.network.policy() else { return Ok(None) };
        let links = self.links().await?;
        named(&links, &policy)?;
        let boot = links.boot;
        let name = entry.name.clone();
        let taking = Arc::clone(&links);
        let (standing, space) = blocking(move || taking.claim(&name, &policy)).await??;
        *entry.link() = Some(ReservedVeth { boot, id: standing.id, has_credentials: false });
        self.set_credentials(&links, entry, body).await?;
        Ok(Some(space))
    }

    /// Assigns a veth pair that denies everything to a sandbox of the warm pool and returns its
    /// network namespace.
    pub(crate) async fn closed(&self, name: &str) -> Result<(ReservedVeth, OwnedFd), Error> {
        let links = self.links().await?;
        let boot = links.boot;
        let name = name.to_owned();
        let taken = blocking(move || links.claim(&name, &Policy::default())).await??;
        Ok((ReservedVeth { boot, id: taken.0.id, has_credentials: false }, taken.1))
    }

    /// The number of the current run of the process, if it runs.
    pub(crate) async fn boot(&self) -> Option<u64> {
        let up = self.up.lock().await;
        up.links.as_ref().filter(|links| !links.has_ended()).map(|links| links.boot)
    }

    /// Removes the sandbox's veth pair, if it has one.
    pub(crate) async fn release(&self, entry: &SandboxEntry) -> Result<(), Error> {
        let Some(veth) = *entry.link() else { return Ok(()) };
        let links = self.up.lock().await.links.clone();
        if let Some(links) = links.filter(|links| !links.has_ended() && links.boot == veth.boot) {
            blocking(move || links.release(veth.id)).await??;
        }
        *entry.link() = None;
        Ok(())
    }

    /// The process and the number of the sandbox's veth pair, if it has one.
    pub(crate) async fn standing(&self, entry: &SandboxEntry) -> Option<(Arc<VethClient>, u32)> {
        let links = self.up.lock().await.links.clone().filter(|links| !links.has_ended())?;
        let id = entry.veth_id(links.boot)?;
        Some((links, id))
    }

    /// Waits briefly until all earlier denials have been reported.
    pub(crate) async fn settle(&self) {
        let settle = async {
            let links = self.up.lock().await.links.clone()?;
            let place = Arc::clone(&self.settles).acquire_owned().await.ok()?;
            let settled = blocking(move || {
                let settled = links.settle();
                drop(place);
                settled
            });
            settled.await.ok()
        };
        let _ = timeout(SETTLE_WAIT, settle).await;
    }
}

const NO_EGRESS_PROXY: &str = "rules with names of hosts, and credentials, need the program isolet-egress-proxy beside the server";

/// Refuses rules with names if the egress proxy does not run.
fn named(links: &VethClient, policy: &Policy) -> Result<(), Error> {
    if policy.by_address() || links.names {
        return Ok(());
    }
    Err(Error::NoWay(NO_EGRESS_PROXY.to_owned()))
}

/// Creates the veth pairs that are needed, at the start and whenever the process has ended.
pub(crate) async fn keep(inner: Arc<Inner>) {
    let _ = inner.egress.inner.set(Arc::downgrade(&inner));
    let mut pause = AGAIN;
    loop {
        match all(&inner).await {
            Ok(()) => {
                pause = AGAIN;
                inner.egress.ended.notified().await;
            }
            Err(error) => {
                warn!(%error, "veth pairs could not be created");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN_MAX);
            }
        }
    }
}

fn wants(entry: &SandboxEntry) -> bool {
    let view = entry.view.borrow();
    view.record.body.network.mode() != Mode::None && view.record.state.has_processes()
}

/// Creates the veth pair of every sandbox that needs one, and removes pairs without a sandbox.
async fn all(inner: &Arc<Inner>) -> Result<(), Error> {
    let wanted = inner.registry.all().iter().any(|entry| wants(entry));
    if !wanted && !inner.egress.stands().await? {
        return Ok(());
    }
    let links = inner.egress.links().await?;
    let listing = Arc::clone(&links);
    let standing = blocking(move || listing.list()).await??;
    for one in standing {
        match inner.registry.named(&one.name) {
            Some(entry) if wants(&entry) => {
                *entry.link() =
                    Some(ReservedVeth { boot: links.boot, id: one.id, has_credentials: true });
            }
            None if inner.ready.has(&one.name) => {}
            // The driver is creating the veth pair.
            Some(entry) if entry.state() == State::Creating => {}
            Some(entry) if entry.veth_id(links.boot) == Some(one.id) => {}
            _ => {
                let links = Arc::clone(&links);
                blocking(move || links.release(one.id)).await??;
            }
        }
    }
    let mut failed = Ok(());
    for entry in inner.registry.all().iter().filter(|entry| wants(entry)) {
        let (answer, done) = oneshot::channel();
        // A sandbox that has ended in the meantime needs no veth pair.
        if entry.commands.send(DriverCommand::Link(answer)).await.is_ok()
            && let Ok(Err(error)) = done.await
        {
            failed = Err(error);
        }
    }
    failed
}

impl Inner {
    /// Handles an event from the process, on a thread of its own.
    fn heard(&self, news: VethEvent, ended: &Notify) {
        match news {
            VethEvent::Refused { name, refused } => {
                if let Some(entry) = self.registry.named(&name) {
                    self.refused(&entry, refused);
                }
            }
            VethEvent::Gone { name, id } => {
                if let Some(entry) = self.registry.named(&name) {
                    let known = entry.link().take_if(|link| link.id == id).is_some();
                    // Usually the veth pair ends with its sandbox.
                    if known && wants(&entry) {
                        ended.notify_one();
                    }
                } else {
                    self.ready.on_veth_lost(Some(&name));
                }
            }
            VethEvent::Authority { name, certificate } => {
                if let Some(entry) = self.registry.named(&name) {
                    *entry.secret_store.authority() = Some(certificate);
                    // If the driver's queue is full, a full synchronisation is scheduled.
                    if entry.commands.try_send(DriverCommand::Trust).is_err() {
                        ended.notify_one();
                    }
                }
            }
            VethEvent::Repaired(repair) => {
                warn!(repair, "network configuration was changed from outside and repaired")
            }
            VethEvent::ProxyRestarted => {
                warn!("the egress proxy has ended; it is being started again");
                self.metrics.restarts.egress_proxy.inc();
            }
            VethEvent::Ended if self.stopping.load(Ordering::Relaxed) => {}
            VethEvent::Ended => {
                info!("the process that owns the veth pairs has ended");
                self.metrics.restarts.veth.inc();
                self.ready.on_veth_lost(None);
                ended.notify_one();
            }
        }
    }
}
