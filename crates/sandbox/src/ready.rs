//! Sandboxes made before anybody asks: an agent that runs and answers, under a name and an id
//! range of its own, with the default limits and no record. The next create takes one and has
//! only to write its record; another is made at once.
//!
//! One that nobody took is removed at a graceful stop; what a killed server left has no record,
//! and the next start sweeps it.

use crate::{Error, driver::blocking, service::Inner, wire::Wire};
use isolet_jail::Cage;
use isolet_wire::{ask::Ask, launch::Spec, tell::Tell};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};
use tokio::sync::{Notify, oneshot};
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

/// One that waits for its owner.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) slot: u32,
}

/// All that wait.
#[derive(Default)]
pub(crate) struct Ready {
    stock: Mutex<Stock>,
    more: Notify,
}

#[derive(Default)]
struct Stock {
    made: VecDeque<Made>,
    /// One is being made; who waits for it.
    making: bool,
    promised: Option<oneshot::Sender<Made>>,
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one; waits for the one that is being made unless somebody else does.
    pub(crate) async fn take(&self) -> Option<Made> {
        let promise = {
            let mut stock = self.lock();
            if let Some(made) = stock.made.pop_front() {
                self.more.notify_one();
                return Some(made);
            }
            if !stock.making || stock.promised.is_some() {
                return None;
            }
            let (promised, promise) = oneshot::channel();
            stock.promised = Some(promised);
            promise
        };
        promise.await.ok()
    }

    /// Gives back one that was not used after all.
    pub(crate) fn put(&self, made: Made) {
        let mut stock = self.lock();
        let made = match stock.promised.take() {
            Some(promised) => match promised.send(made) {
                Ok(()) => return,
                // Who waited has gone.
                Err(made) => made,
            },
            None => made,
        };
        stock.made.push_back(made);
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.lock().made.len()
    }

    fn short(&self, size: u32) -> bool {
        let mut stock = self.lock();
        stock.making = stock.made.len() < size as usize;
        stock.making
    }

    /// None is being made any more; who waited makes one itself.
    fn give_up(&self) {
        let mut stock = self.lock();
        stock.making = false;
        stock.promised = None;
    }
}

/// Keeps the stock full until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    let size = inner.config.ready.min(READY_MAX);
    loop {
        while inner.ready.short(size) && !inner.stopping.load(Ordering::Relaxed) {
            match make(&inner).await {
                Ok(made) => inner.ready.put(made),
                Err(error) => {
                    warn!(%error, "no sandbox could be made ahead");
                    inner.ready.give_up();
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        inner.ready.give_up();
        inner.ready.more.notified().await;
        // Who took one is about to start something in it: that comes first.
        tokio::time::sleep(PAUSE).await;
    }
}

async fn make(inner: &Arc<Inner>) -> Result<Made, Error> {
    let slot = inner.registry.take_slot().ok_or(Error::ServerFull("no uid range is free"))?;
    let made = Made { name: crate::ids::random(), slot };
    match start(inner, &made).await {
        Ok(()) => Ok(made),
        Err(error) => {
            discard(inner, made).await;
            Err(error)
        }
    }
}

async fn start(inner: &Arc<Inner>, made: &Made) -> Result<(), Error> {
    let limits = inner.config.limits;
    let (name, hostname) = (made.name.clone(), HOSTNAME.to_owned());
    let slot = made.slot;
    let spec = Spec { name, slot, hostname, limits, root: None, kept: false, linked: false };
    inner.launch.launch(spec, None).await?;
    let directory = inner.jail.data_dir.join("sandboxes").join(&made.name);
    let greet = async {
        let mut wire = Wire::connect(&directory).await?;
        wire.send(&Ask::Ping(1)).await?;
        wire.answer().await
    };
    match tokio::time::timeout(Duration::from_secs(10), greet).await {
        Ok(Ok(Tell::Pong(1))) => Ok(()),
        _ => Err(Error::Fault("its agent does not answer".into())),
    }
}

async fn discard(inner: &Arc<Inner>, made: Made) {
    let (config, name) = (inner.jail.clone(), made.name);
    let removed = blocking(move || {
        let cage = Cage::open(&config, &name);
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

/// Removes all that wait.
pub(crate) async fn clear(inner: &Arc<Inner>) {
    let made = std::mem::take(&mut inner.ready.lock().made);
    for made in made {
        discard(inner, made).await;
    }
}

/// Removes all that wait, and what is just being made: nobody would know of it.
pub(crate) async fn end(inner: &Arc<Inner>) {
    let made = async {
        while inner.ready.lock().making {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = tokio::time::timeout(END_WAIT, made).await;
    clear(inner).await;
}

/// Removes those that wait, and begins to make as many.
pub(crate) async fn renew(inner: &Arc<Inner>) {
    clear(inner).await;
    inner.ready.more.notify_one();
}
