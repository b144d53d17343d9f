//! Ends all sandboxes of a data directory while no server uses it, as a reboot of the machine would.
//! Their files stay: the next server finds them asleep.

use crate::cgroup::{CgroupRoot, Hierarchies};
use crate::config::Config;
use crate::kernel::helper_socket::HelperSocket;
use crate::lease_guard::client::LeaseGuard;
use crate::sandbox_handle::SandboxHandle;
use crate::veth;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

/// How long the processes of one sandbox may take to end after they were killed, and its disk to be
/// unmounted. Writing a disk's data may take longer than ending processes.
const END_WAIT: Duration = Duration::from_secs(20);

/// The result of [`end_all`].
#[derive(Debug, Default)]
pub struct Ended {
    /// How many sandboxes had processes.
    pub sandboxes: usize,
    /// What could not be ended or removed, one sentence each.
    pub left: Vec<String>,
}

/// Kills the processes of all sandboxes, removes their control groups, and ends the lease guard and
/// the process that owns the veth pairs, of whatever version they are. The caller must hold the
/// directory's lock and have called [`crate::identity::adopt`], so that a copy of a data directory
/// does not end the sandboxes of the original. Blocks.
///
/// # Errors
/// Those of reading the data directory. Failures of one sandbox are listed in [`Ended::left`].
pub fn end_all(config: &Config) -> io::Result<Ended> {
    let mut ended = Ended::default();
    let mut roots = BTreeSet::new();
    let all = sandboxes(config)?;
    for sandbox in &all {
        ended.sandboxes += usize::from(sandbox.handle.populated());
        roots.extend(sandbox.handle.cgroup_roots());
        if let Err(error) = sandbox.handle.kill() {
            ended.left.push(format!("cannot kill sandbox {}: {error}", sandbox.name));
        }
    }
    for Sandbox { name, handle } in &all {
        if !handle.wait_empty(END_WAIT) {
            ended.left.push(format!("processes of sandbox {name} still run"));
        } else if !handle.wait_unmounted(END_WAIT) {
            ended.left.push(format!("the disk of sandbox {name} is still mounted"));
        }
        if let Err(error) = handle.remove_cgroups() {
            ended.left.push(format!("cannot remove the control groups of sandbox {name}: {error}"));
        }
    }
    LeaseGuard::release_all(config);
    if let Err(error) = HelperSocket::LEASE_GUARD.end_process(&config.data_dir) {
        ended.left.push(format!("cannot end the lease guard: {error}"));
    }
    roots.iter().for_each(|root| drop(fs::remove_dir(root)));
    if let Ok(Some(root)) = Hierarchies::find().map(|all| CgroupRoot::locate(&all, &config.cgroup))
    {
        root.remove_if_empty();
    }
    if let Err(error) = veth::teardown::end_owner(&config.data_dir) {
        ended.left.push(format!("cannot remove the network of sandboxes: {error}"));
    }
    Ok(ended)
}

struct Sandbox {
    name: String,
    handle: SandboxHandle,
}

fn sandboxes(config: &Config) -> io::Result<Vec<Sandbox>> {
    let path: PathBuf = config.data_dir.join("sandboxes");
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let handle = SandboxHandle::open(config, &name);
        all.push(Sandbox { name, handle });
    }
    Ok(all)
}
