//! Network namespaces: creating them, entering them for a moment, and their settings.

use isolet_sys::namespaces::unshare;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The namespace that this thread is in.
pub(crate) fn current() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())
}

/// Moves this process into another namespace. The process must have one thread.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
}

/// Runs `work` in the namespace `other` and returns to `home`. The process must have one thread.
///
/// # Panics
/// When `home` cannot be entered again: all later work would be done in the wrong namespace.
pub(crate) fn within<R>(
    home: BorrowedFd<'_>,
    other: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<R, Errno>,
) -> Result<R, Errno> {
    enter(other)?;
    let result = work();
    enter(home).expect("back into its own network namespace");
    result
}

/// Creates a namespace and runs `prepare` in it.
///
/// # Panics
/// As [`within`].
pub(crate) fn create(
    home: BorrowedFd<'_>,
    prepare: impl FnOnce() -> Result<(), Errno>,
) -> Result<OwnedFd, Errno> {
    unshare(UnshareFlags::NEWNET)?;
    let created = current().and_then(|created| prepare().map(|()| created));
    enter(home).expect("back into its own network namespace");
    created
}

/// Writes a setting below `/proc/sys/net` of the namespace that this process is in.
pub(crate) fn write_setting(path: &str, value: &str) -> Result<(), Errno> {
    let path = format!("/proc/sys/net/{path}");
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, value.as_bytes()).map(drop)
}

/// Writes a setting, unless the kernel does not have it.
pub(crate) fn write_setting_if_present(path: &str, value: &str) -> Result<(), Errno> {
    match write_setting(path, value) {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

/// Whether two descriptors name one namespace.
pub(crate) fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let identity = |fd: &OwnedFd| {
        let stat = rustix::fs::fstat(fd.as_fd()).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    identity(one).is_some() && identity(one) == identity(other)
}
