//! The HTTP API: turns what clients send into typed requests. HTTP/1.1 and WebSocket on one port.
//!
//! A request passes [`auth::origin`] (is it meant for this server) and [`auth::authenticator`] (who
//! sends it), and then reaches one handler in [`routes`] or [`dialects`]. In a fleet, [`forwarding`]
//! sends it to the node that owns its sandbox. This crate never touches
//! a file path or a process id.
#![forbid(unsafe_code)]

mod app;
mod auth;
mod connection;
mod console;
mod dialects;
pub mod fleet;
mod forwarding;
mod foundation;
mod limits;
mod mcp;
mod middleware;
mod proxy;
mod router;
mod routes;
mod server;
mod stream;
mod ws;

pub use auth::not_found_limiter::NOT_FOUND_LIMIT;
pub use auth::origin::ServerNames;
pub use auth::trusted_proxies::TrustedProxies;
pub use forwarding::node_call::moving::restore_on;
pub use foundation::request_id::current_request_id;
pub use foundation::trace::{RequestTracing, enable_tracing};
pub use limits::kind::ConnectionKind;
pub use limits::settings::ConnectionLimits;
pub use router::openapi::document;
pub use server::{Options, serve};
