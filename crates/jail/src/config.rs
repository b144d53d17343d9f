//! Paths and id ranges that the launcher and the server share.

use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The number of ids of one sandbox.
pub const UIDS: u32 = 65_536;
/// The number of ids of the tenant, from the first of the range on.
pub const TENANT_UIDS: u32 = 65_535;
/// The id of the agent within the range: the first after those of the tenant.
pub const AGENT_UID: u32 = 65_535;
/// The first id of the first range, above the ids that systemd assigns to containers.
pub const UID_BASE: u32 = 0x7000_0000;
/// The first id on disk of the files of new sandboxes. Mounts show them under the ids of the
/// sandbox's slot, so that sandboxes in different slots can share files. The files must not be
/// reachable for users of the host: a program of id 0 may have a set-user-id bit.
pub const FILES_ID_BASE: u32 = 0;
/// How many ranges fit below 2^32.
pub const SLOTS: u32 = 32_768;

/// The configuration that the server passes to the launcher.
#[derive(Debug, Clone)]
pub struct Config {
    /// The data directory, with all files of sandboxes and images.
    pub data_dir: PathBuf,
    /// The path of the `isolet-launcher` binary.
    pub launcher: PathBuf,
    /// The path of the `isolet-agent` binary, which the launcher reads once.
    pub agent: PathBuf,
    /// The first id of slot 0.
    pub uid_base: u32,
    /// Name of the group of all its sandboxes below the server's own cgroup: `[a-z0-9-]{1,64}`.
    pub cgroup: String,
    /// How long an agent waits for a client that does not read its stream, in ms.
    pub stall_ms: u64,
}

impl Config {
    /// A configuration whose binaries lie beside the running one.
    ///
    /// # Errors
    /// When the running program's own path cannot be read.
    pub fn beside(data_dir: &Path) -> std::io::Result<Self> {
        let own = std::env::current_exe()?;
        let folder = own.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self {
            launcher: folder.join("isolet-launcher"),
            agent: folder.join("isolet-agent"),
            uid_base: UID_BASE,
            cgroup: group(data_dir),
            stall_ms: 60_000,
            data_dir: data_dir.to_owned(),
        })
    }

    /// The directory of one sandbox.
    #[must_use]
    pub fn sandbox_dir(&self, name: &str) -> PathBuf {
        self.data_dir.join("sandboxes").join(name)
    }

    /// The directory that the server writes for a sandbox to read, shown as `/etc/isolet` inside.
    #[must_use]
    pub fn given_dir(&self, name: &str) -> PathBuf {
        self.sandbox_dir(name).join(GIVEN)
    }

    /// The first id of a sandbox.
    ///
    /// # Errors
    /// `ERANGE` if there is no such range: a wrapped id would be one of the host.
    pub(crate) fn first_id(&self, slot: u32) -> Result<u32, Errno> {
        first_id(self.uid_base, slot).ok_or(Errno::RANGE)
    }

    /// The first id that the files of a sandbox have on disk. `id_base` comes from its record;
    /// `None` means the first id of its slot.
    ///
    /// # Errors
    /// `ERANGE` if no range of ids of sandboxes begins there.
    pub(crate) fn id_base(&self, slot: u32, id_base: Option<u32>) -> Result<u32, Errno> {
        let base = id_base.map_or_else(|| self.first_id(slot), Ok)?;
        if is_id_base(self.uid_base, base) { Ok(base) } else { Err(Errno::RANGE) }
    }

    /// The directory of the images' layers.
    #[must_use]
    pub fn images(&self) -> PathBuf {
        self.data_dir.join("images")
    }

    /// The directory of the immutable layers that snapshots left.
    #[must_use]
    pub fn snapshot_layers(&self) -> PathBuf {
        self.data_dir.join("snapshots/layers")
    }

    /// The trash: the directory of files that are to be deleted.
    #[must_use]
    pub fn trash(&self) -> PathBuf {
        self.data_dir.join("trash")
    }
}

/// The first id of a slot, where that of slot 0 is `uid_base`; `None` if there is no such slot.
#[must_use]
pub fn first_id(uid_base: u32, slot: u32) -> Option<u32> {
    let range = if slot < SLOTS { slot.checked_mul(UIDS) } else { None };
    let first = range.and_then(|offset| uid_base.checked_add(offset));
    first.filter(|first| first.checked_add(UIDS - 1).is_some())
}

/// Whether files of a sandbox may have ids from this one on: [`FILES_ID_BASE`], or the first id of a
/// slot, for a sandbox that was created on a file system that cannot map ids.
#[must_use]
pub fn is_id_base(uid_base: u32, id_base: u32) -> bool {
    let of_slot = id_base.checked_sub(uid_base).map(|offset| offset / UIDS);
    id_base == FILES_ID_BASE
        || of_slot.is_some_and(|slot| first_id(uid_base, slot) == Some(id_base))
}

/// The control group of a data directory's sandboxes: two directories must not share one.
fn group(data_dir: &Path) -> String {
    group_of(data_dir.as_os_str().as_encoded_bytes())
}

/// The name from the FNV-1a hash of some bytes.
fn group_of(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("isolet-{:08x}", hash >> 32)
}

/// A name that no other directory uses, not even an earlier one at the same path.
pub(crate) fn unique_group(data_dir: &Path) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos());
    let pid = std::process::id();
    group_of(format!("{} {now} {pid}", data_dir.display()).as_bytes())
}

/// Whether a text is a valid name of a control group.
pub(crate) fn is_group(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(good)
}

/// The directory within a sandbox's directory that the server writes for the sandbox to read.
pub(crate) const GIVEN: &str = "given";

/// The directory within a sandbox's directory that holds the directories of its sessions' scopes.
pub(crate) const SCOPES: &str = "scopes";

/// The directory in which the agent of a session's scope listens, as `agent.sock`. `sandbox` is the
/// sandbox's directory.
#[must_use]
pub fn scope_dir(sandbox: &Path, session: &str) -> PathBuf {
    sandbox.join(SCOPES).join(session)
}

/// The socket of a sandbox's agent. The path may be too long for a socket address: connect through
/// `/proc/self/fd/<directory>/agent.sock`.
#[must_use]
pub fn agent_socket(config: &Config, name: &str) -> PathBuf {
    config.sandbox_dir(name).join("agent.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_never_wraps_to_ids_of_the_host() {
        let config = Config::beside(Path::new("/nowhere")).unwrap();
        assert_eq!(config.first_id(0), Ok(UID_BASE));
        assert_eq!(config.first_id(SLOTS - 1), Ok(0xefff_0000));
        // 36864 ranges after the first one, the ids of the host begin again.
        for slot in [SLOTS, 36_864, u32::MAX] {
            assert_eq!(config.first_id(slot), Err(Errno::RANGE), "{slot}");
        }
    }

    #[test]
    fn files_have_ids_from_0_on_or_those_of_a_slot_and_never_others_of_the_host() {
        let config = Config::beside(Path::new("/nowhere")).unwrap();
        let second = UID_BASE + UIDS;
        assert_eq!(config.id_base(7, Some(FILES_ID_BASE)), Ok(0));
        assert_eq!(config.id_base(1, None), Ok(second), "a file system that cannot map ids");
        assert_eq!(config.id_base(7, Some(second)), Ok(second), "it moved to another slot");
        assert_eq!(config.id_base(SLOTS, None), Err(Errno::RANGE));
        for base in [1, 1000, UID_BASE - UIDS, UID_BASE + 1, 0xf000_0000, u32::MAX] {
            assert_eq!(config.id_base(0, Some(base)), Err(Errno::RANGE), "{base}");
        }
    }
}
