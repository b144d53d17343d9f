//! Many copies of a data directory, each with a server of its own, beside the original while it is
//! under load: nothing of the original changes, and no byte of its streams is lost.

use isolet_kit::net::{PUBLIC, World, inside};
use isolet_kit::{
    Frame, Options, SOON, Sandbox, Server, Shell, Start, Terminal, Traces, json, tries, veth,
    wait_until,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The number of sandboxes of the original that write streams.
const BUSY: usize = 3;
/// Files of the kernel that hold the limits of a cgroup, in either version.
const LIMITS: [&str; 5] =
    ["memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us", "pids.max"];

/// Everything of a running server's that another server could change.
#[derive(Debug, PartialEq)]
struct Observed {
    agents: BTreeSet<(i32, u64)>,
    /// The server, its launcher, the owner of its veth pairs, and its egress proxy.
    programs: Vec<i32>,
    /// Inode numbers and limits of the cgroups.
    groups: BTreeMap<PathBuf, (u64, Vec<String>)>,
    mounts: BTreeSet<String>,
    disks: BTreeSet<String>,
    /// The mounts that each agent sees.
    inner_mounts: BTreeMap<i32, String>,
    nft: [String; 2],
    files: BTreeMap<PathBuf, FileState>,
}

/// Inode, size, owner, mode and time of the last change, which nothing can reset.
type FileState = (u64, u64, u32, u32, (i64, i64));

impl Observed {
    /// `quiet` are files and directories that the load does not change.
    fn of(server: &Server, quiet: &[PathBuf]) -> Self {
        let data = server.data();
        let traces = Traces::of(&data);
        let agents = Traces::agents(&data);
        let manager = veth::manager(&data);
        let gateway = veth::gateway_netns(manager).expect("the gateway is there");
        let proxy = veth::egress_proxy(manager).expect("the egress proxy runs");
        let inner = agents.iter().map(|(pid, _)| {
            (*pid, fs::read_to_string(format!("/proc/{pid}/mountinfo")).expect("it runs"))
        });
        let mut files = BTreeMap::new();
        quiet.iter().for_each(|path| walk(path, &mut files));
        Self {
            programs: vec![server.pid(), server.launcher(), manager, proxy],
            groups: server.cgroups().into_iter().map(|path| group(&path)).collect(),
            mounts: traces.mounts,
            disks: traces.disks,
            inner_mounts: inner.collect(),
            nft: [nft(), inside(&gateway, "nft", "-s list ruleset")],
            agents,
            files,
        }
    }
}

fn group(path: &Path) -> (PathBuf, (u64, Vec<String>)) {
    let limits = LIMITS.iter().filter_map(|file| fs::read_to_string(path.join(file)).ok());
    let limits = limits.collect();
    (path.to_owned(), (fs::metadata(path).expect("it is there").ino(), limits))
}

/// The rules of this network namespace, without counters.
fn nft() -> String {
    let listed = Command::new("nft").args(["-s", "list", "ruleset"]).output();
    String::from_utf8_lossy(&listed.expect("nft is there").stdout).into_owned()
}

fn walk(path: &Path, into: &mut BTreeMap<PathBuf, FileState>) {
    let about = fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let changed = (about.ctime(), about.ctime_nsec());
    let state = (about.ino(), about.size(), about.uid(), about.mode(), changed);
    into.insert(path.to_owned(), state);
    if about.is_dir() {
        for entry in fs::read_dir(path).expect("it is read").flatten() {
            walk(&entry.path(), into);
        }
    }
}

/// A client that reads endless streams of a sandbox: numbered lines of a shell and a terminal.
struct Streams {
    sandbox: Sandbox,
    shell: Shell,
    out: Vec<u8>,
    terminal: Terminal,
}

impl Streams {
    fn start(server: &Server) -> Self {
        let sandbox = server.sandbox();
        sandbox.command("kept", "x=kept; echo acked >/workspace/f");
        let lines = |name: &str| {
            format!(
                "i=0; until [ -e /workspace/stop ]; do echo \"{name} $((++i))\"; ((i % 20)) || sleep 0.2; done; echo \"end $i\""
            )
        };
        let process = json!({"id": "p", "command": lines("process")});
        sandbox.post("/processes", &process).expect(201);
        let mut terminal = sandbox.terminal("");
        terminal.line("PS1='$ '; stty -echo; echo 'o'n", "on\r\n");
        terminal.type_in(&format!("{}\r", lines("terminal")));
        let mut shell = sandbox.open("session=s&frames=binary");
        shell.start(Start::new(&lines("shell")));
        Self { sandbox, shell, out: Vec::new(), terminal }
    }

    /// Reads until `stop`, then lets the programs end and checks every byte.
    fn read(mut self, stop: &AtomicBool) {
        let mut ended = false;
        let mut stopping = false;
        while !ended {
            match self.shell.next(SOON).expect("the shell goes on") {
                Frame::Data { stream: 1, offset, bytes, .. } => {
                    assert_eq!(offset, self.out.len() as u64, "a byte is lost or doubled");
                    self.out.extend(bytes);
                }
                Frame::Text(value) if value["type"] == "shell_exit" => ended = true,
                Frame::Text(value) => assert_ne!(value["type"], "shell_gap", "{value}"),
                other => assert!(!matches!(other, Frame::Close(_)), "{other:?}"),
            }
            while self.terminal.step(Duration::from_millis(1)) {}
            assert!(self.terminal.closed.is_none(), "the terminal goes on");
            if stop.load(Ordering::Relaxed) && !stopping {
                stopping = true;
                self.sandbox.exec("touch /workspace/stop");
            }
        }
        numbered(&String::from_utf8_lossy(&self.out), "shell", "\n");
        let last = self.terminal.sees("end ");
        self.terminal.sees_after(last, "\r\n");
        let shown = String::from_utf8_lossy(&self.terminal.output).replace("\r\n", "\n");
        let from = shown.find("terminal 1\n").expect("the first line");
        numbered(&shown[from..], "terminal", "\n");
        assert_eq!(self.terminal.jumps, 1, "the terminal's client never fell behind");
        let wait = self.sandbox.post("/processes/p/wait", &json!({"exit": true}));
        assert_eq!(wait.expect(200).json()["process"]["exit_code"], 0);
        let path = self.sandbox.path("/processes/p/logs?since=0");
        let log = self.sandbox.http.get(&path).expect(200).json();
        numbered(log["stdout"].as_str().expect("text"), "process", "\n");
        let answer = self.sandbox.command("kept", "echo $x; cat /workspace/f");
        assert_eq!(answer["stdout"], "kept\nacked\n", "{answer}");
    }
}

/// Checks that a text is lines with consecutive numbers and a last line with their count.
fn numbered(text: &str, name: &str, end: &str) {
    let (lines, rest) = text.split_once("end ").expect("a last line");
    let count: usize = rest.split(end).next().and_then(|n| n.parse().ok()).expect("a number");
    let expected: String = (1..=count).map(|n| format!("{name} {n}{end}")).collect();
    assert!(lines == expected, "{name}: {count} lines, and {} bytes of them", lines.len());
}

/// A copy by `cp -a`, while the original changes.
fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).output();
    assert!(done.is_ok() && to.join("isolet.db").is_file(), "{done:?}");
}

