//! The server or an agent runs out of file descriptors: open connections continue, new ones are
//! refused with a reason, and everything recovers when descriptors are free.

use isolet_kit::{Http, SOON, Sandbox, Start, json, one, process, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

/// Limits a process to `count` descriptors; a process above the limit can open none. The limit is
/// set as the process's own user, because root lacks the right to do so in some containers.
fn limit(pid: i32, count: usize) {
    let owner = std::fs::metadata(format!("/proc/{pid}")).expect("it runs");
    let mut prlimit = Command::new("prlimit");
    prlimit.args([format!("--pid={pid}"), format!("--nofile={count}:")]);
    let set = prlimit.uid(owner.uid()).gid(owner.gid()).status().expect("prlimit is there");
    assert!(set.success(), "a limit is set");
}

/// A connection that serves one request after another.
struct KeepAlive<'a>(TcpStream, &'a Http);

impl KeepAlive<'_> {
    fn status(&mut self, method: &str, path: &str, body: &str) -> u16 {
        let key = self.1.key.as_deref().unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.1.port,
            body.len()
        );
        self.0.write_all(request.as_bytes()).expect("it is sent");
        let mut said = Vec::new();
        let mut byte = [0; 1];
        while !said.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).expect("a head");
            said.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&said).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut rest = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
        self.0.read_exact(&mut rest).expect("a body");
        head[9..12].parse().expect("a status")
    }
}

fn running(sandbox: &Sandbox) -> Option<()> {
    let reply = sandbox.http.try_send("GET", &sandbox.path(""), None).ok()?;
    (reply.status == 200 && reply.json()["state"] == "running").then_some(())
}

/// A create that failed for lack of descriptors once left cgroups behind: those that could not be
/// read were treated as missing.
/// Promises: F17.
#[test]
fn f17_a_server_without_descriptors_keeps_open_connections_and_recovers() {
    let (server, sandbox) = one();
    let http = server.http();
    let doomed = server.sandbox();
    let mut shell = sandbox.shell();
    shell.run("x=5").is("", 0);
    doomed.post("/processes", &json!({"command": "exec sleep 1000"})).expect(201);
    let connect = || KeepAlive(http.connect(), &http);
    let mut calls = connect();
    let mut create = connect();
    let mut delete = connect();
    for one in [&mut calls, &mut create, &mut delete] {
        assert_eq!(one.status("GET", &sandbox.path(""), ""), 200);
    }
    let pid = server.pid();
    limit(pid, process::descriptors(pid).max(60) + 4);
    // Silent connections use up all descriptors.
    let mut silent = Vec::new();
    let short = || server.log().matches("cannot accept connections").count();
    let begun = Instant::now();
    wait_until("the descriptors run out", SOON, || {
        silent.push(http.connect());
        (short() > 0).then_some(())
    });
    for _ in 0..20 {
        shell.run("echo $x").is("5\n", 0);
    }
    let command = json!({"command": "echo"}).to_string();
    let mut asked = Vec::new();
    for _ in 0..20 {
        asked.push(calls.status("POST", &sandbox.path("/exec"), &command));
        asked.push(calls.status("GET", &sandbox.path("/ports/9/"), ""));
    }
    assert!(
        asked.contains(&503) && asked.iter().all(|one| [200, 502, 503].contains(one)),
        "{asked:?}"
    );
    assert_eq!(
        calls.status("GET", "/v1/sandboxes", ""),
        200,
        "a request that needs no descriptor is answered"
    );
    std::thread::scope(|scope| {
        // Both calls may wait until what they started is undone or done.
        let created = scope.spawn(|| create.status("POST", "/v1/sandboxes", "{}"));
        let deleted = scope.spawn(|| delete.status("DELETE", &doomed.path(""), ""));
        for _ in 0..20 {
            shell.run("echo $x").is("5\n", 0);
        }
        // The server retries after a pause instead of spinning.
        let most = begun.elapsed().as_millis() / 50 + 2;
        assert!((short() as u128) <= most, "{} tries, at most {most}", short());
        drop(silent);
        assert!([201, 503].contains(&created.join().expect("an answer")));
        assert!([204, 200, 500, 503].contains(&deleted.join().expect("an answer")));
    });
    wait_until("the server recovers", SOON, || running(&sandbox));
    wait_until("what was deleted is gone", SOON, || {
        let there = http.try_send("GET", &doomed.path(""), None).ok()?;
        (there.status == 404 && server.processes("sleep").is_empty()).then_some(())
    });
    assert_eq!(calls.status("POST", &sandbox.path("/exec"), &command), 200);
    shell.run("echo $x").is("5\n", 0);
    sandbox.run("echo on").is("on\n", 0);
    server.healthy();
}

/// Promises: F17.
#[test]
fn f17_an_agent_without_descriptors_keeps_open_connections_and_recovers() {
    let (server, sandbox) = one();
    let mut shell = sandbox.shell();
    shell.run("x=5").is("", 0);
    let agent = server.agent();
    // The descriptors that a shell inherits have two-digit numbers.
    limit(agent, process::descriptors(agent).max(76) + 24);
    let mut more = Vec::new();
    let status = wait_until("the descriptors run out", SOON, || match sandbox.try_open("") {
        Ok(shell) => {
            more.push(shell);
            None
        }
        Err(status) => Some(status),
    });
    assert_eq!(status, 503);
    assert!(!more.is_empty());
    for shell in std::iter::once(&mut shell).chain(&mut more) {
        shell.run("echo still").is("still\n", 0);
    }
    for shell in &mut more {
        shell.start(Start::new("exit"));
        shell.ended();
    }
    wait_until("the server recovers", SOON, || sandbox.try_open("").ok().map(drop));
    shell.run("echo $x").is("5\n", 0);
    wait_until("it is itself", SOON, || running(&sandbox));
    server.healthy();
}
