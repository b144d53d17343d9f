//! A tenant's images: pulled, imported, listed and removed.

use crate::{
    live::{images::used, warm_pool},
    model::{blocking::blocking, error::Error, ids::TenantId, record::resolve},
    service::Service,
};
use isolet_image::{Image, Images, Platform, Progress, Reference, Spool};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

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

    /// How long an image may take to come: a pull, or the upload of an import.
    #[must_use]
    pub fn pull_timeout(&self) -> Duration {
        self.inner.config.images.limits.pull
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
        Ok(self.inner.images.start_pull(tenant.as_str(), reference, platform)?)
    }

    /// A tenant's images, newest first.
    #[must_use]
    pub fn images(&self, tenant: &TenantId) -> Vec<Arc<Image>> {
        self.inner.images.list(tenant.as_str())
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
        let inner = Arc::clone(&self.inner);
        let tenant = tenant.clone();
        warm_pool::forget_images(&inner).await;
        let work = move || {
            inner.images.remove(tenant.as_str(), &reference, || used(&inner))?;
            // What was of no other image goes now, not at some time.
            inner.images.collect_garbage(false, || used(&inner))
        };
        blocking(work).await?.map(drop).map_err(Error::from)
    }

    /// Removes what is not used: how many images and layers that were.
    ///
    /// # Errors
    /// [`Error::Image`].
    pub async fn collect_images(&self, all: bool) -> Result<(u64, u64), Error> {
        let inner = Arc::clone(&self.inner);
        warm_pool::forget_images(&inner).await;
        let work = move || inner.images.collect_garbage(all, || used(&inner));
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
