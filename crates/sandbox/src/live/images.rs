//! Images that sandboxes are created from, and which sandbox uses which image.

use crate::{
    live::inner::Inner,
    model::{error::Error, ids::TenantId, record::Body},
};
use isolet_image::{Pin, Reference};
use std::collections::{HashMap, HashSet};

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
        let (image, pin) = self.images.resolve(tenant.as_str(), &body.image_resolved).await?;
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

/// What sandboxes are made of, those that are being made and removed too.
pub(crate) fn used(inner: &Inner) -> isolet_image::ImagesInUse {
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
    isolet_image::ImagesInUse { sandboxes: images, layers }
}
