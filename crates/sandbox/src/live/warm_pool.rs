//! The warm pool: sandboxes that are created in advance. Each has a running agent, a name and a uid
//! range of its own, the default limits and no record. The next create of its kind takes it, writes
//! its record and, if it needs a network, sets the rules of its veth pair, which denied everything
//! before. The pool then creates another one.
//!
//! A graceful stop removes the sandboxes in the pool. A killed server leaves them without records,
//! and the next start removes them.

pub(crate) mod pool;
mod stock;

use crate::agent_client::wire::Wire;
use crate::live::inner::Inner;
use crate::live::orphans;
use crate::live::prepared::PreparedSandbox;
use crate::live::warm_pool::stock::Taken;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::record::PoolKind;
use isolet_jail::SandboxHandle;
use isolet_wire::launcher::Spec;
use isolet_wire::request::AgentRequest;
use isolet_wire::response::AgentResponse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::warn;

/// Maximum size of the pool. Each sandbox needs about a megabyte of memory.
pub const READY_MAX: u32 = 64;
/// Pause after a failed creation.
const AGAIN: Duration = Duration::from_secs(5);

/// How long a stopping server waits for a sandbox that is just being created.
const END_WAIT: Duration = Duration::from_secs(2);
/// Pause between a take and the next creation.
const PAUSE: Duration = Duration::from_millis(4);

/// Host name inside every sandbox. It cannot depend on the id, which is unknown when the sandbox is
/// created in advance.
pub(crate) const HOSTNAME: &str = "sandbox";

/// Takes a sandbox of a kind. Waits for the one that is being created unless another create already
/// does.
pub(crate) async fn take(inner: &Inner, kind: &PoolKind) -> Option<PreparedSandbox> {
    if size(inner) == 0 {
        return None;
    }
    let boot = if kind.has_veth { inner.egress.boot().await } else { None };
    loop {
        let taken = inner.ready.lock().take(kind, Instant::now());
        inner.ready.more.notify_one();
        let made = match taken {
            Taken::Made(made) => made,
            Taken::Soon(promise) => promise.await.ok()?,
            Taken::None => return None,
        };
        // The veth pair of a process that has ended no longer exists.
        if made.link.is_none_or(|link| Some(link.boot) == boot) {
            return Some(made);
        }
        inner.ready.lock().discard(made);
    }
}

fn size(inner: &Inner) -> usize {
    inner.config.warm_pool_size.min(READY_MAX) as usize
}

/// Keeps the pool full until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    let size = size(&inner);
    inner.ready.lock().want(&PoolKind::default(), Instant::now());
    loop {
        while fill(&inner, size).await {}
        inner.ready.lock().none_made();
        let look = inner.ready.lock().age(Instant::now());
        let more = inner.ready.more.notified();
        match look {
            Some(at) => drop(tokio::time::timeout_at(at.into(), more).await),
            None => more.await,
        }
        // The create that took a sandbox is about to start a program in it, which has priority.
        tokio::time::sleep(PAUSE).await;
    }
}

/// Removes discarded sandboxes and creates a missing one. Returns whether one was missing.
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
            warn!(%error, has_veth = kind.has_veth, image = kind.root.is_some(), "sandbox for the warm pool could not be created");
            inner.ready.lock().none_made();
            if kind.plain() {
                tokio::time::sleep(AGAIN).await;
            } else {
                // The kind stays out of stock until a create needs it again.
                inner.ready.lock().retain(|other| *other != kind);
            }
        }
    }
    true
}

async fn make(inner: &Arc<Inner>, name: String, kind: PoolKind) -> Result<PreparedSandbox, Error> {
    let slot = inner.registry.take_slot().ok_or(Error::ServerFull("no uid range is free"))?;
    let id_base = inner.launch.files_id_base();
    let mut made = PreparedSandbox { name, slot, id_base, kind, link: None };
    match start(inner, &mut made).await {
        Ok(()) => Ok(made),
        Err(error) => {
            discard(inner, made).await;
            Err(error)
        }
    }
}

async fn start(inner: &Arc<Inner>, made: &mut PreparedSandbox) -> Result<(), Error> {
    let mut network = None;
    if made.kind.has_veth {
        let (link, space) = inner.egress.closed(&made.name).await?;
        (made.link, network) = (Some(link), Some(space));
    }
    let spec = Spec {
        name: made.name.clone(),
        slot: made.slot,
        hostname: HOSTNAME.to_owned(),
        limits: inner.config.limits,
        root: made.kind.root.clone(),
        directory_exists: false,
        has_veth: false,
        id_base: made.id_base,
        snapshot_layers: Vec::new(),
    };
    inner.launch.launch(spec, network, None).await?;
    let directory = inner.jail.data_dir.join("sandboxes").join(&made.name);
    let greet = async {
        let mut wire = Wire::connect(&directory, &Arc::default()).await?;
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

async fn discard(inner: &Arc<Inner>, made: PreparedSandbox) {
    let config = inner.jail.clone();
    let name = made.name;
    let removed = blocking(move || {
        let handle = SandboxHandle::open(&config, &name);
        handle.kill()?;
        let _ = handle.wait_empty(Duration::from_secs(2));
        handle.remove()
    });
    match removed.await {
        Ok(Ok(())) => inner.registry.give_slot(made.slot),
        // The uid range stays occupied, because some processes may still run.
        _ => warn!(slot = made.slot, "sandbox of the warm pool is not removed"),
    }
    inner.trash.notify_one();
}

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

/// Waits briefly until no sandbox of a matching kind is being created or removed.
async fn settled(inner: &Inner, with: impl Fn(&PoolKind) -> bool) {
    let settled = async {
        while inner.ready.lock().busy(&with) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = tokio::time::timeout(END_WAIT, settled).await;
}

/// Removes all sandboxes of the pool, including the one that is being created, because no later
/// server would know them.
pub(crate) async fn end(inner: &Arc<Inner>) {
    inner.ready.lock().empty();
    remove(inner).await;
    settled(inner, |_| true).await;
    inner.ready.lock().empty();
    remove(inner).await;
}

/// Replaces all waiting sandboxes.
pub(crate) async fn renew(inner: &Arc<Inner>) {
    inner.ready.lock().empty();
    remove(inner).await;
    inner.ready.more.notify_one();
}

/// Removes all sandboxes with an image, because a client wants to remove layers.
pub(crate) async fn forget_images(inner: &Arc<Inner>) {
    inner.ready.lock().retain(|kind| kind.root.is_none());
    remove(inner).await;
    settled(inner, |kind| kind.root.is_some()).await;
}
