//! Limits on parallel unpacking. A slow registry delays only the tenant that pulls from it.

use crate::error::Error;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Threads that unpack layers and archives, for all tenants.
const THREADS_MAX: usize = 2;
/// Layers that are downloaded in parallel, for all tenants. Each may hold the window of a decompressor,
/// which is 128 MiB at most.
const LAYERS_MAX: usize = 8;
/// Layers of one tenant that are downloaded in parallel: one is fetched while another is unpacked.
const TENANT_LAYERS_MAX: usize = 2;

/// Slots for layers and threads.
#[derive(Debug)]
pub(crate) struct UnpackSlots {
    threads: Arc<Semaphore>,
    layers: Arc<Semaphore>,
    tenants: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Permits one layer to be fetched; released on drop.
#[derive(Debug)]
pub(crate) struct LayerSlot {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// Permits one thread to work; released on drop, and while the thread waits.
#[derive(Debug)]
pub(crate) struct ThreadSlot {
    threads: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Default for UnpackSlots {
    fn default() -> Self {
        let of = |count| Arc::new(Semaphore::new(count));
        Self { threads: of(THREADS_MAX), layers: of(LAYERS_MAX), tenants: Mutex::default() }
    }
}

impl UnpackSlots {
    /// Waits until one more layer of this tenant may be fetched.
    pub(crate) async fn layer(&self, tenant: &str) -> Result<LayerSlot, Error> {
        let own = self.tenant(tenant);
        // The tenant's own limit first: waiting for it does not block other tenants.
        let own = own.acquire_owned().await.map_err(closed)?;
        let all = Arc::clone(&self.layers).acquire_owned().await.map_err(closed)?;
        Ok(LayerSlot { _own: own, _all: all })
    }

    fn tenant(&self, tenant: &str) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.retain(|_, slots| slots.strong_count() > 0);
        if let Some(slots) = tenants.get(tenant).and_then(Weak::upgrade) {
            return slots;
        }
        let slots = Arc::new(Semaphore::new(TENANT_LAYERS_MAX));
        tenants.insert(tenant.to_owned(), Arc::downgrade(&slots));
        slots
    }

    /// Waits for a thread slot. The caller moves it into the work, which may outlive the waiting task.
    pub(crate) async fn work(&self) -> Result<ThreadSlot, Error> {
        let threads = Arc::clone(&self.threads);
        let permit = Arc::clone(&threads).acquire_owned().await.map_err(closed)?;
        Ok(ThreadSlot { threads, permit: Some(permit) })
    }
}

impl ThreadSlot {
    /// Lets another thread work while this one waits for something. Blocks.
    pub(crate) fn pause<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        drop(self.permit.take());
        let done = wait();
        // The semaphore is never closed; if it were, the thread would go on without a permit.
        self.permit = Handle::current().block_on(Arc::clone(&self.threads).acquire_owned()).ok();
        done
    }
}

fn closed(_: tokio::sync::AcquireError) -> Error {
    Error::Disk("the server is stopping and unpacks no more images".into())
}
