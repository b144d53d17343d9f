//! Drops all privileges before the proxy serves a sandbox: it talks to sandboxes and to the
//! internet, and needs no privileges on this machine.

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, getuid, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// Descriptor limit to ask for: each connection takes up to six.
const DESCRIPTORS: u64 = 128 * 1024;

/// Switches from root to user and group `id`, and drops all capabilities. Call this while the
/// process has one thread.
///
/// # Errors
/// A system call failed; the process must end then.
pub fn drop_all(id: u32) -> Result<(), Errno> {
    raise_descriptor_limit();
    if getuid().is_root() {
        for capability in CapabilitySet::all().iter() {
            // Fails for capabilities that the kernel does not know.
            let _ = remove_capability_from_bounding_set(capability);
        }
        set_thread_groups(&[])?;
        let uid = Uid::from_raw(id);
        let gid = Gid::from_raw(id);
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
}

fn raise_descriptor_limit() {
    let now = getrlimit(Resource::Nofile);
    let more = now.maximum.map_or(DESCRIPTORS, |most| most.max(DESCRIPTORS));
    let wanted = Rlimit { current: Some(DESCRIPTORS), maximum: Some(more) };
    if setrlimit(Resource::Nofile, wanted).is_err() {
        let all = Rlimit { current: now.maximum, maximum: now.maximum };
        let _ = setrlimit(Resource::Nofile, all);
    }
}
