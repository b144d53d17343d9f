//! A real upgrade: sandboxes that programs of an earlier commit run are taken over by the current
//! server, and lose nothing. Both have the same format.
//!
//! `make upgrade-test` builds the programs of that commit and sets `ISOLET_OLD_PROGRAMS` to their
//! directory.

use isolet_kit::net::{PUBLIC, World};
use isolet_kit::{
    Frame, LONG, Options, Rows, SOON, Sandbox, Server, Shell, Start, Terminal, Traces, json, tries,
    veth, wait_until,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of lines that a shell, a process and a terminal write during the upgrade.
const LINES: usize = 600;

fn old_programs() -> PathBuf {
    let directory = std::env::var_os("ISOLET_OLD_PROGRAMS").map(PathBuf::from);
    directory.expect("ISOLET_OLD_PROGRAMS is the directory of the earlier programs")
}

/// A server of the earlier commit.
fn old_server() -> Server {
    Options::new().programs(&old_programs()).start()
}

/// Prints numbered lines for half a minute, longer than all sandboxes take to start.
fn lines(name: &str) -> String {
    format!("for ((i=1; i<={LINES}; i++)); do echo \"{name} $i\"; ((i % 10)) || sleep 0.5; done")
}

fn printed(name: &str, end: &str) -> String {
    (1..=LINES).map(|n| format!("{name} {n}{end}")).collect()
}

/// A sandbox that is busy in all ways, with one client of each kind.
struct Busy {
    sandbox: Sandbox,
    shell: Shell,
    shell_out: Vec<u8>,
    terminal: Terminal,
}

impl Busy {
    fn start(server: &Server) -> Self {
        let sandbox = server.sandbox();
        sandbox.command("kept", "x=kept; f() { echo called; }; cd /tmp; echo acked >/workspace/f");
        sandbox.post("/contexts/python/run", &json!({"code": "answer = 41"})).expect(200);
        let process = json!({"id": "p", "command": lines("process")});
        sandbox.post("/processes", &process).expect(201);
        let mut terminal = sandbox.terminal("");
        terminal.line("PS1='$ '; stty -echo; echo 'o'n", "on\r\n");
        terminal.type_in(&format!("{}; echo 'e'nd\r", lines("terminal")));
        terminal.sees("terminal 5\r\n");
        let mut shell = sandbox.open("session=s&frames=binary");
        shell.start(Start::new(&lines("shell")));
        let mut busy = Self { sandbox, shell, shell_out: Vec::new(), terminal };
        busy.read_shell(|out| out.len() > 100);
        busy
    }

    /// Reads the shell's output until there is enough, the command ends, or the socket breaks.
    /// Returns whether the command has ended.
    fn read_shell(&mut self, enough: impl Fn(&[u8]) -> bool) -> bool {
        while !enough(&self.shell_out) {
            match self.shell.next(SOON).expect("it goes on") {
                Frame::Data { stream: 1, offset, bytes, .. } => {
                    assert_eq!(offset, self.shell_out.len() as u64, "a byte is lost or doubled");
                    self.shell_out.extend(bytes);
                }
                Frame::Text(value) if value["type"] == "shell_exit" => return true,
                Frame::Text(value) => assert_ne!(value["type"], "shell_gap", "{value}"),
                Frame::Data { .. } => {}
                Frame::Close(_) => return false,
            }
        }
        false
    }

    /// Reconnects every client after the upgrade, and checks that none has lost a byte.
    fn resume(mut self) -> Sandbox {
        let query = format!(
            "session=s&resume={}&frames=binary&since={}",
            self.shell.id,
            self.shell_out.len()
        );
        self.shell = self.sandbox.open(&query);
        assert!(self.read_shell(|_| false), "the command ended");
        assert_eq!(String::from_utf8_lossy(&self.shell_out), printed("shell", "\n"));
        let place = self.terminal.place();
        let terminal = self.sandbox.try_terminal(&format!("events=1&{place}"));
        let mut terminal = terminal.expect("the client is admitted");
        terminal.frame("ready");
        assert_eq!(terminal.base, self.terminal.offset(), "it continues where it was");
        terminal.sees("end\r\n");
        let all = [self.terminal.output.clone(), terminal.output.clone()].concat();
        let all = String::from_utf8_lossy(&all).into_owned();
        assert!(all.contains(&printed("terminal", "\r\n")), "{all}");
        let sandbox = self.sandbox;
        let wait = sandbox.post("/processes/p/wait", &json!({"exit": true, "timeout_ms": 60_000}));
        assert_eq!(wait.expect(200).json()["process"]["exit_code"], 0);
        let log = sandbox.http.get(&sandbox.path("/processes/p/logs?since=0")).expect(200).json();
        assert_eq!(log["stdout"], printed("process", "\n"));
        kept(&sandbox);
        let answer = sandbox.post("/contexts/python/run", &json!({"code": "answer + 1"}));
        let answer = answer.expect(200).json();
        assert!(answer["results"].to_string().contains("\"42\""), "{answer}");
        assert_eq!(sandbox.says("cat /workspace/f"), "acked\n");
        sandbox
    }
}

/// The state of a session's shell is that before the upgrade.
fn kept(sandbox: &Sandbox) {
    let answer = sandbox.command("kept", "echo $x; f; pwd; cat /workspace/f");
    assert_eq!(answer["stdout"], "kept\ncalled\n/tmp\nacked\n", "{answer}");
}

/// Stops the old server while its clients read, and starts the current one.
fn upgrade(server: &mut Server, busy: &mut [Busy]) {
    server.stop();
    for one in busy {
        assert!(!one.read_shell(|_| false), "its command still runs");
        while one.terminal.closed.is_none() {
            one.terminal.step(SOON);
        }
    }
    // Output arrives while no server runs.
    std::thread::sleep(Duration::from_millis(300));
    server.use_programs_under_test();
    server.launch();
}

/// Promises: F49.
#[test]
#[ignore = "needs earlier programs: make upgrade-test"]
fn an_upgrade_with_busy_sandboxes_loses_no_byte_and_no_state() {
    let mut server = old_server();
    let asleep = server.sandbox();
    asleep.command("kept", "x=kept; f() { echo called; }; cd /tmp; echo acked >/workspace/f");
    wait_until("it sleeps", SOON, || {
        (asleep.post("/sleep", &json!({})).status == 200).then_some(())
    });
    let scoped = server.sandbox();
    scoped.command("default", "mkdir -p docs; echo a >docs/a");
    let access = json!({"id": "one", "file_access": {"read": ["docs"]}});
    scoped.post("/sessions", &access).expect(201);
    scoped.command("one", "y=scoped");
    let mut busy: Vec<Busy> = (0..tries(4, 20)).map(|_| Busy::start(&server)).collect();
    let agents = Traces::agents(&server.data());
    upgrade(&mut server, &mut busy);
    assert_eq!(Traces::agents(&server.data()), agents, "every agent is the same process");

    let mut rows = Rows::new();
    rows.row("a session with a file scope", || {
        let answer = scoped.command("one", "echo $y; ls docs");
        assert_eq!(answer["stdout"], "scoped\na\n", "{answer}");
    });
    rows.row("a sandbox that slept wakes", || kept(&asleep));
    let mut all = Vec::new();
    rows.row("busy sandboxes", || {
        all.extend(busy.into_iter().map(Busy::resume));
    });
    rows.row("a sleep replaces the agent", || {
        for sandbox in all.iter().chain([&scoped]) {
            wait_until("it sleeps", LONG, || {
                (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
            });
        }
        all.iter().for_each(kept);
        assert_eq!(scoped.command("one", "echo $y")["stdout"], "scoped\n");
    });
    drop(rows);
    server.healthy();
}

/// Promises: F49.
#[test]
#[ignore = "needs earlier programs: make upgrade-test"]
fn an_upgrade_keeps_connections_to_the_network() {
    let _world = World::new();
    let mut server = old_server();
    let spec = json!({"network": {"allow": [format!("{PUBLIC}:80"), format!("{PUBLIC}:81")]}});
    let sandbox = server.sandbox_with(&spec);
    let reader = format!(
        "exec 3<>/dev/tcp/{PUBLIC}/81; while :; do head -c 65536 <&3 | wc -c; sleep 0.05; done"
    );
    sandbox.post("/processes", &json!({"id": "reader", "command": reader})).expect(201);
    let counts = |sandbox: &Sandbox| -> Vec<String> {
        let path = sandbox.path("/processes/reader/logs?since=0");
        let log = sandbox.http.get(&path).expect(200).json();
        let text = log["stdout"].as_str().unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    wait_until("it reads", SOON, || (counts(&sandbox).len() > 3).then_some(()));
    let manager = veth::manager(&server.data());
    upgrade(&mut server, &mut []);
    let before = counts(&sandbox).len();
    wait_until("it reads on", SOON, || (counts(&sandbox).len() > before + 10).then_some(()));
    let counts = counts(&sandbox);
    assert!(counts.iter().all(|count| count == "65536"), "the connection broke: {counts:?}");
    assert_eq!(veth::manager(&server.data()), manager, "the owner of the veth pairs is the same");
    let fetch = |port: u16| sandbox.exec(&format!("timeout 5 cat </dev/tcp/{PUBLIC}/{port}"));
    assert_eq!(fetch(80)["exit_code"], 0, "rules hold");
    assert_ne!(fetch(443)["exit_code"], 0, "rules hold");
    let change = json!({"allow_add": [format!("{PUBLIC}:443")]});
    sandbox.http.patch(&sandbox.path("/network"), &change).expect(200);
    assert_eq!(fetch(443)["exit_code"], 0, "the old process applies new rules");
    let another = server.sandbox_with(&spec);
    let answer = another.exec(&format!("timeout 5 cat </dev/tcp/{PUBLIC}/80"));
    assert_eq!(answer["exit_code"], 0, "{answer}");
    server.healthy();
}

/// Between the installation of a package and its restart, a server starts newer programs.
/// Promises: F49.
#[test]
#[ignore = "needs earlier programs: make upgrade-test"]
fn an_earlier_server_works_with_a_newer_launcher_and_agent() {
    let mixed = mixed_programs(&["isolet", "isolet-egress-proxy"]);
    let server = Options::new().programs(&mixed).start();
    let sandbox = server.sandbox();
    assert_eq!(sandbox.command("s", "echo said")["stdout"], "said\n");
    sandbox.terminal("").line("echo 't'erminal", "terminal\r\n");
    server.healthy();
    drop(sandbox);
    drop(server);
    std::fs::remove_dir_all(&mixed).expect("it is removed");
}

/// A directory with the programs under test, but for those in `old`.
fn mixed_programs(old: &[&str]) -> PathBuf {
    let directory = format!("isolet-mixed-{}", std::process::id());
    let directory = std::env::temp_dir().join(directory);
    std::fs::create_dir_all(&directory).expect("it is made");
    let copy = |from: &Path, program: &str| {
        let copied = std::fs::copy(from.join(program), directory.join(program));
        copied.unwrap_or_else(|error| panic!("{program}: {error}"));
    };
    let all = ["isolet", "isolet-launcher", "isolet-agent", "isolet-egress-proxy"];
    for program in all.iter().filter(|program| !old.contains(program)) {
        copy(&isolet_kit::programs(), program);
    }
    for program in old {
        copy(&old_programs(), program);
    }
    directory
}
