//! Records an image whose layers are on the disk.

use super::images::Inner;
use super::layers::{ReadyLayers, blocking};
use crate::error::Error;
use crate::image_config::ImageConfig;
use crate::overlay::lookup::{Lookup, OverlayView, PathTarget};
use crate::overlay::user;
use crate::platform::Platform;
use crate::reference::Digest;
use crate::store::image::{Image, Origin, Root};
use crate::store::init_layer::BashSource;
use crate::store::{Pin, Store, layer};
use crate::unpack::LayerStats;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Facts about an image that its configuration does not contain.
pub(crate) struct ImageFacts {
    pub(crate) digest: Digest,
    pub(crate) platform: Platform,
    pub(crate) bytes: u64,
    pub(crate) from: Origin,
}

impl Inner {
    /// Inspects an image whose layers are on the disk, and records it.
    pub(crate) async fn record(
        &self,
        tenant: &str,
        image_names: &[String],
        facts: ImageFacts,
        config: ImageConfig,
        ready: ReadyLayers,
    ) -> Result<(Arc<Image>, Pin), Error> {
        let ReadyLayers { names, stats, held } = ready;
        let store = Arc::clone(&self.store);
        let from = facts.from;
        let layers: Vec<String> = names.iter().rev().map(|name| layer::tree(name)).collect();
        let image = blocking(move || inspect(&store, facts, stats, config, layers)).await?;
        let done = self.store.record(image, tenant, image_names, from);
        drop(held);
        done
    }
}

fn inspect(
    store: &Store,
    facts: ImageFacts,
    stats: LayerStats,
    config: ImageConfig,
    layers: Vec<String>,
) -> Result<Image, Error> {
    let root = &store.root;
    let paths: Vec<_> = layers.iter().map(|layer| root.join(layer)).collect();
    let merged = OverlayView::open(paths.iter().map(std::path::PathBuf::as_path))?;
    let shell = BashSource::of(&merged)?;
    let user = user::of(&config.user, &merged)?;
    store.init_layers.make(&store.staging, shell)?;
    if let Some(cwd) = &config.cwd {
        let frame = root.join(shell.init_layer());
        let all = std::iter::once(&frame).chain(&paths);
        check_workdir(&OverlayView::open(all.map(std::path::PathBuf::as_path))?, cwd)?;
    }
    Ok(Image {
        digest: facts.digest.to_string(),
        platform: facts.platform.to_string(),
        bytes: facts.bytes,
        unpacked_bytes: stats.bytes,
        stats,
        shell,
        root: Root {
            layers: std::iter::once(shell.init_layer()).chain(layers).collect(),
            env: config.env,
            cwd: config.cwd.filter(|cwd| cwd != "/"),
            user,
        },
        pulled_at_ms: isolet_clock::now_ms(),
        names: BTreeMap::new(),
        imported: BTreeMap::new(),
    })
}

/// Refuses a working directory that no program can start in. One that does not exist is accepted: it is
/// created with each sandbox.
fn check_workdir(whole: &OverlayView, cwd: &str) -> Result<(), Error> {
    let bad = |problem: &str| Err(Error::bad(format!("its working directory {cwd} {problem}")));
    let Lookup { found, through } = whole.resolve(cwd)?;
    if reserved(&through) {
        return bad("is reserved for the sandbox, and nothing can be created there");
    }
    match found {
        PathTarget::Directory | PathTarget::Nothing => Ok(()),
        PathTarget::File(_) | PathTarget::Other => {
            bad("is not a directory, or leads through a file")
        }
        PathTarget::BrokenLink => {
            bad("leads through a dangling symlink, or through too many symlinks")
        }
    }
}

/// Whether a directory belongs to the kernel or the server, whatever the image has there.
fn reserved(through: &[Vec<u8>]) -> bool {
    let names: Vec<&[u8]> = through.iter().map(Vec::as_slice).collect();
    matches!(names.as_slice(), [b"proc" | b"sys" | b"dev", ..] | [b"etc", b"isolet", ..])
}
