//! Sandboxes, sessions and their records: data and rules, without tasks or connections.

pub mod access;
pub(crate) mod activity;
pub(crate) mod agent_error;
pub(crate) mod blocking;
pub(crate) mod clock;
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod error;
pub mod events;
pub mod exposed_ports;
pub(crate) mod held;
pub mod ids;
pub mod info;
pub(crate) mod input;
pub mod network;
pub(crate) mod process;
pub(crate) mod record;
pub(crate) mod sessions;
pub(crate) mod state;
pub(crate) mod used;
