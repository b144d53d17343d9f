//! The server's connection to the process that owns the veth pairs: found or started when a sandbox
//! first needs egress. That process outlives the server. When it ends, every sandbox with egress
//! gets a new pair.

mod denied;
mod traffic;

use crate::{
    live::{cgroup_control::CgroupControl, entry::Entry, inner::Inner, prepared::Linked},
    model::{
        blocking::blocking,
        command::DriverCommand,
        error::Error,
        network::{Mode, Network, lent::CredentialSpec},
        record::Body,
        state::State,
    },
};
use isolet_jail::{VethClient, VethError, VethEvent};
use isolet_wire::{network::Policy, veth::Settings};
use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, OnceLock, Weak, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::{
    sync::{Mutex, Notify, Semaphore, oneshot},
    time::timeout,
};
use tracing::{info, warn};

/// How long the end of a command waits for what is just being told.
const SETTLE_WAIT: Duration = Duration::from_millis(200);
/// Such waits at once: a process that does not answer must not take every thread.
const SETTLES_MAX: usize = 8;
/// How long what was missing on this machine is taken for missing.
const MISSING_FOR: Duration = Duration::from_secs(5);
/// How long after a failure sandboxes are linked anew.
const AGAIN: Duration = Duration::from_secs(1);
/// The same at most.
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// The way out of this machine, for sandboxes.
pub(crate) struct Egress {
    config: isolet_jail::Config,
    settings: Settings,
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
            VethError::Missing(why) => Self::NoWay(why),
            other => Self::WayLost(other.to_string()),
        }
    }
}

impl Egress {
    pub(crate) fn new(config: &crate::model::config::Config) -> Self {
        let all = &config.network;
        let settings = Settings {
            range: all.range,
            connections_max: all.connections_max,
            opened: all.opened.clone(),
            resolvers: all.resolvers.clone(),
        };
        let settles = Arc::new(Semaphore::new(SETTLES_MAX));
        let (inner, ended) = Default::default();
        Self { config: config.jail(), settings, up: Mutex::default(), inner, ended, settles }
    }

    /// Whether this machine can do it.
    pub(crate) async fn check(&self, network: &Network) -> Result<(), Error> {
        match network.policy() {
            None => Ok(()),
            Some(policy) => {
                let links = self.links().await?;
                named(&links, &policy)
            }
        }
    }

    /// The process, found or started.
    async fn links(&self) -> Result<Arc<VethClient>, Error> {
        let mut up = self.up.lock().await;
        if let Some(links) = up.links.as_ref().filter(|links| !links.has_ended()) {
            return Ok(Arc::clone(links));
        }
        if let Some((since, why)) = &up.missing
            && since.elapsed() < MISSING_FOR
        {
            return Err(Error::NoWay(why.clone()));
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
            Err(VethError::Missing(why)) => {
                up.missing = Some((Instant::now(), why.clone()));
                Err(Error::NoWay(why))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there is such a process. One that is asked by another connection lets go of the first.
    async fn stands(&self) -> Result<bool, Error> {
        let up = self.up.lock().await;
        if up.links.as_ref().is_some_and(|links| !links.has_ended()) {
            return Ok(true);
        }
        let config = self.config.clone();
        blocking(move || VethClient::is_running(&config)).await
    }

    /// Gives a sandbox that runs this network, from the answer on.
    pub(crate) async fn apply(&self, entry: &Entry, body: &Body) -> Result<(), Error> {
        let Some(policy) = body.network.policy() else { return self.release(entry).await };
        let links = self.links().await?;
        named(&links, &policy)?;
        if let Some(id) = entry.linked(links.boot) {
            let setting = Arc::clone(&links);
            blocking(move || setting.set_policy(id, &policy)).await??;
            return self.lend(&links, entry, body).await;
        }
        let cage = CgroupControl { config: self.config.clone(), name: entry.name.clone() };
        let boot = links.boot;
        let name = entry.name.clone();
        let attaching = Arc::clone(&links);
        let attached = blocking(move || {
            let space = cage.open().netns().map_err(|error| Error::WayLost(error.to_string()))?;
            Ok::<_, Error>(attaching.attach(&name, &policy, space.as_fd())?)
        });
        let id = attached.await??.id;
        *entry.link() = Some(Linked { boot, id, lent: false });
        self.lend(&links, entry, body).await
    }

    /// Lends its link what the sandbox has, and notes whom it is to trust then.
    async fn lend(&self, links: &Arc<VethClient>, entry: &Entry, body: &Body) -> Result<(), Error> {
        let all = entry.secret_store.all(&body.lent).await?;
        let all: Vec<_> = all.iter().filter_map(CredentialSpec::credential).collect();
        let Some(linked) = *entry.link() else { return Ok(()) };
        if all.is_empty() && !linked.lent {
            return Ok(());
        }
        if !all.is_empty() && !links.names {
            return Err(Error::NoWay(NO_EGRESS_PROXY.to_owned()));
        }
        let links = Arc::clone(links);
        let id = linked.id;
        let some = !all.is_empty();
        // It may have ended meanwhile.
        let note = |lent| {
            if let Some(link) = entry.link().as_mut().filter(|link| link.id == id) {
                link.lent = lent;
            }
        };
        note(true);
        let certificate = blocking(move || links.set_credentials(id, all)).await??;
        note(some);
        *entry.secret_store.authority() = certificate;
        Ok(())
    }

    /// A link that was prepared, for one that is to be born: its network namespace.
    pub(crate) async fn birth(&self, entry: &Entry, body: &Body) -> Result<Option<OwnedFd>, Error> {
        let Some(policy) = body.network.policy() else { return Ok(None) };
        let links = self.links().await?;
        named(&links, &policy)?;
        let boot = links.boot;
        let name = entry.name.clone();
        let taking = Arc::clone(&links);
        let (standing, space) = blocking(move || taking.claim(&name, &policy)).await??;
        *entry.link() = Some(Linked { boot, id: standing.id, lent: false });
        self.lend(&links, entry, body).await?;
        Ok(Some(space))
    }

    /// A link by which nothing leaves, for one that is made ahead: its network namespace.
    pub(crate) async fn closed(&self, name: &str) -> Result<(Linked, OwnedFd), Error> {
        let links = self.links().await?;
        let boot = links.boot;
        let name = name.to_owned();
        let taken = blocking(move || links.claim(&name, &Policy::default())).await??;
        Ok((Linked { boot, id: taken.0.id, lent: false }, taken.1))
    }

    /// Of which start the process is that has links now, if there is one.
    pub(crate) async fn boot(&self) -> Option<u64> {
        let up = self.up.lock().await;
        up.links.as_ref().filter(|links| !links.has_ended()).map(|links| links.boot)
    }

    /// Takes its link away, if it has one.
    pub(crate) async fn release(&self, entry: &Entry) -> Result<(), Error> {
        let Some(linked) = *entry.link() else { return Ok(()) };
        let links = self.up.lock().await.links.clone();
        if let Some(links) = links.filter(|links| !links.has_ended() && links.boot == linked.boot) {
            blocking(move || links.release(linked.id)).await??;
        }
        *entry.link() = None;
        Ok(())
    }

    /// The process and the number of a sandbox's link, where it has one.
    pub(crate) async fn standing(&self, entry: &Entry) -> Option<(Arc<VethClient>, u32)> {
        let links = self.up.lock().await.links.clone().filter(|links| !links.has_ended())?;
        let id = entry.linked(links.boot)?;
        Some((links, id))
    }

    /// Returns when all that was refused until now is told, or after a moment.
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

/// Refuses rules that nobody here can judge.
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
                warn!(%error, "sandboxes have no links");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN_MAX);
            }
        }
    }
}

