//! A process without free descriptors cannot examine its sandboxes, and reports that. It lets what it
//! has frozen continue.

use isolet_jail::{Config, FrozenSandbox, SandboxHandle};
use isolet_kit::{SOON, one, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

/// Promises: F17.
#[test]
fn a_sandbox_that_cannot_be_examined_does_not_count_as_gone() {
    let data = std::env::temp_dir().join("isolet-none");
    let config = Config::beside(&data).expect("own path is known");
    let none = SandboxHandle::open(&config, "none");
    assert!(!none.populated() && !none.has_cgroups());
    none.kill().expect("nothing to kill is no error");

    let before = getrlimit(Resource::Nofile);
    let nothing = Rlimit { current: Some(0), maximum: before.maximum };
    setrlimit(Resource::Nofile, nothing).expect("the limit is lowered");
    let short = SandboxHandle::open(&config, "none");
    let seen = (short.populated(), short.has_cgroups(), short.kill(), short.remove_cgroups());
    // Also a sandbox that was examined before.
    let later = none.populated();
    setrlimit(Resource::Nofile, before).expect("the limit is restored");
    assert!(seen.0 && seen.1 && later, "processes may still run there");
    assert!(seen.2.is_err() && seen.3.is_err(), "neither call succeeds: {seen:?}");
}

/// Promises: F17.
#[test]
fn a_frozen_sandbox_continues_also_when_no_descriptor_is_left() {
    let (server, sandbox) = one();
    sandbox.says("true");
    let config = Config::beside(&server.data()).expect("own path is known");
    let all = fs::read_dir(server.data().join("sandboxes")).expect("is there").flatten();
    let names: Vec<_> = all.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let handles: Vec<_> = names.iter().map(|name| SandboxHandle::open(&config, name)).collect();
    let running = handles.iter().find(|handle| handle.populated()).expect("it runs");
    let frozen = FrozenSandbox::freeze(running.clone(), SOON, false).expect("it freezes");
    assert!(running.is_frozen().expect("it is there"));
    let before = getrlimit(Resource::Nofile);
    let nothing = Rlimit { current: Some(0), maximum: before.maximum };
    setrlimit(Resource::Nofile, nothing).expect("the limit is lowered");
    drop(frozen);
    setrlimit(Resource::Nofile, before).expect("the limit is restored");
    wait_until("it continues", SOON, || (!running.is_frozen().unwrap_or(true)).then_some(()));
    assert_eq!(sandbox.says("echo works"), "works\n");
}
