//! Records an image whose layers are on the disk.

use super::images::Inner;
use super::layers::{ReadyLayers, blocking};
use crate::disk::rooted::kind;
use crate::error::Error;
use crate::image_config::{self, ImageConfig, LABELS_BYTES_MAX, WORKSPACE_LABEL};
use crate::overlay::lookup::{DIRECTORY, Lookup, OverlayView, PathTarget, opaque};
use crate::overlay::user;
use crate::platform::Platform;
use crate::reference::Digest;
use crate::store::image::{HOST_LAYER, Image, Origin, Root, SavedSessions, WORKSPACE};
use crate::store::init_layer::BashSource;
use crate::store::{Pin, Store, layer};
use crate::unpack::LayerStats;
use bytes::Bytes;
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::AsFd as _;
use std::sync::Arc;

/// Facts about an image that its configuration does not contain.
pub(crate) struct ImageFacts {
    pub(crate) digest: Digest,
    pub(crate) platform: Platform,
    pub(crate) bytes: u64,
    pub(crate) from: Origin,
    /// The sessions of the image with the states of their shells.
    pub(crate) sessions: Option<Bytes>,
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
        let sessions = facts.sessions.clone();
        let layers: Vec<String> = names.iter().rev().map(|name| layer::tree(name)).collect();
        let image = blocking(move || inspect(&store, facts, stats, config, layers)).await?;
        let done = self.store.record(image, tenant, image_names, from, sessions.as_deref());
        drop(held);
        done
    }
}

/// What the image of a sandbox is made on.
pub(crate) enum BaseImage {
    /// The host's programs.
    Host,
    /// The root of the sandbox.
    Root(Root),
}

/// What the configuration of an image of a sandbox has instead of that of the sandbox's root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageChanges {
    /// Variables to add to the environment.
    pub env: BTreeMap<String, String>,
    /// The working directory; `None`: that of the root.
    pub cwd: Option<String>,
    /// The user as `USER` of an image names it; `None`: that of the root.
    pub user: Option<String>,
    /// The labels, at most [`LABELS_BYTES_MAX`] together.
    pub labels: BTreeMap<String, String>,
}

/// What an image of a sandbox has besides its layers.
pub(crate) struct Settings {
    pub(crate) changes: ImageChanges,
    /// Whether the new layer has a workspace.
    pub(crate) has_workspace: bool,
    pub(crate) sessions: Option<SavedSessions>,
}

/// Describes the image of a sandbox: the layer `new` on those of `base`.
pub(crate) fn inspect_commit(
    store: &Store,
    new: &str,
    stats: LayerStats,
    base: BaseImage,
    settings: Settings,
) -> Result<Image, Error> {
    let (base, on_host) = match base {
        BaseImage::Host => (Root::of_host(), true),
        BaseImage::Root(root) => {
            let on_host = root.is_on_host();
            (root, on_host)
        }
    };
    let mut layers = vec![layer::tree(new)];
    // A sandbox that changed nothing has the layer of its image. A layer is mounted once.
    let mut seen: HashSet<String> = layers.iter().cloned().collect();
    let below = base.layers.iter().filter(|path| path.starts_with("layers/"));
    layers.extend(below.filter(|path| seen.insert((*path).clone())).cloned());
    let ImageChanges { env: added, cwd, user: named_user, labels } = settings.changes;
    check_labels(&labels)?;
    let mut env = base.env;
    env.extend(added);
    let own_view = || OverlayView::open(&store.root, layers.iter());
    let (shell, user, lowest, topmost) = if on_host {
        let user = match named_user.as_deref() {
            None => base.user,
            Some(name) if is_root(name) => Root::of_host().user,
            Some(name) => user::of(name, &own_view()?)?,
        };
        (BashSource::Own, user, Some(HOST_LAYER.to_owned()), None)
    } else {
        let merged = own_view()?;
        let shell = BashSource::of(&merged)?;
        let own_user = format!("{}:{}", base.user.uid, base.user.gid);
        let user = user::of(named_user.as_deref().unwrap_or(&own_user), &merged)?;
        store.init_layers.make(&store.staging, shell)?;
        (shell, user, None, Some(shell.init_layer()))
    };
    let cwd = match cwd {
        None => base.cwd,
        Some(cwd) => {
            let whole = OverlayView::open(&store.root, topmost.iter().chain(&layers))?;
            let cwd = image_config::cwd(&cwd)?;
            check_workdir(&whole, &cwd)?;
            Some(cwd).filter(|cwd| cwd != "/")
        }
    };
    let of = |path: &String| path.strip_prefix("layers/")?.strip_suffix("/tree").map(str::to_owned);
    let sizes = layers.iter().filter_map(of).filter_map(|name| store.layer(&name));
    let unpacked_bytes = sizes.map(|stats| stats.bytes).fold(0, u64::saturating_add);
    let workspace = settings.has_workspace.then(|| format!("{}/{WORKSPACE}", layer::tree(new)));
    let root = Root {
        layers: topmost.into_iter().chain(layers).chain(lowest).collect(),
        env,
        cwd,
        user,
        workspace,
    };
    // What sandboxes from the image have decides its digest.
    let mut text = serde_json::to_vec(&root).map_err(|error| Error::Disk(error.to_string()))?;
    if let Some(sessions) = &settings.sessions {
        text.extend_from_slice(sessions.digest.as_bytes());
    }
    if !labels.is_empty() {
        let of_labels = serde_json::to_vec(&labels);
        text.extend(of_labels.map_err(|error| Error::Disk(error.to_string()))?);
    }
    Ok(Image {
        digest: Digest::of(&text).to_string(),
        platform: Platform::own().to_string(),
        bytes: unpacked_bytes,
        unpacked_bytes,
        stats,
        shell,
        root,
        sessions: settings.sessions,
        labels,
        pulled_at_ms: isolet_clock::now_ms(),
        names: BTreeMap::new(),
        imported: BTreeMap::new(),
        from_snapshot: BTreeMap::new(),
        tagged: BTreeMap::new(),
    })
}

