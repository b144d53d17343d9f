//! What the operator decides about webhooks.

use crate::model::address::AddressRules;
use crate::model::schedule::RetrySchedule;
use std::path::{Path, PathBuf};

/// Where the key is that the secrets of all webhooks are derived from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file of the operator.
    File(PathBuf),
    /// A file of the server, which is created when it is first needed.
    Own(PathBuf),
}

impl KeySource {
    /// Whether the key is in a file of the server, which other nodes do not have.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Own(path) => path,
        }
    }
}

/// What the operator decides about webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The key of all secrets.
    pub key: KeySource,
    /// The addresses that the server sends to.
    pub addresses: AddressRules,
    /// When deliveries are tried again.
    pub retry: RetrySchedule,
    /// The name of this node, in a fleet.
    pub node: Option<String>,
}

/// The file of the server's own key in the data directory.
const KEY: &str = "webhooks.key";

impl Settings {
    /// The default settings of a server with this data directory.
    #[must_use]
    pub fn new(data: &Path) -> Self {
        Self {
            key: KeySource::Own(data.join(KEY)),
            addresses: AddressRules::default(),
            retry: RetrySchedule::default(),
            node: None,
        }
    }
}
