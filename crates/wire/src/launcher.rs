//! Messages between the server and the launcher. Each packet of a `SOCK_SEQPACKET` pair holds one
//! postcard value, so no framing is needed.

use serde::{Deserialize, Serialize};

/// Maximum size of a packet, in bytes.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;

/// Stands for the host's programs as the lowest layer of a root: the layers above it have changes of
/// the host's `/usr` below their directory `usr`.
pub const HOST_LAYER: &str = "host";
/// The directory in a layer that holds the first content of workspaces.
pub const WORKSPACE: &str = "workspace";
/// Length of the name of a layer, in hexadecimal digits.
const DIGEST_DIGITS: usize = 64;

/// The first path of a root file system that the server does not give: the layers, the top one first,
/// and the first content of workspaces, below the image directory. Records name these paths, and may be
/// forged. An empty text stands for layers that are missing.
#[must_use]
pub fn invalid_path<'a>(layers: &'a [String], workspace: Option<&'a str>) -> Option<&'a str> {
    let own = match layers {
        [] => return Some(""),
        [own @ .., last] if last == HOST_LAYER => own,
        all => all,
    };
    if let Some(layer) = own.iter().find(|layer| !is_layer(layer)) {
        return Some(layer);
    }
    let is_in = |path: &str, layer: &String| {
        let below = path.strip_prefix(layer.as_str()).and_then(|rest| rest.strip_prefix('/'));
        below == Some(WORKSPACE)
    };
    workspace.filter(|path| !own.iter().any(|layer| is_in(path, layer)))
}

/// Whether this is the path of the files of a layer: `layers/DIGEST/tree`, or `frames/NAME`.
fn is_layer(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["layers", digest, "tree"] => {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            digest.len() == DIGEST_DIGITS && digest.bytes().all(is_digit)
        }
        ["frames", name] => {
            let known = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
            !name.is_empty() && name.bytes().all(known)
        }
        _ => false,
    }
}

/// Encodes one packet.
///
/// # Panics
/// Never for the types of this module.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("packets encode")
}

/// Requests from the server to the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherRequest {
    /// Create a sandbox and start its agent.
    Launch(Spec),
    /// Start the agent of a session's scope in a running sandbox.
    Scope(Scope),
    /// Create the directory of a sandbox, with its disk, and start nothing. `Launch` starts the
    /// sandbox later, with [`Spec::directory_exists`]. Answered by `Launched` without a process.
    CreateFiles(Spec),
}

/// The part of its sandbox's workspace that a session sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The internal name of the sandbox; see [`Spec::name`].
    pub name: String,
    /// The uid range of the sandbox; see [`Spec::slot`].
    pub slot: u32,
    /// The id of the session, which names the directory and the cgroup of the scope.
    pub session: String,
    /// The visible paths, sorted by their components and without duplicates.
    pub grants: Vec<Grant>,
    /// Memory limit of the sandbox in MiB, which bounds what the scope keeps in memory.
    pub memory_mib: u64,
    /// User id and group id of the sandbox's programs.
    pub user: (u32, u32),
    /// Refuse the scope if a read-only path is missing or is a symbolic link. Otherwise, leave such
    /// a path out.
    pub strict: bool,
}

/// A path of the workspace that a session sees, with everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Path below the workspace without `.`, `..`, empty components, or leading and trailing
    /// slashes. The empty path is the whole workspace.
    pub path: String,
    /// The session may also write there. A missing path is created as a directory.
    pub write: bool,
}

/// Everything that the launcher needs to create one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The internal name, `[a-z0-9]{1,40}`, which names the directory and the cgroups of the
    /// sandbox.
    pub name: String,
    /// Index of the uid range, which starts at `uid_base + slot * 65536`.
    pub slot: u32,
    /// The host name inside the sandbox.
    pub hostname: String,
    /// The resource limits of the sandbox.
    pub limits: Limits,
    /// The image to use as root file system; `None` means the programs of the host.
    pub root: Option<Root>,
    /// The sandbox's directory exists with the files of an earlier run. The launcher uses the files
    /// and leaves them in place if a step fails.
    pub directory_exists: bool,
    /// Start the sandbox in the network namespace whose descriptor comes with the request.
    /// Otherwise, the sandbox gets a namespace with only the loopback interface.
    pub has_veth: bool,
    /// The first id that the sandbox's files have on disk: 0, or the first id of any slot. Mounts
    /// show the files under the ids of `slot`. `None` means the first id of `slot`.
    pub id_base: Option<u32>,
    /// Immutable directories of snapshots between the sandbox's own files and those of its image,
    /// the top one first.
    pub snapshot_layers: Vec<SnapshotLayer>,
}

