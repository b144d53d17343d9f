//! A child of the launcher that becomes an agent: ids, masks, limits, capabilities, filter, and the
//! descriptors that the agent inherits. Agents of sandboxes and of scopes share this code.

pub(crate) mod agent_exec;
pub(crate) mod agent_socket;
pub(crate) mod step_error;

pub(crate) use agent_exec::{AgentFds, exec_agent};
pub use step_error::StepError;
pub(crate) use step_error::at_step;

use crate::host::Host;
use crate::kernel::mount::{NOSUID_NODEV_NOEXEC, attach, attributes, clone_tree, new_filesystem};
use rustix::fs::{CWD, Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Files of `/proc` that any user may read and a tenant has no use for: some name the host's disks and
/// count what all tenants read and write. Others of the kind
/// (`kcore`, `kmsg`, `sysrq-trigger`, `timer_list`, …) belong to the host's root, which no id
/// inside maps to.
const MASKED: &[&str] = &[
    "cmdline",
    "diskstats",
    "interrupts",
    "kallsyms",
    "keys",
    "mdstat",
    "partitions",
    "softirqs",
    "swaps",
];
/// The directory of `/proc` about file systems, which names the host's disks with their options. Every
/// kernel has it.
const MASKED_FS: &str = "/proc/fs";
/// Directories of `/proc` about the host's devices, as far as the kernel has them.
const MASKED_DEVICES: &[&str] = &["acpi", "asound", "bus", "driver", "irq", "scsi"];

/// Terminals that all sessions of a sandbox without a scope share: 32 that the API opens
/// (`TERMINALS_MAX` of the agent), and as many that programs such as tmux and script open.
pub(crate) const SANDBOX_TERMINALS: u32 = 64;
/// Terminals of a session with a scope: one that the API opens, and those that its programs open.
pub(crate) const SCOPE_TERMINALS: u32 = 32;

/// The most descriptors of a process, unless the host allows less.
const OPEN_FILES_MAX: u64 = 1 << 20;
/// Descriptors that a process may have until it raises its own limit.
const OPEN_FILES: u64 = 65_536;

/// Becomes root of the sandbox's user namespace, which is the agent's id.
pub(crate) fn become_root() -> Result<(), Errno> {
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    rustix::process::umask(Mode::empty());
    Ok(())
}

/// A new `devpts` with at most `terminals_max` terminals: the host has `kernel.pty.max` of them for
/// all sandboxes, 3,072 by default.
pub(crate) fn new_devpts(terminals_max: u32) -> Result<OwnedFd, Errno> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let terminals_max = terminals_max.to_string();
    // Ids here are the sandbox's: the tenant's group 5 (tty) is 6, its root is 1.
    let options = [
        ("newinstance", ""),
        ("ptmxmode", "0666"),
        ("mode", "0620"),
        ("gid", "6"),
        ("max", terminals_max.as_str()),
    ];
    new_filesystem("devpts", &options, flags)
}

/// Covers the parts of `/proc` that a tenant may not see or change.
pub(crate) fn mask_proc() -> Result<(), Errno> {
    // Root inside could otherwise write the settings of the sandbox's network.
    cover("/proc/sys", "/proc/sys")?;
    for name in MASKED {
        cover("/dev/null", &format!("/proc/{name}"))?;
    }
    let options = [("mode", "0555"), ("size", "4k"), ("nr_inodes", "1")];
    let flags = NOSUID_NODEV_NOEXEC | MountAttrFlags::MOUNT_ATTR_RDONLY;
    attach(new_filesystem("tmpfs", &options, flags)?.as_fd(), Path::new(MASKED_FS))?;
    for name in MASKED_DEVICES {
        cover(MASKED_FS, &format!("/proc/{name}"))?;
    }
    Ok(())
}

/// Mounts `source` over `target`, read-only, if the kernel has a `target`.
fn cover(source: &str, target: &str) -> Result<(), Errno> {
    let tree = clone_tree(CWD, Path::new(source), true)?;
    let flags = attributes::RDONLY | attributes::NOSUID | attributes::NOEXEC;
    attributes::set_attributes(tree.as_fd(), flags, true)?;
    match attach(tree.as_fd(), Path::new(target)) {
        Err(Errno::NOENT) => Ok(()),
        attached => attached,
    }
}

/// Sets the limits of each process.
pub(crate) fn set_process_limits() -> Result<(), Errno> {
    // With a limit of one byte the kernel writes no core file, and does not run a program for
    // dumps.
    let core = Rlimit { current: Some(1), maximum: Some(1) };
    rustix::process::setrlimit(Resource::Core, core)?;
    let files = rustix::process::getrlimit(Resource::Nofile);
    let maximum = files.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
    let files = Rlimit { current: Some(maximum.min(OPEN_FILES)), maximum: Some(maximum) };
    rustix::process::setrlimit(Resource::Nofile, files)
}

/// Drops all capabilities for good, also those that executing a program would restore.
pub(crate) fn drop_capabilities() -> Result<(), Errno> {
    for capability in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // Older kernels have fewer capabilities.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    // The agent has the id of root in its namespace, but gets no capabilities from that.
    rustix::thread::set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED,
    )?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)
}

/// Installs the agent's seccomp program.
pub(crate) fn install_agent_filter(host: &Host) -> Result<(), Errno> {
    isolet_sys::seccomp::install(&host.agent_filter)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}
