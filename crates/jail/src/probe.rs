//! Tries out what sandboxes need from the kernel, for `isolet doctor`. Each probe does the real
//! thing in a child process and leaves nothing behind.
//!
//! The calling process must have one thread. A process without root tries in a user namespace of
//! its own what the kernel allows there.

mod cgroups;
mod child;
mod mounts;
mod namespaces;
mod packet_filter;
mod seccomp;

pub use cgroups::{control_groups, tasks_max};
pub use mounts::{ProbeDirectory, disk_image, id_mapped_files, id_mapped_mount, overlay};
pub use namespaces::{NamespaceKind, namespace, sandbox_namespaces};
pub use packet_filter::{firewall_warnings, packet_filter, range_is_free};
pub use seccomp::seccomp;
