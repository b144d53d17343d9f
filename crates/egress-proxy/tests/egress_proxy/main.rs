//! The egress proxy in a network of four namespaces (see `world`). The program is the real one, and
//! it receives its policies over a real control socket.
#![forbid(unsafe_code)]

mod bypass;
mod credentials;
mod credentials_early_data;
mod credentials_headers;
mod credentials_memory;
mod h2;
mod heads;
mod http;
mod limits;
mod names;
mod servers;
mod tls;
mod world;
