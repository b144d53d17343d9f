//! The settings of the service.

use crate::model::ids::TenantId;
use isolet_wire::launcher::Limits;
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Everything that can be set.
#[derive(Debug, Clone)]
pub struct Config {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The launcher's binary.
    pub launcher: PathBuf,
    /// The agent's binary.
    pub agent: PathBuf,
    /// First uid of slot 0; slot n begins `n * 65536` above it.
    pub uid_base: u32,
    /// Name of the cgroup below which sandboxes get theirs.
    pub cgroup: String,
    /// Images from registries.
    pub images: isolet_image::Config,
    /// Image names that stand for another.
    pub aliases: BTreeMap<String, String>,
    /// Limits of a sandbox that names none.
    pub limits: Limits,
    /// The most that a sandbox may name.
    pub limits_max: Limits,
    /// Why this machine cannot limit a sandbox's disk, if so.
    pub no_disk: Option<String>,
    /// Free space of the data directory's disk, in MiB, below which nothing is created or uploaded;
    /// 0 for no floor.
    pub free_space_floor_mib: u64,
    /// Sandboxes at once of a tenant that has no entry in `tenants`.
    pub sandboxes_max: u32,
    /// Limits of single tenants.
    pub tenants: BTreeMap<TenantId, TenantLimits>,
    /// How long an agent keeps a stream waiting for a reader, in ms.
    pub stall_ms: u64,
    /// Size of the warm pool: sandboxes created in advance, at most [`crate::READY_MAX`].
    pub warm_pool_size: u32,
    /// How long after its last command a session ends that is to end so.
    pub session_idle: Duration,
    /// Seconds without use after which a sandbox falls asleep that names no other; 0 never.
    pub sleep_after_s: u64,
    /// How long recovery waits for all agents together.
    pub recover: Duration,
    /// Networks of sandboxes.
    pub network: crate::model::network::Settings,
}

/// What one tenant may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantLimits {
    /// Sandboxes at once.
    pub sandboxes_max: u32,
}

impl Config {
    /// The defaults on a data directory, with the two binaries in `programs`.
    #[must_use]
    pub fn new(data_dir: PathBuf, programs: &std::path::Path) -> Self {
        let jail = isolet_jail::Config::beside(&data_dir);
        Self {
            images: isolet_image::Config::new(data_dir.join("images")),
            data_dir,
            launcher: programs.join("isolet-launcher"),
            agent: programs.join("isolet-agent"),
            uid_base: isolet_jail::UID_BASE,
            cgroup: jail.as_ref().map_or_else(|_| "isolet".to_owned(), |jail| jail.cgroup.clone()),
            stall_ms: jail.map_or(60_000, |jail| jail.stall_ms),
            aliases: BTreeMap::new(),
            limits: Limits { memory_mib: 1024, cpu_millis: 1000, pids: 512, disk_mib: 0 },
            limits_max: Limits {
                memory_mib: 64 * 1024,
                cpu_millis: 64_000,
                pids: 16_384,
                disk_mib: 1024 * 1024,
            },
            no_disk: isolet_jail::no_disk(),
            free_space_floor_mib: 512,
            sandboxes_max: 10_000,
            tenants: BTreeMap::new(),
            warm_pool_size: 2,
            session_idle: Duration::from_secs(300),
            sleep_after_s: 600,
            recover: Duration::from_secs(10),
            network: crate::model::network::Settings::default(),
        }
    }

    /// How many sandboxes this tenant may have at once.
    #[must_use]
    pub fn sandboxes_max(&self, tenant: &TenantId) -> u32 {
        self.tenants.get(tenant).map_or(self.sandboxes_max, |t| t.sandboxes_max)
    }

    pub(crate) fn jail(&self) -> isolet_jail::Config {
        isolet_jail::Config {
            data_dir: self.data_dir.clone(),
            launcher: self.launcher.clone(),
            agent: self.agent.clone(),
            uid_base: self.uid_base,
            cgroup: self.cgroup.clone(),
            stall_ms: self.stall_ms,
        }
    }
}
