//! The trees and files that a snapshot consists of.

use crate::files::owner_ids::OwnerIds;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Maximum number of components of a root's name.
const COMPONENTS_MAX: usize = 4;
/// Maximum length of a component, in bytes.
const COMPONENT_BYTES_MAX: usize = 64;

/// A tree or a file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Its path below the directory of the snapshot, such as `root/upper`.
    pub name: String,
    /// What it is.
    pub kind: RootKind,
}

/// What a root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RootKind {
    /// A directory with everything below it.
    Tree,
    /// A file of the server, such as the image of a disk.
    File,
}

/// A root on this machine.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name and kind.
    pub root: Root,
    /// Where it is.
    pub path: PathBuf,
    /// Which owners its files have.
    pub ids: OwnerIds,
}

impl Root {
    /// Whether the name consists of plain components: letters, digits, `.`, `_` and `-`, none that
    /// begins with a dot.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let component = |text: &str| {
            !text.is_empty()
                && text.len() <= COMPONENT_BYTES_MAX
                && !text.starts_with('.')
                && text.bytes().all(plain)
        };
        self.name.split('/').count() <= COMPONENTS_MAX && self.name.split('/').all(component)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_roots_stay_below_the_snapshot() {
        let valid = |name: &str| Root { name: name.into(), kind: RootKind::Tree }.is_valid();
        assert!(["disk.ext4", "root/upper", "root/layers/0", "workspace"].into_iter().all(valid));
        for name in ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", ".links", "a\0", "a/b/c/d/e"] {
            assert!(!valid(name), "{name:?}");
        }
    }
}
