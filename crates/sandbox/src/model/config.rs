//! The configuration of the service.

mod limits_digest;

use crate::model::ids::TenantId;
use isolet_wire::launcher::Limits;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The configuration of the service, set by the operator.
///
/// More than 12 fields: one for each setting.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory that holds all state.
    pub data_dir: PathBuf,
    /// Path of the launcher's binary.
    pub launcher: PathBuf,
    /// Path of the agent's binary.
    pub agent: PathBuf,
    /// First uid of slot 0; slot n starts at `uid_base + n * 65536`.
    pub uid_base: u32,
    /// Name of the cgroup that contains the cgroups of all sandboxes.
    pub cgroup: String,
    /// Settings for images from registries.
    pub images: isolet_image::Config,
    /// Image names that stand for another image.
    pub aliases: BTreeMap<String, String>,
    /// Default limits of a sandbox.
    pub limits: Limits,
    /// Maximum limits that a client may request.
    pub limits_max: Limits,
    /// The reason why this machine cannot limit the size of a sandbox's disk, if there is one.
    pub no_disk: Option<String>,
    /// Free space of the data directory's disk, in MiB, below which the server refuses to create
    /// sandboxes and to accept uploads; 0 means no floor.
    pub free_space_floor_mib: u64,
    /// Default limit on the number of sandboxes of one tenant.
    pub sandboxes_max: u32,
    /// Quota of the files of a tenant's sandboxes, in MiB; 0 means no quota.
    pub disk_quota_mib: u64,
    /// Limits of single tenants, which override the defaults.
    pub tenants: BTreeMap<TenantId, TenantLimits>,
    /// How long an agent blocks a program's output while a client does not read, in ms.
    pub stall_ms: u64,
    /// Size of the warm pool, at most [`crate::READY_MAX`]; 0 disables it.
    pub warm_pool_size: u32,
    /// Idle time after which a session with `ends_idle` ends.
    pub session_idle: Duration,
    /// Default idle time after which a sandbox falls asleep, in seconds; 0 means never.
    pub sleep_after_s: u64,
    /// Time after which the memory of a paused sandbox is written to swap, in seconds; 0 means never.
    pub page_out_after_s: u64,
    /// Smallest interval of scheduled snapshots that a client may request, in seconds.
    pub snapshot_every_s_min: u64,
    /// How long recovery waits for all agents together.
    pub recover: Duration,
    /// The object store for copies of snapshots; `None`: pushes and pulls are refused.
    pub store: Option<isolet_repository::StoreSettings>,
    /// Settings for the networks of sandboxes.
    pub network: crate::model::network::NetworkSettings,
    /// The settings of a node of a fleet; `None`: the server is none, and starts no lease guard.
    pub fleet: Option<crate::model::info::ownership::FleetSettings>,
}

/// Limits of one tenant; `None`: those of all tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Maximum number of sandboxes at once.
    pub sandboxes_max: Option<u32>,
    /// Quota of its sandboxes' files, in MiB; 0 means no quota.
    pub disk_mib: Option<u64>,
}

/// Default size of a sandbox's disk, in MiB: enough for the packages and builds of one project. An
/// empty disk takes about 240 KiB.
const DISK_MIB: u64 = 10 * 1024;

impl Config {
    /// The default configuration for a data directory. `programs` is the directory of the
    /// launcher's and the agent's binaries.
    #[must_use]
    pub fn new(data_dir: PathBuf, programs: &std::path::Path) -> Self {
        let jail = isolet_jail::Config::beside(&data_dir);
        let no_disk = isolet_jail::no_disk();
        // Without loop devices or ext4, sandboxes share the disk of the server.
        let disk_mib = if no_disk.is_none() { DISK_MIB } else { 0 };
        Self {
            images: isolet_image::Config::new(data_dir.join("images")),
            data_dir,
            launcher: programs.join("isolet-launcher"),
            agent: programs.join("isolet-agent"),
            uid_base: isolet_jail::UID_BASE,
            cgroup: jail.as_ref().map_or_else(|_| "isolet".to_owned(), |jail| jail.cgroup.clone()),
            stall_ms: jail.map_or(60_000, |jail| jail.stall_ms),
            aliases: BTreeMap::new(),
            limits: Limits { memory_mib: 1024, cpu_millis: 1000, pids: 512, disk_mib },
            limits_max: Limits {
                memory_mib: 64 * 1024,
                cpu_millis: 64_000,
                pids: 16_384,
                disk_mib: 1024 * 1024,
            },
            no_disk,
            free_space_floor_mib: 512,
            sandboxes_max: 10_000,
            disk_quota_mib: 0,
            tenants: BTreeMap::new(),
            warm_pool_size: 2,
            session_idle: Duration::from_secs(300),
            sleep_after_s: 600,
            page_out_after_s: 60,
            snapshot_every_s_min: 60,
            recover: Duration::from_secs(10),
            store: None,
            network: crate::model::network::NetworkSettings::default(),
            fleet: None,
        }
    }

    /// Maximum number of sandboxes of this tenant at once.
    #[must_use]
    pub fn sandboxes_max(&self, tenant: &TenantId) -> u32 {
        self.tenants.get(tenant).and_then(|t| t.sandboxes_max).unwrap_or(self.sandboxes_max)
    }

    /// Quota of the files of this tenant's sandboxes, in MiB; `None` without a quota.
    #[must_use]
    pub fn disk_quota_mib(&self, tenant: &TenantId) -> Option<u64> {
        let own = self.tenants.get(tenant).and_then(|t| t.disk_mib);
        Some(own.unwrap_or(self.disk_quota_mib)).filter(|mib| *mib > 0)
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
