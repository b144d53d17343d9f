//! Sandboxes as their clients know them: made, found, changed, worked in, ended.
//!
//! [`Service`] is the way in. One driver task per sandbox owns its state ([`state`] has the
//! picture); a [`Sandbox`] is a handle for work in it, and its links ([`link`]) go from the
//! caller's task to the agent directly: no channel or task stands between.
#![forbid(unsafe_code)]

pub mod access;
mod across;
mod audited;
mod awake;
mod background;
pub mod config;
pub mod contexts;
mod directory;
mod driver;
pub mod error;
pub mod events;
pub mod exposed;
mod failpoint;
pub mod files;
pub mod ids;
mod images;
pub mod info;
mod kept;
mod launch;
pub mod link;
mod listeners;
pub mod network;
mod notes;
mod once;
mod orphans;
mod pool;
pub mod port;
pub mod process;
pub mod profiles;
mod ready;
mod record;
mod recorder;
pub mod recordings;
mod recover;
mod registry;
#[cfg(test)]
mod registry_test;
pub mod sandbox;
mod saving;
mod scopes;
mod seen;
pub mod service;
mod sessions;
mod space;
pub mod state;
pub mod terminal;
mod used;
mod wire;
#[cfg(test)]
mod wire_test;
mod working;

pub use access::FileAccess;
pub use across::HOME;
pub use config::{Config, TenantLimits};
pub use error::{Error, OpenError};
pub use ids::{BadId, ContextId, ProcessId, SandboxId, SessionId, TenantId};
pub use info::{
    Created, Ended, Info, Life, Limits, Lost, LostState, Once, Page, Patch, SessionInfo,
    SessionWish, Usage, WhyLost, Wish,
};
pub use isolet_image as image;
pub use isolet_store::KeyDigest;
pub use isolet_store::audit;
pub use isolet_store::keys::{Grant, Key, Keys, NewKey};
pub use link::{ExecLink, Heard, LinkError, ShellLink};
pub use network::{
    Denials, Denied, Lending, Lent, Network, NetworkChange, NetworkWish, Refused, Traffic, Unlend,
};
pub use port::PortLink;
pub use process::{ProcessInfo, ProcessLink, ProcessWish};
pub use ready::READY_MAX;
pub use sandbox::{Attach, Sandbox, ShellName, Start};
pub use service::{Reach, Service};
pub use sessions::Only;
pub use state::State;
pub use terminal::TerminalLink;
pub use used::{Account, Past};
