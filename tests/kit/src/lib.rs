//! What end-to-end tests stand on: a server of their own, its clients, and a clean-up that looks
//! for leaks.
//!
//! Everything blocks, and every wait has an end. A test starts a [`Server`], makes [`Sandbox`]es on
//! it, and talks to them by [`Http`] and [`Shell`]. When the server is dropped its sandboxes are
//! deleted and whatever is still there then fails the test.
#![forbid(unsafe_code)]

pub mod docker;
mod guest;
pub mod hostile;
pub mod http;
pub mod image;
pub mod links;
pub mod net;
mod options;
pub mod process;
mod pty;
mod rows;
mod sandbox;
mod secret;
mod server;
mod shell;
mod system_calls;
mod terminal;
pub mod tls;
pub mod tokens;
pub mod town;
mod traces;
mod wait;

pub use http::{Event, Http, Reply, Stream};
pub use options::Options;
pub use pty::Pty;
pub use rows::Rows;
pub use sandbox::Sandbox;
pub use serde_json::{Value, json};
pub use server::{Server, one, programs};
pub use shell::{Frame, Outcome, Shell, Start};
pub use system_calls::system_calls;
pub use terminal::Terminal;
pub use traces::Traces;
pub use tungstenite::Message;

/// A WebSocket, as it is.
pub type Socket = tungstenite::WebSocket<std::net::TcpStream>;

pub use wait::{quickly, wait_until};

use std::time::Duration;

/// How long anything may take that should be done at once: a loaded machine with two cores needs
/// far less, and a hang is found soon enough.
pub const SOON: Duration = Duration::from_secs(20);
/// How long work of some weight may take: 100 MB, a thousand commands.
pub const LONG: Duration = Duration::from_secs(120);

/// How often something rare is tried: `usual`, or `soak` under `make soak`.
#[must_use]
pub fn tries(usual: usize, soak: usize) -> usize {
    if std::env::var_os("ISOLET_SOAK").is_some() { soak } else { usual }
}
