//! What the control groups say about the memory of a sandbox.

use crate::cgroup::Cgroups;
use crate::kernel::kernel_file;
use std::io;
use std::path::PathBuf;

/// The memory of a sandbox at one moment. All values are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemoryUsage {
    /// The memory limit; more than any machine has, if there is none.
    pub(super) limit: u64,
    /// Everything that counts towards the limit, also memory of the kernel.
    pub(super) used: u64,
    pub(super) stat: MemoryStat,
}

/// The parts of the memory in use, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MemoryStat {
    pub(super) anonymous: u64,
    /// Files in memory, also those that exist only there (`shared`).
    pub(super) cached: u64,
    pub(super) shared: u64,
    pub(super) mapped: u64,
    pub(super) dirty: u64,
    pub(super) writeback: u64,
    pub(super) lists: PageLists,
    /// `None` with version 1, which does not count it separately.
    pub(super) slab: Option<Slab>,
}

/// Pages by the order in which the kernel reclaims them, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PageLists {
    pub(super) active_anonymous: u64,
    pub(super) inactive_anonymous: u64,
    pub(super) active_file: u64,
    pub(super) inactive_file: u64,
    pub(super) unevictable: u64,
}

/// Objects of the kernel, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slab {
    pub(super) reclaimable: u64,
    pub(super) unreclaimable: u64,
}

/// The names that a version of the control groups has for files, and for values in `memory.stat`.
struct StatNames {
    limit: &'static str,
    used: &'static str,
    /// Stands before every value that includes groups below.
    prefix: &'static str,
    anonymous: &'static str,
    cached: &'static str,
    mapped: &'static str,
    dirty: &'static str,
    writeback: &'static str,
    has_slab: bool,
}

const VERSION_1: StatNames = StatNames {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    prefix: "total_",
    anonymous: "rss",
    cached: "cache",
    mapped: "mapped_file",
    dirty: "dirty",
    writeback: "writeback",
    has_slab: false,
};

const VERSION_2: StatNames = StatNames {
    limit: "memory.max",
    used: "memory.current",
    prefix: "",
    anonymous: "anon",
    cached: "file",
    mapped: "file_mapped",
    dirty: "file_dirty",
    writeback: "file_writeback",
    has_slab: true,
};

impl MemoryUsage {
    pub(super) fn read(groups: &Cgroups) -> io::Result<Self> {
        match &groups.legacy[0] {
            Some(group) => Self::read_group(group.clone(), &VERSION_1),
            None => Self::read_group(groups.tenant(), &VERSION_2),
        }
    }

    fn read_group(group: PathBuf, names: &StatNames) -> io::Result<Self> {
        let bytes = |name| -> io::Result<u64> {
            let text = kernel_file::read(&group.join(name))?;
            match text.trim() {
                "max" => Ok(u64::MAX),
                number => number.parse().map_err(|_| io::ErrorKind::InvalidData.into()),
            }
        };
        Ok(Self {
            limit: bytes(names.limit)?,
            used: bytes(names.used)?,
            stat: MemoryStat::parse(&kernel_file::read(&group.join("memory.stat"))?, names),
        })
    }
}

impl MemoryStat {
    /// Values that the kernel does not list are 0.
    fn parse(text: &str, names: &StatNames) -> Self {
        let bytes = |name: &str| {
            let values = text.lines().filter_map(|line| line.strip_prefix(names.prefix));
            let mut values = values.filter_map(|line| line.split_once(' '));
            values.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok())
        };
        let bytes = |name: &str| bytes(name).unwrap_or(0);
        Self {
            anonymous: bytes(names.anonymous),
            cached: bytes(names.cached),
            shared: bytes("shmem"),
            mapped: bytes(names.mapped),
            dirty: bytes(names.dirty),
            writeback: bytes(names.writeback),
            lists: PageLists {
                active_anonymous: bytes("active_anon"),
                inactive_anonymous: bytes("inactive_anon"),
                active_file: bytes("active_file"),
                inactive_file: bytes("inactive_file"),
                unevictable: bytes("unevictable"),
            },
            slab: names.has_slab.then(|| Slab {
                reclaimable: bytes("slab_reclaimable"),
                unreclaimable: bytes("slab_unreclaimable"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Reads a group whose files have these contents.
    fn read(files: &[(&str, &str)], names: &StatNames) -> io::Result<MemoryUsage> {
        let group = tempfile::tempdir().expect("creates");
        for (name, content) in files {
            fs::write(group.path().join(name), content).expect("writes");
        }
        MemoryUsage::read_group(group.path().to_owned(), names)
    }

    /// What the texts below mean in both versions.
    fn expected_stat(slab: Option<Slab>) -> MemoryStat {
        let lists = PageLists {
            active_anonymous: 108,
            inactive_anonymous: 107,
            active_file: 110,
            inactive_file: 109,
            unevictable: 111,
        };
        MemoryStat {
            anonymous: 102,
            cached: 101,
            shared: 103,
            mapped: 104,
            dirty: 105,
            writeback: 106,
            lists,
            slab,
        }
    }

    #[test]
    fn version_1_counts_the_groups_below_and_no_slab() {
        let stat = "cache 1\nrss 2\nshmem 3\nmapped_file 4\ndirty 5\nwriteback 6\ninactive_anon 7\n\
            active_anon 8\ninactive_file 9\nactive_file 10\nunevictable 11\n\
            hierarchical_memory_limit 67108864\ntotal_cache 101\ntotal_rss 102\ntotal_rss_huge 199\n\
            total_shmem 103\ntotal_mapped_file 104\ntotal_dirty 105\ntotal_writeback 106\n\
            total_inactive_anon 107\ntotal_active_anon 108\ntotal_inactive_file 109\n\
            total_active_file 110\ntotal_unevictable 111\n";
        let files = [
            ("memory.limit_in_bytes", "67108864\n"),
            ("memory.usage_in_bytes", "300\n"),
            ("memory.stat", stat),
        ];
        let expected = MemoryUsage { limit: 64 << 20, used: 300, stat: expected_stat(None) };
        assert_eq!(read(&files, &VERSION_1).expect("reads"), expected);
    }

    #[test]
    fn version_2_counts_slab_and_may_have_no_limit() {
        let stat = "anon 102\nfile 101\nkernel 400\nkernel_stack 401\nshmem 103\nfile_mapped 104\n\
            file_dirty 105\nfile_writeback 106\nanon_thp 199\ninactive_anon 107\nactive_anon 108\n\
            inactive_file 109\nactive_file 110\nunevictable 111\nslab_reclaimable 112\n\
            slab_unreclaimable 113\nslab 225\n";
        let files = [("memory.max", "max\n"), ("memory.current", "700\n"), ("memory.stat", stat)];
        let slab = Slab { reclaimable: 112, unreclaimable: 113 };
        let stat = expected_stat(Some(slab));
        let expected = MemoryUsage { limit: u64::MAX, used: 700, stat };
        assert_eq!(read(&files, &VERSION_2).expect("reads"), expected);
        let missing = read(&files[1..], &VERSION_2).expect_err("the group has ended");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
