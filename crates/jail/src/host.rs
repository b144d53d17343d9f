//! What the launcher prepares once, so that creating a sandbox is cheap: template trees, an empty
//! mount namespace, filters, and the agent's program in sealed memory.

pub(crate) mod empty_mount_ns;
pub(crate) mod image;
pub(crate) mod requirements;
mod template_trees;
pub(crate) mod ucounts;

pub(crate) use empty_mount_ns::LAYERS_MAX;
pub use image::host_trees;

use crate::cgroup::{CgroupRoot, Hierarchies};
use crate::config::Config;
use crate::disk::DiskTemplates;
use crate::filter::{FilterKind, bytes, compile};
use crate::kernel::id_map::try_mapping;
use crate::kernel::netns;
use crate::kernel::sealed_memfd::seal;
use empty_mount_ns::MountNamespaces;
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use template_trees::TemplateTrees;

/// A step of [`Host::prepare`] that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct PrepareError {
    /// The name of the step, for people.
    pub step: &'static str,
    /// The cause: most often the kernel's error.
    pub source: io::Error,
}

/// Everything that is the same for all sandboxes.
#[derive(Debug)]
pub struct Host {
    /// The configuration that the server passed.
    pub config: Config,
    /// The parent of the sandboxes' control groups.
    pub cgroup_root: CgroupRoot,
    /// The synthetic part of the `host` image.
    pub skeleton: PathBuf,
    /// `/dev`, read-only and shared by all; attached in the launcher's own mount namespace.
    pub dev: OwnedFd,
    /// `/sys`, read-only and shared by all: the topology of the processors and nothing else.
    pub sys: OwnedFd,
    /// A mount namespace that holds one empty directory tree.
    pub empty_mount_ns: OwnedFd,
    /// The launcher's own mount namespace.
    pub own_mount_ns: OwnedFd,
    /// The launcher's own network namespace.
    pub own_netns: OwnedFd,
    /// The agent's program, sealed.
    pub agent: OwnedFd,
    /// The agent's seccomp program.
    pub agent_filter: Vec<u64>,
    /// The tenant's seccomp program, sealed, for the agent to read.
    pub tenant_filter: OwnedFd,
    /// Why the file system of the data directory cannot show files under other ids; `None` when it
    /// can.
    pub unmapped_files: Option<Errno>,
    /// The images of disks that were last formatted.
    pub(crate) disk_templates: DiskTemplates,
}

impl Host {
    /// Prepares everything. The process must have one thread and be root.
    ///
    /// # Errors
    /// The step that failed, with the kernel's error.
    pub fn prepare(config: Config) -> Result<Self, PrepareError> {
        let step = |step| move |source: io::Error| PrepareError { step, source };
        let errno_step = |name| move |errno: Errno| step(name)(errno.into());
        ucounts::prepare().map_err(errno_step("limits of sandboxes"))?;
        let hierarchies = Hierarchies::find().map_err(step("find cgroups"))?;
        let cgroup_root =
            CgroupRoot::create(&hierarchies, &config.cgroup).map_err(step("make cgroups"))?;
        for name in ["sandboxes", "trash", "launcher"] {
            let mut private = std::fs::DirBuilder::new();
            let created = private.recursive(true).mode(0o700).create(config.data_dir.join(name));
            created.map_err(step("directories"))?;
        }
        let skeleton = image::create_skeleton(&config.data_dir).map_err(step("host image"))?;
        let agent = std::fs::read(&config.agent).map_err(step("read agent"))?;
        let agent = seal("isolet-agent", &agent);
        private_mounts().map_err(step("mount namespace"))?;
        let mount_point = config.data_dir.join("launcher");
        let TemplateTrees { dev, sys } =
            template_trees::create(&mount_point).map_err(step("template trees"))?;
        let MountNamespaces { own, empty } =
            empty_mount_ns::create(&mount_point).map_err(step("empty namespace"))?;
        let own_netns = netns::current().map_err(errno_step("network namespace"))?;
        let unmapped_files = try_mapping(&config.data_dir.join("sandboxes")).err();
        let tenant_filter = bytes(FilterKind::Tenant);
        Ok(Self {
            config,
            cgroup_root,
            skeleton,
            dev,
            sys,
            empty_mount_ns: empty,
            own_mount_ns: own,
            own_netns,
            agent: agent.map_err(step("agent in memory"))?,
            agent_filter: compile(FilterKind::Agent),
            tenant_filter: seal("filter", &tenant_filter).map_err(step("filter in memory"))?,
            unmapped_files,
            disk_templates: DiskTemplates::default(),
        })
    }
}

/// Moves the launcher into a mount namespace of its own, which still follows the host's unmounts.
fn private_mounts() -> io::Result<()> {
    isolet_sys::namespaces::unshare(UnshareFlags::NEWNS)?;
    let follow = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", follow)?)
}
