//! The privileges of the process that owns the veth pairs.

use rustix::thread::{CapabilitySet, CapabilitySets};

/// The capabilities to change and enter network namespaces, and to start the egress proxy as
/// another user.
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL);

/// Drops every other capability, also for the programs that the process starts. Errors are ignored,
/// because a host that forbids the call is no less safe.
pub(super) fn drop_privileges() {
    for capability in CapabilitySet::all().difference(NEEDED).iter() {
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: NEEDED, permitted: NEEDED, inheritable: none };
    let _ = rustix::thread::set_capabilities(None, sets);
}
