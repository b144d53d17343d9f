//! Egress: the network of sandboxes, and the packet filter that limits what they reach.
//!
//! ```text
//! sandbox (eth0, 10.231.x.y)                                       one namespace each
//!     │ l<id>
//! gateway (10.231.0.1, packet filter, the proxy's sockets)         one namespace, for all sandboxes
//!     │ up0
//! host (isolet0, forwarding, its own address for all sandboxes)
//! ```
//!
//! One process owns the gateway and all veth pairs (`isolet-launcher --veth`). It outlives the server, as agents do, and
//! ends when neither a server nor a sandbox needs it. The gateway's namespace lives as long as the
//! process: when that is killed, every veth pair disappears, and no packet leaves any sandbox until
//! the server has started another one and attached its sandboxes again. [`client`] is the server's side.
//!
//! `addresses`, `policy`, `set_element`, `nft_ruleset` and `denials` are pure. `netlink` and `nft`
//! talk to the kernel. `gateway` and `egress_proxy` stand on these, `manager` on all before it, and
//! `event_loop` drives the manager.
//!
//! - The process is started when the first sandbox needs egress. It runs in a session of its own
//!   with one thread, a poll loop and the rights to work on networks. The next server finds it at
//!   `DATA/network/links.sock`.
//! - Pairs are created in advance, each with a network namespace, so that a create waits neither
//!   for a pair nor for rules. A sandbox that runs without egress gets a pair into the namespace
//!   that it has. Both ends have the same hardware address, and there is no ARP. IPv6 is off, and
//!   the rules pass none.
//! - A connection that waits to be accepted may hold a namespace for minutes, so a delete and a
//!   sleep release the pair explicitly. The packet filter's elements for it go with the next
//!   change, or after a second.
//! - Rules on addresses and ports become ranges without overlap (`policy`). When the host's table
//!   is flushed, nothing leaves.
//! - The gateway refuses, whatever the rules say: this machine's addresses (followed by netlink),
//!   private, link-local and metadata networks, other sandboxes, and the gateway itself except its
//!   resolver. Only the operator opens one of them.
//! - A refused packet is answered (TCP reset or ICMP) and logged. At most 50 denials per second of
//!   a pair are reported.
//! - TCP of sandboxes whose rules name hosts, or that have credentials, is redirected to the egress
//!   proxy, and so is every DNS query to the gateway.
//! - Changes by others (a table that was changed or flushed, an uplink that was renamed, removed or
//!   taken down) are noticed by kernel events, corrected and reported.

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
pub(crate) mod nft;
mod nft_ruleset;
mod policy;
pub(crate) mod preview;
mod privileges;
mod sandbox_end;
mod set_element;
pub(crate) mod teardown;

pub use event_loop::{VethOptions, run};
