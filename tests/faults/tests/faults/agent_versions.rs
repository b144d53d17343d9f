//! Agents that speak another protocol version than the server. A program between the server and a
//! real agent plays an older agent: it refuses greetings as that agent would.

use isolet_kit::{Options, Rows, SOON, Sandbox, Server, Traces, json, one, wait_until};
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The version of the baseline's agents.
const BASELINE: u8 = 3;

/// The answer of an agent of the baseline to another version: a refusal without an id, for a bad
/// request, with a message.
const REFUSAL: &[u8] = b"\0\0\0\x20\0\x09\0\0\x1bthis agent speaks version 3";

/// Puts a program in front of the socket of a server's only sandbox.
struct OldAgent {
    socket: PathBuf,
    real: PathBuf,
}

impl OldAgent {
    /// Accepts only greetings with the version `accepts`, and passes these connections on.
    fn start(data: &Path, accepts: Option<u8>) -> Self {
        let sandboxes = fs::read_dir(data.join("sandboxes")).expect("it is there");
        let directory = sandboxes.flatten().next().expect("a sandbox").path();
        let socket = directory.join("agent.sock");
        let real = directory.join("real.sock");
        fs::rename(&socket, &real).expect("it moves");
        let listener = UnixListener::bind(&socket).expect("it listens");
        let agent = real.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let agent = agent.clone();
                std::thread::spawn(move || pass(client, &agent, accepts));
            }
        });
        Self { socket, real }
    }

    /// Lets the server reach the real agent again.
    fn leave(self) {
        fs::rename(self.real, self.socket).expect("it moves back");
    }
}

/// Handles one connection of the server.
fn pass(mut client: UnixStream, agent: &Path, accepts: Option<u8>) -> Option<()> {
    // The head of a frame, its kind, the number of the message, and the version.
    let mut hello = [0; 7];
    client.read_exact(&mut hello).ok()?;
    assert_eq!(&hello[..6], b"\0\0\0\x03\0\0", "a greeting");
    if Some(hello[6]) != accepts {
        client.write_all(REFUSAL).ok()?;
        return client.shutdown(Shutdown::Write).ok();
    }
    let mut server = UnixStream::connect(agent).ok()?;
    server.write_all(&hello).ok()?;
    let mut from_server = client.try_clone().ok()?;
    let mut to_agent = server.try_clone().ok()?;
    std::thread::spawn(move || {
        let _ = io::copy(&mut from_server, &mut to_agent);
        let _ = to_agent.shutdown(Shutdown::Write);
    });
    let _ = io::copy(&mut server, &mut client);
    client.shutdown(Shutdown::Both).ok()
}

fn kept(sandbox: &Sandbox) {
    assert_eq!(sandbox.command("s", "echo $x")["stdout"], "kept\n");
}

/// Promises: F49.
#[test]
fn f49_an_agent_of_the_baseline_works_and_is_marked_until_it_sleeps() {
    let (mut server, sandbox) = one();
    sandbox.command("s", "x=kept");
    let latest = sandbox.info()["agent_version"].as_u64().expect("a number");
    assert!(latest > BASELINE.into());
    server.kill();
    let agents = Traces::agents(&server.data());
    let _old = OldAgent::start(&server.data(), Some(BASELINE));
    server.launch();
    let mut rows = Rows::new();
    rows.row("it is marked", || {
        let info = sandbox.info();
        let found = (&info["state"], &info["agent_version"], &info["agent_outdated"]);
        assert_eq!(found, (&json!("running"), &json!(BASELINE), &json!(true)));
        let list = server.command(&["ls"]);
        assert!(String::from_utf8_lossy(&list.stdout).contains("(old agent)"), "{list:?}");
        assert!(String::from_utf8_lossy(&list.stderr).contains("an earlier version"), "{list:?}");
    });
    rows.row("it works", || {
        kept(&sandbox);
        assert_eq!(sandbox.says("echo said"), "said\n");
        sandbox.run("echo shell").is("shell\n", 0);
        sandbox.terminal("").line("echo 't'erminal", "terminal\r\n");
        let file = sandbox.path("/files/a");
        let wrote = sandbox.http.send("PUT", &file, Some(b"content"));
        assert!(matches!(wrote.status, 200 | 201), "{}", wrote.text());
        assert_eq!(sandbox.http.get(&file).expect(200).text(), "content");
    });
    rows.row("it cannot be paused", || {
        let refused = sandbox.post("/pause", &json!({})).expect(409);
        assert_eq!(refused.error(), "agent_too_old");
        assert_eq!(sandbox.info()["state"], "running");
        kept(&sandbox);
    });
    assert_eq!(Traces::agents(&server.data()), agents);
    rows.row("a sleep replaces it", || {
        wait_until("it sleeps", SOON, || {
            (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
        });
        assert!(sandbox.info()["agent_version"].is_null());
        kept(&sandbox);
        let info = sandbox.info();
        let found = (&info["agent_version"], &info["agent_outdated"]);
        assert_eq!(found, (&json!(latest), &json!(false)));
    });
    drop(rows);
    server.healthy();
}

/// A server killed every sandbox whose agent spoke another version, as if the agent had died.
/// Promises: F49.
#[test]
fn f49_a_sandbox_whose_agent_is_not_supported_is_reported_and_left_alone() {
    let mut server: Server = Options::new().start();
    let sandbox = server.sandbox();
    sandbox.command("s", "x=kept; sleep 4717 & disown");
    server.kill();
    let agents = Traces::agents(&server.data());
    let old = OldAgent::start(&server.data(), None);
    server.launch();
    for _ in 0..2 {
        let info = sandbox.info();
        assert_eq!(info["state"], "unreachable", "{info}");
        let cause = info["cause"].as_str().unwrap_or_default();
        assert!(cause.contains("none of the protocol versions 3 to "), "{info}");
        let refused = sandbox.post("/exec", &json!({"command": ":"})).expect(503);
        assert_eq!(refused.error(), "sandbox_unreachable");
        assert_eq!(Traces::agents(&server.data()), agents, "its agent runs");
        assert_eq!(server.processes("sleep").len(), 1, "its programs run");
        // The server retries, and after a restart it finds the same.
        server.restart();
    }
    old.leave();
    wait_until("it is found", SOON, || (sandbox.info()["state"] == "running").then_some(()));
    kept(&sandbox);
    assert_eq!(Traces::agents(&server.data()), agents);
    server.healthy();
}
