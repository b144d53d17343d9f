//! Authorization and hostile clients. Row numbers are those of the catalogue of attacks.

mod authorization;
mod bodies;
mod builds;
mod connection_ends;
mod connections;
mod defaults;
mod forwarded;
mod idempotency;
mod image_names;
mod incarnations;
mod keys;
mod link_tokens;
mod paths;
mod ports;
mod quotas;
mod raw_http;
mod raw_socket;
mod raw_terminal;
mod snapshots;
mod strangers;
mod tenant_isolation;
mod tickets;
mod tls;
mod tools;
