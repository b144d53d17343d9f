//! Pulls, imports, lists and removes a tenant's images.

mod uploads;

pub use uploads::UploadPermit;

use crate::live::images::used;
use crate::live::warm_pool;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::ids::TenantId;
use crate::model::record::image_sessions::ImageSessions;
use crate::model::record::resolve;
use crate::service::Service;
use bytes::Bytes;
use isolet_image::{
    Digest, HeldImage, HostTrees, Image, ImageArchive, ImagePeers, Images, LayerBody, Platform,
    Progress, Reference, Spool,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The images of a tenant.
impl Service {
    /// The image reference for a name, with the configured aliases applied as in a create.
    pub(super) fn meant(&self, text: &str) -> Result<Reference, Error> {
        let meant = resolve(&self.inner.config, text)?;
        if meant == "host" {
            let reason = format!(
                "{text:?} stands for this machine's own programs here, which are always there; for a registry's image give its whole name, as in docker.io/library/{text}"
            );
            return Err(Error::BadField { field: "image", reason });
        }
        Ok(Reference::parse(&meant).map_err(isolet_image::Error::from)?)
    }

    /// The reference for a name that an image gets: one with a tag, which the configuration does not
    /// give to another image.
    pub(super) fn new_name(&self, text: &str) -> Result<Reference, Error> {
        if let Some((name, image)) = configured(&self.inner.config.aliases, text) {
            return Err(Error::NameConfigured { name: name.clone(), image: image.clone() });
        }
        let name = self.meant(text)?;
        if name.digest().is_some() {
            let reason = "must have a tag, not a digest".to_owned();
            return Err(Error::BadField { field: "name", reason });
        }
        Ok(name)
    }

    /// The complete form of a name that an image gets.
    ///
    /// # Errors
    /// [`Error::Image`], [`Error::BadField`], [`Error::NameConfigured`].
    pub fn complete_name(&self, text: &str) -> Result<String, Error> {
        Ok(self.new_name(text)?.to_string())
    }

    /// Whether a name of an image stands for the programs of this machine.
    ///
    /// # Errors
    /// [`Error::Image`] if it is no name.
    pub fn names_host(&self, text: &str) -> Result<bool, Error> {
        Ok(resolve(&self.inner.config, text)? == "host")
    }

    /// A name of an image with its digest.
    ///
    /// # Errors
    /// [`Error::Image`].
    pub fn exact_name(&self, text: &str, image: &Image) -> Result<String, Error> {
        let reference = self.meant(text)?;
        let digest = Digest::parse(&image.digest);
        Ok(digest.map_or(reference.to_string(), |digest| reference.at(&digest).to_string()))
    }

    /// Refuses files of a tenant when the disk is nearly full, or its quota is used up.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::QuotaExceeded`].
    pub fn check_upload(&self, tenant: &TenantId) -> Result<(), Error> {
        self.inner.running()?;
        self.inner.space.check()?;
        self.inner.quotas.check(tenant)
    }

    /// Gives an image of a tenant more names, which other images of the tenant lose.
    ///
    /// # Errors
    /// [`Error::Image`], [`Error::BadField`], [`Error::NameConfigured`].
    pub async fn tag_image(
        &self,
        tenant: &TenantId,
        text: &str,
        names: &[String],
    ) -> Result<Arc<Image>, Error> {
        let reference = self.meant(text)?;
        let names = names.iter().map(|name| self.new_name(name)).collect::<Result<_, _>>()?;
        Ok(self.inner.images.tag(tenant.as_str(), &reference, names).await?)
    }

    /// Timeout of a pull or of the upload of an import.
    #[must_use]
    pub fn pull_timeout(&self) -> Duration {
        self.inner.config.images.limits.pull
    }

    /// Starts a pull or joins one in progress.
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

    /// The images of a tenant, newest first.
    #[must_use]
    pub fn images(&self, tenant: &TenantId) -> Vec<Arc<Image>> {
        self.inner.images.list(tenant.as_str())
    }

    /// The names of images that the operator has configured, each with the complete name of the image
    /// that it stands for, or `host`.
    #[must_use]
    pub fn image_aliases(&self) -> Vec<(String, String)> {
        let config = &self.inner.config;
        let complete = |image: &String| {
            // An alias is not followed twice: its target is a name of an image, or `host`.
            let reference = Reference::parse(image).ok().filter(|_| image != "host");
            reference.map_or_else(|| image.clone(), |reference| reference.to_string())
        };
        config.aliases.iter().map(|(name, image)| (name.clone(), complete(image))).collect()
    }

    /// The tenant whose images all tenants may use.
    #[must_use]
    pub fn shared_images(&self) -> Option<&str> {
        self.inner.config.images.shared.as_deref()
    }

    /// One image of a tenant.
    ///
    /// # Errors
    /// [`Error::Image`].
    pub fn find_image(&self, tenant: &TenantId, text: &str) -> Result<Arc<Image>, Error> {
        let reference = self.meant(text)?;
        let found = self.inner.images.find(tenant.as_str(), &reference);
        Ok(found.ok_or_else(|| isolet_image::Error::NotHere(reference.to_string()))?)
    }

    /// Packs an image of a tenant for the transfer to another machine. An image on the host's
    /// programs contains them.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Image`].
    pub async fn export_image(&self, tenant: &TenantId, text: &str) -> Result<ImageArchive, Error> {
        let reference = self.meant(text)?;
        self.inner.space.check()?;
        let data = self.inner.jail.data_dir.clone();
        let host = move || {
            let (skeleton, usr) = isolet_jail::host_trees(&data)?;
            Ok(HostTrees { skeleton, usr })
        };
        Ok(self.inner.images.export(tenant.as_str(), &reference, host).await?)
    }

    /// Removes a tenant's name of an image. The image itself is removed with its last name.
    ///
    /// # Errors
    /// [`Error::Image`] if the image does not exist or sandboxes use it.
    pub async fn remove_image(&self, tenant: &TenantId, text: &str) -> Result<(), Error> {
        let reference = self.meant(text)?;
        let inner = Arc::clone(&self.inner);
        let tenant = tenant.clone();
        warm_pool::forget_images(&inner).await;
        let work = move || {
            inner.images.remove(tenant.as_str(), &reference, || used(&inner))?;
            // Layers of no other image are removed now instead of later.
            inner.images.collect_garbage(false, || used(&inner))
        };
        blocking(work).await?.map(drop).map_err(Error::from)
    }

    /// Removes unused images and layers, and returns their numbers.
    ///
    /// # Errors
    /// [`Error::Image`].
    pub async fn collect_images(&self, all: bool) -> Result<(u64, u64), Error> {
        let inner = Arc::clone(&self.inner);
        warm_pool::forget_images(&inner).await;
        let work = move || inner.images.collect_garbage(all, || used(&inner));
        Ok(blocking(work).await??)
    }

    /// Starts to receive the archive of an image.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Image`].
    pub async fn spool_image(&self, tenant: &TenantId) -> Result<Spool, Error> {
        self.inner.space.check()?;
        Ok(self.inner.images.spool(tenant.as_str()).await?)
    }

    /// Records the image of a received archive.
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
        let check = |text: &[u8]| ImageSessions::read(text).map(drop);
        Ok(images.import(tenant.as_str(), spool, name, check).await?.0)
    }
}

