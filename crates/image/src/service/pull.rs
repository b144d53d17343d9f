//! Pulls: fetch the manifest, the configuration and the layers, then record the image.
//!
//! In a fleet, other nodes are asked for layers before the registry is. The manifest and the
//! configuration always come from the registry, which so decides what a tag stands for and who may
//! read it. A create also finds images that the tenant has imported or made on another node.

use super::images::{Images, Inner, PullKey};
use super::layers::{LayerEvent, LayerSource, RequestedLayer};
use super::progress::{LayerProgress, Phase, Progress};
use super::record::ImageFacts;
use crate::error::Error;
use crate::image_config::ImageConfig;
use crate::manifest::{
    Blob, CONFIG_BYTES_MAX, MANIFEST_BYTES_MAX, Manifest, ResolvedManifest, check_digest,
};
use crate::platform::Platform;
use crate::reference::{Digest, Reference};
use crate::registry::client::Repository;
use crate::store::Pin;
use crate::store::image::{Image, Origin};
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// Parallel pulls of all tenants.
const PULLS_MAX: usize = 32;
/// Manifests and indexes that are fetched for one pull: an index may lead to another index.
const INDEXES_MAX: usize = 3;

impl Images {
    /// Returns the image of this name. If it is not on the disk, it is copied from another node, or pulled if
    /// pulls are enabled. The image is not removed while the pin is held.
    ///
    /// # Errors
    /// Those of [`Images::pull`]; [`Error::NotCopied`]; [`Error::NotHere`] if pulls are disabled; [`Error::ImportGone`] for an
    /// image that lacks a layer and has its name from the tenant.
    pub async fn resolve(&self, tenant: &str, text: &str) -> Result<(Arc<Image>, Pin), Error> {
        let reference = Reference::parse(text)?;
        let store = &self.inner.store;
        let shared = self.inner.config.shared.as_deref();
        let mut owners = [Some(tenant), shared].into_iter().flatten();
        let found = owners.find_map(|one| Some((one, store.find_and_pin(one, &reference)?)));
        if let Some((owner, (image, pin))) = found {
            let own = image.platform == Platform::own().to_string();
            match self.missing_layer(&image.root) {
                None if own => return Ok((image, pin)),
                // A registry may have a different image of this name.
                Some(layer) if image.is_own_name(owner, &reference) => {
                    return Err(Error::ImportGone { image: reference.to_string(), layer });
                }
                None if image.is_own_name(owner, &reference) => {
                    let platform = &image.platform;
                    return Err(Error::bad(format!("it is for the platform {platform}")));
                }
                _ => {}
            }
        }
        if !self.inner.config.pull && !self.has_peers() {
            return Err(Error::NotHere(reference.to_string()));
        }
        let tenant = tenant.to_owned();
        let platform = Platform::own();
        self.ended(PullKey { tenant, reference, platform, asks_nodes: true }).await
    }

    /// Pulls an image: fetches the layers that are not on the disk, and records it under this tenant's
    /// name.
    ///
    /// # Errors
    /// [`Error`]. Layers that were finished stay on the disk, for the next attempt.
    pub async fn pull(
        &self,
        tenant: &str,
        reference: Reference,
        platform: Platform,
    ) -> Result<(Arc<Image>, Pin), Error> {
        let tenant = tenant.to_owned();
        self.ended(PullKey { tenant, reference, platform, asks_nodes: false }).await
    }

    /// Waits for the end of a pull, which may be under way already.
    async fn ended(&self, key: PullKey) -> Result<(Arc<Image>, Pin), Error> {
        let mut progress = self.start(key)?;
        let fault = |_| Error::Disk("the pull ended with a panic".into());
        let end = progress.wait_for(|now| now.end.is_some()).await.map_err(fault)?.end.clone();
        end.unwrap_or_else(|| Err(Error::Disk("the pull ended with a panic".into())))
    }

    /// Starts a pull, or joins a running one for the same image and tenant. The pull continues after the
    /// receiver is dropped.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if too many pulls run.
    pub fn start_pull(
        &self,
        tenant: &str,
        reference: Reference,
        platform: Platform,
    ) -> Result<watch::Receiver<Progress>, Error> {
        let tenant = tenant.to_owned();
        self.start(PullKey { tenant, reference, platform, asks_nodes: false })
    }

    fn start(&self, key: PullKey) -> Result<watch::Receiver<Progress>, Error> {
        let mut pulls = self.inner.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(under_way) = pulls.get(&key) {
            return Ok(under_way.clone());
        }
        if pulls.len() >= PULLS_MAX {
            return Err(Error::large("pulls at once", PULLS_MAX.to_string()));
        }
        let (sender, progress) = watch::channel(Progress::default());
        pulls.insert(key.clone(), progress.clone());
        tokio::spawn(run(Arc::clone(&self.inner), key, sender));
        Ok(progress)
    }
}

