//! E33: a program at a terminal cannot type into one, cannot change the one below it, and has no
//! access to the host's.
#![allow(missing_docs)]

use isolet_kit::{Sandbox, Server, Value, json};

const PROBES: &str = include_str!("../tty_probes.py");

/// The outcomes of the probes at a session's terminal.
fn probe(sandbox: &Sandbox, session: &str, before: &str) -> Value {
    let mut terminal = sandbox.terminal(&format!("session={session}&cols=400"));
    terminal.line(&format!("{before} python3 /tmp/tty_probes.py"), ":end");
    let said = String::from_utf8_lossy(&terminal.output).into_owned();
    let said = said.rsplit("results:").next().and_then(|rest| rest.split(":end").next());
    let said = said.unwrap_or_default().replace(['\r', '\n'], "");
    let results: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    // If the probe had pushed input, it would run as a command now.
    terminal.line("echo o''n", "on\r\n");
    results
}

/// Promises: E33.
#[test]
fn e33_a_program_cannot_type_into_a_terminal_and_sees_none_of_the_host() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let other = sandbox.terminal("session=other");
    let body = json!({ "argv": ["tee", "/tmp/tty_probes.py"], "stdin": PROBES });
    sandbox.post("/exec", &body).expect(200);
    for (session, before) in
        [("root", ""), ("user", "setpriv --reuid 1000 --regid 1000 --clear-groups")]
    {
        let results = probe(&sandbox, session, before);
        let all = results.as_object().expect("an object");
        let of = |name: &str| all[name].as_str().unwrap_or_default().to_owned();
        let tries: Vec<_> = all.iter().filter(|(name, _)| name.starts_with("TIOC")).collect();
        assert!(tries.len() >= 60, "{results}");
        for (name, outcome) in tries {
            assert_eq!(outcome, "EPERM", "{before} {name}");
        }
        assert!(of("name").starts_with("/dev/pts/"), "{results}");
        for (name, safe) in [
            ("inherited", "none"),
            ("controlling", "own"),
            ("leader", "inside"),
            ("file system", "own"),
        ] {
            assert_eq!(of(name), safe, "{before} {name}");
        }
        for (name, outcome) in all.iter().filter(|(name, _)| name.starts_with("open ")) {
            assert_eq!(outcome, "ENOENT", "{before} {name}");
        }
    }
    drop(other);
    server.healthy();
}
