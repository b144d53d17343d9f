//! Killing the server costs its clients one reconnect, nothing more.

use isolet_kit::{
    Frame, Options, SOON, Server, Shell, Start, json, one, process, quickly, wait_until,
};
use std::collections::BTreeMap;

/// The shells of a server's sandboxes with their start times. Forks of a shell that have not
/// executed another program yet are left out.
fn bashes(server: &Server) -> BTreeMap<i32, u64> {
    let agents = server.agents();
    let own = |pid: &i32| process::parent(*pid).is_some_and(|parent| agents.contains(&parent));
    let pids = server.processes("bash").into_iter().filter(own);
    pids.filter_map(|pid| Some((pid, process::started(pid)?))).collect()
}

/// What one client has read of a stream of numbered lines.
struct OutputReader {
    shell: Shell,
    received: Vec<u8>,
    ended: bool,
}

impl OutputReader {
    /// Reads until there are `enough` bytes, the command ends, or the socket breaks.
    fn read(&mut self, enough: usize) {
        while !self.ended && self.received.len() < enough {
            match self.shell.next(SOON).expect("it goes on") {
                Frame::Data { stream: 1, offset, bytes, .. } => {
                    assert_eq!(offset, self.received.len() as u64, "a byte is lost or doubled");
                    self.received.extend(bytes);
                }
                Frame::Text(value) if value["type"] == "shell_exit" => self.ended = true,
                Frame::Text(value) => assert_ne!(value["type"], "shell_gap", "{value}"),
                Frame::Data { .. } => {}
                Frame::Close(_) => return,
            }
        }
    }
}

const SHELLS: usize = 50;
const LINES: usize = 3000;

/// Promises: F2.
#[test]
fn heavy_f2_a_killed_server_loses_no_process_and_no_byte() {
    let (mut server, sandbox) = one();
    let mut readers: Vec<OutputReader> = (0..SHELLS)
        .map(|n| {
            let mut shell = sandbox.open(&format!("session=s{n}&frames=binary"));
            let text = format!("for ((i=0; i<{LINES}; i++)); do echo \"{n} line $i\"; ((i % 300)) || sleep 0.1; done");
            shell.start(Start::new(&text));
            OutputReader { shell, received: Vec::new(), ended: false }
        })
        .collect();
    readers.iter_mut().for_each(|reader| reader.read(1));
    let before = bashes(&server);
    assert!(before.len() >= SHELLS);
    for round in 1..=2 {
        server.kill();
        // Data that was already sent can still be read from the socket.
        readers.iter_mut().for_each(|reader| reader.read(usize::MAX));
        server.launch();
        let answered = sandbox.says("echo back");
        assert_eq!(answered, "back\n");
        for (n, reader) in readers.iter_mut().enumerate().filter(|(_, reader)| !reader.ended) {
            let since = reader.received.len();
            let id = reader.shell.id.clone();
            let query = format!("session=s{n}&resume={id}&frames=binary&since={since}");
            reader.shell = sandbox.open(&query);
            let more = since + if round == 1 { 1 } else { usize::MAX - since };
            reader.read(more);
        }
    }
    for (n, reader) in readers.iter().enumerate() {
        let whole: String = (0..LINES).map(|i| format!("{n} line {i}\n")).collect();
        assert!(
            reader.received == whole.as_bytes(),
            "shell {n}: {} of {} bytes",
            reader.received.len(),
            whole.len()
        );
    }
    let after = bashes(&server);
    for (pid, started) in before {
        assert_eq!(after.get(&pid), Some(&started), "bash {pid} is a new one");
    }
    server.healthy();
}

