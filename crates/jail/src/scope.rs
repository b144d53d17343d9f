//! The launcher's side of a session's scope: a socket and a group of its own, then three children
//! in a row: one enters the sandbox's namespaces, one stands in its process namespace (only from
//! there another can be made below it), and one is process 1 of the session's own (`scoped.rs`).

use crate::agent::{self, Given};
use crate::cgroup::Groups;
use crate::config::{SCOPES, UIDS, scope_dir};
use crate::host::Host;
use crate::make::{Failure, failed, listen, outcome, tasks};
use crate::scoped::{self, absent, find, give, kind};
use isolet_sys::namespaces::{SCOPE_NAMESPACES, fork_in_namespaces};
use isolet_wire::launch::Scope;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The agent's number of the tenant's user namespace (`--userns`).
const USERNS: i32 = 4;

/// The sandbox's agent, and what it holds for its tenants.
struct Above {
    agent: OwnedFd,
    userns: OwnedFd,
    workspace: OwnedFd,
}

/// Starts the agent of a session's scope in a running sandbox; calls `granted` once it is known that
/// every grant can be had.
///
/// # Errors
/// The failed step; `grant N` is the one of that index. Nothing of the scope is left then.
pub fn scope(host: &Host, order: &Scope, granted: impl FnOnce()) -> Result<(), Failure> {
    let step = |name: &'static str| move |errno: Errno| failed(name, errno);
    let sandbox = host.config.sandbox_dir(&order.name);
    let text = std::fs::read_to_string(sandbox.join("cgroups"));
    let groups = text.ok().and_then(|text| Groups::from_text(&text));
    let groups = groups.ok_or_else(|| failed("groups of the sandbox", Errno::NOENT))?;
    let above = above(&groups).map_err(step("agent of the sandbox"))?;
    grants(host, order, above.workspace.as_fd())?;
    granted();
    let directory = directory(&sandbox, &order.session).map_err(step("directory of the scope"))?;
    let group = Group::make(groups.scope(&order.session)).map_err(step("group of the scope"))?;
    start(host, order, &groups, (&directory, &above, &group.0))?;
    group.keep();
    Ok(())
}

