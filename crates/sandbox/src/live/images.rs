//! The images of sandboxes, and which of them are in use.

pub(crate) mod workspace;

use crate::live::inner::Inner;
use crate::model::error::Error;
use crate::model::ids::TenantId;
use crate::model::record::RecordBody;
use crate::model::record::image_sessions::ImageSessions;
use isolet_image::{Pin, Reference};
use std::collections::{HashMap, HashSet};

impl Inner {
    /// Finds or pulls the image of a new sandbox, with the sessions that it has. The pin protects
    /// its layers until the record does.
    pub(crate) async fn image(
        &self,
        tenant: &TenantId,
        body: &mut RecordBody,
    ) -> Result<Option<(Pin, Option<ImageSessions>)>, Error> {
        if body.image_resolved == "host" {
            return Ok(None);
        }
        let (image, pin) = self.images.resolve(tenant.as_str(), &body.image_resolved).await?;
        let reference =
            Reference::parse(&body.image_resolved).map_err(isolet_image::Error::from)?;
        if let Some(digest) = isolet_image::Digest::parse(&image.digest) {
            body.image_resolved = reference.at(&digest).to_string();
        }
        body.root = Some(image.root.clone());
        let sessions = self.images.sessions(&image).await?;
        let read = sessions.map(|text| {
            ImageSessions::read(&text).map_err(|reason| {
                let reason = format!("its sessions cannot be used: {reason}");
                Error::from(isolet_image::Error::Bad(reason))
            })
        });
        Ok(Some((pin, read.transpose()?)))
    }

    /// Refuses a sandbox if a layer of its root is missing on the disk.
    pub(crate) fn layers_there(&self, body: &RecordBody) -> Result<(), Error> {
        let gone = body.root.as_ref().and_then(|root| self.images.missing_layer(root));
        match gone {
            Some(layer) => {
                let image = body.image_resolved.clone();
                Err(isolet_image::Error::LayerGone { image, layer }.into())
            }
            None => Ok(()),
        }
    }
}

/// The images in use, including those of sandboxes that are being created or removed.
pub(crate) fn used(inner: &Inner) -> isolet_image::ImagesInUse {
    let mut images: HashMap<String, usize> = HashMap::new();
    // Read before the entries, so that a sandbox taken from the pool in between is in at least one
    // of the lists.
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
    for snapshot in inner.snapshots.all() {
        let settings = &snapshot.body.settings;
        layers.extend(settings.root.iter().flat_map(|root| root.layers.iter().cloned()));
        if let Some((_, digest)) = settings.image_resolved.split_once('@') {
            *images.entry(digest.to_owned()).or_default() += 1;
        }
    }
    isolet_image::ImagesInUse { sandboxes: images, layers }
}
