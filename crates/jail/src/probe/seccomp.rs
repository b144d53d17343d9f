//! Installs the filter of a sandbox's programs, and makes a call that it refuses.

use super::child::in_child;
use crate::child::step_error::{StepError, at_step};
use crate::filter::{FilterKind, compile};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// Installs the filter.
///
/// # Errors
/// The failed step.
pub fn seccomp() -> Result<(), StepError> {
    let program = compile(FilterKind::Tenant);
    in_child(0, || {
        rustix::thread::set_no_new_privs(true).map_err(at_step("no_new_privs"))?;
        isolet_sys::seccomp::install(&program)
            .map_err(|error| StepError::from_io("install the filter", &error, Errno::INVAL))?;
        // Without the filter, root gets ENOENT.
        match rustix::mount::unmount("/isolet-doctor", UnmountFlags::empty()) {
            Err(Errno::PERM) => Ok(()),
            _ => Err(StepError::new("refuse umount", Errno::IO)),
        }
    })
}
