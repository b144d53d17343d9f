//! WebSockets: the handshake, the connection, and one file for each protocol over it.

pub(crate) mod client_frame;
pub(crate) mod connection;
pub(crate) mod shell;
pub(crate) mod shell_frames;
pub(crate) mod tcp;
pub(crate) mod terminal;
pub(crate) mod upgrade;
