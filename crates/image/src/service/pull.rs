//! One pull: manifest, configuration, layers, record.

use crate::{
    Error, Flight, Image, Inner, LayerProgress, Phase, Pin, Platform, Progress, Root,
    frame::{self, Shell},
    layers::{Ready, Source, Wanted, blocking},
    manifest::{CONFIG_BYTES_MAX, Config, MANIFEST_BYTES_MAX, Manifest, Said},
    merged::{Found, Merged, Resolved},
    reference::{Digest, Reference},
    registry::Repository,
    store::{self, Origin, Store},
    unpack::Told,
    user,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;

/// Indexes that lead to one another.
const INDEXES_MAX: usize = 3;

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
        let layer = |part: &crate::manifest::Part| LayerProgress {
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

pub(crate) fn same(text: &Bytes, said: &Digest, what: &str) -> Result<(), Error> {
    let is = Digest::of(text);
    if is == *said { Ok(()) } else { Err(Error::bad(format!("{what} is not {said} but {is}"))) }
}

/// What is known of an image beside its configuration.
pub(crate) struct About {
    pub(crate) digest: Digest,
    pub(crate) platform: Platform,
    pub(crate) bytes: u64,
    pub(crate) from: Origin,
}

impl Inner {
    /// Looks at an image whose layers are here, and records it.
    pub(crate) async fn record(
        &self,
        tenant: &str,
        called: &[String],
        about: About,
        config: Config,
        ready: Ready,
    ) -> Result<(Arc<Image>, Pin), Error> {
        let Ready { names, told, held } = ready;
        let (store, from) = (Arc::clone(&self.store), about.from);
        let layers: Vec<String> = names.iter().rev().map(|name| store::tree(name)).collect();
        let image = blocking(move || look(&store, about, told, config, layers)).await?;
        let done = self.store.put(image, tenant, called, from);
        drop(held);
        done
    }
}

fn look(
    store: &Store,
    about: About,
    told: Told,
    config: Config,
    layers: Vec<String>,
) -> Result<Image, Error> {
    let root = &store.root;
    let paths: Vec<_> = layers.iter().map(|layer| root.join(layer)).collect();
    let merged = Merged::open(paths.iter().map(std::path::PathBuf::as_path))?;
    let shell = Shell::of(&merged)?;
    let user = user::of(&config.user, &merged)?;
    frame::make(store, shell)?;
    if let Some(cwd) = &config.cwd {
        let frame = root.join(shell.frame());
        let all = std::iter::once(&frame).chain(&paths);
        begins(&Merged::open(all.map(std::path::PathBuf::as_path))?, cwd)?;
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Ok(Image {
        digest: about.digest.to_string(),
        platform: about.platform.to_string(),
        bytes: about.bytes,
        unpacked_bytes: told.bytes,
        told,
        shell,
        root: Root {
            layers: std::iter::once(shell.frame()).chain(layers).collect(),
            env: config.env,
            cwd: config.cwd.filter(|cwd| cwd != "/"),
            user,
        },
        pulled_at_ms: since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)),
        names: BTreeMap::new(),
        imported: BTreeMap::new(),
    })
}

/// Refuses what no program can begin in. What does not exist is made when a sandbox is, as far as it
/// lies in a place of the image.
fn begins(whole: &Merged, cwd: &str) -> Result<(), Error> {
    let bad = |why: &str| Err(Error::bad(format!("its WorkingDir {cwd} {why}")));
    let Resolved { found, through } = whole.resolve(cwd)?;
    if reserved(&through) {
        return bad("is one of the sandbox's own places, where nothing can be made");
    }
    match found {
        Found::Directory | Found::Nothing => Ok(()),
        Found::File(_) | Found::Other => bad("is no directory, or leads through something else"),
        Found::Dangling => bad("leads through a link to nothing, or through too many"),
    }
}

/// Whether a directory is the kernel's or the server's, whatever an image has there.
fn reserved(through: &[Vec<u8>]) -> bool {
    let names: Vec<&[u8]> = through.iter().map(Vec::as_slice).collect();
    matches!(names.as_slice(), [b"proc" | b"sys" | b"dev", ..] | [b"etc", b"isolet", ..])
}
