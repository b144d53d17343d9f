//! Open connections end in time when the server stops and when a key is revoked.

use isolet_kit::{
    Frame, Http, LONG, Options, SOON, Sandbox, Server, Shell, Start, Value, json, process, quickly,
    wait_until,
};
use std::io::Read;
use std::time::Duration;

/// Reads until the socket closes and returns its close code.
fn closes(shell: &mut Shell) -> u16 {
    loop {
        match shell.next(SOON) {
            Some(Frame::Close(code)) => return code,
            Some(_) => {}
            None => panic!("it is not closed"),
        }
    }
}

/// The name of the last event and its error code.
fn last(mut events: isolet_kit::Stream) -> (String, String) {
    let mut last = None;
    while let Some(event) = events.event() {
        last = Some(event);
    }
    let last = last.expect("an event");
    let value: Value = last.data.parse().expect("events are JSON");
    (last.name, value["error"].as_str().unwrap_or_default().to_owned())
}

/// Sockets with much output, without output, or with unread output, and streams of a command and of
/// a process's log.
struct OpenConnection {
    talking: Shell,
    idle: Shell,
    deaf: Shell,
    events: isolet_kit::Stream,
    log: isolet_kit::Stream,
}

impl OpenConnection {
    fn new(sandbox: &Sandbox) -> Self {
        let mut talking = sandbox.shell();
        let idle = sandbox.shell();
        let mut deaf = sandbox.shell();
        talking.start(Start::new("while :; do echo line; done"));
        deaf.start(Start::new("while :; do echo line; done"));
        let body = json!({"command": "echo begun; sleep 600"});
        let mut events = sandbox.http.events(&sandbox.path("/exec"), &body);
        assert_eq!(events.event().expect("its output").name, "stdout");
        sandbox
            .post("/processes", &json!({"id": "p", "command": "echo on; sleep 600"}))
            .expect(201);
        let asked = sandbox.http.with("accept", "text/event-stream");
        let path = sandbox.path("/processes/p/logs");
        let mut log = asked.try_open("GET", &path, None).expect("an answer");
        assert_eq!(log.event().expect("its output").name, "stdout");
        let read = talking.next(SOON);
        assert!(matches!(read, Some(Frame::Text(_))), "{read:?}");
        Self { talking, idle, deaf, events, log }
    }

    /// Checks that each connection ends immediately with its code.
    fn ends(mut self, code: u16, error: &str) {
        assert_eq!(closes(&mut self.idle), code);
        assert_eq!(closes(&mut self.talking), code);
        for stream in [self.events, self.log] {
            assert_eq!(last(stream), ("error".into(), error.into()));
        }
        drop(self.deaf);
    }
}

#[test]
fn a_server_under_load_stops_in_two_seconds() {
    // Open streams once delayed the stop of a server by its whole grace time of 8 seconds.
    let mut server = Server::start();
    let sandbox = server.sandbox();
    sandbox.command("s", "mark=kept");
    let open = OpenConnection::new(&sandbox);
    let http = server.http();
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4)
            .map(|n| {
                let sandbox = &sandbox;
                let http = &http;
                scope.spawn(move || {
                    let path = sandbox.path(&format!("/sessions/s{n}/exec"));
                    let body = json!({"command": "echo one"}).to_string();
                    let ask = || http.try_send("POST", &path, Some(body.as_bytes()));
                    while ask().is_ok_and(|reply| reply.status == 200) {}
                })
            })
            .collect();
        let waiting = scope.spawn(|| {
            let body = json!({"command": "touch /workspace/waits; sleep 600"}).to_string();
            let path = sandbox.path("/sessions/w/exec");
            http.try_send("POST", &path, Some(body.as_bytes())).map(|reply| reply.status)
        });
        let silent = http.connect();
        wait_until("the call waits", SOON, || {
            sandbox.says("ls /workspace").contains("waits").then_some(())
        });
        let ended = scope.spawn(|| open.ends(1012, "stopping"));
        // What it waits for is limited to 3.5 seconds in total. Its process may end later, when the
        // disk is slow.
        process::signal(server.pid(), process::TERM);
        quickly("it stops", Duration::from_secs(7), || {
            wait_until("it stops", SOON, || {
                server.log().contains("stopped; sandboxes keep running").then_some(())
            });
        });
        let status = server.wait();
        assert!(status.success(), "{status}");
        ended.join().expect("every connection ended with its code");
        assert_eq!(waiting.join().expect("it ends").expect("it is answered"), 503);
        assert!(matches!((&silent).read(&mut [0; 1]), Ok(0) | Err(_)), "it is closed");
        calls.into_iter().for_each(|call| call.join().expect("it ends"));
    });
    server.launch();
    assert_eq!(sandbox.command("s", "echo $mark")["stdout"], "kept\n", "sandboxes stay");
    server.healthy();
}

#[test]
fn t13_connections_of_a_revoked_key_end() {
    let mut server = Options::new().start();
    let key = server.add_key(&["--label", "ends"]);
    let other = server.add_key(&["--label", "stays"]);
    let with = |key: &str| Http::new(server.port(), Some(key));
    let sandbox = Sandbox { http: with(&key), ..server.sandbox() };
    let mut stays = Sandbox { http: with(&other), ..server.named(&sandbox.id) }.shell();
    let mut own = server.named(&sandbox.id).shell();
    let open = OpenConnection::new(&sandbox);
    let list = server.command(&["keys", "ls"]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let line = list.lines().find(|line| line.contains("ends")).expect("it is listed");
    let id = line.split_whitespace().next().expect("its id");
    let done = server.command(&["keys", "revoke", id]);
    assert!(done.status.success(), "{done:?}");
    quickly("they end", LONG, || open.ends(1008, "unauthorized"));
    assert_eq!(with(&key).get("/v1/sandboxes").status, 401);
    stays.run("echo on").is("on\n", 0);
    own.run("echo on").is("on\n", 0);
    server.healthy();
}