/// The alias that a name would hide: the same text, or another text for the same complete name.
fn configured<'a>(
    aliases: &'a BTreeMap<String, String>,
    text: &str,
) -> Option<(&'a String, &'a String)> {
    let complete = Reference::parse(text).ok();
    let same = |alias: &str| complete.is_some() && Reference::parse(alias).ok() == complete;
    aliases.iter().find(|(alias, _)| *alias == text || same(alias))
}

/// What other nodes of a fleet ask for on behalf of a tenant.
impl Service {
    /// Names the other nodes, which are asked for layers and images from then on. Only the first call
    /// counts.
    pub fn set_image_peers(&self, peers: Arc<dyn ImagePeers>) {
        self.inner.images.set_peers(peers);
    }

    /// Which of these layers this server can send to another node, as indexes.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub async fn sendable_layers(
        &self,
        tenant: &TenantId,
        layers: Vec<String>,
    ) -> Result<Vec<usize>, Error> {
        let images = self.inner.images.clone();
        let tenant = tenant.clone();
        blocking(move || {
            let digests: Option<Vec<Digest>> =
                layers.iter().map(|text| Digest::parse(text)).collect();
            images.sendable_layers(tenant.as_str(), &digests.unwrap_or_default())
        })
        .await
    }

    /// The image that this server can send to another node under a name or digest.
    #[must_use]
    pub fn sendable_image(&self, tenant: &TenantId, reference: &str) -> Option<HeldImage> {
        let reference = Reference::parse(reference).ok()?;
        self.inner.images.sendable_image(tenant.as_str(), &reference)
    }

    /// An image without its layers, for another node.
    ///
    /// # Errors
    /// [`Error::Image`].
    pub async fn image_for_peer(&self, tenant: &TenantId, reference: &str) -> Result<Bytes, Error> {
        let reference = Reference::parse(reference).map_err(isolet_image::Error::from)?;
        Ok(self.inner.images.image_for_peer(tenant.as_str(), &reference).await?)
    }

    /// The archive of a layer, for another node.
    ///
    /// # Errors
    /// [`Error::Image`].
    pub fn layer_for_peer(&self, tenant: &TenantId, digest: &str) -> Result<LayerBody, Error> {
        let not_here = || isolet_image::Error::NotHere(digest.to_owned());
        let digest = Digest::parse(digest).ok_or_else(not_here)?;
        Ok(self.inner.images.layer_for_peer(tenant.as_str(), &digest)?)
    }
}
