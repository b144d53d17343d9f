//! Sealed memfds: files in memory that no process can change any more.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a file may be busy before sealing it fails, and the pause between two attempts.
const SEAL_MAX: Duration = Duration::from_secs(5);
const SEAL_PAUSE: Duration = Duration::from_millis(10);

/// Creates a sealed file with this content. Its name is only visible in `/proc/PID/fd`.
///
/// # Errors
/// The kernel's: `ENOMEM`, `EMFILE`.
pub(crate) fn seal(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
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
            // The kernel holds a page of the file for a moment, to write it out or to move it.
            Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(SEAL_PAUSE),
            sealed => return Ok(sealed.map(|()| file)?),
        }
    }
}
