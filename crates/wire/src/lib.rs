//! The messages between the server, the launcher, the agents and the network processes.
//!
//! A connection to an agent carries frames of a length, a kind and a body. [`frame`] splits a
//! stream into frames and refuses frames that are too long before it allocates memory. [`request`]
//! lists every message from a server to an agent, and [`response`] lists every answer. Larger
//! topics have modules of their own: [`activity`], [`terminal`], [`process`], [`context`] and
//! [`port`]. [`launcher`], [`veth`], [`lease_guard`] and [`network`] hold the messages of the privileged
//! processes.
//! [`node`] has the name of a node of a fleet, and [`lease`] what its programs know of its lease. [`version`] says which versions work together.
//!
//! This crate does no I/O: the owner of a socket passes the bytes. It only reads the clock of
//! [`lease::BootTime`].
#![forbid(unsafe_code)]

pub mod activity;
pub mod context;
pub mod credential;
pub mod frame;
pub mod json_tree;
pub mod launcher;
pub mod lease;
pub mod lease_guard;
pub mod network;
pub mod node;
pub mod port;
pub mod process;
pub mod program;
pub mod request;
pub mod response;
pub mod terminal;
pub mod version;
pub mod veth;

pub use version::VERSION;
