//! One pull: manifest, configuration, layers, record.

use super::images::{Flight, Images, Inner};
use super::layers::{Source, Wanted};
use super::progress::{LayerProgress, Phase, Progress};
use super::record::About;
use crate::error::Error;
use crate::manifest::{
    CONFIG_BYTES_MAX, Config, MANIFEST_BYTES_MAX, Manifest, Part, Platform, Said, same,
};
use crate::reference::{Digest, Reference};
use crate::registry::client::Repository;
use crate::store::Pin;
use crate::store::image::{Image, Origin};
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;

/// Pulls at once, of all tenants.
const PULLS_MAX: usize = 32;
/// Indexes that lead to one another.
const INDEXES_MAX: usize = 3;

impl Images {
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
        tokio::spawn(run(Arc::clone(&self.inner), key, tell));
        Ok(progress)
    }
}

/// Runs a pull to its end, which everybody who follows it is told.
pub(crate) async fn run(inner: Arc<Inner>, key: Flight, tell: watch::Sender<Progress>) {
    // Whatever becomes of it, the next pull of the same is another.
    struct Over(Arc<Inner>, Flight);
    impl Drop for Over {
        fn drop(&mut self) {
            self.0.flights.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
        }
    }
    let over = Over(Arc::clone(&inner), key);
    let limit = inner.config.limits.pull;
    let late = Error::TooLate { what: "the pull", seconds: limit.as_secs() };
    let end = tokio::time::timeout(limit, pull(&inner, &over.1, &tell)).await;
    let end = end.unwrap_or(Err(late));
    if let Err(error) = &end {
        tracing::info!(image = %over.1.1, tenant = over.1.0, %error, "not pulled");
    }
    drop(over);
    tell.send_modify(|now| now.end = Some(end));
}

async fn pull(
    inner: &Inner,
    (tenant, reference, platform): &Flight,
    tell: &watch::Sender<Progress>,
) -> Result<(Arc<Image>, Pin), Error> {
    let (repository, digest, manifest) = resolve(inner, reference, platform).await?;
    let bytes: u64 = manifest.layers.iter().map(|layer| layer.bytes).sum();
    if bytes > inner.config.limits.compressed_mib << 20 {
        let limit = format!("{} MiB", inner.config.limits.compressed_mib);
        return Err(Error::large("layers of the image", limit));
    }
    let config = manifest.config.digest.to_string();
    let text = repository.small(&config, CONFIG_BYTES_MAX).await?;
    same(&text, &manifest.config.digest, "its configuration")?;
    let config = Config::read(&text, manifest.layers.len(), platform)?;
    tell.send_modify(|now| {
        now.phase = Phase::Layers;
        let layer = |part: &Part| LayerProgress {
            digest: part.digest.to_string(),
            done: 0,
            total: part.bytes,
            ready: false,
        };
        now.layers = manifest.layers.iter().map(layer).collect();
    });
    let wanted: Vec<_> = std::iter::zip(&config.diff_ids, &manifest.layers)
        .map(|(id, part)| Wanted {
            diff_id: id.clone(),
            source: Source::Registry(&repository, part.clone()),
        })
        .collect();
    let told = |index: usize, done: Option<u64>| {
        tell.send_modify(|now| match done {
            Some(done) => now.layers[index].done = done,
            None => now.layers[index].ready = true,
        });
    };
    let ready = inner.layers(tenant, &wanted, &told).await?;
    tell.send_modify(|now| now.phase = Phase::Finishing);
    let (platform, from) = (platform.clone(), Origin::Registry);
    let about = About { digest: digest.clone(), platform, bytes, from };
    let called = [reference.to_string()];
    let done = inner.record(tenant, &called, about, config, ready).await?;
    tracing::info!(image = %reference, tenant, %digest, bytes, "pulled");
    Ok(done)
}

/// The image's manifest, at the first host that has it: mirrors, then the registry itself.
async fn resolve<'a>(
    inner: &'a Inner,
    reference: &Reference,
    platform: &Platform,
) -> Result<(Repository<'a>, Digest, Manifest), Error> {
    let mirrors = inner.config.mirrors.get(reference.registry());
    for host in mirrors.into_iter().flatten() {
        let repository = inner.registries.repository(reference, host);
        match manifest(&repository, reference, platform).await {
            Ok((digest, manifest)) => return Ok((repository, digest, manifest)),
            Err(error) => tracing::info!(image = %reference, mirror = host, %error, "not there"),
        }
    }
    let repository = inner.registries.repository(reference, reference.host());
    let (digest, manifest) = manifest(&repository, reference, platform).await?;
    Ok((repository, digest, manifest))
}

async fn manifest(
    repository: &Repository<'_>,
    reference: &Reference,
    platform: &Platform,
) -> Result<(Digest, Manifest), Error> {
    let mut which = reference.which();
    for _ in 0..INDEXES_MAX {
        let text = repository.manifest(&which, MANIFEST_BYTES_MAX).await?;
        if let Some(said) = Digest::parse(&which) {
            same(&text, &said, "its manifest")?;
        }
        match Said::read(&text, platform)? {
            Said::Manifest(manifest) => return Ok((Digest::of(&text), manifest)),
            Said::Further(part) => which = part.digest.to_string(),
        }
    }
    Err(Error::bad("its index leads from one to the next"))
}
