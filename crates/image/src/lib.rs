//! From a registry, or a file, to read-only layers that sandboxes share.
//!
//! [`Images`] is the way in. What a tenant names is made whole ([`reference`]), asked for
//! (`registry`), unpacked (`layers`, `unpack`) and recorded (`store`); a sandbox is then made of
//! its [`Root`].
#![forbid(unsafe_code)]

mod address;
mod beneath;
pub mod config;
mod credentials;
mod disk;
mod error;
mod frame;
mod import;
mod imports;
mod layers;
mod manifest;
mod merged;
mod progress;
mod pull;
pub mod reference;
mod registry;
mod room;
mod store;
mod stream;
mod tape;
mod turns;
mod unpack;
mod user;

pub use config::{Config, Limits};
pub use error::Error;
pub use frame::Shell;
pub use import::Spool;
pub use manifest::Platform;
pub use progress::{LayerProgress, Phase, Progress};
pub use reference::{Digest, Reference};
pub use store::{Image, Pin, Root};
pub use unpack::Told;
pub use user::User;

use imports::Imports;
use registry::Registries;
use room::Room;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use store::Store;
use tokio::sync::watch;
use turns::Turns;

/// Pulls at once, of all tenants.
const PULLS_MAX: usize = 32;

/// The images of a server. Clones share them.
#[derive(Clone)]
pub struct Images {
    inner: Arc<Inner>,
}

/// What sandboxes use: how many are made of an image, and all their layers.
pub type Used = (HashMap<String, usize>, HashSet<String>);

/// Who asks, for what, for which machine.
type Flight = (String, Reference, Platform);

pub(crate) struct Inner {
    config: Config,
    store: Arc<Store>,
    registries: Registries,
    flights: Mutex<HashMap<Flight, watch::Receiver<Progress>>>,
    /// Layers of images that are being made, by their names. Locked before the images are.
    busy: Mutex<HashMap<String, layers::Held>>,
    /// Layers that a tenant makes now, by both names: it makes each once at a time.
    making: Mutex<HashMap<(String, String), layers::Held>>,
    turns: Turns,
    imports: Imports,
    room: Arc<Room>,
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

    /// What a sandbox of this name is made of; pulled where it is not here and may be. The image
    /// stays as long as the pin is held.
    ///
    /// # Errors
    /// Those of [`Images::pull`]; [`Error::NotHere`] where nothing may be pulled;
    /// [`Error::ImportGone`] for what came with an archive and is not whole any more.
    pub async fn reach(&self, tenant: &str, text: &str) -> Result<(Arc<Image>, Pin), Error> {
        let reference = Reference::parse(text)?;
        let (store, shared) = (&self.inner.store, self.inner.config.shared.as_deref());
        let mut owners = [Some(tenant), shared].into_iter().flatten();
        let found = owners.find_map(|one| Some((one, store.take(one, &reference)?)));
        if let Some((owner, (image, pin))) = found {
            let own = image.platform == Platform::own().to_string();
            match self.gone(&image.root) {
                None if own => return Ok((image, pin)),
                // A registry may have somebody else's by this name.
                Some(layer) if image.imported(owner, &reference) => {
                    return Err(Error::ImportGone { image: reference.to_string(), layer });
                }
                _ => {}
            }
        }
        if !self.inner.config.pull {
            return Err(Error::NotHere(reference.to_string()));
        }
        self.pull(tenant, reference, Platform::own()).await
    }

    /// Asks the registry, fetches what is not here, and records the image under this tenant's name.
    ///
    /// # Errors
    /// As the registry says, and where a bound is reached. What was finished of it stays.
    pub async fn pull(
        &self,
        tenant: &str,
        reference: Reference,
        platform: Platform,
    ) -> Result<(Arc<Image>, Pin), Error> {
        let mut progress = self.follow(tenant, reference, platform)?;
        let fault = |_| Error::Disk("the pull ended by a fault".into());
        let end = progress.wait_for(|now| now.end.is_some()).await.map_err(fault)?.end.clone();
        end.unwrap_or_else(|| Err(Error::Disk("the pull ended by a fault".into())))
    }

    /// Begins a pull, or joins the one of this tenant that is under way; it goes on when nobody
    /// follows it any more.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where too many are under way.
    pub fn follow(
        &self,
        tenant: &str,
        reference: Reference,
        platform: Platform,
    ) -> Result<watch::Receiver<Progress>, Error> {
        let key = (tenant.to_owned(), reference, platform);
        let mut flights = self.inner.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(under_way) = flights.get(&key) {
            return Ok(under_way.clone());
        }
        if flights.len() >= PULLS_MAX {
            return Err(Error::large("pulls at once", PULLS_MAX.to_string()));
        }
        let (tell, progress) = watch::channel(Progress::default());
        flights.insert(key.clone(), progress.clone());
        tokio::spawn(pull::run(Arc::clone(&self.inner), key, tell));
        Ok(progress)
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