#[test]
fn f2_a_command_that_ends_while_the_server_is_down_is_reported() {
    let (mut server, sandbox) = one();
    let mut shell = sandbox.session("s");
    shell.start(
        Start::new("mkfifo /tmp/go; echo begun; read x </tmp/go; echo ended; exit 3")
            .with("id", "c"),
    );
    let mut outcome = isolet_kit::Outcome::default();
    shell.follow("c", &mut outcome, |so_far| so_far.out == b"begun\n");
    let id = sandbox.shell();
    let private = id.id.clone();
    drop(id);
    server.kill();
    server.launch();
    let mut back =
        sandbox.open(&format!("session=s&resume={}&since={}", shell.id, outcome.out.len()));
    sandbox.says("echo >/tmp/go");
    let mut text = String::new();
    let mut code = None;
    while code.is_none() {
        match back.next(SOON).expect("it is reported") {
            Frame::Text(value) if value["type"] == "shell_out" => {
                text.push_str(value["data"].as_str().unwrap_or_default())
            }
            Frame::Text(value) if value["type"] == "shell_exit" => code = value["code"].as_i64(),
            Frame::Text(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((text.as_str(), code), ("ended\n", Some(3)));
    assert_eq!(back.ended()["code"].as_i64(), Some(3));
    // A private shell can be resumed within its time limit, too.
    sandbox.open(&format!("resume={private}")).run("echo found").is("found\n", 0);
    server.healthy();
}

/// A start once gave up immediately while its predecessor was still releasing the address.
/// Promises: U2.
#[test]
fn a_start_waits_for_its_predecessor_to_release_the_address() {
    let mut server = Server::start();
    server.kill();
    let held =
        std::net::TcpListener::bind(("127.0.0.1", server.port())).expect("the address is free");
    server.launch_with("ISOLET_LOG_JSON", "1");
    wait_until("it waits", SOON, || server.log().contains("waiting for it").then_some(()));
    drop(held);
    server.wait_until_ready();
    assert!(server.log().contains("\"message\":\"serving\""), "{}", server.log());
    server.healthy();
}

/// Promises: F4.
#[test]
fn f4_recovery_that_is_killed_repeatedly_has_the_same_result() {
    let mut server = Server::start();
    let ids: Vec<String> = (0..10).map(|_| server.sandbox().id).collect();
    for id in &ids {
        server.named(id).command("s", "x=kept");
    }
    let before = bashes(&server);
    server.kill();
    for point in ["recover.listed=abort", "recover.attached=abort", "recover.listed=abort"] {
        server.launch_with("ISOLET_FAILPOINTS", point);
        assert!(!server.wait().success(), "{point}");
    }
    server.launch();
    for id in &ids {
        assert_eq!(server.named(id).command("s", "echo $x")["stdout"], "kept\n");
    }
    assert_eq!(bashes(&server), before);
    server.healthy();
}

/// Promises: F4.
#[test]
fn f4_agents_that_never_answer_delay_nobody() {
    let mut server = Server::start();
    let ids: Vec<String> = std::thread::scope(|threads| {
        let create = || (0..25).map(|_| server.sandbox().id).collect::<Vec<_>>();
        let all: Vec<_> = (0..4).map(|_| threads.spawn(create)).collect();
        all.into_iter().flat_map(|one| one.join().expect("no panic")).collect()
    });
    server.kill();
    let silent: Vec<i32> = server.agents().into_iter().take(3).collect();
    silent.iter().for_each(|pid| process::signal(*pid, rustix::process::Signal::STOP));
    quickly("recovery with three silent agents", SOON, || server.launch());
    let states: Vec<String> = quickly("all are listed", SOON, || {
        ids.iter()
            .map(|id| server.named(id).info()["state"].as_str().unwrap_or_default().to_owned())
            .collect()
    });
    let running = states.iter().filter(|state| *state == "running").count();
    let silent = states.iter().filter(|state| *state == "unreachable").count();
    assert_eq!((running, silent), (97, 3), "{states:?}");
    for (id, state) in ids.iter().zip(&states) {
        if state == "running" {
            assert_eq!(server.named(id).says("echo serves"), "serves\n");
        } else {
            assert!(server.named(id).info()["cause"].is_string());
            // One that waits longer than the server does is answered with 504.
            server.named(id).delete();
        }
    }
    server.healthy();
}

/// Promises: F4.
#[test]
fn an_agent_that_was_only_slow_is_found_again() {
    let mut server = Options::new().config("recover_timeout_s = 1\n").start();
    let sandbox = server.sandbox();
    let pid = sandbox.command("s", "x=kept; echo $$")["stdout"].clone();
    server.kill();
    let agent = server.agents()[0];
    process::signal(agent, rustix::process::Signal::STOP);
    server.launch();
    let sandbox = server.named(&sandbox.id);
    assert_eq!(sandbox.info()["state"], "unreachable");
    let refused = sandbox.post("/exec", &json!({"command": "true"}));
    assert_eq!((refused.status, &refused.json()["error"]), (503, &json!("sandbox_unreachable")));
    // The same across another restart.
    server.kill();
    server.launch();
    process::signal(agent, rustix::process::Signal::CONT);
    wait_until("it runs again", SOON, || {
        (server.named(&sandbox.id).info()["state"] == "running").then_some(())
    });
    let said = server.named(&sandbox.id).command("s", "echo $$; echo $x");
    assert_eq!(said["stdout"], format!("{}kept\n", pid.as_str().unwrap_or_default()));
    server.healthy();
}

/// Promises: F33.
#[test]
fn f33_a_second_server_is_refused_and_a_stale_lock_is_not() {
    let (mut server, sandbox) = one();
    sandbox.command("s", "x=1");
    let holder = server.pid();
    let second = quickly("the second server", SOON, || {
        let mut program = server.program();
        program.arg("serve").env("ISOLET_LISTEN", "127.0.0.1:0");
        program.output().expect("it starts")
    });
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&holder.to_string()), "it names the holder {holder}: {said}");
    assert_eq!(sandbox.command("s", "echo $x")["stdout"], "1\n", "the first is unhurt");
    server.restart();
    assert_eq!(sandbox.command("s", "echo $x")["stdout"], "1\n");
    server.healthy();
}

/// Promises: F34.
#[test]
fn f34_a_server_stopped_under_load_exits_in_time_and_keeps_sandboxes() {
    let (mut server, sandbox) = one();
    let mut shells: Vec<Shell> = (0..8).map(|n| sandbox.session(&format!("s{n}"))).collect();
    for shell in &mut shells {
        shell.run("x=kept").is("", 0);
        shell.start(Start::new("while :; do echo busy; sleep 0.01; done"));
    }
    let mut stream =
        sandbox.http.events(&sandbox.path("/sessions/e/exec"), &json!({"command": "sleep 1000"}));
    assert_eq!(stream.status, 200);
    let before = bashes(&server);
    process::signal(server.pid(), rustix::process::Signal::TERM);
    process::signal(server.pid(), rustix::process::Signal::TERM);
    let status = server.wait();
    assert!(status.success() || status.code().is_some(), "{status}");
    while stream.event().is_some() {}
    for shell in &mut shells {
        while !matches!(shell.next(SOON), Some(Frame::Close(_)) | None) {}
    }
    server.launch();
    assert_eq!(bashes(&server), before);
    let mut back = sandbox.session("s0");
    let id = back.start(Start::new("echo $x"));
    // The loop of the earlier client still runs; deleting the session ends it.
    back.cancel(&id);
    server.http().delete(&sandbox.path("/sessions/s0"));
    server.healthy();
}

#[test]
fn a_stopped_server_exits_cleanly_and_its_sandboxes_stay() {
    let mut server = Options::new().start();
    let sandbox = server.sandbox();
    sandbox.command("s", "x=kept; sleep 1000 &");
    let before = bashes(&server);
    let status = server.stop();
    assert!(status.success(), "{status}: {}", server.log());
    assert_eq!(bashes(&server), before);
    server.launch();
    assert_eq!(sandbox.command("s", "echo $x; kill -0 $! && echo runs")["stdout"], "kept\nruns\n");
    server.healthy();
}
