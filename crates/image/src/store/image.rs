//! One image, as its record has it.

use super::init_layer::BashSource;
use crate::overlay::user::User;
use crate::reference::Reference;
use crate::unpack::LayerStats;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The root file system of a sandbox, and how programs start in it. Stored with the sandbox: it does not
/// change when a tag moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Its layers, the top one first, by their places below the image directory.
    pub layers: Vec<String>,
    /// Environment of every program.
    pub env: BTreeMap<String, String>,
    /// Working directory of programs; `None`: the default.
    pub cwd: Option<String>,
    /// The user that they run as.
    pub user: User,
}

/// One image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Of its manifest.
    pub digest: String,
    /// `linux/amd64`.
    pub platform: String,
    /// Compressed size of all layers, in bytes.
    pub bytes: u64,
    /// Uncompressed size of all layers, in bytes.
    pub unpacked_bytes: u64,
    /// Statistics of all layers together.
    #[serde(rename = "told")]
    pub stats: LayerStats,
    /// Which bash it has.
    pub shell: BashSource,
    /// What sandboxes are made of.
    pub root: Root,
    /// When it was pulled first, in ms since 1970.
    pub pulled_at_ms: i64,
    /// Tenants, and the references by which each has it.
    pub names: BTreeMap<String, BTreeSet<String>>,
    /// Those of the names that were imported from an archive: they are not pulled from a registry.
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
    /// Whether what a tenant calls so came with an archive. By its digest it may have another name.
    pub(crate) fn imported(&self, tenant: &str, reference: &Reference) -> bool {
        let same = |name: &String| {
            *name == reference.to_string()
                || reference.digest().is_some() && same_repository(name, reference)
        };
        self.imported.get(tenant).is_some_and(|names| names.iter().any(same))
    }

    /// Takes a tenant's names away; whether it had any of them.
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

/// Whether a name and a reference are of the same repository.
pub(super) fn same_repository(name: &str, reference: &Reference) -> bool {
    Reference::parse(name)
        .is_ok_and(|has| (has.registry(), has.path()) == (reference.registry(), reference.path()))
}
