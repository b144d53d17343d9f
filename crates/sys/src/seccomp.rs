//! Reads and installs seccomp programs.
//!
//! UNSAFETY: `seccomp(2)` has no safe wrapper.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Reads a program of 8 bytes per instruction, from the beginning of the file: another process may
/// share the descriptor and its position.
///
/// # Errors
/// Those of the file; `InvalidData` where its length is not a multiple of 8.
pub fn read(fd: OwnedFd) -> io::Result<Vec<u64>> {
    let file = File::from(fd);
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    let (words, []) = bytes.as_chunks::<8>() else { return Err(io::ErrorKind::InvalidData.into()) };
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

/// Installs `program` (raw `sock_filter`s) for this thread and all its children, permanently.
/// The thread must have set `no_new_privs`.
///
/// # Errors
/// `EINVAL` for a program that is malformed or longer than 4,096 steps.
pub fn install(program: &[u64]) -> io::Result<()> {
    #[repr(C)]
    struct SockFprog {
        count: u16,
        filters: *const u64,
    }
    let count = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = SockFprog { count, filters: program.as_ptr() };
    // SAFETY: the kernel copies the program; a sock_filter is 8 bytes.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
