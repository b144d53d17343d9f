//! What a client says, made into typed requests: HTTP/1.1 and WebSocket on one port.
//!
//! A request passes [`origin`] (is it meant for this server), [`auth`] (whose is it), then one
//! file of [`routes`] a resource or a dialect. Neither a path nor a process id is touched here.
#![forbid(unsafe_code)]

mod answers;
mod audit;
mod auth;
mod command;
mod connections;
mod console;
mod date;
mod denied;
mod dialects;
mod error;
mod gate;
mod heads;
mod input;
mod json;
mod limits;
mod mcp;
mod misses;
mod openapi;
mod origin;
mod output;
mod page;
mod ports;
mod query;
mod routes;
mod run;
mod server;
mod signals;
mod sse;
mod text;
mod tickets;
mod until;
mod view;
mod ws;

pub use limits::{ConnectionLimits, Kind};
pub use misses::MISSES_MAX;
pub use openapi::document;
pub use origin::Names;
pub use server::{Options, serve};
