//! The server has little memory and its clients read nothing. What it buffers for each is bounded,
//! so that the kernel never has to kill a process.

use isolet_kit::{
    Http, LONG, Options, Sandbox, Shell, Start, Stream, Terminal, json, process, wait_until,
};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

/// Memory limit of the server's cgroup.
const LIMIT_MIB: u64 = 200;
/// The number of sandboxes; each has the same number of clients of every kind.
const SANDBOXES: usize = 10;
/// The output of each process that nobody has read when the server is examined.
const FLOOD_BYTES: u64 = 64 << 20;

/// A cgroup of this test with a memory limit.
struct Group(PathBuf);

impl Group {
    /// Below the cgroup of this process where the memory controller has a hierarchy of its own, and
    /// at the top otherwise: a cgroup with processes cannot have children with controllers.
    fn make() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").expect("own groups");
        let first = Path::new("/sys/fs/cgroup/memory");
        let path = own.lines().find_map(|line| line.split_once(":memory:/").map(|(_, path)| path));
        let (base, limit) = match path.filter(|_| first.is_dir()) {
            Some(path) => (first.join(path), "memory.limit_in_bytes"),
            None => (PathBuf::from("/sys/fs/cgroup"), "memory.max"),
        };
        let group = Self(base.join(format!("isolet-test-{}", std::process::id())));
        fs::create_dir(&group.0).expect("a group");
        fs::write(group.0.join(limit), (LIMIT_MIB << 20).to_string()).expect("a limit");
        group
    }

    fn take(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("it is moved");
    }

    /// The number of its processes that the kernel killed for lack of memory.
    fn killed(&self) -> u64 {
        let text = ["memory.oom_control", "memory.events"]
            .map(|name| fs::read_to_string(self.0.join(name)).unwrap_or_default())
            .concat();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.expect("a count").parse().expect("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let left = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let above = self.0.parent().expect("a group above").join("cgroup.procs");
        left.lines().for_each(|pid| drop(fs::write(&above, pid)));
        let _ = fs::remove_dir(&self.0);
    }
}

/// Clients that read nothing and stay connected until this value is dropped.
#[derive(Default)]
struct AssignedVeth {
    streams: Vec<Stream>,
    shells: Vec<Shell>,
    terminals: Vec<Terminal>,
    waiting: Vec<TcpStream>,
    refused: usize,
}

impl AssignedVeth {
    fn count(&self) -> usize {
        self.streams.len() + self.shells.len() + self.terminals.len() + self.waiting.len()
    }

    fn stream(&mut self, opened: std::io::Result<Stream>) {
        let stream = opened.expect("an answer");
        match stream.status {
            200 => self.streams.push(stream),
            status => self.refuse(status),
        }
    }

    fn shell(&mut self, opened: Result<Shell, u16>) {
        match opened {
            Ok(mut shell) => {
                shell.start(Start::new("exec cat /dev/zero"));
                self.shells.push(shell);
            }
            Err(status) => self.refuse(status),
        }
    }

    fn terminal(&mut self, opened: Result<Terminal, u16>) {
        match opened {
            Ok(mut terminal) => {
                terminal.type_in("stty -echo; yes\r");
                self.terminals.push(terminal);
            }
            Err(status) => self.refuse(status),
        }
    }

    fn refuse(&mut self, status: u16) {
        assert_eq!(status, 429);
        self.refused += 1;
    }

