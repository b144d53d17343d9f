//! The text of a sandbox's `/proc/meminfo`.
//!
//! It has only lines whose values are true for the sandbox. Lines that are always 0 are there
//! because programs expect them: a sandbox has no buffers of block devices and no huge pages, and
//! swap does not extend its memory.

use super::Machine;
use super::memory_usage::MemoryUsage;
use std::fmt::Write as _;

/// Usage is rounded to a multiple of this, so that small changes do not change the text.
const ROUND_KIB: u64 = 1024;
/// The column in which numbers end, as in the kernel's own file. Numbers are only as long as fits
/// between it and the name of the line.
const NUMBER_END: usize = 24;

/// The text for a sandbox. Its length depends on the machine and on the version of its control
/// groups only.
pub(super) fn render(usage: &MemoryUsage, machine: &Machine) -> String {
    let stat = &usage.stat;
    let lists = &stat.lists;
    let total = (usage.limit / 1024).min(machine.total_kib);
    let used = rounded(usage.used).min(total);
    let free = total - used;
    let active_anonymous = rounded(lists.active_anonymous);
    let inactive_anonymous = rounded(lists.inactive_anonymous);
    let active_file = rounded(lists.active_file);
    let inactive_file = rounded(lists.inactive_file);
    let reclaimable_slab = stat.slab.as_ref().map_or(0, |slab| rounded(slab.reclaimable));
    // The kernel frees these pages before a program lacks memory.
    let reclaimable = (active_file + inactive_file + reclaimable_slab).min(used);

    let mut text = String::with_capacity(1024);
    for (name, kib) in [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free + reclaimable),
        ("Buffers", 0),
        ("Cached", rounded(stat.cached).min(used)),
        ("SwapCached", 0),
        ("Active", active_anonymous + active_file),
        ("Inactive", inactive_anonymous + inactive_file),
        ("Active(anon)", active_anonymous),
        ("Inactive(anon)", inactive_anonymous),
        ("Active(file)", active_file),
        ("Inactive(file)", inactive_file),
        ("Unevictable", rounded(lists.unevictable)),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", rounded(stat.dirty)),
        ("Writeback", rounded(stat.writeback)),
        ("AnonPages", rounded(stat.anonymous)),
        ("Mapped", rounded(stat.mapped)),
        ("Shmem", rounded(stat.shared)),
    ] {
        push_line(&mut text, name, kib, " kB");
    }
    if let Some(slab) = &stat.slab {
        let unreclaimable = rounded(slab.unreclaimable);
        push_line(&mut text, "KReclaimable", reclaimable_slab, " kB");
        push_line(&mut text, "Slab", reclaimable_slab + unreclaimable, " kB");
        push_line(&mut text, "SReclaimable", reclaimable_slab, " kB");
        push_line(&mut text, "SUnreclaim", unreclaimable, " kB");
    }
    if let Some(huge_page_kib) = machine.huge_page_kib {
        for name in ["HugePages_Total", "HugePages_Free", "HugePages_Rsvd", "HugePages_Surp"] {
            push_line(&mut text, name, 0, "");
        }
        push_line(&mut text, "Hugepagesize", huge_page_kib, " kB");
    }
    text
}

/// Bytes in KiB, rounded to the nearest multiple of [`ROUND_KIB`].
fn rounded(bytes: u64) -> u64 {
    (bytes / 1024).saturating_add(ROUND_KIB / 2) / ROUND_KIB * ROUND_KIB
}

