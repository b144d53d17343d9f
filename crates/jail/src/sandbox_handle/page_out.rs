//! Writes the memory of a frozen sandbox to the swap of the host.
//!
//! A sandbox that runs does not swap, so that it cannot use more than its memory limit. That is
//! allowed here for a moment, up to as much swap as its memory limit. What was written stays in the
//! swap until its programs need it. With version 1 of control groups, swap and memory together are
//! limited until the limits are set the next time.

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
    /// agent. `keep_bytes` of the swap stay free. With version 2 of control groups, it ends early if
    /// the sandbox is not frozen any more. Returns how much less memory it uses, in bytes. Blocks for
    /// as long as the disk takes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn page_out(&self, keep_bytes: u64) -> io::Result<u64> {
        let Some(groups) = self.groups()? else { return Ok(0) };
        let before = used(groups);
        let allowed = SwapAllowed(groups);
        let done = match groups.unified_only() {
            true => self.reclaim(&groups.tenant(), keep_bytes),
            false if free_swap_bytes()? < before.saturating_add(keep_bytes) => Ok(()),
            false => groups.legacy[0].as_deref().map_or(Ok(()), force_empty),
        };
        drop(allowed);
        done.map(|()| before.saturating_sub(used(groups)))
    }

    /// Allows no more swap, also if the previous server was killed while it wrote memory to swap. A
    /// sandbox without control groups is no error.
    pub fn forbid_swap(&self) {
        if let Ok(Some(groups)) = self.groups() {
            forbid(groups);
        }
    }

    /// With version 2 of control groups.
    fn reclaim(&self, group: &Path, keep_bytes: u64) -> io::Result<()> {
        let limit = fs::read_to_string(group.join("memory.max"))?;
        fs::write(group.join("memory.swap.max"), limit.trim())?;
        while self.is_freezing()?
            && free_swap_bytes()? > keep_bytes.saturating_add(STEP_BYTES)
            && read_number(&group.join("memory.current")) > 0
        {
            match fs::write(group.join("memory.reclaim"), STEP_BYTES.to_string()) {
                // Less than that could be freed.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                done => done?,
            }
        }
        Ok(())
    }
}

/// Allows no more swap when it is dropped. What is in the swap stays there.
struct SwapAllowed<'a>(&'a Cgroups);

impl Drop for SwapAllowed<'_> {
    fn drop(&mut self) {
        forbid(self.0);
    }
}

fn forbid(groups: &Cgroups) {
    let _ = match &groups.legacy[0] {
        Some(group) if !groups.unified_only() => fs::write(group.join("memory.swappiness"), "0"),
        _ => fs::write(groups.tenant().join("memory.swap.max"), "0"),
    };
}

/// With version 1.
fn force_empty(group: &Path) -> io::Result<()> {
    // Otherwise memory that is freed could be filled, and freed, again and again.
    let limit = fs::read_to_string(group.join("memory.limit_in_bytes"))?;
    fs::write(group.join("memory.memsw.limit_in_bytes"), limit.trim())?;
    fs::write(group.join("memory.swappiness"), "100")?;
    fs::write(group.join("memory.force_empty"), "0")
}

fn used(groups: &Cgroups) -> u64 {
    match &groups.legacy[0] {
        Some(group) if !groups.unified_only() => read_number(&group.join("memory.usage_in_bytes")),
        _ => read_number(&groups.tenant().join("memory.current")),
    }
}
