//! The settings of images.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of images.
#[derive(Debug, Clone)]
pub struct Config {
    /// The image directory.
    pub root: PathBuf,
    /// Whether a sandbox may name an image that is not on the disk, which is then pulled.
    pub pull: bool,
    /// Mirrors of each registry, tried in order before the registry itself.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Registries that may have an address which is not public, as `host` or `host:port`.
    pub registries: Vec<String>,
    /// A `config.json` of Docker's client; `None` where that client looks.
    pub credentials: Option<PathBuf>,
    /// The tenant whose images every tenant may use by their names.
    pub shared: Option<String>,
    /// Limits of one image.
    pub limits: Limits,
}

/// Limits of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// All layers as they come, in MiB; an imported file too.
    pub compressed_mib: u64,
    /// All layers unpacked, in MiB.
    pub unpacked_mib: u64,
    /// Entries of one layer.
    pub entries: u64,
    /// Longest duration of a pull.
    pub pull: Duration,
    /// How long a registry may send nothing.
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
