//! [`Images`]: the images of a server, and the pulls and imports that run.

use super::import_slots::ImportSlots;
use super::layers::blocking;
use super::progress::Progress;
use super::to_peers::SENT_MAX;
use crate::config::Config;
use crate::disk::free_space::FreeSpace;
use crate::error::Error;
use crate::peers::ImagePeers;
use crate::platform::Platform;
use crate::reference::Reference;
use crate::registry::client::RegistryClient;
use crate::registry::credentials;
use crate::store::image::{Image, Root};
use crate::store::{ImagesInUse, Store};
use crate::unpack::slots::UnpackSlots;
use bytes::Bytes;
use isolet_metrics::ImageMetrics;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::{Semaphore, watch};

/// Prevents that a layer is collected before its image is recorded or has failed.
pub(crate) type LayerHold = Arc<tokio::sync::Mutex<()>>;

/// The images of a server. Clones share them.
#[derive(Clone)]
pub struct Images {
    pub(super) inner: Arc<Inner>,
}

/// What identifies a pull: requests for the same one share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PullKey {
    pub(super) tenant: String,
    pub(super) reference: Reference,
    pub(super) platform: Platform,
    /// Whether it begins with the images of other nodes: for a create. A client that pulls wants what
    /// the registry has.
    pub(super) asks_nodes: bool,
}

pub(super) struct Inner {
    pub(super) config: Config,
    pub(super) store: Arc<Store>,
    pub(super) registries: RegistryClient,
    pub(super) pulls: Mutex<HashMap<PullKey, watch::Receiver<Progress>>>,
    /// Layers of images that are not recorded yet, by name. Lock order: this lock, then that of the store.
    pub(super) layers_in_use: Mutex<HashMap<String, LayerHold>>,
    /// Locks by tenant and layer: a tenant unpacks each layer once at a time.
    pub(super) layer_locks: Mutex<HashMap<(String, String), LayerHold>>,
    pub(super) slots: UnpackSlots,
    pub(super) imports: ImportSlots,
    pub(super) free_space: Arc<FreeSpace>,
    pub(super) metrics: ImageMetrics,
    /// The other nodes of the fleet, if there is one.
    pub(super) peers: OnceLock<Arc<dyn ImagePeers>>,
    /// One permit for each layer that may be sent to another node at the same time.
    pub(super) sent: Arc<Semaphore>,
}

impl Images {
    /// Opens the image directory. Blocks.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn open(config: Config, metrics: ImageMetrics) -> Result<Self, Error> {
        let store = Arc::new(Store::open(config.root.clone())?);
        let credentials = config.credentials.clone().or_else(credentials::default_path);
        let idle = config.limits.idle;
        let registries = RegistryClient::new(config.registries.clone(), credentials, idle)?;
        let free_space =
            Arc::new(FreeSpace::new(config.root.clone(), config.limits.floor_mib << 20));
        let inner = Inner {
            config,
            store,
            registries,
            pulls: Mutex::default(),
            layers_in_use: Mutex::default(),
            layer_locks: Mutex::default(),
            slots: UnpackSlots::default(),
            imports: ImportSlots::default(),
            free_space,
            metrics,
            peers: OnceLock::new(),
            sent: Arc::new(Semaphore::new(SENT_MAX)),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Names the other nodes of the fleet. From then on, layers are recorded so that they can be sent
    /// there. Only the first call counts.
    pub fn set_peers(&self, peers: Arc<dyn ImagePeers>) {
        let _ = self.inner.peers.set(peers);
    }

    /// Whether there are other nodes.
    #[must_use]
    pub fn has_peers(&self) -> bool {
        self.inner.peers.get().is_some()
    }

    /// A tenant's images, newest first.
    #[must_use]
    pub fn list(&self, tenant: &str) -> Vec<Arc<Image>> {
        self.inner.store.list(tenant)
    }

    /// The digests of the images of all tenants, newest first.
    #[must_use]
    pub fn digests(&self) -> Vec<String> {
        let mut all = self.inner.store.all();
        all.sort_by_key(|image| std::cmp::Reverse(image.pulled_at_ms));
        all.iter().map(|image| image.digest.clone()).collect()
    }

    /// Finds an image of the tenant, or of the tenant whose images are shared.
    #[must_use]
    pub fn find(&self, tenant: &str, reference: &Reference) -> Option<Arc<Image>> {
        let store = &self.inner.store;
        let shared = self.inner.config.shared.as_deref();
        store.find(tenant, reference).or_else(|| store.find(shared?, reference))
    }

    /// Returns the first layer of a sandbox's root that is missing on the disk.
    #[must_use]
    pub fn missing_layer(&self, root: &Root) -> Option<String> {
        self.inner.store.missing_layer(&root.layers)
    }

    /// The sessions of an image with the states of their shells, if it has some.
    ///
    /// # Errors
    /// [`Error::Bad`] if they are missing or changed.
    pub async fn sessions(&self, image: &Arc<Image>) -> Result<Option<Bytes>, Error> {
        if image.sessions.is_none() {
            return Ok(None);
        }
        let store = Arc::clone(&self.inner.store);
        let image = Arc::clone(image);
        blocking(move || store.sessions(&image)).await
    }

    /// Removes a tenant's name of an image; with the last name also the image. `used` is called once the
    /// store is locked.
    ///
    /// # Errors
    /// [`Error::NotHere`], [`Error::InUse`].
    pub fn remove(
        &self,
        tenant: &str,
        reference: &Reference,
        used: impl FnOnce() -> ImagesInUse,
    ) -> Result<(), Error> {
        self.inner.store.remove(tenant, reference, || used().sandboxes)
    }

    /// Removes images without a name, with `all` also those that no sandbox uses, and layers that no
    /// image or sandbox has. Returns the number of removed images and layers. Blocks.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn collect_garbage(
        &self,
        all: bool,
        used: impl FnOnce() -> ImagesInUse,
    ) -> Result<(u64, u64), Error> {
        // Layers of an image that is not recorded yet are held. The lock prevents new holds until the
        // garbage has been moved away.
        let layers_in_use = self.inner.layers_in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let (images, layers) =
            self.inner.store.collect_garbage(all, &Inner::held(&layers_in_use), used)?;
        drop(layers_in_use);
        Ok((images, layers.len() as u64))
    }
}

impl Inner {
    /// The names of all held layers.
    pub(crate) fn held(layers_in_use: &HashMap<String, LayerHold>) -> HashSet<String> {
        let held = layers_in_use.iter().filter(|(_, hold)| Arc::strong_count(hold) > 1);
        held.map(|(name, _)| name.clone()).collect()
    }
}
