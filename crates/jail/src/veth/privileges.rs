//! The privileges of the process that owns the veth pairs.

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
pub(super) fn drop_privileges() {
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: KEPT, permitted: KEPT, inheritable: none };
    let _ = rustix::thread::set_capabilities(None, sets);
}
