//! The TCP side of the egress proxy: accept a connection, find out which host it asks for, apply
//! the rules, and forward it.
//!
//! | module | content |
//! |---|---|
//! | `sockets`, `protocol`, `client_hello` | socket options, protocol detection, the TLS SNI |
//! | `connection` | one connection of a sandbox: decide, dial, and end it when rules change |
//! | `counted_stream` | the sandbox's socket with byte counters |
//! | `passthrough`, `http`, `tls_terminate` | the three handlers of connections |
//! | `listener` | the accept loop, which chooses between the three |

pub mod client_hello;
mod connection;
mod counted_stream;
mod http;
pub(crate) mod listener;
mod passthrough;
pub mod protocol;
mod tls_terminate;
