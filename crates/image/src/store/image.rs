//! The record of an image.

use super::init_layer::BashSource;
use crate::error::Error;
use crate::overlay::user::User;
use crate::reference::{Digest, Reference};
use crate::unpack::LayerStats;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Stands for the host's programs among the layers of a root, as the lowest one.
pub(crate) const HOST_LAYER: &str = isolet_wire::launcher::HOST_LAYER;
/// The directory in a layer of changes of `/usr`, where the host's programs are.
pub(crate) const USR: &str = "usr";
/// The directory in a layer that holds a workspace.
pub(crate) const WORKSPACE: &str = isolet_wire::launcher::WORKSPACE;

/// How many names a tenant may have for one image. The record of the image is written as a whole
/// with each of them.
const NAMES_MAX: usize = 128;

/// The root file system of a sandbox, and how programs start in it. It is stored with the sandbox, so
/// that it does not change when a tag moves. Reading one refuses all paths but those that the server
/// gives: a record may be forged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedRoot")]
pub struct Root {
    /// Paths of the layers below the image directory, the top layer first. The lowest one may be
    /// [`HOST_LAYER`](isolet_wire::launcher::HOST_LAYER).
    pub layers: Vec<String>,
    /// Environment variables of every program.
    pub env: BTreeMap<String, String>,
    /// Working directory of programs; `None`: `/workspace`.
    pub cwd: Option<String>,
    /// The user that programs run as.
    pub user: User,
    /// The path of the first content of workspaces, below the image directory; `None`: they are
    /// empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// A root as it is stored.
#[derive(Deserialize)]
struct UncheckedRoot {
    layers: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    user: User,
    #[serde(default)]
    workspace: Option<String>,
}

impl TryFrom<UncheckedRoot> for Root {
    type Error = String;

    fn try_from(stored: UncheckedRoot) -> Result<Self, String> {
        let UncheckedRoot { layers, env, cwd, user, workspace } = stored;
        match isolet_wire::launcher::invalid_path(&layers, workspace.as_deref()) {
            Some(path) => Err(format!("a root has the invalid path {path:?}")),
            None => Ok(Self { layers, env, cwd, user, workspace }),
        }
    }
}

/// Reads a digest, which names files.
fn digest<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    let digest = Digest::parse(&text);
    digest.map(|digest| digest.to_string()).ok_or_else(|| D::Error::custom("an invalid digest"))
}

impl Root {
    /// Whether the lowest layer is the host's programs.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        self.layers.last().is_some_and(|layer| layer == HOST_LAYER)
    }

    /// The root of sandboxes on the host's programs, without changes.
    pub(crate) fn of_host() -> Self {
        let user = User::root();
        let layers = vec![HOST_LAYER.to_owned()];
        Self { layers, env: BTreeMap::new(), cwd: None, user, workspace: None }
    }
}

/// An image on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Digest of its manifest: `sha256:…`.
    #[serde(deserialize_with = "digest")]
    pub digest: String,
    /// Its platform, as in `linux/amd64`.
    pub platform: String,
    /// Compressed size of all layers, in bytes.
    pub bytes: u64,
    /// Uncompressed size of all layers, in bytes.
    pub unpacked_bytes: u64,
    /// Statistics of all layers together.
    pub stats: LayerStats,
    /// Where its bash comes from.
    pub shell: BashSource,
    /// The root file system of its sandboxes.
    pub root: Root,
    /// The sessions that its sandboxes start with; `None`: only the default session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SavedSessions>,
    /// The labels of its configuration, at most [`LABELS_BYTES_MAX`](crate::LABELS_BYTES_MAX).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// When it was first recorded, in ms since 1970.
    pub pulled_at_ms: i64,
    /// The references that each tenant has for it.
    pub names: BTreeMap<String, BTreeSet<String>>,
    /// Those of `names` that were imported from an archive. They are never pulled from a registry.
    pub imported: BTreeMap<String, BTreeSet<String>>,
    /// Those of `names` that were made from a snapshot. They are never pulled from a registry.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub from_snapshot: BTreeMap<String, BTreeSet<String>>,
    /// Those of `names` that a tenant gave to an image from a registry. They are never pulled: a
    /// registry may have a different image of such a name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tagged: BTreeMap<String, BTreeSet<String>>,
}

/// Sessions and the states of their shells, in a file of the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSessions {
    /// Digest of the file: `sha256:…`.
    pub digest: String,
    /// Size of the file, in bytes.
    pub bytes: u64,
}

impl SavedSessions {
    /// Describes the content of a file.
    pub(crate) fn of(content: &[u8]) -> Self {
        Self { digest: Digest::of(content).to_string(), bytes: content.len() as u64 }
    }
}

/// Where an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was pulled.
    Registry,
    /// It was imported.
    Archive,
    /// It was made from a snapshot.
    Snapshot,
}

impl Image {
    /// Where a tenant's names of the image come from. Of several origins, that which is not a registry.
    #[must_use]
    pub fn origin(&self, tenant: &str) -> Origin {
        if self.from_snapshot.contains_key(tenant) {
            Origin::Snapshot
        } else if self.imported.contains_key(tenant) {
            Origin::Archive
        } else {
            Origin::Registry
        }
    }

    /// Whether the name is the tenant's own: it imported or made the image under this reference, or
    /// tagged it. A digest matches any such name of the same repository.
    pub(crate) fn is_own_name(&self, tenant: &str, reference: &Reference) -> bool {
        let same = |name: &String| {
            *name == reference.to_string()
                || reference.digest().is_some() && same_repository(name, reference)
        };
        [&self.imported, &self.from_snapshot, &self.tagged]
            .iter()
            .any(|all| all.get(tenant).is_some_and(|names| names.iter().any(same)))
    }

    /// A copy with the names of one tenant only.
    #[must_use]
    pub fn for_tenant(&self, tenant: &str) -> Self {
        let only = |all: &BTreeMap<String, BTreeSet<String>>| {
            all.get_key_value(tenant).map(|(tenant, names)| (tenant.clone(), names.clone()))
        };
        Self {
            names: only(&self.names).into_iter().collect(),
            imported: only(&self.imported).into_iter().collect(),
            from_snapshot: only(&self.from_snapshot).into_iter().collect(),
            tagged: only(&self.tagged).into_iter().collect(),
            ..self.clone()
        }
    }

    /// Adds names of a tenant, at most [`NAMES_MAX`] in all.
    pub(super) fn add_names(&mut self, tenant: &str, names: &[String]) -> Result<(), Error> {
        let all = self.names.entry(tenant.to_owned()).or_default();
        all.extend(names.iter().cloned());
        if all.len() > NAMES_MAX {
            return Err(Error::TooManyNames { digest: self.digest.clone(), limit: NAMES_MAX });
        }
        Ok(())
    }

    /// Removes a tenant's names. Returns whether it had any of them.
    pub(super) fn remove_names(&mut self, tenant: &str, names: &[String]) -> bool {
        let mut lost = false;
        let all = [&mut self.names, &mut self.imported, &mut self.from_snapshot, &mut self.tagged];
        for has in all {
            if let Some(all) = has.get_mut(tenant) {
                let before = all.len();
                all.retain(|name| !names.contains(name));
                lost |= all.len() < before;
                if all.is_empty() {
                    has.remove(tenant);
                }
            }
        }
        lost
    }
}

/// Whether a name and a reference belong to the same repository.
pub(super) fn same_repository(name: &str, reference: &Reference) -> bool {
    Reference::parse(name)
        .is_ok_and(|has| (has.registry(), has.path()) == (reference.registry(), reference.path()))
}
