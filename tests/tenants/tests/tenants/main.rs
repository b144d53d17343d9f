//! Authorization and hostile clients. Row numbers are those of the catalogue of attacks.

mod authorization;
mod bodies;
mod connection_ends;
mod connections;
mod forwarded;
mod idempotency;
mod incarnations;
mod keys;
mod paths;
mod ports;
mod quotas;
mod raw_http;
mod raw_socket;
mod raw_terminal;
mod snapshots;
mod tenant_isolation;
mod tickets;
mod tls;
mod tools;
