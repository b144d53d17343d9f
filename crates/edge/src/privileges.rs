//! What the edge gives up before it listens to anybody: it speaks with sandboxes and with the
//! world, and needs no right over this machine.

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, getuid, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// Descriptors that it would like to have: each connection takes up to six.
const DESCRIPTORS: u64 = 128 * 1024;

/// Becomes `id` when it is root, and gives up everything that it could have more than anybody.
/// Called while there is one thread.
///
/// # Errors
/// Those of the kernel: then it must not go on.
pub fn drop_all(id: u32) -> Result<(), Errno> {
    descriptors();
    if getuid().is_root() {
        for number in 0..64_u64 {
            let Some(one) = CapabilitySet::from_bits(1 << number) else { continue };
            // One that the kernel does not know cannot be had.
            let _ = remove_capability_from_bounding_set(one);
        }
        set_thread_groups(&[])?;
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
}

/// As many descriptors as it may have.
fn descriptors() {
    let now = getrlimit(Resource::Nofile);
    let more = now.maximum.map_or(DESCRIPTORS, |most| most.max(DESCRIPTORS));
    let wanted = Rlimit { current: Some(DESCRIPTORS), maximum: Some(more) };
    if setrlimit(Resource::Nofile, wanted).is_err() {
        let all = Rlimit { current: now.maximum, maximum: now.maximum };
        let _ = setrlimit(Resource::Nofile, all);
    }
}
