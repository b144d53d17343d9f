//! The edge in a small world of network namespaces: a sandbox, the edge's own, the host's, and an
//! internet. The program is the real one, its policies come over a real control socket.
#![forbid(unsafe_code)]

mod h2;
mod heads;
mod http;
mod lent;
mod lent_early;
mod lent_headers;
mod lent_memory;
mod limits;
mod names;
mod servers;
mod tls;
mod ways;
mod world;
