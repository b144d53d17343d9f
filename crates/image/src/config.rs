//! Configuration of the image store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Configuration of [`Images`](crate::Images), from the section `[images]`.
#[derive(Debug, Clone)]
pub struct Config {
    /// The image directory: `DATA/images`.
    pub root: PathBuf,
    /// Whether the create of a sandbox may pull an image that is not on the disk.
    pub pull: bool,
    /// Mirrors of each registry, tried in order before the registry itself.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Registries that may have an address which is not public, as `host` or `host:port`.
    pub registries: Vec<String>,
    /// A `config.json` of the Docker client; `None`: the one in that client's default place.
    pub credentials: Option<PathBuf>,
    /// The tenant whose images all tenants may use by their names.
    pub shared: Option<String>,
    /// Limits of one image.
    pub limits: Limits,
    /// Limits of each tenant's images together.
    pub quotas: Quotas,
}

/// Limits on the unpacked size of all images of a tenant, in MiB; 0: no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quotas {
    /// For tenants that are not in `tenants`.
    pub default_mib: u64,
    /// For tenants with a limit of their own, by tenant.
    pub tenants: BTreeMap<String, u64>,
}

impl Quotas {
    /// The quota of a tenant in bytes; `None`: no limit.
    #[must_use]
    pub fn bytes_of(&self, tenant: &str) -> Option<u64> {
        let mib = self.tenants.get(tenant).copied().unwrap_or(self.default_mib);
        (mib > 0).then(|| mib.saturating_mul(1 << 20))
    }
}

/// Limits of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size of all layers as the registry stores them, or of an imported archive, in MiB.
    pub compressed_mib: u64,
    /// Size of all unpacked layers, in MiB.
    pub unpacked_mib: u64,
    /// Number of entries of one layer.
    pub entries: u64,
    /// Maximum duration of a pull.
    pub pull: Duration,
    /// How long a registry may send nothing during a download.
    pub idle: Duration,
    /// Minimum free space of the disk, in MiB; below it nothing is unpacked.
    pub floor_mib: u64,
}

impl Config {
    /// The defaults, with this image directory.
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
            quotas: Quotas::default(),
        }
    }
}
