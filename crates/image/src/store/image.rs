//! The record of an image.

use super::init_layer::BashSource;
use crate::overlay::user::User;
use crate::reference::{Digest, Reference};
use crate::unpack::LayerStats;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Stands for the host's programs among the layers of a root, as the lowest one.
pub(crate) const HOST_LAYER: &str = isolet_wire::launcher::HOST_LAYER;
/// The directory in a layer of changes of `/usr`, where the host's programs are.
pub(crate) const USR: &str = "usr";
/// The directory in a layer that holds a workspace.
pub(crate) const WORKSPACE: &str = "workspace";

/// The root file system of a sandbox, and how programs start in it. It is stored with the sandbox, so
/// that it does not change when a tag moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

impl Root {
    /// Whether the lowest layer is the host's programs.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        self.layers.last().is_some_and(|layer| layer == HOST_LAYER)
    }

    /// The root of sandboxes on the host's programs, without changes.
    pub(crate) fn of_host() -> Self {
        let user = User { uid: 0, gid: 0, name: "root".to_owned(), home: "/root".to_owned() };
        let layers = vec![HOST_LAYER.to_owned()];
        Self { layers, env: BTreeMap::new(), cwd: None, user, workspace: None }
    }
}

/// An image on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Digest of its manifest: `sha256:…`.
    pub digest: String,
    /// Its platform, as in `linux/amd64`.
    pub platform: String,
    /// Compressed size of all layers, in bytes.
    pub bytes: u64,
    /// Uncompressed size of all layers, in bytes.
    pub unpacked_bytes: u64,
    /// Statistics of all layers together.
    #[serde(rename = "told")]
    pub stats: LayerStats,
    /// Where its bash comes from.
    pub shell: BashSource,
    /// The root file system of its sandboxes.
    pub root: Root,
    /// The sessions that its sandboxes start with; `None`: only the default session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SavedSessions>,
    /// When it was first recorded, in ms since 1970.
    pub pulled_at_ms: i64,
    /// The references that each tenant has for it.
    pub names: BTreeMap<String, BTreeSet<String>>,
    /// Those of `names` that were imported from an archive. They are never pulled from a registry.
    #[serde(default)]
    pub imported: BTreeMap<String, BTreeSet<String>>,
    /// Those of `names` that were made from a snapshot. They are never pulled from a registry.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub from_snapshot: BTreeMap<String, BTreeSet<String>>,
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

    /// Whether the tenant imported or made the image under this reference. A digest matches any imported name of
    /// the same repository.
    pub(crate) fn imported(&self, tenant: &str, reference: &Reference) -> bool {
        let same = |name: &String| {
            *name == reference.to_string()
                || reference.digest().is_some() && same_repository(name, reference)
        };
        [&self.imported, &self.from_snapshot]
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
            ..self.clone()
        }
    }

    /// Removes a tenant's names. Returns whether it had any of them.
    pub(super) fn remove_names(&mut self, tenant: &str, names: &[String]) -> bool {
        let mut lost = false;
        for has in [&mut self.names, &mut self.imported, &mut self.from_snapshot] {
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
