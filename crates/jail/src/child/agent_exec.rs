//! The last step of a child: executing the agent with its descriptors.

use crate::host::Host;
use isolet_sys::inherited_fd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

/// The number of the agent's first descriptor.
const FIRST: i32 = 3;
/// Descriptors are duplicated above this number before they are put in place.
const LIFTED_FROM: i32 = 64;

/// The descriptors that an agent inherits, and the ids of its programs.
pub(crate) struct AgentFds<'a> {
    /// The socket that the agent listens on.
    pub(crate) listener: &'a OwnedFd,
    /// The tenant's user namespace.
    pub(crate) userns: &'a OwnedFd,
    /// The tenant's group in the version 2 tree.
    pub(crate) tenant_cgroup: &'a OwnedFd,
    /// The `tasks` files of the tenant's version 1 groups.
    pub(crate) tenant_tasks: &'a [OwnedFd],
    /// The file that counts processes killed for memory.
    pub(crate) oom_events: Option<&'a OwnedFd>,
    /// User and group id, inside, of the programs that the agent starts.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Closed by the execution, which tells the launcher that the agent runs.
    pub(crate) launcher_socket: &'a OwnedFd,
}

/// Becomes the agent. Returns only with an error.
pub(crate) fn exec_agent(host: &Host, inherited: &AgentFds<'_>) -> Errno {
    match try_exec(host, inherited) {
        Ok(errno) | Err(errno) => errno,
    }
}

/// Puts the agent's descriptors in a row from [`FIRST`] on, closes all others, and executes it.
fn try_exec(host: &Host, inherited: &AgentFds<'_>) -> Result<Errno, Errno> {
    let mut fds: Vec<(&str, &OwnedFd)> = vec![
        ("--listen", inherited.listener),
        ("--userns", inherited.userns),
        ("--cgroup", inherited.tenant_cgroup),
        ("--filter", &host.tenant_filter),
    ];
    fds.extend(inherited.oom_events.iter().map(|oom| ("--oom", *oom)));
    fds.extend(inherited.tenant_tasks.iter().map(|tasks| ("--tasks", tasks)));
    let mut argv = vec![CString::from(c"isolet-agent"), CString::from(c"--stall-ms")];
    argv.push(decimal(host.config.stall_ms)?);
    for (flag, id) in [(c"--uid", inherited.uid), (c"--gid", inherited.gid)] {
        argv.push(flag.into());
        argv.push(decimal(id)?);
    }
    let lift = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, LIFTED_FROM);
    let lifted = fds.iter().map(|(_, fd)| lift(fd)).collect::<Result<Vec<_>, _>>()?;
    let agent = lift(&host.agent)?;
    let _launcher_socket = lift(inherited.launcher_socket)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let null = lift(&null)?;
    for target in 0..FIRST {
        inherited_fd::dup_to(null.as_fd(), target)?;
    }
    let mut target = FIRST;
    for ((flag, _), source) in fds.iter().zip(&lifted) {
        inherited_fd::dup_to(source.as_fd(), target)?;
        argv.push(CString::new(*flag).map_err(|_| Errno::INVAL)?);
        argv.push(decimal(target)?);
        target += 1;
    }
    inherited_fd::set_cloexec_from(target);
    let argv: Vec<&CStr> = argv.iter().map(CString::as_c_str).collect();
    let error = isolet_sys::exec::execute(agent.as_fd(), &argv, &[]);
    Ok(Errno::from_io_error(&error).unwrap_or(Errno::NOEXEC))
}

fn decimal(number: impl ToString) -> Result<CString, Errno> {
    CString::new(number.to_string()).map_err(|_| Errno::INVAL)
}
