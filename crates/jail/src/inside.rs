//! The child's side of making a sandbox: from an empty tree in new namespaces to the agent.
//!
//! The list in [`STEPS`] is the order. None of them needs an undo: everything made here goes with
//! the process's namespaces.

use crate::config::TENANT_UIDS;
use crate::host::{Host, attach, copy, filesystem};
use crate::make::Parts;
use isolet_sys::clone::hold_userns;
use isolet_sys::mount as attributes;
use isolet_wire::launch::Spec;
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// What any user may read there and a tenant has no use for. Everything else of the kind (`kcore`,
/// `kmsg`, `sysrq-trigger`, `timer_list`, …) belongs to the host's root, which no id inside maps to.
const MASKED: &[&str] = &["interrupts", "kallsyms", "keys"];

/// What the steps hand on.
struct Inside<'a> {
    host: &'a Host,
    spec: &'a Spec,
    parts: &'a Parts,
    skeleton: Option<OwnedFd>,
    usr: Option<OwnedFd>,
    userns: Option<OwnedFd>,
}

type Step = fn(&mut Inside<'_>) -> Result<(), Errno>;

/// Every step, in order.
const STEPS: &[(&str, Step)] = &[
    ("trees from the launcher", receive),
    ("become root inside", become_root),
    ("host name", hostname),
    ("root file system", root),
    ("programs", programs),
    ("workspace", workspace),
    ("proc", proc),
    ("devices", devices),
    ("sys", sys),
    ("let go of the parts", let_go),
    ("enter", enter),
    ("loopback", loopback),
    ("kernel settings", settings),
    ("mask proc", mask),
    ("process limits", limits),
    ("cgroup namespace", cgroup_namespace),
    ("tenant's user namespace", tenant_namespace),
    ("drop capabilities", drop_capabilities),
    ("filter", filter),
];

/// Runs the steps and becomes the agent. Comes back only when one failed, having told which.
pub(crate) fn run(host: &Host, spec: &Spec, parts: &Parts) -> i32 {
    isolet_sys::exec::default_signals();
    let mut inside = Inside { host, spec, parts, skeleton: None, usr: None, userns: None };
    for (name, step) in STEPS {
        if let Err(errno) = step(&mut inside) {
            return tell(parts, name, errno);
        }
    }
    let errno = execute(&inside);
    tell(parts, "execute the agent", errno)
}

fn tell(parts: &Parts, step: &str, errno: Errno) -> i32 {
    let text = format!("{} {step}", errno.raw_os_error());
    let _ = rustix::net::send(&parts.signal, text.as_bytes(), rustix::net::SendFlags::NOSIGNAL);
    1
}

fn receive(inside: &mut Inside<'_>) -> Result<(), Errno> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0_u8; 2];
    let mut into = [std::io::IoSliceMut::new(&mut bytes)];
    let got = recvmsg(&inside.parts.signal, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes != 2 {
        // The launcher died before it had said everything.
        return Err(Errno::CONNRESET);
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            inside.skeleton = fds.next();
            inside.usr = fds.next();
        }
    }
    Ok(())
}

fn become_root(_: &mut Inside<'_>) -> Result<(), Errno> {
    rustix::thread::set_thread_groups(&[])?;
    let (uid, gid) = (Uid::ROOT, Gid::ROOT);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    rustix::process::umask(Mode::empty());
    Ok(())
}

fn hostname(inside: &mut Inside<'_>) -> Result<(), Errno> {
    rustix::system::sethostname(inside.spec.hostname.as_bytes())
}

fn overlay(layer: &OwnedFd, at: &str, part: &str, to: &str) -> Result<(), Errno> {
    attach(layer.as_fd(), Path::new(at))?;
    let (upper, work) = (format!("/own/{part}/upper"), format!("/own/{part}/work"));
    let options = [
        ("source", "overlay"),
        ("lowerdir", at),
        ("upperdir", upper.as_str()),
        ("workdir", work.as_str()),
        ("userxattr", ""),
    ];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mounted = filesystem("overlay", &options, flags)?;
    attach(mounted.as_fd(), Path::new(to))
}

fn root(inside: &mut Inside<'_>) -> Result<(), Errno> {
    attach(inside.parts.own.as_fd(), Path::new("/own"))?;
    let skeleton = inside.skeleton.take().ok_or(Errno::BADF)?;
    overlay(&skeleton, "/etc", "root", "/new")
}

fn programs(inside: &mut Inside<'_>) -> Result<(), Errno> {
    let usr = inside.usr.take().ok_or(Errno::BADF)?;
    overlay(&usr, "/usr", "usr", "/new/usr")
}

fn workspace(_: &mut Inside<'_>) -> Result<(), Errno> {
    let tree = copy(CWD, Path::new("/own/workspace"), false)?;
    attributes::set(tree.as_fd(), attributes::NOSUID | attributes::NODEV, false)?;
    attach(tree.as_fd(), Path::new("/new/workspace"))
}

fn plain() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
}

fn proc(_: &mut Inside<'_>) -> Result<(), Errno> {
    let mounted = filesystem("proc", &[], plain())?;
    attach(mounted.as_fd(), Path::new("/new/proc"))
}

fn devices(inside: &mut Inside<'_>) -> Result<(), Errno> {
    attach(inside.parts.dev.as_fd(), Path::new("/new/dev"))?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    // Ids here are the sandbox's: the tenant's group 5 (tty) is 6, its root is 1.
    let options = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620"), ("gid", "6")];
    let terminals = filesystem("devpts", &options, flags)?;
    attach(terminals.as_fd(), Path::new("/new/dev/pts"))?;
    let size = format!("{}m", (inside.spec.limits.memory_mib / 2).max(1));
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let options = [("mode", "1777"), ("size", &size), ("uid", "1"), ("gid", "1")];
    let shared = filesystem("tmpfs", &options, flags)?;
    attach(shared.as_fd(), Path::new("/new/dev/shm"))
}

