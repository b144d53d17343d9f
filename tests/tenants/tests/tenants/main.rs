//! Who may do what, and what hostile clients send. Rows of the catalogue by their number.

mod bodies;
mod connections;
mod doors;
mod ends;
mod incarnations;
mod onces;
mod others;
mod paths;
mod ports;
mod raw_http;
mod raw_socket;
mod raw_terminal;
mod tickets;
mod tools;