/// An immutable layer that a snapshot left: what sandboxes changed in their root file system and,
/// above the programs of the host, in `/usr`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotLayer {
    /// The name of its directory below the data directory, `[a-z0-9]{1,40}`, which contains `root`
    /// and `usr`.
    pub name: String,
    /// The first id that its files have on disk, as [`Spec::id_base`].
    pub id_base: u32,
}

/// A root file system made from an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Paths of the layers below the image directory, the top layer first. The lowest one may be
    /// [`HOST_LAYER`].
    pub layers: Vec<String>,
    /// The directory in which programs start. The launcher creates it and its parents if they are
    /// missing.
    pub cwd: Option<String>,
    /// User id of the sandbox's programs, inside the sandbox.
    pub uid: u32,
    /// Group id of the sandbox's programs, inside the sandbox.
    pub gid: u32,
}

impl Root {
    /// Whether the lowest layer is the host's programs.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        self.layers.last().is_some_and(|layer| layer == HOST_LAYER)
    }
}

/// Resource limits of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all processes and tmpfs mounts, in MiB.
    pub memory_mib: u64,
    /// Processor time, in thousandths of one core.
    pub cpu_millis: u64,
    /// Maximum number of processes and threads.
    pub pids: u64,
    /// Size of the sandbox's own file system in MiB; 0 means no limit but the host's disk. It
    /// cannot change later.
    pub disk_mib: u64,
}

/// Answers from the launcher. The launcher of a server always has the server's own protocol
/// version: another one is refused at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherResponse {
    /// The first message, before the launcher prepares anything.
    Hello {
        /// [`crate::VERSION`] of the launcher.
        version: u16,
    },
    /// Sent once when the launcher has prepared everything.
    Ready {
        /// What this machine lacks, with one sentence of advice for each item. Empty if sandboxes
        /// can be created.
        missing: Vec<String>,
        /// The kernel's error number if the file system of the data directory cannot show files
        /// under other ids. New sandboxes must use the ids of their slots on disk then.
        files_unmapped: Option<i32>,
    },
    /// All grants of a scope are available, and its start continues.
    Granted {
        /// The internal name of the sandbox.
        name: String,
    },
    /// The agent of a sandbox or a scope runs and listens.
    Launched {
        /// The internal name of the sandbox.
        name: String,
        /// Process id of the agent on the host; 0 for a scope, whose cgroup identifies its agent, and
        /// for a directory.
        pid: i32,
    },
    /// The sandbox or scope could not be created, and nothing of it is left.
    Failed {
        /// The internal name of the sandbox.
        name: String,
        /// Name of the step that failed.
        step: String,
        /// The error number from the kernel.
        errno: i32,
    },
    /// A grant of a scope was refused; nothing of the scope is left.
    GrantRefused {
        /// The sandbox of the scope.
        name: String,
        /// The index of the grant in [`Scope::grants`].
        index: usize,
        /// The kernel's error number.
        errno: i32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: F51.
    #[test]
    fn a_root_has_no_path_that_the_server_does_not_give() {
        let layer = format!("layers/{}/tree", "0a".repeat(32));
        let invalid = |layers: &[&str], workspace: Option<&str>| {
            let layers: Vec<String> = layers.iter().map(|layer| (*layer).to_owned()).collect();
            invalid_path(&layers, workspace).map(str::to_owned)
        };
        let workspace = format!("{layer}/workspace");
        for good in [&["host"][..], &[&layer], &["frames/2-usr-bin", &layer], &[&layer, "host"]] {
            assert_eq!(invalid(good, None), None, "{good:?}");
        }
        assert_eq!(invalid(&["frames/2-own", &layer], Some(&workspace)), None);
        let inside = format!("{layer}/etc");
        for bad in [
            "",
            "/root",
            "layers",
            "layers/",
            "layers/0123/tree",
            "layers/../../../root",
            "frames/",
            "frames/..",
            "frames/2-own/etc",
            "./frames/2-own",
            &inside,
        ] {
            assert_eq!(invalid(&[&layer, bad, "host"], None).as_deref(), Some(bad));
        }
        assert_eq!(invalid(&["host", &layer], None).as_deref(), Some("host"));
        assert_eq!(invalid(&[], None).as_deref(), Some(""));
        let other = workspace.replace("0a", "0b");
        for bad in ["/root", "workspace", &layer, &other, &format!("{workspace}/..")] {
            assert_eq!(invalid(&[&layer, "host"], Some(bad)).as_deref(), Some(bad));
        }
    }
}
