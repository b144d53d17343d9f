//! A [`Spec`](isolet_wire::launch::Spec) becomes a process that cannot get out.
//!
//! Two halves in one crate. The launcher (`main.rs`: one thread, small) prepares [`host::Host`]
//! once and then turns orders into sandboxes: [`make`](make::make) outside, `inside` within.
//! The server starts it with [`Launcher`] and looks after what it made with [`Cage`].
#![forbid(unsafe_code)]

mod agent;
mod cage;
mod calls;
mod cgroup;
mod charge;
mod check;
mod config;
mod disk;
pub mod filter;
mod host;
pub mod identity;
mod image;
mod inside;
mod launcher;
pub mod links;
mod make;
mod root;
mod scope;
mod scoped;
mod sealed;
mod stray;

pub use cage::{Cage, Usage, empty_trash};
pub use check::missing;
pub use config::{AGENT_UID, Config, SLOTS, TENANT_UIDS, UID_BASE, UIDS, agent_socket, scope_dir};
pub use disk::no_disk;
pub use host::Host;
pub use isolet_wire::links::Settings as LinkSettings;
pub use launcher::{Error, Launcher};
pub use links::client::{LinkError, LinkNews, Links};
pub use make::make;
pub use scope::scope;