/// Whether a text names root without an account.
fn is_root(user: &str) -> bool {
    matches!(user, "" | "root" | "0" | "0:0" | "root:root")
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Error> {
    let bytes: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > LABELS_BYTES_MAX {
        return Err(Error::large("its labels", format!("{LABELS_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn inspect(
    store: &Store,
    facts: ImageFacts,
    stats: LayerStats,
    config: ImageConfig,
    layers: Vec<String>,
) -> Result<Image, Error> {
    let merged = OverlayView::open(&store.root, layers.iter())?;
    let shell = BashSource::of(&merged)?;
    let user = user::of(&config.user, &merged)?;
    store.init_layers.make(&store.staging, shell)?;
    if let Some(cwd) = &config.cwd {
        let init_layer = shell.init_layer();
        let all = std::iter::once(&init_layer).chain(&layers);
        check_workdir(&OverlayView::open(&store.root, all)?, cwd)?;
    }
    let workspace = if config.workspace { workspace(store, &layers)? } else { None };
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
            workspace,
        },
        sessions: facts.sessions.as_deref().map(SavedSessions::of),
        labels: config.labels,
        pulled_at_ms: isolet_clock::now_ms(),
        names: BTreeMap::new(),
        imported: BTreeMap::new(),
        from_snapshot: BTreeMap::new(),
        tagged: BTreeMap::new(),
    })
}

/// The path of the workspace in the layers, the top one first, below the image directory.
///
/// # Errors
/// [`Error::Bad`] if several layers have a part of it: it is copied from one directory.
fn workspace(store: &Store, layers: &[String]) -> Result<Option<String>, Error> {
    let mut found: Option<String> = None;
    for layer in layers {
        let path = store.root.join(layer);
        let layer_directory = rustix::fs::open(&path, DIRECTORY, Mode::empty())?;
        match kind(layer_directory.as_fd(), WORKSPACE.as_bytes()) {
            Err(Errno::NOENT) => continue,
            Ok((FileType::Directory, _)) if found.is_some() => {
                return Err(Error::bad(format!(
                    "its label {WORKSPACE_LABEL} says that sandboxes start with its /workspace, which lies in several layers: build it with one layer (podman build --squash-all), or remove the label"
                )));
            }
            Ok((FileType::Directory, _)) => {}
            Ok(_) => break,
            Err(errno) => return Err(errno.into()),
        }
        found = Some(format!("{layer}/{WORKSPACE}"));
        let workspace = rustix::fs::openat(&layer_directory, WORKSPACE, DIRECTORY, Mode::empty())?;
        if opaque(workspace.as_fd()) {
            break;
        }
    }
    Ok(found)
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
