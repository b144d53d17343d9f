//! Files in memory that nobody can change any more.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long one may be busy before it is sealed, and how often that is tried.
const SEAL_MAX: Duration = Duration::from_secs(5);
const SEAL_PAUSE: Duration = Duration::from_millis(10);

/// A file of these bytes; its name is for who looks at descriptors.
///
/// # Errors
/// As the kernel says: memory, descriptors.
pub(crate) fn sealed(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rustix::io::write(&file, rest)?;
        rest = &rest[count..];
    }
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    let until = Instant::now() + SEAL_MAX;
    loop {
        match rustix::fs::fcntl_add_seals(&file, all) {
            // The kernel itself holds a page of it for a moment, to write it out or to move it.
            Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(SEAL_PAUSE),
            sealed => return Ok(sealed.map(|()| file)?),
        }
    }
}
