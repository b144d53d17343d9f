//! Agents with which the server has no protocol version in common. A program between the server and
//! a real agent plays such an agent: it answers greetings as that agent would.

use isolet_kit::{Options, SOON, Sandbox, Server, Traces, json, wait_until};
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The version of the programs under test.
const VERSION: u8 = 1;

/// The beginning of every greeting and of its answer: the head of a frame, its kind, and the number
/// of the message. The version follows.
const GREETING: [u8; 6] = [0, 0, 0, 3, 0, 0];

/// Puts a program in front of the socket of a server's only sandbox.
struct OtherAgent {
    socket: PathBuf,
    real: PathBuf,
}

impl OtherAgent {
    /// Answers all greetings as an agent does whose only version is `theirs`.
    fn start(data: &Path, theirs: u8) -> Self {
        let sandboxes = fs::read_dir(data.join("sandboxes")).expect("it is there");
        let directory = sandboxes.flatten().next().expect("a sandbox").path();
        let socket = directory.join("agent.sock");
        let real = directory.join("real.sock");
        fs::rename(&socket, &real).expect("it moves");
        let listener = UnixListener::bind(&socket).expect("it listens");
        std::thread::spawn(move || {
            for server in listener.incoming().flatten() {
                std::thread::spawn(move || answer(server, theirs));
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
fn answer(mut server: UnixStream, theirs: u8) -> Option<()> {
    let mut hello = [0; 7];
    server.read_exact(&mut hello).ok()?;
    assert_eq!((&hello[..6], hello[6]), (&GREETING[..], VERSION), "a greeting");
    server.write_all(&GREETING).ok()?;
    server.write_all(&[theirs]).ok()?;
    server.shutdown(Shutdown::Write).ok()
}

fn kept(sandbox: &Sandbox) {
    assert_eq!(sandbox.command("s", "echo $x")["stdout"], "kept\n");
}

/// A server killed every sandbox whose agent spoke another version, as if the agent had died.
/// Promises: F49.
#[test]
fn f49_a_sandbox_whose_agent_is_not_supported_is_reported_and_left_alone() {
    let mut server: Server = Options::new().start();
    let sandbox = server.sandbox();
    sandbox.command("s", "x=kept; sleep 4717 & disown");
    let info = sandbox.info();
    let found = (&info["agent_version"], &info["agent_outdated"]);
    assert_eq!(found, (&json!(VERSION), &json!(false)));
    let agents = Traces::agents(&server.data());
    for theirs in [VERSION - 1, VERSION + 1] {
        server.kill();
        let other = OtherAgent::start(&server.data(), theirs);
        server.launch();
        for _ in 0..2 {
            let info = sandbox.info();
            assert_eq!(info["state"], "unreachable", "{info}");
            let cause = info["cause"].as_str().unwrap_or_default();
            assert!(cause.contains(&format!("speaks protocol version {theirs}, and")), "{info}");
            let refused = sandbox.post("/exec", &json!({"command": ":"})).expect(503);
            assert_eq!(refused.error(), "sandbox_unreachable");
            assert_eq!(Traces::agents(&server.data()), agents, "its agent runs");
            assert_eq!(server.processes("sleep").len(), 1, "its programs run");
            // The server retries, and after a restart it finds the same.
            server.restart();
        }
        other.leave();
        wait_until("it is found", SOON, || (sandbox.info()["state"] == "running").then_some(()));
        kept(&sandbox);
        assert_eq!(Traces::agents(&server.data()), agents);
    }
    server.healthy();
}