fn wants(entry: &Entry) -> bool {
    let view = entry.view.borrow();
    view.record.body.network.mode() != Mode::None
        && matches!(view.record.state, State::Running | State::Unreachable)
}

/// Each as its record says; links of nobody are taken away.
async fn all(inner: &Arc<Inner>) -> Result<(), Error> {
    let somebody = inner.registry.all().iter().any(|entry| wants(entry));
    if !somebody && !inner.egress.stands().await? {
        return Ok(());
    }
    let links = inner.egress.links().await?;
    let listing = Arc::clone(&links);
    let standing = blocking(move || listing.list()).await??;
    for one in standing {
        match inner.registry.named(&one.name) {
            Some(entry) if wants(&entry) => {
                *entry.link() = Some(Linked { boot: links.boot, id: one.id, lent: true });
            }
            None if inner.ready.has(&one.name) => {}
            // It is being given one.
            Some(entry) if entry.state() == State::Creating => {}
            Some(entry) if entry.linked(links.boot) == Some(one.id) => {}
            _ => {
                let links = Arc::clone(&links);
                blocking(move || links.release(one.id)).await??;
            }
        }
    }
    let mut failed = Ok(());
    for entry in inner.registry.all().iter().filter(|entry| wants(entry)) {
        let (answer, done) = oneshot::channel();
        // One that has ended meanwhile needs none.
        if entry.orders.send(DriverCommand::Link(answer)).await.is_ok()
            && let Ok(Err(error)) = done.await
        {
            failed = Err(error);
        }
    }
    failed
}

impl Inner {
    /// Something that the process says by itself; on a thread of its own.
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
                    // Most often it ends with its sandbox.
                    if known && wants(&entry) {
                        ended.notify_one();
                    }
                } else {
                    self.ready.unlinked(Some(&name));
                }
            }
            VethEvent::Authority { name, certificate } => {
                if let Some(entry) = self.registry.named(&name) {
                    *entry.secret_store.authority() = Some(certificate);
                    // Where its driver has too much to do, all is told anew.
                    if entry.orders.try_send(DriverCommand::Trust).is_err() {
                        ended.notify_one();
                    }
                }
            }
            VethEvent::Repaired(what) => warn!(what, "links were changed from outside"),
            VethEvent::Ended if self.stopping.load(Ordering::Relaxed) => {}
            VethEvent::Ended => {
                info!("the process that owns links has ended");
                self.ready.unlinked(None);
                ended.notify_one();
            }
        }
    }
}
