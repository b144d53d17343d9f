//! The base of the end-to-end tests: a server for each test, its clients, and a clean-up that looks
//! for leaks.
//!
//! Everything blocks, and every wait has a limit. A test starts a [`Server`], creates [`Sandbox`]es
//! on it and talks to them through [`Http`] and [`Shell`]. Dropping the server deletes its
//! sandboxes, and anything that remains on the machine fails the test.
#![forbid(unsafe_code)]

pub mod attacks;
mod data_directory;
pub mod docker;
pub mod etcd_wire;
mod guest;
pub mod hostile;
pub mod http;
pub mod https;
pub mod image;
pub mod internet;
mod loop_disk;
pub mod net;
mod options;
mod port;
pub mod process;
mod pty;
mod rows;
pub mod s3;
mod sandbox;
mod secret;
mod server;
mod shell;
mod signed_file;
mod system_calls;
mod terminal;
pub mod tls;
pub mod tokens;
mod traces;
pub mod veth;
mod wait;
mod wall_clock;

pub use data_directory::{erase, share_image, test_directory};
pub use http::{Event, Http, Reply, Stream};
pub use loop_disk::{MountedDisk, cut, end_on_disk, evict, subvolumes, truncate};
pub use options::Options;
pub use port::free_port;
pub use pty::Pty;
pub use rows::Rows;
pub use sandbox::Sandbox;
pub use serde_json::{Value, json};
pub use server::{Server, one, programs};
pub use shell::{Frame, Outcome, Shell, Start};
pub use signed_file::signed_file;
pub use system_calls::system_calls;
pub use terminal::Terminal;
pub use traces::Traces;
pub use tungstenite::Message;
pub use wall_clock::WallClock;

/// A WebSocket over a plain TCP connection.
pub type Socket = tungstenite::WebSocket<std::net::TcpStream>;

pub use wait::{quickly, wait_until, with_growing_limit};

use std::time::Duration;

/// Limit for anything that should happen immediately: a loaded machine with two cores, whose disk
/// may take seconds for each synchronization, needs less, and a hang is still found early.
pub const SOON: Duration = Duration::from_secs(60);
/// Limit for heavier work, such as 100 MB of output or a thousand commands.
pub const LONG: Duration = Duration::from_secs(180);

/// How often a test tries something rare: `usual` times, or `soak` times under `make soak`.
#[must_use]
pub fn tries(usual: usize, soak: usize) -> usize {
    if std::env::var_os("ISOLET_SOAK").is_some() { soak } else { usual }
}
