//! The tools of a Model Context Protocol server: sandboxes, a persistent shell, processes, ports and
//! files.
//!
//! Every tool makes one or two calls of the public API through an [`Api`]: over a connection to a server
//! (`isolet mcp`, one client on standard input and output), or inside the server (`/mcp`, many clients
//! over HTTP). The only state of this crate is which shell belongs to which client.
#![forbid(unsafe_code)]

mod answer_memory;
mod api;
mod api_path;
mod call;
mod clients;
mod code_result;
mod handler;
mod hints;
mod progress;
mod server;
mod tool_result;
mod tools;
mod transport;

pub use answer_memory::AnswerMemory;
pub use api::{Api, ApiFuture};
pub use clients::{CLIENTS_MAX, CLIENTS_PER_OWNER_MAX, ClientRefused, Clients, Reply};
pub use server::McpServer;
pub use transport::{MESSAGE_BYTES_MAX, StdioError, serve};
