//! What can be set of images.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that can be set.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where images lie.
    pub root: PathBuf,
    /// Whether an image that is not here may be pulled by naming it.
    pub pull: bool,
    /// Hosts that are asked in a registry's stead, in order, before itself.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Registries that may have an address which is not public, as `host` or `host:port`.
    pub registries: Vec<String>,
    /// A `config.json` of Docker's client; `None` where that client looks.
    pub credentials: Option<PathBuf>,
    /// The tenant whose images every tenant may use by their names.
    pub shared: Option<String>,
    /// What one image may come to.
    pub limits: Limits,
}

/// What one image may come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// All layers as they come, in MiB; an imported file too.
    pub compressed_mib: u64,
    /// All layers unpacked, in MiB.
    pub unpacked_mib: u64,
    /// Entries of one layer.
    pub entries: u64,
    /// A pull from beginning to end.
    pub pull: Duration,
    /// How long a registry may say nothing.
    pub idle: Duration,
    /// Free space of the disk below which nothing is unpacked, in MiB.
    pub floor_mib: u64,
}

impl Config {
    /// The defaults below a directory.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            pull: true,
            mirrors: BTreeMap::new(),
            registries: Vec::new(),
            credentials: None,
            shared: None,
            limits: Limits {
                compressed_mib: 8 * 1024,
                unpacked_mib: 24 * 1024,
                entries: 750_000,
                pull: Duration::from_secs(1800),
                idle: Duration::from_secs(30),
                floor_mib: 512,
            },
        }
    }
}
