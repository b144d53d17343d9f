//! A process that can open nothing knows nothing of its sandboxes, and says so.

use isolet_jail::{Config, SandboxHandle};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Promises: F17.
#[test]
fn what_cannot_be_looked_at_is_not_taken_for_gone() {
    let data = std::env::temp_dir().join("isolet-none");
    let config = Config::beside(&data).expect("own path is known");
    let none = SandboxHandle::open(&config, "none");
    assert!(!none.populated() && !none.has_cgroups());
    none.kill().expect("nothing to kill is no error");

    let before = getrlimit(Resource::Nofile);
    let nothing = Rlimit { current: Some(0), maximum: before.maximum };
    setrlimit(Resource::Nofile, nothing).expect("a lower limit");
    let short = SandboxHandle::open(&config, "none");
    let seen = (short.populated(), short.has_cgroups(), short.kill(), short.remove_cgroups());
    // And one that was looked at before.
    let later = none.populated();
    setrlimit(Resource::Nofile, before).expect("as it was");
    assert!(seen.0 && seen.1 && later, "what runs there is not known");
    assert!(seen.2.is_err() && seen.3.is_err(), "nor is it ended: {seen:?}");
}
