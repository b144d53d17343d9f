//! The tools of a Model Context Protocol server: sandboxes, a shell that stays, processes, ports and
//! files.
//!
//! Every tool is one call of the public API or two, made through an [`Api`]: over a connection to a
//! server (`isolet mcp`, one client on standard input and output), or within the server (`/mcp`,
//! many clients by HTTP). Nothing is kept here but which shell belongs to which client.
#![forbid(unsafe_code)]

mod answer;
mod api;
mod call;
mod clients;
mod handler;
mod place;
mod progress;
mod server;
mod tools;
mod transport;

pub use api::{Answered, Api};
pub use clients::{CLIENTS_MAX, Clients, OWN_MAX, Refused, Reply};
pub use server::Server;
pub use transport::{Stdio, serve};
