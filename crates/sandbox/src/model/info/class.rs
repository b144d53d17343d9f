//! The class of a sandbox: whether it survives its node.

use serde::{Deserialize, Serialize};

/// Whether a sandbox of a fleet survives its node. It cannot change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxClass {
    /// Its files are only on its node. It keeps running while its node is cut off from the fleet.
    #[default]
    Node,
    /// Another node may take it over once its node has lost its lease, so the lease guard stops it
    /// before that.
    Store,
}

impl SandboxClass {
    /// The class that a word of the API names.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Node, Self::Store].into_iter().find(|class| class.word() == word)
    }

    /// The word for clients and records.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Store => "store",
        }
    }

    pub(crate) fn is_node(&self) -> bool {
        *self == Self::Node
    }
}
