//! Egress: how a sandbox reaches the world, and what it may not reach.
//!
//! ```text
//! sandbox (eth0, 10.231.x.y)                                       one namespace each
//!     │ l<id>
//! gateway (10.231.0.1, packet filter, the proxy's sockets)         one namespace, ours alone
//!     │ up0
//! host (isolet0, forwarding, its own address for all sandboxes)
//! ```
//!
//! One process owns all of it (`isolet-launcher --links`). It outlives the server, as agents do, and
//! ends when neither a server nor a sandbox needs it. The gateway's namespace lives as long as the
//! process: when that is killed, every veth pair is gone, and nothing leaves any sandbox until the
//! server has started another one and attached its sandboxes again. [`client`] is the server's side.
//!
//! `addresses`, `policy`, `set_element`, `nft_ruleset` and `denials` are pure. `netlink` and `nft`
//! talk to the kernel. `gateway` and `egress_proxy` stand on these, `manager` on all before it, and
//! `event_loop` drives the manager.

mod addresses;
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