fn push_line(text: &mut String, name: &str, number: u64, unit: &str) {
    let width = NUMBER_END - name.len() - 1;
    let largest = 10_u64.pow(width as u32) - 1;
    let number = number.min(largest);
    writeln!(text, "{name}:{number:>width$}{unit}").expect("a string takes all text");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::meminfo::memory_usage::{MemoryStat, PageLists, Slab};

    const MIB: u64 = 1 << 20;
    const MACHINE: Machine = Machine { total_kib: 24_684_096, huge_page_kib: Some(2048) };

    fn usage() -> MemoryUsage {
        let lists = PageLists {
            active_anonymous: 3 * MIB,
            inactive_anonymous: 97 * MIB,
            active_file: 10 * MIB,
            inactive_file: 40 * MIB,
            unevictable: MIB,
        };
        let stat = MemoryStat {
            anonymous: 96 * MIB,
            cached: 54 * MIB,
            shared: 4 * MIB,
            mapped: 7 * MIB,
            dirty: 2 * MIB,
            writeback: 0,
            lists,
            slab: Some(Slab { reclaimable: 5 * MIB, unreclaimable: 8 * MIB }),
        };
        MemoryUsage { limit: 512 * MIB, used: 170 * MIB + 400 * 1024, stat }
    }

    fn value(text: &str, name: &str) -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        value.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    #[test]
    fn a_text_has_the_kernels_lines() {
        let expected = "\
MemTotal:         524288 kB
MemFree:          350208 kB
MemAvailable:     406528 kB
Buffers:               0 kB
Cached:            55296 kB
SwapCached:            0 kB
Active:            13312 kB
Inactive:         140288 kB
Active(anon):       3072 kB
Inactive(anon):    99328 kB
Active(file):      10240 kB
Inactive(file):    40960 kB
Unevictable:        1024 kB
SwapTotal:             0 kB
SwapFree:              0 kB
Dirty:              2048 kB
Writeback:             0 kB
AnonPages:         98304 kB
Mapped:             7168 kB
Shmem:              4096 kB
KReclaimable:       5120 kB
Slab:              13312 kB
SReclaimable:       5120 kB
SUnreclaim:         8192 kB
HugePages_Total:       0
HugePages_Free:        0
HugePages_Rsvd:        0
HugePages_Surp:        0
Hugepagesize:       2048 kB
";
        let usage = usage();
        assert_eq!(render(&usage, &MACHINE), expected);
        let of_version_1 =
            MemoryUsage { stat: MemoryStat { slab: None, ..usage.stat.clone() }, ..usage };
        let text = render(&of_version_1, &MACHINE);
        assert!(!text.contains("Slab") && !text.contains("SReclaimable"), "{text}");
        assert_eq!(value(&text, "MemAvailable"), 401_408);
        let without_huge_pages = render(&of_version_1, &Machine { huge_page_kib: None, ..MACHINE });
        assert!(!without_huge_pages.contains("Huge"), "{without_huge_pages}");
    }

    #[test]
    fn every_text_of_a_machine_is_equally_long_and_shorter_than_a_page() {
        let length = render(&usage(), &MACHINE).len();
        let largest = PageLists {
            active_anonymous: u64::MAX,
            inactive_anonymous: u64::MAX,
            active_file: u64::MAX,
            inactive_file: u64::MAX,
            unevictable: u64::MAX,
        };
        let slab = Some(Slab { reclaimable: u64::MAX, unreclaimable: u64::MAX });
        let full = MemoryUsage {
            limit: u64::MAX,
            used: u64::MAX,
            stat: MemoryStat { lists: largest, slab: slab.clone(), ..MemoryStat::default() },
        };
        let empty = MemoryUsage {
            limit: 0,
            used: 0,
            stat: MemoryStat { slab: Some(Slab::default()), ..MemoryStat::default() },
        };
        let huge = Machine { total_kib: 1 << 40, ..MACHINE };
        assert_eq!(render(&full, &huge).len(), length);
        assert_eq!(render(&empty, &MACHINE).len(), length);
        // Programs read the whole file by one call into 4 KiB or more.
        assert!(length < 2048, "{length}");
    }

    #[test]
    fn values_stay_within_the_limit_and_the_machine() {
        let text = render(&MemoryUsage { limit: u64::MAX, ..usage() }, &MACHINE);
        assert_eq!(value(&text, "MemTotal"), MACHINE.total_kib);
        // Usage may exceed the limit for a moment, and the kernel's counters may lag behind it.
        let text = render(&MemoryUsage { used: 600 * MIB, ..usage() }, &MACHINE);
        assert_eq!((value(&text, "MemFree"), value(&text, "MemAvailable")), (0, 55 * 1024));
        let text = render(&MemoryUsage { used: 2 * MIB, ..usage() }, &MACHINE);
        assert_eq!(value(&text, "MemAvailable"), value(&text, "MemTotal"));
        assert_eq!(value(&text, "Cached"), 2048);
    }

    #[test]
    fn a_small_change_leaves_the_text_as_it_is() {
        let before = usage();
        let after = MemoryUsage { used: before.used + 60 * 1024, ..before.clone() };
        assert_eq!(render(&before, &MACHINE), render(&after, &MACHINE));
        let more = MemoryUsage { used: before.used + MIB, ..before.clone() };
        assert_ne!(render(&before, &MACHINE), render(&more, &MACHINE));
    }
}
