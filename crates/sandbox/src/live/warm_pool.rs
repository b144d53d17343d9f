//! The warm pool: sandboxes that are created in advance, each with an agent that answers, a name
//! and an id range of its own, the default limits, and no record. The next create of the same kind
//! takes one. It only has to write the record and, for a sandbox with egress, to set the rules of
//! the veth pair, which is closed until then. Another sandbox is created at once.
//!
//! A graceful stop removes unused ones. Those that a killed server left have no record, and the
//! next start removes them.

mod shelves;
pub(crate) mod stock;

use crate::{
    agent_client::wire::Wire,
    live::{inner::Inner, orphans, prepared::Made, warm_pool::shelves::Taken},
    model::{blocking::blocking, error::Error, record::Kind},
};
use isolet_jail::SandboxHandle;
use isolet_wire::{launcher::Spec, request::AgentRequest, response::AgentResponse};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tracing::warn;

/// The most that are kept: each holds about a megabyte.
pub const READY_MAX: u32 = 64;
/// How long after a failed making the next is tried.
const AGAIN: Duration = Duration::from_secs(5);

/// How long a server that stops waits for one that is just being made.
const END_WAIT: Duration = Duration::from_secs(2);
/// How long after one was taken the next is begun.
const PAUSE: Duration = Duration::from_millis(4);

/// Host name inside every sandbox: it cannot be told by its id, which comes later than it is made.
pub(crate) const HOSTNAME: &str = "sandbox";

/// Takes one of a kind; waits for the one that is being made unless somebody else does.
pub(crate) async fn take(inner: &Inner, kind: &Kind) -> Option<Made> {
    if size(inner) == 0 {
        return None;
    }
    let boot = if kind.linked { inner.egress.boot().await } else { None };
    loop {
        let taken = inner.ready.lock().take(kind, Instant::now());
        inner.ready.more.notify_one();
        let made = match taken {
            Taken::Made(made) => made,
            Taken::Soon(promise) => promise.await.ok()?,
            Taken::None => return None,
        };
        // One of a process that has ended is linked to nothing.
        if made.link.is_none_or(|link| Some(link.boot) == boot) {
            return Some(made);
        }
        inner.ready.lock().discard(made);
    }
}

fn size(inner: &Inner) -> usize {
    inner.config.warm_pool_size.min(READY_MAX) as usize
}

/// Keeps the shelves full until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    let size = size(&inner);
    inner.ready.lock().want(&Kind::default(), Instant::now());
    loop {
        while fill(&inner, size).await {}
        inner.ready.lock().none_made();
        let look = inner.ready.lock().age(Instant::now());
        let more = inner.ready.more.notified();
        match look {
            Some(at) => drop(tokio::time::timeout_at(at.into(), more).await),
            None => more.await,
        }
        // Who took one is about to start something in it: that comes first.
        tokio::time::sleep(PAUSE).await;
    }
}

/// Removes what is old and makes one that is missing; whether there was one.
async fn fill(inner: &Arc<Inner>, size: usize) -> bool {
    remove(inner).await;
    if inner.stopping.load(Ordering::Relaxed) {
        return false;
    }
    let name = crate::model::ids::random();
    let Some(kind) = inner.ready.lock().next(size, &name) else { return false };
    match make(inner, name, kind.clone()).await {
        Ok(made) => inner.ready.lock().put(made),
        Err(error) => {
            warn!(%error, linked = kind.linked, image = kind.root.is_some(), "no sandbox could be made ahead");
            inner.ready.lock().none_made();
            if kind.plain() {
                tokio::time::sleep(AGAIN).await;
            } else {
                // Until somebody asks for such a one again.
                inner.ready.lock().retain(|other| *other != kind);
            }
        }
    }
    true
}

async fn make(inner: &Arc<Inner>, name: String, kind: Kind) -> Result<Made, Error> {
    let slot = inner.registry.take_slot().ok_or(Error::ServerFull("no uid range is free"))?;
    let mut made = Made { name, slot, kind, link: None };
    match start(inner, &mut made).await {
        Ok(()) => Ok(made),
        Err(error) => {
            discard(inner, made).await;
            Err(error)
        }
    }
}

async fn start(inner: &Arc<Inner>, made: &mut Made) -> Result<(), Error> {
    let mut network = None;
    if made.kind.linked {
        let (link, space) = inner.egress.closed(&made.name).await?;
        (made.link, network) = (Some(link), Some(space));
    }
    let spec = Spec {
        name: made.name.clone(),
        slot: made.slot,
        hostname: HOSTNAME.to_owned(),
        limits: inner.config.limits,
        root: made.kind.root.clone(),
        kept: false,
        linked: false,
    };
    inner.launch.launch(spec, network).await?;
    let directory = inner.jail.data_dir.join("sandboxes").join(&made.name);
    let greet = async {
        let mut wire = Wire::connect(&directory).await?;
        wire.send(&AgentRequest::Ping(1)).await?;
        wire.answer().await
    };
    match tokio::time::timeout(Duration::from_secs(10), greet).await {
        Ok(Ok(AgentResponse::Pong(1))) => {}
        _ => return Err(Error::Fault("its agent does not answer".into())),
    }
    let marked = blocking(move || orphans::mark(&directory)).await?;
    marked.map_err(|error| Error::Fault(format!("cannot mark it as unclaimed: {error}")))
}

async fn discard(inner: &Arc<Inner>, made: Made) {
    let config = inner.jail.clone();
    let name = made.name;
    let removed = blocking(move || {
        let cage = SandboxHandle::open(&config, &name);
        cage.kill()?;
        let _ = cage.wait_empty(Duration::from_secs(2));
        cage.remove()
    });
    match removed.await {
        Ok(Ok(())) => inner.registry.give_slot(made.slot),
        // Its range stays taken: something of it may still run.
        _ => warn!(slot = made.slot, "a sandbox made ahead is not removed"),
    }
    inner.trash.notify_one();
}

/// Removes what nobody is to have.
async fn remove(inner: &Arc<Inner>) {
    loop {
        let old = inner.ready.lock().remove();
        if old.is_empty() {
            return;
        }
        for made in old {
            let kind = made.kind.clone();
            discard(inner, made).await;
            inner.ready.lock().removed(&kind);
        }
    }
}

/// Waits, for a moment, until nothing of such a kind is being made or removed.
async fn settled(inner: &Inner, with: impl Fn(&Kind) -> bool) {
    let settled = async {
        while inner.ready.lock().busy(&with) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = tokio::time::timeout(END_WAIT, settled).await;
}

/// Removes all that wait, and what is just being made: nobody would know of it.
pub(crate) async fn end(inner: &Arc<Inner>) {
    inner.ready.lock().empty();
    remove(inner).await;
    settled(inner, |_| true).await;
    inner.ready.lock().empty();
    remove(inner).await;
}

/// Removes those that wait, and begins to make as many.
pub(crate) async fn renew(inner: &Arc<Inner>) {
    inner.ready.lock().empty();
    remove(inner).await;
    inner.ready.more.notify_one();
}

/// Removes all that are made of images: somebody wants to remove layers.
pub(crate) async fn forget_images(inner: &Arc<Inner>) {
    inner.ready.lock().retain(|kind| kind.root.is_none());
    remove(inner).await;
    settled(inner, |kind| kind.root.is_some()).await;
}
