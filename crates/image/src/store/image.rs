//! The record of an image.

use super::init_layer::BashSource;
use crate::overlay::user::User;
use crate::reference::Reference;
use crate::unpack::LayerStats;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The root file system of a sandbox, and how programs start in it. It is stored with the sandbox, so
/// that it does not change when a tag moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Paths of the layers below the image directory, the top layer first.
    pub layers: Vec<String>,
    /// Environment variables of every program.
    pub env: BTreeMap<String, String>,
    /// Working directory of programs; `None`: `/workspace`.
    pub cwd: Option<String>,
    /// The user that programs run as.
    pub user: User,
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
    /// When it was first recorded, in ms since 1970.
    pub pulled_at_ms: i64,
    /// The references that each tenant has for it.
    pub names: BTreeMap<String, BTreeSet<String>>,
    /// Those of `names` that were imported from an archive. They are never pulled from a registry.
    #[serde(default)]
    pub imported: BTreeMap<String, BTreeSet<String>>,
}

/// Where an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Registry,
    Archive,
}

impl Image {
    /// Whether the tenant imported the image under this reference. A digest matches any imported name of
    /// the same repository.
    pub(crate) fn imported(&self, tenant: &str, reference: &Reference) -> bool {
        let same = |name: &String| {
            *name == reference.to_string()
                || reference.digest().is_some() && same_repository(name, reference)
        };
        self.imported.get(tenant).is_some_and(|names| names.iter().any(same))
    }

    /// Removes a tenant's names. Returns whether it had any of them.
    pub(super) fn remove_names(&mut self, tenant: &str, names: &[String]) -> bool {
        let mut lost = false;
        for has in [&mut self.names, &mut self.imported] {
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
