//! The agent's own socket, attacked from inside by a program that knows its path.
#![allow(missing_docs)]

use isolet_kit::{Server, one};
use isolet_wire::request::AgentRequest;
use isolet_wire::{VERSION, frame};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sends bytes to a socket and prints how many come back until the socket is silent or closed.
const SPEAK: &str = "
import socket, sys
one = socket.socket(socket.AF_UNIX)
one.settimeout(60)
one.connect(sys.argv[1])
count = 0
try:
    one.sendall(bytes.fromhex(sys.argv[2]))
    count = len(one.recv(65536))
except (BrokenPipeError, ConnectionResetError): pass
print(count)
";

fn socket(server: &Server) -> PathBuf {
    let mut folders: Vec<_> = vec![server.data()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a directory").flatten() {
            if entry.file_name() == "agent.sock" {
                return entry.path();
            }
            // The sandbox's own files are left out.
            let own = entry.file_name() != "image" && entry.file_name() != "root";
            if own && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    panic!("no agent listens below {}", server.data().display());
}

/// How many bytes an agent answers to a program that runs in these namespaces; `-p` gives that
/// program the pids as seen inside.
fn answered(namespaces: &[&str], agent: i32, socket: &Path, words: &[u8]) -> usize {
    let hex = hex::encode(words);
    let mut command = match namespaces {
        [] => Command::new("python3"),
        some => {
            let mut command = Command::new("nsenter");
            command.arg("-t").arg(agent.to_string()).args(some).arg("python3");
            command
        }
    };
    let said = command.args(["-c", SPEAK]).arg(socket).arg(hex).output().expect("it runs");
    let text = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    text.parse().unwrap_or_else(|_| panic!("{said:?}"))
}

/// Promises: E50.
#[test]
fn e50_an_agent_accepts_no_client_from_inside_whatever_it_knows() {
    let (server, sandbox) = one();
    let mut shell = sandbox.shell();
    shell.run("x=kept").is("", 0);
    let agent = server.agent();
    let socket = socket(&server);
    let mut words = Vec::new();
    frame::put(&mut words, &AgentRequest::Hello { version: VERSION });
    assert!(answered(&[], agent, &socket, &words) > 0, "the server's side is answered");
    // Root of the host in the sandbox's pid namespace, with the address and a valid request.
    assert_eq!(answered(&["-p"], agent, &socket, &words), 0);
    // The refused attempts have affected no shell.
    shell.run("echo $x").is("kept\n", 0);
    server.healthy();
}
