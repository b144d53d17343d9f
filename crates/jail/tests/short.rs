//! A process without free descriptors cannot examine its sandboxes, and reports that.

use isolet_jail::{Config, SandboxHandle};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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
