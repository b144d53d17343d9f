//! The owner of files that the launcher creates where a tenant sees them.

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

/// Runs `work` with `id` as the user and the group of files that it creates. The kernel refuses
/// (`EOVERFLOW`) to create files of the host's root through a mount that maps ids, because no id on
/// disk stands for it. The real user stays root, and the launcher's capabilities stay
/// ([`crate::host::ucounts::prepare`]). The process must have one thread.
///
/// # Errors
/// The kernel's; `work` has not run then.
///
/// # Panics
/// When the kernel does not let the launcher be root again.
pub(crate) fn as_owner<R>(id: u32, work: impl FnOnce() -> R) -> Result<R, Errno> {
    set_thread_res_gid(Gid::ROOT, Gid::from_raw(id), Gid::ROOT)?;
    let result = set_thread_res_uid(Uid::ROOT, Uid::from_raw(id), Uid::ROOT).map(|()| work());
    let restored = set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
        .and_then(|()| set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT));
    restored.expect("root again: it is the real user");
    result
}
