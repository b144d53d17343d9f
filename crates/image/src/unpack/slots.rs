//! Who may unpack, and when: a registry that sends a byte now and then holds up nobody but the
//! tenant that asked it.

use crate::error::Error;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Layers and archives that are worked on at once, of all tenants.
const THREADS_MAX: usize = 2;
/// Layers that come at once, of all tenants, those that wait for their registry too. Each may hold
/// the window of a decompressor, which is 128 MiB at most.
const LAYERS_MAX: usize = 8;
/// The same of one tenant: one is fetched while another is unpacked.
const TENANT_LAYERS_MAX: usize = 2;

/// What there is to share.
#[derive(Debug)]
pub(crate) struct Turns {
    threads: Arc<Semaphore>,
    layers: Arc<Semaphore>,
    tenants: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// A layer may come as long as this is held.
#[derive(Debug)]
pub(crate) struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// A thread may work as long as this is held, unless it waits.
#[derive(Debug)]
pub(crate) struct Work {
    threads: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Default for Turns {
    fn default() -> Self {
        let of = |count| Arc::new(Semaphore::new(count));
        Self { threads: of(THREADS_MAX), layers: of(LAYERS_MAX), tenants: Mutex::default() }
    }
}

impl Turns {
    /// Waits until one more layer of this tenant may come.
    pub(crate) async fn layer(&self, tenant: &str) -> Result<Turn, Error> {
        let own = self.tenant(tenant);
        // The tenant's own first: who waits for that holds up no other.
        let own = own.acquire_owned().await.map_err(closed)?;
        let all = Arc::clone(&self.layers).acquire_owned().await.map_err(closed)?;
        Ok(Turn { _own: own, _all: all })
    }

    fn tenant(&self, tenant: &str) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.retain(|_, turns| turns.strong_count() > 0);
        if let Some(turns) = tenants.get(tenant).and_then(Weak::upgrade) {
            return turns;
        }
        let turns = Arc::new(Semaphore::new(TENANT_LAYERS_MAX));
        tenants.insert(tenant.to_owned(), Arc::downgrade(&turns));
        turns
    }

    /// Waits until a thread may work. It goes with the work: who waits for that may leave.
    pub(crate) async fn work(&self) -> Result<Work, Error> {
        let threads = Arc::clone(&self.threads);
        let permit = Arc::clone(&threads).acquire_owned().await.map_err(closed)?;
        Ok(Work { threads, permit: Some(permit) })
    }
}

impl Work {
    /// Lets another thread work while this one waits for something. Blocks.
    pub(crate) fn pause<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        drop(self.permit.take());
        let done = wait();
        // Nobody closes it; without a permit it would work on, one too many.
        self.permit = Handle::current().block_on(Arc::clone(&self.threads).acquire_owned()).ok();
        done
    }
}

fn closed(_: tokio::sync::AcquireError) -> Error {
    Error::Disk("no more images are unpacked".into())
}
