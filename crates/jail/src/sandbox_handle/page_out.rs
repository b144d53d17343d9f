//! Writes the memory of a frozen sandbox to the swap of the host.
//!
//! A sandbox that runs does not swap, so that it cannot use more than its memory limit. That is
//! allowed here for a moment. What was written stays in the swap until its programs need it.

use super::{SandboxHandle, read_number};
use crate::cgroup::Cgroups;
use crate::kernel::kernel_file;
use std::path::Path;
use std::{fs, io};

/// Memory that the kernel is asked to free at a time, in bytes, so that a sandbox that continues is
/// noticed in between.
const STEP_BYTES: u64 = 64 * 1024 * 1024;

/// Free swap of the host, in bytes; 0 without swap.
///
/// # Errors
/// The kernel's.
pub fn free_swap_bytes() -> io::Result<u64> {
    let text = kernel_file::read(Path::new("/proc/meminfo"))?;
    let free = text.lines().find_map(|line| line.strip_prefix("SwapFree:"));
    let kib = free.and_then(|free| free.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.unwrap_or(0) * 1024)
}

impl SandboxHandle {
    /// Frees the memory of the sandbox's programs as far as the host has swap, but not that of its
    /// agent. Ends early if the sandbox is not frozen any more. Returns how much less memory it uses, in
    /// bytes. Blocks for as long as the disk takes.
    ///
    /// # Errors
    /// The kernel's. Swapping is not allowed any more then.
    pub fn page_out(&self) -> io::Result<u64> {
        let Some(groups) = self.groups()? else { return Ok(0) };
        let before = used(groups);
        let done = match groups.unified_only() {
            true => self.reclaim(&groups.tenant()),
            false => groups.legacy[0].as_deref().map_or(Ok(()), |group| force_empty(group)),
        };
        done.map(|()| before.saturating_sub(used(groups)))
    }

    /// With version 2 of control groups.
    fn reclaim(&self, group: &Path) -> io::Result<()> {
        fs::write(group.join("memory.swap.max"), "max")?;
        let mut done = Ok(());
        while self.is_freezing()? && read_number(&group.join("memory.current")) > 0 {
            match fs::write(group.join("memory.reclaim"), STEP_BYTES.to_string()) {
                // Less than that could be freed.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    done = Err(error);
                    break;
                }
                Ok(()) => {}
            }
        }
        // What is in the swap stays there.
        fs::write(group.join("memory.swap.max"), "0").and(done)
    }
}

/// With version 1, whose limit counts memory and swap together.
fn force_empty(group: &Path) -> io::Result<()> {
    fs::write(group.join("memory.swappiness"), "100")?;
    let freed = fs::write(group.join("memory.force_empty"), "0");
    fs::write(group.join("memory.swappiness"), "0").and(freed)
}

fn used(groups: &Cgroups) -> u64 {
    match &groups.legacy[0] {
        Some(group) if !groups.unified_only() => read_number(&group.join("memory.usage_in_bytes")),
        _ => read_number(&groups.tenant().join("memory.current")),
    }
}
