//! Records an image whose layers are on the disk.

use super::images::Inner;
use super::layers::{Ready, blocking};
use crate::error::Error;
use crate::manifest::{Config, Platform};
use crate::overlay::lookup::{Found, Merged, Resolved};
use crate::overlay::user;
use crate::reference::Digest;
use crate::store::image::{Image, Origin, Root};
use crate::store::init_layer::Shell;
use crate::store::{Pin, Store, layer};
use crate::unpack::Told;
use std::collections::BTreeMap;
use std::sync::Arc;

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
        let layers: Vec<String> = names.iter().rev().map(|name| layer::tree(name)).collect();
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
    store.init_layers.make(&store.staging, shell)?;
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
