//! Per-user limits of the kernel (`ucounts`): which user is charged for the objects of a sandbox,
//! and how many objects a sandbox may have.
//!
//! The kernel counts inotify instances and watches, namespaces, queued signals (POSIX timers are
//! among them), bytes of message queues and locked memory per user of a user namespace. The objects
//! of a user namespace are counted a second time in the parent namespace, for the effective user
//! who created it. The limits of the host and of its root hold for that second count. A sandbox
//! whose outer namespace was created by root is therefore limited together with all other
//! sandboxes and with the host's root. So the launcher creates it as the sandbox's own agent id.

use rustix::fs::Uid;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitiesSecureBits, set_capabilities_secure_bits, set_thread_res_uid};

/// The most objects of each kind that one sandbox may have, unless the host allows its root fewer.
/// A user namespace inherits the limits from the process that creates it; they hold for all of its
/// users together.
const LIMITS: [(Resource, u64); 3] = [
    // Signals and timers. Each takes about 100 bytes to 400 bytes, which count as the sandbox's
    // memory; the kernel's own default is 4 per MiB of the host's memory.
    (Resource::Sigpending, 65_536),
    // Bytes of POSIX message queues: the kernel's own default, nine queues of the default size.
    (Resource::Msgqueue, 819_200),
    // Bytes of locked memory: the kernel's own default. They count as the sandbox's memory too, and
    // cannot be reclaimed while they are locked.
    (Resource::Memlock, 8 << 20),
];

/// Prepares the launcher: limits that every sandbox inherits, and capabilities that stay while
/// [`as_user`] runs.
///
/// # Errors
/// The kernel's.
pub(crate) fn prepare() -> Result<(), Errno> {
    for (resource, most) in LIMITS {
        let now = getrlimit(resource);
        let lower = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        let limit = Rlimit { current: lower(now.current), maximum: lower(now.maximum) };
        setrlimit(resource, limit)?;
    }
    // Children in a user namespace of their own do not inherit the capabilities.
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)
}

/// Runs `work` with `id` as the effective user, who becomes the owner of a user namespace that
/// `work` creates. The real user stays root, so nobody with that id may signal or trace the
/// launcher. The process must have one thread.
///
/// # Errors
/// The kernel's; `work` has not run then.
///
/// # Panics
/// When the kernel does not let the launcher be root again.
pub(crate) fn as_user<R>(id: u32, work: impl FnOnce() -> R) -> Result<R, Errno> {
    set_thread_res_uid(Uid::ROOT, Uid::from_raw(id), Uid::ROOT)?;
    let result = work();
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).expect("root again: it is the real user");
    Ok(result)
}