    /// Fifty clients of one sandbox. Their data is as large as possible: each byte takes six in
    /// JSON.
    fn at(sandbox: &Sandbox, process: &str) -> Self {
        let http = &sandbox.http;
        let events = http.with("last-event-id", "0");
        let follow = http.with("accept", "text/event-stream");
        let logs = sandbox.path(&format!("/processes/{process}/logs"));
        let flood = json!({"command": "exec cat /dev/zero"});
        let mut all = Self::default();
        for _ in 0..5 {
            all.stream(follow.try_open("GET", &logs, None));
            all.shell(sandbox.try_open(""));
            all.stream(Ok(http.events(&sandbox.path("/exec"), &flood)));
            all.terminal(sandbox.try_terminal("session=t"));
            all.stream(http.try_open("GET", &sandbox.path("/files/large"), None));
            all.shell(sandbox.try_open(""));
            all.waiting.push(gathered(sandbox));
            all.stream(events.try_open("GET", "/v1/events", None));
            all.stream(follow.try_open("GET", &logs, None));
            all.shell(sandbox.try_open(""));
        }
        all
    }
}

/// Fifty answers of 8 MiB, which are 48 MiB in JSON, once ended a server with 200 MiB, and so did
/// unread frames of 500 clients that grow sixfold in JSON.
/// Promises: F20.
#[test]
fn heavy_f20_a_server_with_200_mib_survives_500_clients_that_read_nothing() {
    // What such a server derives from its memory at startup.
    let config = "[connections]\nmax = 200\nanswers_mib = 8";
    let mut server = Options::new().config(config).start();
    let keys: Vec<String> = ["a", "b", "c"].map(|name| server.add_key(&["--tenant", name])).into();
    let sandboxes: Vec<(Sandbox, String)> =
        (0..SANDBOXES).map(|n| flooded(&Http::new(server.port(), Some(&keys[n % 3])))).collect();
    let neighbour = server.sandbox();
    let group = Group::make();
    let pid = server.pid();
    group.take(pid);
    let standing: Vec<AssignedVeth> = std::thread::scope(|scope| {
        let all: Vec<_> = sandboxes
            .iter()
            .map(|(sandbox, id)| scope.spawn(move || AssignedVeth::at(sandbox, id)))
            .collect();
        all.into_iter().map(|one| one.join().expect("is answered")).collect()
    });
    let (held, refused) = standing
        .iter()
        .fold((0, 0), |(held, refused), one| (held + one.count(), refused + one.refused));
    assert_eq!(held + refused, 500);
    assert!(held > 100 && refused > 0, "{held} held, {refused} refused");
    let written = |(sandbox, process): &(Sandbox, String)| {
        let path = sandbox.path(&format!("/processes/{process}"));
        let reply = sandbox.http.get(&path).expect(200).json();
        reply["stdout_bytes"].as_u64().expect("a number")
    };
    // All go on at the same time, and share the processors.
    let begun: Vec<u64> = sandboxes.iter().map(written).collect();
    for (one, begun) in sandboxes.iter().zip(begun) {
        wait_until("it continues without readers", LONG, || {
            (written(one) > begun + FLOOD_BYTES).then_some(())
        });
        neighbour.run("echo here").is("here\n", 0);
    }
    assert_eq!(group.killed(), 0, "{}", server.log());
    assert!(process::memory_kib(pid) < LIMIT_MIB * 1024);
    drop(standing);
    server.healthy();
    drop(server);
}

/// A sandbox with a large file and a process that writes forever.
fn flooded(http: &Http) -> (Sandbox, String) {
    let made = http.post("/v1/sandboxes", &json!({})).expect(201).json();
    let id = made["id"].as_str().expect("an id").to_owned();
    let sandbox = Sandbox { id, http: http.clone() };
    sandbox.exec("truncate -s 1G large");
    let flood = json!({"command": "exec cat /dev/zero"});
    let process = sandbox.post("/processes", &flood).expect(201).json();
    let process = process["id"].as_str().expect("an id").to_owned();
    (sandbox, process)
}

/// A command whose output is collected into one large answer that nobody reads.
fn gathered(sandbox: &Sandbox) -> TcpStream {
    let body = json!({"command": "head -c 8M /dev/zero"}).to_string();
    let mut stream = sandbox.http.connect();
    let key = sandbox.http.key.as_deref().unwrap_or_default();
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        sandbox.path("/exec"),
        sandbox.http.port,
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    stream
}
