//! Gives an image of a tenant more names.

use super::images::Images;
use super::layers::blocking;
use crate::error::Error;
use crate::reference::Reference;
use crate::store::image::Image;
use std::sync::Arc;

impl Images {
    /// Gives an image of the tenant more names, which other images of the tenant lose. No registry is
    /// asked for these names when a sandbox is created.
    ///
    /// # Errors
    /// [`Error::NotHere`], [`Error::TooManyNames`], [`Error::Disk`].
    pub async fn tag(
        &self,
        tenant: &str,
        image: &Reference,
        names: Vec<Reference>,
    ) -> Result<Arc<Image>, Error> {
        let store = Arc::clone(&self.inner.store);
        let tenant = tenant.to_owned();
        let image = image.clone();
        blocking(move || {
            let names: Vec<String> = names.iter().map(Reference::to_string).collect();
            store.tag(&tenant, &image, &names)
        })
        .await
    }
}
