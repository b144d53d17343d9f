//! The socket `DATA/admin.sock`, by which commands on the server's machine ask the running server for
//! what only it can do. Only the server's own user may connect: no API key, and no tenant.

pub(crate) mod client;
mod protocol;
pub(crate) mod server;

pub(crate) use protocol::{AdminRequest, AdminResponse};

/// The name of the socket in the data directory.
const SOCKET: &str = "admin.sock";
/// Maximum length of a message, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;
