//! Images that sandboxes are made of, and who uses which.

use crate::{
    Error, Service, TenantId,
    driver::blocking,
    ready,
    record::{Body, resolve},
    service::Inner,
};
use isolet_image::{Image, Images, Pin, Platform, Progress, Reference, Root, Spool};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use tokio::sync::watch;

/// A root as the launcher is told it.
pub(crate) fn layers(root: &Root) -> isolet_wire::launch::Root {
    isolet_wire::launch::Root {
        layers: root.layers.clone(),
        cwd: root.cwd.clone(),
        uid: root.user.uid,
        gid: root.user.gid,
    }
}

impl Inner {
    /// Finds the image of a planned sandbox, or pulls it. Its layers stay while the pin is held;
    /// from then on the record holds them.
    pub(crate) async fn image(
        &self,
        tenant: &TenantId,
        body: &mut Body,
    ) -> Result<Option<Pin>, Error> {
        if body.image_resolved == "host" {
            return Ok(None);
        }
        let (image, pin) = self.images.reach(tenant.as_str(), &body.image_resolved).await?;
        let reference =
            Reference::parse(&body.image_resolved).map_err(isolet_image::Error::from)?;
        if let Some(digest) = isolet_image::Digest::parse(&image.digest) {
            body.image_resolved = reference.at(&digest).to_string();
        }
        body.root = Some(image.root.clone());
        Ok(Some(pin))
    }

    /// Refused where a layer of a sandbox's root is gone from the disk.
    pub(crate) fn layers_there(&self, body: &Body) -> Result<(), Error> {
        let gone = body.root.as_ref().and_then(|root| self.images.gone(root));
        match gone {
            Some(layer) => {
                let image = body.image_resolved.clone();
                Err(isolet_image::Error::LayerGone { image, layer }.into())
            }
            None => Ok(()),
        }
    }
}

/// What sandboxes are made of, those that are being made and removed too.
fn used(inner: &Inner) -> isolet_image::Used {
    let mut images: HashMap<String, usize> = HashMap::new();
    // Before the entries: one that is taken meanwhile is in either.
    let ready = inner.ready.roots().into_iter();
    let mut layers: HashSet<String> = ready.flat_map(|root| root.layers).collect();
    for entry in &inner.registry.all() {
        let record = entry.view().record;
        if let Some(root) = &record.body.root {
            layers.extend(root.layers.iter().cloned());
            if let Some((_, digest)) = record.body.image_resolved.split_once('@') {
                *images.entry(digest.to_owned()).or_default() += 1;
            }
        }
    }
    (images, layers)
}

/// A tenant's images.
impl Service {
    /// The image that a name leads to, as in a create: aliases of the configuration count.
    fn meant(&self, text: &str) -> Result<Reference, Error> {
        let meant = resolve(&self.inner.config, text)?;
        if meant == "host" {
            let reason = format!(
                "{text:?} stands for this machine's own programs here, which are always there; for a registry's image give its whole name, as in docker.io/library/{text}"
            );
            return Err(Error::BadField { field: "image", reason });
        }
        Ok(Reference::parse(&meant).map_err(isolet_image::Error::from)?)
    }

    /// Begins a pull, or joins the one that is under way.
    ///
    /// # Errors
    /// [`Error::Image`].
    pub fn pull(
        &self,
        tenant: &TenantId,
        text: &str,
        platform: Platform,
    ) -> Result<watch::Receiver<Progress>, Error> {
        let reference = self.meant(text)?;
        self.inner.space.check()?;
        Ok(self.inner.images.follow(tenant.as_str(), reference, platform)?)
    }

    /// A tenant's images, newest first.
    #[must_use]
    pub fn images(&self, tenant: &TenantId) -> Vec<Arc<Image>> {
        self.inner.images.of(tenant.as_str())
    }

    /// One of them.
    ///
    /// # Errors
    /// [`Error::Image`].
    pub fn find_image(&self, tenant: &TenantId, text: &str) -> Result<Arc<Image>, Error> {
        let reference = self.meant(text)?;
        let found = self.inner.images.find(tenant.as_str(), &reference);
        Ok(found.ok_or_else(|| isolet_image::Error::NotHere(reference.to_string()))?)
    }

    /// Takes a tenant's name of an image away; the image goes with its last name.
    ///
    /// # Errors
    /// [`Error::Image`]: not here, or used by sandboxes.
    pub async fn remove_image(&self, tenant: &TenantId, text: &str) -> Result<(), Error> {
        let reference = self.meant(text)?;
        let (inner, tenant) = (Arc::clone(&self.inner), tenant.clone());
        ready::forget_images(&inner).await;
        let work = move || {
            inner.images.remove(tenant.as_str(), &reference, || used(&inner))?;
            // What was of no other image goes now, not at some time.
            inner.images.collect(false, || used(&inner))
        };
        blocking(work).await?.map(drop).map_err(Error::from)
    }

    /// Removes what is not used: how many images and layers that were.
    ///
    /// # Errors
    /// [`Error::Image`].
    pub async fn collect_images(&self, all: bool) -> Result<(u64, u64), Error> {
        let inner = Arc::clone(&self.inner);
        ready::forget_images(&inner).await;
        let work = move || inner.images.collect(all, || used(&inner));
        Ok(blocking(work).await??)
    }

    /// Begins to take an archive of an image.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Image`].
    pub async fn spool_image(&self, tenant: &TenantId) -> Result<Spool, Error> {
        self.inner.space.check()?;
        Ok(self.inner.images.spool(tenant.as_str()).await?)
    }

    /// Records the image of an archive.
    ///
    /// # Errors
    /// [`Error::Image`].
    pub async fn import_image(
        &self,
        tenant: &TenantId,
        spool: Spool,
        name: Option<&str>,
    ) -> Result<Arc<Image>, Error> {
        let name = name.map(Reference::parse).transpose().map_err(isolet_image::Error::from)?;
        let images: Images = self.inner.images.clone();
        Ok(images.import(tenant.as_str(), spool, name).await?.0)
    }
}
