//! Sandboxes as their clients know them: made, found, changed, worked in, ended.
//!
//! [`Service`] is the way in. One driver task per sandbox owns its state ([`state`] has the
//! picture); a [`Sandbox`] is a handle for work in it, and its links ([`link`]) go from the
//! caller's task to the agent directly: no channel or task stands between.
#![forbid(unsafe_code)]

mod agent_client;
mod lifecycle;
mod live;
mod model;
pub mod sandbox;
pub mod service;

pub use agent_client::{
    link::{ExecLink, ShellLink},
    wire::Heard,
};
pub use isolet_image as image;
pub use isolet_store::{
    KeyDigest, audit,
    keys::{Grant, Key, Keys, NewKey},
};
pub use live::ready::READY_MAX;
pub use model::{
    access::{self, FileAccess},
    agent_error::LinkError,
    config::{Config, TenantLimits},
    error::{Error, OpenError},
    events, exposed,
    ids::{self, BadId, ContextId, ProcessId, SandboxId, SessionId, TenantId},
    info::{
        self, Created, Ended, Info, Life, Limits, Lost, LostState, Once, Page, Patch, SessionInfo,
        SessionWish, Usage, WhyLost, Wish,
    },
    network::{
        self, Denied, Lending, Lent, Network, NetworkChange, NetworkWish, Refused, Traffic, Unlend,
        profiles,
    },
    process::{ProcessInfo, ProcessWish},
    sessions::{Only, WORKSPACE},
    state::State,
    used::{Account, Past},
};
pub use sandbox::{
    Attach, Denials, Sandbox, ShellName, Start, contexts, files,
    port::PortLink,
    process::ProcessLink,
    recordings,
    terminal::{self, TerminalLink},
};
pub use service::{Reach, Service, across::HOME};
