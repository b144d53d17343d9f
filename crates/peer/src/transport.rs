//! HTTP between nodes: a listener for connections of peers, and a pool of connections to them.
//!
//! Both know certificates and streams, and nothing of sandboxes or tenants.

mod body;
mod connection;
mod error;
mod idle;
mod listener;
mod pool;
mod socket;
mod tunnel;

pub use body::PeerBody;
pub use error::{PeerError, SendError};
pub use listener::{ListenerLimits, PeerListener};
pub use pool::{PeerPool, PoolLimits, PoolUse};
pub use tunnel::PeerTunnel;

/// The longest head of a request or a response between nodes, in bytes: what a program behind a port may send
/// (64 KiB), and what nodes add to it.
pub const HEAD_BYTES_MAX: usize = (64 + 8) * 1024;
/// The most headers of a request or a response between nodes: what a program behind a port may send (256), and
/// what nodes add to it.
pub const HEADERS_MAX: usize = 256 + 32;
/// How long a server should wait for the next request on a connection of a peer. It is longer than
/// the idle time of the pool, so that the client closes first and no request is lost.
pub const SERVER_IDLE: std::time::Duration = std::time::Duration::from_secs(120);
