//! The images of a server: what it has, and what is under way.

use super::import_slots::Imports;
use super::progress::Progress;
use crate::config::Config;
use crate::disk::free_space::Room;
use crate::error::Error;
use crate::manifest::Platform;
use crate::reference::Reference;
use crate::registry::client::Registries;
use crate::registry::credentials;
use crate::store::Store;
use crate::store::image::{Image, Root};
use crate::unpack::slots::Turns;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Keeps a layer from being collected until the image that it is for is recorded, or is not to be.
pub(crate) type Held = Arc<tokio::sync::Mutex<()>>;

/// The images of a server. Clones share them.
#[derive(Clone)]
pub struct Images {
    pub(super) inner: Arc<Inner>,
}

/// What sandboxes use: how many are made of an image, and all their layers.
pub type Used = (HashMap<String, usize>, HashSet<String>);

/// Who asks, for what, for which machine.
pub(super) type Flight = (String, Reference, Platform);

pub(super) struct Inner {
    pub(super) config: Config,
    pub(super) store: Arc<Store>,
    pub(super) registries: Registries,
    pub(super) flights: Mutex<HashMap<Flight, watch::Receiver<Progress>>>,
    /// Layers of images that are being made, by their names. Locked before the images are.
    pub(super) busy: Mutex<HashMap<String, Held>>,
    /// Layers that a tenant makes now, by both names: it makes each once at a time.
    pub(super) making: Mutex<HashMap<(String, String), Held>>,
    pub(super) turns: Turns,
    pub(super) imports: Imports,
    pub(super) room: Arc<Room>,
}

impl Images {
    /// Reads what is there. Blocks.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn open(config: Config) -> Result<Self, Error> {
        let store = Arc::new(Store::open(config.root.clone())?);
        let credentials = config.credentials.clone().or_else(credentials::default_path);
        let idle = config.limits.idle;
        let registries = Registries::new(config.registries.clone(), credentials, idle)?;
        let room = Arc::new(Room::new(config.root.clone(), config.limits.floor_mib << 20));
        let inner = Inner {
            config,
            store,
            registries,
            flights: Mutex::default(),
            busy: Mutex::default(),
            making: Mutex::default(),
            turns: Turns::default(),
            imports: Imports::default(),
            room,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A tenant's images, newest first.
    #[must_use]
    pub fn of(&self, tenant: &str) -> Vec<Arc<Image>> {
        self.inner.store.of(tenant)
    }

    /// An image that a tenant has, or the tenant that shares its own.
    #[must_use]
    pub fn find(&self, tenant: &str, reference: &Reference) -> Option<Arc<Image>> {
        let store = &self.inner.store;
        let shared = self.inner.config.shared.as_deref();
        store.find(tenant, reference).or_else(|| store.find(shared?, reference))
    }

    /// A layer of a sandbox's root that is not there any more, if any.
    #[must_use]
    pub fn gone(&self, root: &Root) -> Option<String> {
        self.inner.store.gone(&root.layers)
    }

    /// Takes a tenant's name of an image away; the last one takes the image.
    ///
    /// # Errors
    /// [`Error::NotHere`], [`Error::InUse`].
    pub fn remove(
        &self,
        tenant: &str,
        reference: &Reference,
        used: impl FnOnce() -> Used,
    ) -> Result<(), Error> {
        self.inner.store.remove(tenant, reference, || used().0)
    }

    /// Removes images without a name, with `all` also those that no sandbox uses, and the layers
    /// of none; how many images and layers that were. Blocks.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn collect(&self, all: bool, used: impl FnOnce() -> Used) -> Result<(u64, u64), Error> {
        // While an image is being made its layers are nobody's but held. None is held anew until
        // what is not has left its place.
        let busy = self.inner.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let (images, layers) = self.inner.store.collect(all, &Inner::held(&busy), used)?;
        drop(busy);
        Ok((images, layers.len() as u64))
    }
}

impl Inner {
    /// Layers of images that are being made.
    pub(crate) fn held(busy: &HashMap<String, Held>) -> HashSet<String> {
        let held = busy.iter().filter(|(_, turn)| Arc::strong_count(turn) > 1);
        held.map(|(name, _)| name.clone()).collect()
    }
}
