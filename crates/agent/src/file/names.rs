//! Names of the agent's temporary files.
//!
//! A name contains the inode of its file, so neither a copy nor a tenant's file with a similar name
//! is mistaken for one. Lists, searches, archives and watches leave temporary files out. When a
//! writer is killed, its lock is released, and the next operation that finds the file removes it.

use isolet_sys::tree::LIFTED;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;

const DRAFT: &[u8] = b".isolet-write-";
/// Number of hexadecimal digits of the inode, and of the random part.
const DIGITS: usize = 16;

/// The name of the temporary file with this inode.
///
/// # Errors
/// The kernel provides no random bytes.
pub(super) fn temporary_name(inode: u64) -> Result<String, Errno> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let random = u64::from_ne_bytes(random);
    Ok(format!("{}{inode:016x}{random:016x}", String::from_utf8_lossy(DRAFT)))
}

/// The inode in the name of a temporary file; `None` for other names.
fn inode(name: &[u8]) -> Option<u64> {
    let digits = name.strip_prefix(DRAFT).filter(|digits| digits.len() == 2 * DIGITS)?;
    let lower = digits.iter().all(is_digit);
    let own = digits.get(..DIGITS).filter(|_| lower)?;
    u64::from_str_radix(std::str::from_utf8(own).ok()?, 16).ok()
}

fn is_digit(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Whether a file with this name and inode is a temporary file.
pub(super) fn is_temporary(name: &[u8], of: u64) -> bool {
    inode(name) == Some(of)
}

/// Whether an event is about a name of the agent itself: a temporary file, which is usually gone by
/// then; a nameless file, which the kernel calls `#` and its number; or a directory that is being
/// removed.
///
/// With `named`, the event says that a name was created, removed or moved, which never happens to a
/// nameless file. A tenant's own file may be called `#1`.
pub(super) fn is_hidden(path: &Path, name: &[u8], named: bool) -> bool {
    if is_lifted(name) {
        return true;
    }
    let nameless = name
        .strip_prefix(b"#")
        .is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
    if (named || !nameless) && inode(name).is_none() {
        return false;
    }
    match rustix::fs::lstat(path) {
        Ok(stat) => is_temporary(name, stat.st_ino),
        Err(_) => true,
    }
}

/// Whether a directory with this name is being removed.
pub(super) fn is_lifted(name: &[u8]) -> bool {
    let lifted = name.strip_prefix(LIFTED.as_bytes());
    lifted.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(is_digit))
}

/// Removes a temporary file whose writer has ended.
pub(super) fn sweep(dir: impl AsFd, name: &[u8]) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::openat(&dir, name, flags, Mode::empty()) else { return };
    let Ok(stat) = rustix::fs::fstat(&fd) else { return };
    let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let lock = || rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive);
    if file && is_temporary(name, stat.st_ino) && lock().is_ok() {
        let _ = rustix::fs::unlinkat(&dir, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: W14.
    #[test]
    fn only_a_name_that_says_its_own_inode_is_a_draft() {
        let name = temporary_name(0x1234).expect("random bytes");
        assert!(is_temporary(name.as_bytes(), 0x1234));
        assert!(!is_temporary(name.as_bytes(), 0x1235), "a copy");
        for other in [".isolet-x", ".isolet-write-", &name[1..], &name[..name.len() - 1]] {
            assert_eq!(inode(other.as_bytes()), None, "{other}");
        }
        assert_eq!(inode(name.to_uppercase().as_bytes()), None);
    }
}
