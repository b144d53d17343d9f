//! Turns a [`Spec`](isolet_wire::launcher::Spec) into a sandbox whose processes cannot escape.
//!
//! The crate has two halves. The launcher (`main.rs`: one thread, small) prepares a [`Host`] once
//! and then creates sandboxes ([`create_sandbox`]) and starts the agents of sessions with a scope
//! ([`start_scope`]). The server starts it with [`Launcher`], and controls sandboxes with
//! [`SandboxHandle`]. A process of its own controls egress ([`veth`]).
//!
//! Layers, each of which uses only those before it: `config`, `kernel` and `filter`; `cgroup`,
//! `orphan` and `disk`; `identity` and `sandbox_handle` (with `frozen`); `upkeep`; `host`; `child`;
//! `create`, `scope` and `veth`; `lease_guard`, `launcher`, `probe` and `teardown`.
#![forbid(unsafe_code)]

mod cgroup;
mod child;
mod config;
mod create;
mod disk;
pub mod filter;
mod host;
pub mod identity;
mod kernel;
mod launcher;
pub mod lease_guard;
mod orphan;
pub mod probe;
mod sandbox_handle;
mod scope;
mod teardown;
mod upkeep;
pub mod veth;

pub use child::StepError;
pub use config::{
    AGENT_UID, Config, FILES_ID_BASE, SLOTS, TENANT_UIDS, UID_BASE, UIDS, agent_socket, first_id,
    is_id_base, scope_dir,
};
pub use create::{create_files, create_sandbox};
pub use disk::{mount_disk, mount_read_only, no_disk, wait_detached};
pub use host::image::host_skeleton;
pub use host::requirements::{CONTROL_GROUPS, Lack, Requirement, missing, requirements};
pub use host::{Host, PrepareError, host_trees};
pub use isolet_wire::veth::VethSettings;
pub use kernel::packet::{Packet, receive_packet};
pub use launcher::{Error, Launcher};
pub use lease_guard::client::{GuardError, LeaseGuard};
pub use sandbox_handle::frozen::{FrozenSandbox, freeze_processes, write_disk};
pub use sandbox_handle::page_out::free_swap_bytes;
pub use sandbox_handle::{SandboxHandle, Usage, disk_bytes, empty_trash};
pub use scope::{ScopeError, start_scope};
pub use teardown::{Ended, end_all};
pub use upkeep::meminfo::MeminfoRefresher;
pub use upkeep::processors::Balancer;
pub use veth::client::{VethClient, VethError, VethEvent};