/// Uses a copy in every way: its sandboxes sleep, wake, run, change their files and are deleted.
fn use_copy(other: &Server, ids: &[String], networked: &str) {
    for id in ids {
        let there = other.named(id);
        assert_eq!(there.info()["state"], "sleeping");
        let answer =
            there.command("s", "cat /workspace/f; pgrep -c sleep; echo other >/workspace/f");
        assert_eq!(answer["stdout"], "acked\n0\n", "{answer}");
    }
    // Only one of the servers can have a network. Whether this one gets an answer does not matter.
    let _ = other.named(networked).post("/exec", &json!({"command": "true"}));
    other.named(&ids[0]).delete();
    other.sandbox().run("echo new").is("new\n", 0);
}

/// What the load does not change: the directories of sandboxes that sleep, every socket, and files of
/// the server.
fn quiet(data: &Path) -> Vec<PathBuf> {
    let running = Traces::of(data).groups;
    let mut quiet: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(data.join("sandboxes")).expect("it is there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        quiet.push(if running.contains(&name) {
            entry.path().join("agent.sock")
        } else {
            entry.path()
        });
    }
    let own = ["identity", "format", "audit/key", "admin.sock", "network/links.sock"];
    quiet.extend(own.map(|name| data.join(name)));
    quiet
}

/// Promises: F44.
#[test]
fn heavy_f44_many_copies_beside_a_busy_original_change_nothing_of_it() {
    let _world = World::new();
    let server = Options::new().start();
    let allow = json!({"network": {"allow": [format!("{PUBLIC}:80"), "web.example"]}});
    let networked = server.sandbox_with(&allow);
    let limited = server.sandbox_with(&json!({"disk_mib": 64}));
    limited.command("s", "x=kept; sleep 4718 & disown");
    let slept = server.sandbox();
    slept.command("s", "echo acked >/workspace/f");
    wait_until("one sleeps", SOON, || {
        (slept.post("/sleep", &json!({})).status == 200).then_some(())
    });
    let streams: Vec<Streams> = (0..BUSY).map(|_| Streams::start(&server)).collect();
    let mut ids: Vec<String> = streams.iter().map(|one| one.sandbox.id.clone()).collect();
    ids.push(slept.id.clone());
    let quiet = quiet(&server.data());
    let before = Observed::of(&server, &quiet);
    assert!(before.files.len() > 5 && before.agents.len() == BUSY + 2, "{before:?}");
    assert!(before.nft[1].contains("table"), "{before:?}");
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let readers: Vec<_> =
            streams.into_iter().map(|one| threads.spawn(|| one.read(&stop))).collect();
        let copies = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let all: Vec<Server> = (0..tries(3, 20)).map(|_| server.start_beside(copy)).collect();
            for other in &all {
                use_copy(other, &ids, &networked.id);
            }
            assert_eq!(Observed::of(&server, &quiet), before, "while the copies run");
            drop(all);
            assert_eq!(Observed::of(&server, &quiet), before, "after the copies");
        }));
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        copies.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let answer = networked.exec(&format!("timeout 5 cat </dev/tcp/{PUBLIC}/80"));
    assert_eq!(answer["exit_code"], 0, "{answer}");
    assert_eq!(limited.command("s", "echo $x; pgrep -c sleep")["stdout"], "kept\n1\n");
    assert_eq!(slept.says("cat /workspace/f"), "acked\n");
    server.healthy();
}