/// Runs a pull to its end, and reports its progress to all clients that wait for it.
pub(crate) async fn run(inner: Arc<Inner>, key: PullKey, progress: watch::Sender<Progress>) {
    // However the pull ends, the next one of the same image starts again.
    struct Registration(Arc<Inner>, PullKey);
    impl Drop for Registration {
        fn drop(&mut self) {
            self.0.pulls.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
        }
    }
    let registration = Registration(Arc::clone(&inner), key);
    let begun = Instant::now();
    let limit = inner.config.limits.pull;
    let late = Error::TooLate { operation: "the pull", seconds: limit.as_secs() };
    let end =
        tokio::time::timeout(limit, found_or_pulled(&inner, &registration.1, &progress)).await;
    let end = end.unwrap_or(Err(late));
    let durations = match &end {
        Ok(Done { is_pull: false, .. }) => None,
        Ok(_) => Some(&inner.metrics.pulls),
        Err(_) => Some(&inner.metrics.failed_pulls),
    };
    if let Some(durations) = durations {
        durations.observe(begun.elapsed());
    }
    let end = end.map(|done| (done.image, done.pin));
    if let Err(error) = &end {
        tracing::info!(image = %registration.1.reference, tenant = registration.1.tenant, %error, "pull failed");
    }
    drop(registration);
    progress.send_modify(|now| now.end = Some(end));
}

/// The image of a pull.
struct Done {
    image: Arc<Image>,
    pin: Pin,
    /// Whether a registry was asked.
    is_pull: bool,
}

async fn found_or_pulled(
    inner: &Inner,
    key: &PullKey,
    progress: &watch::Sender<Progress>,
) -> Result<Done, Error> {
    if key.asks_nodes {
        let found = inner.image_of_peers(&key.tenant, &key.reference, progress).await?;
        if let Some((image, pin)) = found {
            return Ok(Done { image, pin, is_pull: false });
        }
        if !inner.config.pull {
            return Err(Error::NotHere(key.reference.to_string()));
        }
    }
    let (image, pin) = pull(inner, key, progress).await?;
    Ok(Done { image, pin, is_pull: true })
}

async fn pull(
    inner: &Inner,
    key: &PullKey,
    progress: &watch::Sender<Progress>,
) -> Result<(Arc<Image>, Pin), Error> {
    let PullKey { tenant, reference, platform, .. } = key;
    // Before the registry is contacted.
    inner.allowance(tenant).await?;
    let (repository, digest, manifest) = resolve_manifest(inner, reference, platform).await?;
    let bytes: u64 = manifest.layers.iter().map(|layer| layer.bytes).sum();
    if bytes > inner.config.limits.compressed_mib << 20 {
        let limit = format!("{} MiB", inner.config.limits.compressed_mib);
        return Err(Error::large("layers of the image", limit));
    }
    let config = manifest.config.digest.to_string();
    let text = repository.small_blob(&config, CONFIG_BYTES_MAX).await?;
    check_digest(&text, &manifest.config.digest, "its configuration")?;
    let config = ImageConfig::read(&text, manifest.layers.len(), platform)?;
    progress.send_modify(|now| {
        now.phase = Phase::Layers;
        let layer = |part: &Blob| LayerProgress::new(part.digest.to_string(), part.bytes);
        now.layers = manifest.layers.iter().map(layer).collect();
    });
    let holders = inner.holders(tenant, &digest, &config.diff_ids).await;
    let wanted: Vec<_> = std::iter::zip(&config.diff_ids, &manifest.layers)
        .map(|(id, part)| RequestedLayer {
            diff_id: id.clone(),
            source: LayerSource::Registry(&repository, part.clone()),
            holders: holders
                .iter()
                .filter(|holder| holder.layers.contains(id))
                .map(|holder| holder.node.clone())
                .collect(),
        })
        .collect();
    let on_progress = |index: usize, event: LayerEvent| {
        progress.send_modify(|now| now.note(index, event));
    };
    let ready = inner.layers(tenant, &wanted, &on_progress).await?;
    progress.send_modify(|now| now.phase = Phase::Finishing);
    let platform = platform.clone();
    let from = Origin::Registry;
    let digest_of = digest.clone();
    let about = ImageFacts { digest: digest_of, platform, bytes, from, sessions: None };
    let called = [reference.to_string()];
    let done = inner.record(tenant, &called, about, config, ready).await?;
    let layers_from_nodes = progress.borrow().layers_from_nodes();
    tracing::info!(image = %reference, tenant, %digest, bytes, layers_from_nodes, "image pulled");
    Ok(done)
}

/// Fetches the image's manifest from the first host that has it: mirrors, then the registry itself.
async fn resolve_manifest<'a>(
    inner: &'a Inner,
    reference: &Reference,
    platform: &Platform,
) -> Result<(Repository<'a>, Digest, Manifest), Error> {
    let mirrors = inner.config.mirrors.get(reference.registry());
    for host in mirrors.into_iter().flatten() {
        let repository = inner.registries.repository(reference, host);
        match manifest(&repository, reference, platform).await {
            Ok((digest, manifest)) => return Ok((repository, digest, manifest)),
            Err(error) => {
                tracing::info!(image = %reference, mirror = host, %error, "mirror failed")
            }
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
    let mut tag_or_digest = reference.tag_or_digest();
    for _ in 0..INDEXES_MAX {
        let text = repository.manifest(&tag_or_digest, MANIFEST_BYTES_MAX).await?;
        if let Some(expected) = Digest::parse(&tag_or_digest) {
            check_digest(&text, &expected, "its manifest")?;
        }
        match ResolvedManifest::read(&text, platform)? {
            ResolvedManifest::Manifest(manifest) => return Ok((Digest::of(&text), manifest)),
            ResolvedManifest::Index(part) => tag_or_digest = part.digest.to_string(),
        }
    }
    Err(Error::bad("its index leads only to further indexes"))
}
