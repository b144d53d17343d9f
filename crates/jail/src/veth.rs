//! Links: how a sandbox reaches the world, and what keeps it from the rest.
//!
//! ```text
//! sandbox (eth0, 10.231.x.y)                                    one namespace each
//!     │ l<id>
//! between (gateway 10.231.0.1, rules, resolver's socket)        one namespace, ours alone
//!     │ up0
//! host (isolet0, forwarding, its own address for all)
//! ```
//!
//! One process owns all of it (`isolet-launcher --links`): it outlives the server, as agents do,
//! and ends when neither a server nor a sandbox needs it. The namespace between lives as long as
//! the process: when that is killed, every link is gone and nothing leaves any sandbox until
//! another is started and links them anew. [`client`] is the server's side.

pub(crate) mod client;
mod client_conn;
mod denials;
mod egress_proxy;
mod event_loop;
mod gateway;
mod host_firewall;
mod manager;
mod netlink;
mod nft;
mod nft_ruleset;
mod policy;
mod privileges;
mod sandbox_end;
mod set_element;
mod socket;

pub use event_loop::{Options, run};
