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

mod base;
pub(crate) mod client;
mod edge;
mod elements;
mod firewall;
mod keeper;
mod log;
mod netlink;
mod nft;
mod peer;
mod plan;
mod route;
mod serve;
mod space;
mod text;
mod told;

pub use peer::{Packet, received};
pub(crate) use peer::{forget, sent};
pub use serve::{Options, run};
pub(crate) use space::{enter, own};

use rustix::thread::{CapabilitySet, CapabilitySets};

/// What the process keeps: to work on networks and enter them, and to start the edge as another.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL);

/// Gives up every other right, also for the programs that it starts. What cannot be given up is
/// kept: a host that forbids it is no less safe by that.
fn drop_rights() {
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: KEPT, permitted: KEPT, inheritable: none };
    let _ = rustix::thread::set_capabilities(None, sets);
}

/// A number that no other start has.
fn random() -> u64 {
    use std::io::Read as _;
    let mut bytes = [0_u8; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_or_else(|_| u64::from(std::process::id()), |()| u64::from_ne_bytes(bytes))
}