fn sys(inside: &mut Inside<'_>) -> Result<(), Errno> {
    attach(inside.parts.sys.as_fd(), Path::new("/new/sys"))
}

fn let_go(_: &mut Inside<'_>) -> Result<(), Errno> {
    for place in ["/own", "/etc", "/usr"] {
        rustix::mount::unmount(place, UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// Covers the empty root with the new one. What lies below is an empty read-only tree, so nothing
/// needs to be given up, and `pivot_root`'s walk over every process of the host is spared.
fn enter(_: &mut Inside<'_>) -> Result<(), Errno> {
    rustix::process::chdir("/new")?;
    rustix::mount::mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")
}

fn loopback(_: &mut Inside<'_>) -> Result<(), Errno> {
    isolet_sys::link::loopback_up()
}

fn write(path: &str, text: &str) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.as_bytes()).map(drop)
}

fn settings(_: &mut Inside<'_>) -> Result<(), Errno> {
    write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")?;
    write("/proc/sys/net/ipv4/ping_group_range", "0 65535")?;
    // The tenant's own namespace is the one; nobody inside makes another.
    write("/proc/sys/user/max_user_namespaces", "1")
}

fn mask(_: &mut Inside<'_>) -> Result<(), Errno> {
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
    attributes::set(tree.as_fd(), flags, true)?;
    match attach(tree.as_fd(), Path::new(target)) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

fn limits(_: &mut Inside<'_>) -> Result<(), Errno> {
    // One byte: neither a file nor, for a host that pipes dumps to a program, a call of it.
    let one = Rlimit { current: Some(1), maximum: Some(1) };
    rustix::process::setrlimit(Resource::Core, one)?;
    let files = rustix::process::getrlimit(Resource::Nofile);
    let most = files.maximum.unwrap_or(1 << 20).min(1 << 20);
    let files = Rlimit { current: Some(most.min(65_536)), maximum: Some(most) };
    rustix::process::setrlimit(Resource::Nofile, files)
}

fn cgroup_namespace(_: &mut Inside<'_>) -> Result<(), Errno> {
    isolet_sys::clone::leave(UnshareFlags::NEWCGROUP)
}

/// A user namespace below ours that knows every id but the agent's.
fn tenant_namespace(inside: &mut Inside<'_>) -> Result<(), Errno> {
    use rustix::process::DumpableBehavior;
    // The change of user made the files in /proc of this memory the host root's.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let holder =
        hold_userns().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))?;
    let map = format!("0 1 {TENANT_UIDS}");
    write(&format!("/proc/{}/uid_map", holder.pid), &map)?;
    write(&format!("/proc/{}/gid_map", holder.pid), &map)?;
    let path = format!("/proc/{}/ns/user", holder.pid);
    inside.userns = Some(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

fn drop_capabilities(_: &mut Inside<'_>) -> Result<(), Errno> {
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

fn filter(inside: &mut Inside<'_>) -> Result<(), Errno> {
    isolet_sys::seccomp::install(&inside.host.agent_filter)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}

/// First number of the descriptors that the agent gets.
const FIRST: i32 = 3;

fn execute(inside: &Inside<'_>) -> Errno {
    match hand_over(inside) {
        Ok(never) => never,
        Err(errno) => errno,
    }
}

/// Puts the agent's descriptors in a row from 3 on, closes all others, and becomes the agent.
fn hand_over(inside: &Inside<'_>) -> Result<Errno, Errno> {
    let parts = inside.parts;
    let userns = inside.userns.as_ref().ok_or(Errno::BADF)?;
    let mut given: Vec<(&str, &OwnedFd)> = vec![
        ("--listen", &parts.listen),
        ("--userns", userns),
        ("--cgroup", &parts.tenant),
        ("--filter", &inside.host.tenant_filter),
    ];
    given.extend(parts.oom.iter().map(|oom| ("--oom", oom)));
    given.extend(parts.tasks.iter().map(|tasks| ("--tasks", tasks)));
    let mut argv = vec![CString::from(c"isolet-agent"), CString::from(c"--stall-ms")];
    argv.push(CString::new(inside.host.config.stall_ms.to_string()).map_err(|_| Errno::INVAL)?);
    let lift = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 64);
    let lifted = given.iter().map(|(_, fd)| lift(fd)).collect::<Result<Vec<_>, _>>()?;
    let agent = lift(&inside.host.agent)?;
    // Closes at the execution, which is how the launcher learns of it.
    let _signal = lift(&parts.signal)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let null = lift(&null)?;
    let end = FIRST + i32::try_from(given.len()).map_err(|_| Errno::INVAL)?;
    for target in 0..end {
        let source = if target < FIRST { &null } else { &lifted[(target - FIRST) as usize] };
        isolet_sys::own::place(source.as_fd(), target)?;
        if target >= FIRST {
            let flag = given[(target - FIRST) as usize].0;
            argv.push(CString::new(flag).map_err(|_| Errno::INVAL)?);
            argv.push(CString::new(target.to_string()).map_err(|_| Errno::INVAL)?);
        }
    }
    isolet_sys::own::close_on_exec_from(end);
    let argv: Vec<&CStr> = argv.iter().map(CString::as_c_str).collect();
    let error = isolet_sys::exec::execute(agent.as_fd(), &argv, &[]);
    Ok(Errno::from_io_error(&error).unwrap_or(Errno::NOEXEC))
}
