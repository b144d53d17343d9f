//! A [`Spec`](isolet_wire::launch::Spec) becomes a process that cannot get out.
//!
//! Two halves in one crate. The launcher (`main.rs`: one thread, small) prepares [`host::Host`]
//! once and then turns orders into sandboxes: [`make`](make::make) outside, `inside` within.
//! The server starts it with [`Launcher`] and looks after what it made with [`Cage`].
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
mod orphan;
mod sandbox_handle;
mod scope;
pub mod veth;

pub use child::StepError;
pub use config::{AGENT_UID, Config, SLOTS, TENANT_UIDS, UID_BASE, UIDS, agent_socket, scope_dir};
pub use create::create_sandbox;
pub use disk::no_disk;
pub use host::Host;
pub use host::requirements::missing;
pub use isolet_wire::links::Settings as VethSettings;
pub use kernel::packet::{Packet, receive_packet};
pub use launcher::{Error, Launcher};
pub use sandbox_handle::{SandboxHandle, Usage, empty_trash};
pub use scope::start_scope;
pub use veth::client::{VethClient, VethError, VethEvent};
