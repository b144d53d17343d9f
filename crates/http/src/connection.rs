//! Connections of clients to the server, and of the server to programs in sandboxes.

pub(crate) mod client_stream;
pub(crate) mod connections;
pub(crate) mod head_scanner;
pub(crate) mod smuggling_guard;
pub(crate) mod upgraded;
pub(crate) mod upstream;
