//! How a child becomes an agent: ids, masks, limits, capabilities, filter, and the descriptors
//! that it gets. The same for the agent of a sandbox and for that of a session with a scope.

use crate::host::{Host, attach, copy};
use isolet_sys::mount as attributes;
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// What any user may read there and a tenant has no use for. Everything else of the kind (`kcore`,
/// `kmsg`, `sysrq-trigger`, `timer_list`, …) belongs to the host's root, which no id inside maps to.
const MASKED: &[&str] = &["interrupts", "kallsyms", "keys"];

/// What an agent is started with.
pub(crate) struct Given<'a> {
    pub(crate) listen: &'a OwnedFd,
    pub(crate) userns: &'a OwnedFd,
    pub(crate) tenant: &'a OwnedFd,
    pub(crate) tasks: &'a [OwnedFd],
    pub(crate) oom: Option<&'a OwnedFd>,
    /// User and group of what the agent starts, inside.
    pub(crate) user: (u32, u32),
    /// Closes at the execution, which is how the launcher learns of it.
    pub(crate) signal: &'a OwnedFd,
}

/// Tells the launcher which step failed.
pub(crate) fn tell(signal: &OwnedFd, step: &str, errno: Errno) -> i32 {
    let text = format!("{} {step}", errno.raw_os_error());
    let _ = rustix::net::send(signal, text.as_bytes(), rustix::net::SendFlags::NOSIGNAL);
    1
}

/// Root of the sandbox's namespace, which is the agent's id.
pub(crate) fn become_root() -> Result<(), Errno> {
    rustix::thread::set_thread_groups(&[])?;
    let (uid, gid) = (Uid::ROOT, Gid::ROOT);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    rustix::process::umask(Mode::empty());
    Ok(())
}

/// What mounts of the kernel's own file systems are.
pub(crate) fn plain() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
}

/// Terminals that all sessions of a sandbox without a scope have together: 32 that the API opens
/// (`TERMINALS_MAX` of the agent), and as many that programs such as tmux and script open.
pub(crate) const SANDBOX_TERMINALS: u32 = 64;
/// Terminals of a session with a scope: one that the API opens, the others are its programs'.
pub(crate) const SCOPE_TERMINALS: u32 = 32;

/// A `devpts` of its own with at most `most` terminals: the host has `kernel.pty.max` of them for
/// all sandboxes, 3,072 by default.
pub(crate) fn terminals(most: u32) -> Result<OwnedFd, Errno> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    // Ids here are the sandbox's: the tenant's group 5 (tty) is 6, its root is 1.
    let most = most.to_string();
    let options = [
        ("newinstance", ""),
        ("ptmxmode", "0666"),
        ("mode", "0620"),
        ("gid", "6"),
        ("max", most.as_str()),
    ];
    crate::host::filesystem("devpts", &options, flags)
}

/// Covers what of `/proc` is no tenant's business.
pub(crate) fn mask() -> Result<(), Errno> {
    // The settings of the sandbox's own network would be writable for root inside.
    cover("/proc/sys", "/proc/sys")?;
    for name in MASKED {
        cover("/dev/null", &format!("/proc/{name}"))?;
    }
    Ok(())
}

/// Puts `source` over `target`, read-only, where the kernel has one.
fn cover(source: &str, target: &str) -> Result<(), Errno> {
    let tree = copy(CWD, Path::new(source), true)?;
    let flags = attributes::RDONLY | attributes::NOSUID | attributes::NOEXEC;
    attributes::set_attributes(tree.as_fd(), flags, true)?;
    match attach(tree.as_fd(), Path::new(target)) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Limits of each process.
pub(crate) fn limits() -> Result<(), Errno> {
    // One byte: neither a file nor, for a host that pipes dumps to a program, a call of it.
    let one = Rlimit { current: Some(1), maximum: Some(1) };
    rustix::process::setrlimit(Resource::Core, one)?;
    let files = rustix::process::getrlimit(Resource::Nofile);
    let most = files.maximum.unwrap_or(1 << 20).min(1 << 20);
    let files = Rlimit { current: Some(most.min(65_536)), maximum: Some(most) };
    rustix::process::setrlimit(Resource::Nofile, files)
}

/// For good, also what an execution would give back.
pub(crate) fn drop_capabilities() -> Result<(), Errno> {
    for capability in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // Older kernels know fewer.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    // Root of its namespace by number, and by nothing else.
    use rustix::thread::CapabilitiesSecureBits as Bits;
    let bits = Bits::NO_ROOT | Bits::NO_ROOT_LOCKED | Bits::NO_SETUID_FIXUP;
    rustix::thread::set_capabilities_secure_bits(bits | Bits::NO_SETUID_FIXUP_LOCKED)?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)
}

/// The agent's list of calls.
pub(crate) fn filter(host: &Host) -> Result<(), Errno> {
    isolet_sys::seccomp::install(&host.agent_filter)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}

/// First number of the descriptors that the agent gets.
const FIRST: i32 = 3;

/// Becomes the agent. Comes back only with an error.
pub(crate) fn execute(host: &Host, given: &Given<'_>) -> Errno {
    match hand_over(host, given) {
        Ok(never) => never,
        Err(errno) => errno,
    }
}

/// Puts the agent's descriptors in a row from 3 on, closes all others, and becomes the agent.
fn hand_over(host: &Host, given: &Given<'_>) -> Result<Errno, Errno> {
    let mut fds: Vec<(&str, &OwnedFd)> = vec![
        ("--listen", given.listen),
        ("--userns", given.userns),
        ("--cgroup", given.tenant),
        ("--filter", &host.tenant_filter),
    ];
    fds.extend(given.oom.iter().map(|oom| ("--oom", *oom)));
    fds.extend(given.tasks.iter().map(|tasks| ("--tasks", tasks)));
    let mut argv = vec![CString::from(c"isolet-agent"), CString::from(c"--stall-ms")];
    argv.push(CString::new(host.config.stall_ms.to_string()).map_err(|_| Errno::INVAL)?);
    for (flag, id) in [(c"--uid", given.user.0), (c"--gid", given.user.1)] {
        argv.push(flag.into());
        argv.push(CString::new(id.to_string()).map_err(|_| Errno::INVAL)?);
    }
    let lift = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 64);
    let lifted = fds.iter().map(|(_, fd)| lift(fd)).collect::<Result<Vec<_>, _>>()?;
    let agent = lift(&host.agent)?;
    let _signal = lift(given.signal)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let null = lift(&null)?;
    let end = FIRST + i32::try_from(fds.len()).map_err(|_| Errno::INVAL)?;
    for target in 0..end {
        let source = if target < FIRST { &null } else { &lifted[(target - FIRST) as usize] };
        isolet_sys::inherited_fd::dup_to(source.as_fd(), target)?;
        if target >= FIRST {
            let flag = fds[(target - FIRST) as usize].0;
            argv.push(CString::new(flag).map_err(|_| Errno::INVAL)?);
            argv.push(CString::new(target.to_string()).map_err(|_| Errno::INVAL)?);
        }
    }
    isolet_sys::inherited_fd::set_cloexec_from(end);
    let argv: Vec<&CStr> = argv.iter().map(CString::as_c_str).collect();
    let error = isolet_sys::exec::execute(agent.as_fd(), &argv, &[]);
    Ok(Errno::from_io_error(&error).unwrap_or(Errno::NOEXEC))
}