/// Looks at every grant as the session will find it, and makes what is to be written and is not
/// there. From outside, by the sandbox's own root: nothing needs to be started for this answer.
fn grants(host: &Host, order: &Scope, workspace: BorrowedFd<'_>) -> Result<(), Failure> {
    let id = host.config.uid_base + order.slot * UIDS;
    for (index, grant) in order.grants.iter().enumerate() {
        let found = match find(workspace, &grant.path, OFlags::empty()) {
            Err(Errno::NOENT) if grant.write => made(workspace, &grant.path, id),
            found => found,
        };
        match found.and_then(|found| kind(found.as_fd())) {
            Err(errno) if !absent(order, grant, errno) => {
                return Err(failed(&format!("grant {index}"), errno));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A directory that is not there, with its parents, as the tenant's root would make it.
fn made(workspace: BorrowedFd<'_>, path: &str, id: u32) -> Result<OwnedFd, Errno> {
    let mut at = find(workspace, "", OFlags::DIRECTORY)?;
    for part in path.split('/') {
        let next = match find(at.as_fd(), part, OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                let made = find(at.as_fd(), part, OFlags::DIRECTORY)?;
                give(made.as_fd(), id)?;
                made
            }
            found => found?,
        };
        at = next;
    }
    Ok(at)
}

fn directory(sandbox: &Path, session: &str) -> Result<OwnedFd, Errno> {
    let open = |at: &Path| rustix::fs::open(at, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let own = scope_dir(sandbox, session);
    for path in [&sandbox.join(SCOPES), &own] {
        match rustix::fs::mkdir(path, Mode::from_raw_mode(0o711)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    let own = open(&own)?;
    // Of an agent that has ended.
    match rustix::fs::unlinkat(&own, "agent.sock", AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(own),
        Err(errno) => Err(errno),
    }
}

/// The one process of the agent's group. By descriptor: its number may be given away at any time.
fn above(groups: &Groups) -> Result<Above, Errno> {
    let listed = || {
        let text = std::fs::read_to_string(groups.agent().join("cgroup.procs")).ok()?;
        text.lines().next()?.parse().ok()
    };
    let number: i32 = listed().ok_or(Errno::SRCH)?;
    let agent = pidfd_open(Pid::from_raw(number).ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
    let path = format!("/proc/{number}/fd/{USERNS}");
    let userns = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let path = format!("/proc/{number}/root/workspace");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let workspace = rustix::fs::open(path, flags, Mode::empty())?;
    // Still there after all were opened: so all are its own.
    let own = listed() == Some(number);
    own.then_some(Above { agent, userns, workspace }).ok_or(Errno::SRCH)
}

/// The group of a scope's agent; removed when it is not kept.
struct Group(PathBuf);

impl Group {
    /// One of an agent that has ended is there, and empty.
    fn make(path: PathBuf) -> Result<Self, Errno> {
        match rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)) {
            Ok(()) => Ok(Self(path)),
            Err(Errno::EXIST) => {
                let events = std::fs::read_to_string(path.join("cgroup.events"));
                let used = events.is_ok_and(|text| text.contains("populated 1"));
                if used { Err(Errno::BUSY) } else { Ok(Self(path)) }
            }
            Err(errno) => Err(errno),
        }
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..200 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

fn start(
    host: &Host,
    order: &Scope,
    groups: &Groups,
    (directory, above, group): (&OwnedFd, &Above, &Path),
) -> Result<(), Failure> {
    let step = |name: &'static str| move |errno: Errno| failed(name, errno);
    let open = |path: &Path, flags: OFlags| {
        rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())
    };
    let listen = listen(directory.as_fd()).map_err(step("socket"))?;
    let tenant = open(&groups.tenant(), OFlags::RDONLY | OFlags::DIRECTORY);
    let tenant = tenant.map_err(step("tenant's group"))?;
    let tasks = tasks(groups).map_err(step("task files"))?;
    let oom = open(&groups.oom(), OFlags::RDONLY).ok();
    let born = open(group, OFlags::RDONLY).map_err(step("group of the scope"))?;
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (ours, theirs) =
        rustix::net::socketpair(kind.0, kind.1, kind.2, None).map_err(step("socket pair"))?;
    let given = Given {
        listen: &listen,
        userns: &above.userns,
        tenant: &tenant,
        tasks: &tasks,
        oom: oom.as_ref(),
        user: order.user,
        signal: &theirs,
    };
    fork_in_namespaces(0, Some(born.as_fd()), || enter(host, order, above, &given)).map_err(
        |error| failed("first child", Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    )?;
    drop((theirs, listen));
    outcome(ours)
}

/// The first child: out of the host's namespaces for good.
fn enter(host: &Host, order: &Scope, above: &Above, given: &Given<'_>) -> i32 {
    let all = ThreadNameSpaceType::USER
        | ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::PROCESS_ID
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
        | ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::CONTROL_GROUP;
    if let Err(errno) = move_into_thread_name_spaces(above.agent.as_fd(), all) {
        return agent::tell(given.signal, "namespaces of the sandbox", errno);
    }
    // Its children are born in the sandbox's process namespace; it is not in there itself.
    let second = || {
        let third = fork_in_namespaces(SCOPE_NAMESPACES, None, || scoped::run(host, order, given));
        told(given, "namespaces of the scope", third.map(drop))
    };
    let second = fork_in_namespaces(0, None, second).map(|child| {
        // Whoever is left without its parent would be a corpse in the sandbox until the host's
        // first process looked.
        let mut ended = [PollFd::new(&child.pidfd, PollFlags::IN)];
        while poll(&mut ended, None) == Err(Errno::INTR) {}
    });
    told(given, "second child", second)
}

fn told(given: &Given<'_>, step: &str, made: std::io::Result<()>) -> i32 {
    match made {
        Ok(()) => 0,
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            agent::tell(given.signal, step, errno)
        }
    }
}
