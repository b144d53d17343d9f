//! The file that programs in a sandbox see as `/proc/meminfo`: the sandbox's memory limit and usage,
//! in the format of the kernel.
//!
//! The file lies in the sandbox's directory. The launcher writes it before the first program starts,
//! and mounts it read-only over `/proc/meminfo`. After that the server rewrites it: at each change of
//! the limits, and while programs run ([`crate::upkeep::meminfo`]).
//!
//! The text has the same length for all values, and one call writes it in place. So a rewrite needs
//! no new block on a full disk, and a program that reads the file at the same time gets whole lines.
//!
//! A sandbox whose file could not be written, because the disk was full, has none. It sees the
//! machine's memory until it wakes the next time.

mod memory_usage;
mod text;

use crate::cgroup::Cgroups;
use crate::kernel::kernel_file;
use crate::kernel::mount::{attributes, clone_tree};
use memory_usage::MemoryUsage;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The name of the file in a sandbox's directory.
const FILE: &str = "meminfo";
/// The mode of the kernel's own `/proc/meminfo`.
const MODE: Mode = Mode::from_bits_retain(0o444);

/// Held while a file is compared and written. Otherwise a text from before a change of the limits
/// could replace the text from after it.
static WRITING: Mutex<()> = Mutex::new(());

/// What the kernel says about the whole machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    total_kib: u64,
    /// `None` if the kernel has no huge pages.
    huge_page_kib: Option<u64>,
}

impl Machine {
    pub(crate) fn read() -> io::Result<Self> {
        Self::parse(&kernel_file::read(Path::new("/proc/meminfo"))?)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(text: &str) -> Option<Self> {
        let kib = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().strip_suffix(" kB")?.parse().ok()
        };
        Some(Self { total_kib: kib("MemTotal:")?, huge_page_kib: kib("Hugepagesize:") })
    }
}

/// Writes the file of a sandbox that is about to start, and returns a mount of it. `directory` is the
/// sandbox's directory.
pub(crate) fn create(directory: &Path, groups: &Cgroups) -> io::Result<OwnedFd> {
    // A sandbox that wakes has the file already: on a full disk it can be rewritten, not replaced.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory.join(FILE), flags, MODE)?;
    // The launcher's umask may have removed permissions.
    rustix::fs::fchmod(&file, MODE)?;
    let text = text::render(&MemoryUsage::read(groups)?, &Machine::read()?);
    rewrite(&File::from(file), &text)?;
    Ok(mount(directory)?)
}

/// A read-only mount of a sandbox's file.
///
/// # Errors
/// `ENOENT` if the sandbox has none.
pub(crate) fn mount(directory: &Path) -> Result<OwnedFd, Errno> {
    let file = clone_tree(CWD, &directory.join(FILE), false)?;
    let flags = attributes::RDONLY | attributes::NOSUID | attributes::NODEV | attributes::NOEXEC;
    attributes::set_attributes(file.as_fd(), flags, false)?;
    Ok(file)
}

/// Rewrites the file of a running sandbox if its values have changed. Returns whether it did. Does
/// nothing if the sandbox has no such file.
pub(crate) fn refresh(directory: &Path, groups: &Cgroups, machine: &Machine) -> io::Result<bool> {
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(directory.join(FILE), flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        opened => File::from(opened?),
    };
    rewrite(&file, &text::render(&MemoryUsage::read(groups)?, machine))
}

fn rewrite(file: &File, text: &str) -> io::Result<bool> {
    let mut old = vec![0; text.len() + 1];
    let length = file.read_at(&mut old, 0)?;
    if &old[..length] == text.as_bytes() {
        return Ok(false);
    }
    file.write_all_at(text.as_bytes(), 0)?;
    if length > text.len() {
        // Written under another kernel, which has more lines.
        file.set_len(text.len() as u64)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read_from_the_kernels_text() {
        let text =
            "MemTotal:       24684096 kB\nMemFree:        1 kB\nHugepagesize:       2048 kB\n";
        let machine = Machine::parse(text).expect("parses");
        assert_eq!((machine.total_kib, machine.huge_page_kib), (24_684_096, Some(2048)));
        let without = Machine::parse("MemTotal:       24684096 kB\n").expect("parses");
        assert_eq!(without.huge_page_kib, None);
        assert!(Machine::parse("MemFree:        1 kB\n").is_none());
        assert!(Machine::read().is_ok(), "this machine's own file");
    }

    #[test]
    fn a_file_is_written_in_place_and_only_when_it_changes() {
        let file = tempfile::tempfile().expect("creates");
        let content = || {
            let mut bytes = [0; 64];
            let length = file.read_at(&mut bytes, 0).expect("reads");
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        assert!(rewrite(&file, "a: 1\nb: 2\n").expect("writes"));
        assert!(!rewrite(&file, "a: 1\nb: 2\n").expect("reads"));
        assert!(rewrite(&file, "a: 1\nb: 3\n").expect("writes"));
        assert_eq!(content(), "a: 1\nb: 3\n");
        // Written by a server of a version with other lines.
        assert!(rewrite(&file, "a: 1\n").expect("writes"));
        assert_eq!(content(), "a: 1\n");
    }
}
