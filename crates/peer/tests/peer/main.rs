//! Peers over real TLS on loopback.

mod authority;
mod fleet;
mod limits;
mod pool;
mod raw;
mod renewal;
mod revocation;
mod server;
mod streams;
mod trust;
