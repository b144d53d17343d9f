//! Tries out namespaces, mounts and seccomp filters.

use super::finding::Finding;
use super::nearest;
use isolet_jail::StepError;
use isolet_jail::probe::{self, NamespaceKind, ProbeDirectory};
use rustix::io::Errno;
use std::path::Path;

const GROUP: &str = "kernel";
const DISK_LIMITS: &str = "disk limits";
const MAPPED_FILES: &str = "id-mapped files";
const CONTAINER: &str = "run isolet on the host, or in a container with all privileges; a distribution's kernel has all it needs";

pub(super) fn check(data_dir: &Path, is_root: bool) -> Vec<Finding> {
    let mut all = vec![namespaces(is_root), seccomp()];
    let mapped = is_root.then(probe::id_mapped_mount);
    let has_mapped = matches!(mapped, Some(Ok(())));
    all.push(match mapped {
        None => Finding::needs_root(GROUP, "id-mapped mounts"),
        Some(Ok(())) => Finding::ok(GROUP, "id-mapped mounts", "/usr is shown under other ids"),
        Some(Err(error)) => Finding::failure(
            GROUP,
            "id-mapped mounts",
            format!("the file system of /usr does not support them ({error})"),
            "use a kernel from 5.19 on, and ext4, xfs or btrfs for /usr and the data directory",
        ),
    });
    all.extend(on_disk(data_dir, is_root, has_mapped));
    all
}

fn namespaces(is_root: bool) -> Finding {
    let check = "namespaces";
    for kind in NamespaceKind::ALL {
        if let Err(error) = probe::namespace(kind) {
            let message = format!("cannot create a {} namespace: {}", kind.name(), error.errno);
            let remedy = match kind {
                NamespaceKind::User => {
                    "sysctl -w user.max_user_namespaces=10000; sysctl -w kernel.unprivileged_userns_clone=1 where it exists".to_owned()
                }
                _ => format!(
                    "sysctl -w user.max_{}_namespaces=10000, or boot a kernel with {}",
                    sysctl(kind),
                    kind.option()
                ),
            };
            return Finding::failure(GROUP, check, message, remedy);
        }
    }
    if is_root && let Err(error) = probe::sandbox_namespaces() {
        let message = format!("cannot create the namespaces of a sandbox ({error})");
        return Finding::failure(GROUP, check, message, CONTAINER);
    }
    let names = NamespaceKind::ALL.map(NamespaceKind::name).join(", ");
    Finding::ok(GROUP, check, names)
}

/// The kind's name in `user.max_*_namespaces`.
fn sysctl(kind: NamespaceKind) -> &'static str {
    match kind {
        NamespaceKind::Mount => "mnt",
        NamespaceKind::Network => "net",
        kind => kind.name(),
    }
}

fn seccomp() -> Finding {
    match probe::seccomp() {
        Ok(()) => Finding::ok(GROUP, "seccomp", "the filter of sandboxes is installed and refuses"),
        Err(error) => Finding::failure(
            GROUP,
            "seccomp",
            format!("the filter of sandboxes does not work ({error})"),
            "sysctl -w net.core.bpf_jit_limit=1073741824, or boot a kernel with CONFIG_SECCOMP_FILTER",
        ),
    }
}

/// Checks that create files beside the data directory's.
fn on_disk(data_dir: &Path, is_root: bool, mapped: bool) -> Vec<Finding> {
    let directory = match ProbeDirectory::create(nearest(data_dir)) {
        Ok(directory) => directory,
        Err(error) => {
            let reason = format!("cannot write to {} ({error})", nearest(data_dir).display());
            let remedy = "see the check of the data directory";
            return ["overlay", MAPPED_FILES, DISK_LIMITS]
                .map(|check| Finding::unchecked(GROUP, check, &reason, remedy))
                .into();
        }
    };
    vec![
        overlay(&directory, mapped),
        mapped_files(&directory, is_root),
        disk_limits(&directory, is_root),
    ]
}

fn overlay(directory: &ProbeDirectory, mapped: bool) -> Finding {
    match probe::overlay(directory, mapped) {
        Ok(()) => {
            Finding::ok(GROUP, "overlay", "mounted over /usr, with files in the data directory")
        }
        Err(error) => {
            let message =
                format!("cannot mount an overlay with files in the data directory ({error})");
            let remedy = match error.errno {
                Errno::NOSPC | Errno::DQUOT => "free space on the disk of the data directory",
                _ => {
                    "put data_dir on ext4, xfs or btrfs, not on an overlay or a network file system"
                }
            };
            Finding::failure(GROUP, "overlay", message, remedy)
        }
    }
}

fn mapped_files(directory: &ProbeDirectory, is_root: bool) -> Finding {
    if !is_root {
        return Finding::needs_root(GROUP, MAPPED_FILES);
    }
    match probe::id_mapped_files(directory) {
        Ok(()) => Finding::ok(GROUP, MAPPED_FILES, "the data directory is shown under other ids"),
        Err(error) => Finding::warning(
            GROUP,
            MAPPED_FILES,
            format!(
                "the file system of the data directory cannot map ids ({error}): files of new sandboxes have the ids of their slot on disk, and restored sandboxes whose files have other ids cannot start"
            ),
            "put data_dir on ext4, xfs or btrfs",
        ),
    }
}

/// What this machine obviously lacks for `disk_mib`.
pub(super) fn no_disk_limits() -> Option<Finding> {
    let lack = isolet_jail::no_disk()?;
    let (problem, remedy) = lack.split_once(": ").unwrap_or((lack.as_str(), "install it"));
    let message = format!("no disk_mib, so one sandbox can fill the server's disk: {problem}");
    Some(Finding::warning(GROUP, DISK_LIMITS, message, remedy))
}

fn disk_limits(directory: &ProbeDirectory, is_root: bool) -> Finding {
    let check = DISK_LIMITS;
    if let Some(finding) = no_disk_limits() {
        return finding;
    }
    if !is_root {
        return Finding::needs_root(GROUP, check);
    }
    match probe::disk_image(directory) {
        Ok(()) => Finding::ok(GROUP, check, "an ext4 image is mounted from a loop device"),
        Err(StepError { step, errno }) => Finding::warning(
            GROUP,
            check,
            format!("no disk_mib: cannot {step} ({errno})"),
            "modprobe loop, install e2fsprogs, and give a container /dev/loop-control and /dev/loop*",
        ),
    }
}
