//! One image, as its record has it.

use super::init_layer::Shell;
use crate::overlay::user::User;
use crate::reference::Reference;
use crate::unpack::Told;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What a sandbox's root is made of, and how programs begin in it. Kept with the sandbox: it does
/// not change when a tag moves on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Its layers, the top one first, by their places below the image directory.
    pub layers: Vec<String>,
    /// Environment of every program.
    pub env: BTreeMap<String, String>,
    /// Where programs begin; `None` for where they always do.
    pub cwd: Option<String>,
    /// As whom they run.
    pub user: User,
}

/// One image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Of its manifest.
    pub digest: String,
    /// `linux/amd64`.
    pub platform: String,
    /// As it came, all layers, in bytes.
    pub bytes: u64,
    /// Unpacked, in bytes.
    pub unpacked_bytes: u64,
    /// What was left out or changed of it, all layers.
    pub told: Told,
    /// Which bash it has.
    pub shell: Shell,
    /// What sandboxes are made of.
    pub root: Root,
    /// When it was pulled first, in ms since 1970.
    pub pulled_at_ms: i64,
    /// Tenants, and the references by which each has it.
    pub names: BTreeMap<String, BTreeSet<String>>,
    /// Those of the names that came with an archive: no registry is asked for them.
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
                || reference.digest().is_some() && same_place(name, reference)
        };
        self.imported.get(tenant).is_some_and(|names| names.iter().any(same))
    }

    /// Takes a tenant's names away; whether it had any of them.
    pub(super) fn lose(&mut self, tenant: &str, names: &[String]) -> bool {
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
pub(super) fn same_place(name: &str, reference: &Reference) -> bool {
    Reference::parse(name)
        .is_ok_and(|has| (has.registry(), has.path()) == (reference.registry(), reference.path()))
}
