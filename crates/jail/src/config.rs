//! Where things lie, for the launcher and for the server that looks after what it made.

use std::path::{Path, PathBuf};

/// Ids of one sandbox: a range of this many.
pub const UIDS: u32 = 65_536;
/// Ids that the tenant has, from the first of the range on.
pub const TENANT_UIDS: u32 = 65_535;
/// Where in the range the agent's own id lies: behind the tenant's.
pub const AGENT_UID: u32 = 65_535;
/// First id of the first range: above what systemd hands out to containers.
pub const UID_BASE: u32 = 0x7000_0000;
/// How many ranges fit below 2^32.
pub const SLOTS: u32 = 32_768;

/// What launcher and server must agree on.
#[derive(Debug, Clone)]
pub struct Config {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The launcher's binary.
    pub launcher: PathBuf,
    /// The agent's binary.
    pub agent: PathBuf,
    /// First id of slot 0.
    pub uid_base: u32,
    /// Name of the group of all its sandboxes below the server's own cgroup: `[a-z0-9-]{1,64}`.
    pub cgroup: String,
    /// Passed on to every agent: how long a stream waits for its reader, in ms.
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

    /// What its server has put into a sandbox for it to read, as `/etc/isolet` inside.
    #[must_use]
    pub fn given_dir(&self, name: &str) -> PathBuf {
        self.sandbox_dir(name).join(GIVEN)
    }

    /// Where the layers of images lie.
    #[must_use]
    pub fn images(&self) -> PathBuf {
        self.data_dir.join("images")
    }

    /// Where things are moved to be deleted.
    #[must_use]
    pub fn trash(&self) -> PathBuf {
        self.data_dir.join("trash")
    }
}

/// Two servers with two data directories must not share groups: FNV-1a of the directory's name.
fn group(data_dir: &Path) -> String {
    group_of(data_dir.as_os_str().as_encoded_bytes())
}

fn group_of(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("isolet-{:08x}", hash >> 32)
}

/// A name for the groups of a directory that no other directory has used, also not one that was at
/// this path before.
pub(crate) fn unique_group(data_dir: &Path) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos());
    let pid = std::process::id();
    group_of(format!("{} {now} {pid}", data_dir.display()).as_bytes())
}

/// Whether a text may be the name of a group.
pub(crate) fn is_group(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(good)
}

/// What the server has put there for the sandbox to read, likewise.
pub(crate) const GIVEN: &str = "given";

/// Where the process that owns the veth pairs listens for servers, below the data directory.
pub(crate) const MANAGER_DIRECTORY: &str = "network";
pub(crate) const MANAGER_SOCKET: &str = "links.sock";

/// The socket of the process that owns the veth pairs.
pub(crate) fn manager_socket(data_dir: &Path) -> PathBuf {
    data_dir.join(MANAGER_DIRECTORY).join(MANAGER_SOCKET)
}

/// Where in a sandbox's directory the scopes of its sessions have theirs.
pub(crate) const SCOPES: &str = "scopes";

/// Where the agent of a session's scope listens (as `agent.sock` in it), given its sandbox's
/// directory.
#[must_use]
pub fn scope_dir(sandbox: &Path, session: &str) -> PathBuf {
    sandbox.join(SCOPES).join(session)
}

/// Where the agent of `name` listens. May be too long for a socket address: connect through
/// `/proc/self/fd/<directory>/agent.sock`.
#[must_use]
pub fn agent_socket(config: &Config, name: &str) -> PathBuf {
    config.sandbox_dir(name).join("agent.sock")
}
