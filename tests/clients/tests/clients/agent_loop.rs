//! The example agent loop, on this repository and on a package with its own tests.

use crate::programs::{checkout, fetched, run};
use isolet_kit::Server;
use std::process::Command;

#[test]
fn an_agents_loop_does_real_work() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let repo = folder.path().join("repo");
    // A separate clone, so that uncommitted changes and concurrent commits do not matter.
    run(Command::new("git").args(["clone", "-q"]).arg(checkout()).arg(&repo)).well();
    let mut script = Command::new("python3");
    script
        .arg(checkout().join("examples/agent-loop/agent_loop.py"))
        .arg("--repo")
        .arg(&repo)
        .arg("--package")
        .arg(fetched("idna-3.20.tar.gz"))
        .env("ISOLET_URL", format!("http://127.0.0.1:{}", server.port()))
        .env("ISOLET_API_KEY", server.key());
    let said = run(&mut script).well().out;
    let last = said.lines().last().expect("a summary");
    println!("{last}");
    let count: u32 = last.split(' ').next().and_then(|n| n.parse().ok()).expect("a count");
    assert!(count >= 100 && last.ends_with("; 0 not as expected"), "{last}");
    assert_eq!(said.lines().count(), count as usize + 1, "a line for each command:\n{said}");
    assert!(server.ids(&server.http()).is_empty(), "it removes its sandbox");
}
