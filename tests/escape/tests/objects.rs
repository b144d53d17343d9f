//! E39, E53: kernel objects that are counted per user, or once for the whole machine. However many
//! of them one sandbox uses, enough remain for the others and for the host.
#![allow(missing_docs)]

use isolet_kit::{Options, SOON, Sandbox, Server, Value, json, process, wait_until};
use std::path::{Path, PathBuf};
use std::process::Command;

const OBJECTS: &str = include_str!("../objects.py");
const MEMORY: &str = include_str!("../memory.py");
/// The program inside the sandbox.
const PROGRAM: &str = "python3 /tmp/objects.py";

/// The first host uid of sandboxes, each of which has 65,536.
const IDS: u32 = 0x7000_0000;

fn load(sandbox: &Sandbox) {
    let body = json!({ "argv": ["tee", "/tmp/objects.py"], "stdin": OBJECTS });
    let answer = sandbox.post("/exec", &body).expect(200).json();
    assert_eq!(answer["exit_code"], 0, "{answer}");
}

/// The output of a program that runs as root on the host.
fn host(program: &str, words: &[&str]) -> String {
    let output = Command::new("python3").args(["-c", program]).args(words).output();
    let output = output.expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program in a session that allocates objects of one kind and holds them.
struct HeldObjects<'a> {
    sandbox: &'a Sandbox,
    session: &'a str,
    count: u64,
    refused: String,
}

impl<'a> HeldObjects<'a> {
    fn take(sandbox: &'a Sandbox, session: &'a str, kind: &str) -> Self {
        let directory = "/workspace/.sessions";
        let at = format!("{directory}/{session}-{kind}");
        let start = format!(
            "mkdir -p {directory}; rm -f {at}; sleep 1000 | {PROGRAM} fill {kind} >{at} 2>&1 & echo"
        );
        sandbox.command(session, &start);
        let said = wait_until("the program holds the objects", SOON, || {
            let said = sandbox.command(session, &format!("cat {at}"));
            let said = said["stdout"].as_str().unwrap_or_default().to_owned();
            said.ends_with('\n').then_some(said)
        });
        let words: Vec<&str> = said.split_whitespace().collect();
        let [_, count, refused] = words[..] else { panic!("{kind}: {said}") };
        let count = count.parse().unwrap_or_else(|_| panic!("{kind}: {said}"));
        Self { sandbox, session, count, refused: refused.to_owned() }
    }
}

impl Drop for HeldObjects<'_> {
    fn drop(&mut self) {
        self.sandbox.command(self.session, "kill -KILL $(jobs -p); wait");
    }
}

/// Checks that another sandbox, its watch over the API, and the host can still allocate every kind
/// of object.
#[track_caller]
fn others_have_theirs(while_taken: &str, other: &Sandbox) {
    let inside = other.says(&format!("{PROGRAM} one"));
    assert_eq!(inside, "{}\n", "in another sandbox, {while_taken}");
    assert_eq!(host(OBJECTS, &["one"]), "{}\n", "on the host, {while_taken}");
    let watch = watched(other);
    assert_eq!(watch, 200, "a watch of another sandbox, {while_taken}");
}

/// The status of a watch of the sandbox's workspace.
fn watched(sandbox: &Sandbox) -> u16 {
    let path = sandbox.path("/files?watch=1");
    sandbox.http.try_open("GET", &path, None).expect("an answer").status
}

/// A kernel setting that is restored on drop.
struct Setting {
    path: PathBuf,
    before: String,
}

impl Setting {
    fn set(path: &str, value: &str) -> Self {
        let path = Path::new(path).to_owned();
        let before = std::fs::read_to_string(&path).expect("a setting");
        std::fs::write(&path, value).expect("is set");
        Self { path, before }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        std::fs::write(&self.path, &self.before).expect("is put back");
    }
}

/// The owners (uids) of the user namespaces of these processes.
fn owners(processes: &[i32]) -> Vec<u32> {
    let words: Vec<String> = processes.iter().map(i32::to_string).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // NS_GET_OWNER_UID
    let program = "import array, fcntl, sys\nfor pid in sys.argv[1:]:\n  uid = array.array('I', [0])\n  \
                   fcntl.ioctl(open('/proc/%s/ns/user' % pid), 0xb704, uid)\n  print(uid[0])";
    host(program, &words).lines().map(|line| line.parse().expect("a user")).collect()
}

/// One sandbox used up all inotify instances, timers and message queues of the machine: the kernel
/// counts them for the creator of the user namespace, which was the host's root.
/// Promises: B7.
#[test]
fn e39_kernel_objects_count_against_a_uid_of_the_sandbox() {
    let server = Server::start();
    let one = server.sandbox();
    let _with_a_disk = server.sandbox_with(&json!({ "disk_mib": 64 }));
    let spec = json!({"id": "scoped", "file_access": {"write": ["src"]}});
    one.post("/sessions", &spec).expect(201);
    one.command("scoped", "true");
    let agents = server.agents();
    assert!(agents.len() >= 2, "{agents:?}");
    let mut outer = owners(&agents);
    assert!(outer.iter().all(|owner| *owner >= IDS && owner % 65_536 == 65_535), "{outer:?}");
    outer.dedup();
    assert_eq!(outer.len(), agents.len(), "two sandboxes share an owner: {outer:?}");
    let ends = server.processes("bash");
    let inner = owners(&ends);
    assert!(!inner.is_empty() && inner.iter().all(|owner| outer.contains(owner)), "{inner:?}");
}

/// Promises: B7.
#[test]
fn e39_sandboxes_from_the_warm_pool_and_after_a_wake_up_count_separately() {
    let server = Options::new().warm_pool(1).start();
    let sandbox = server.sandbox();
    sandbox.command("default", "echo kept > file");
    sandbox.post("/sleep", &json!({})).expect(200);
    assert_eq!(sandbox.says("cat file"), "kept\n");
    let found = owners(&server.agents());
    assert!(found.iter().all(|owner| *owner >= IDS), "{found:?}");
}

/// E37: the confinement covers every thread of every process that runs for a sandbox.
/// Promises: B5.
#[test]
fn e37_agents_shells_and_programs_are_confined_in_every_thread() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let spec = json!({"id": "scoped", "file_access": {"write": ["src"]}});
    sandbox.post("/sessions", &spec).expect(201);
    for session in ["default", "scoped"] {
        let threads = "python3 -c 'import threading, time\nfor _ in range(3): threading.Thread(target=time.sleep, args=(1000,)).start()' & echo";
        sandbox.command(session, threads);
    }
    wait_until("two programs with four threads run", SOON, || {
        let programs = server.processes("python3");
        let four = |pid: &&i32| threads(**pid).len() == 4;
        (programs.iter().filter(four).count() == 2).then_some(())
    });
    let mut seen = 0;
    for (name, filters) in [("isolet-agent", "1"), ("bash", "2"), ("python3", "2")] {
        let processes = server.processes(name);
        assert!(processes.len() >= 2, "{name}: {processes:?}");
        for pid in processes {
            limited(pid);
            for status in threads(pid) {
                confined(&status, filters);
                seen += 1;
            }
        }
    }
    assert!(seen >= 12, "only {seen} threads");
}

/// Checks the limits of a process on objects that are counted per user, whatever the host allows.
#[track_caller]
fn limited(pid: i32) {
    let Ok(limits) = std::fs::read_to_string(format!("/proc/{pid}/limits")) else {
        assert!(!process::alive(pid), "{pid} runs");
        return;
    };
    for (name, most) in
        [("pending signals", 65_536), ("msgqueue size", 819_200), ("locked memory", 8 << 20)]
    {
        let line = limits.lines().find(|line| line.starts_with(&format!("Max {name}")));
        let words: Vec<_> = line.expect("a limit").split_whitespace().collect();
        let hard: u64 = words[words.len() - 2].parse().expect("not unlimited");
        assert!(hard <= most, "{pid}: {line:?}");
    }
}

/// Checks the confinement of an agent, which has only its own filter, or of a process that it
/// started.
#[track_caller]
fn confined(status: &str, filters: &str) {
    let of = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.expect("a field").trim_start_matches([':', '\t'])
    };
    let said = [of("NoNewPrivs"), of("Seccomp"), of("Seccomp_filters")];
    assert_eq!(said, ["1", "2", filters], "{status}");
    let capabilities = if filters == "1" { "0000000000000000" } else { "00000000800405fb" };
    assert_eq!(of("CapBnd"), capabilities, "{status}");
    assert!(u64::from_str_radix(of("CapEff"), 16).is_ok_and(|set| set.count_ones() <= 11));
}

/// The kernel's status of each thread.
fn threads(pid: i32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok()).collect()
}

/// 3,066 opens of `/dev/ptmx` used up every terminal of the machine.
/// Promises: B8.
#[test]
fn e53_terminals_of_a_sandbox_and_of_a_scope_are_bounded() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let other = server.sandbox();
    load(&sandbox);
    load(&other);
    let spec = json!({"id": "scoped", "file_access": {"write": ["docs"]}});
    sandbox.post("/sessions", &spec).expect(201);
    let scoped = sandbox.command("scoped", "test -e /tmp/objects.py; echo $?");
    assert_eq!(scoped["stdout"], "1\n", "a scope has its own files there");
    let path = sandbox.path("/sessions/scoped/files/.sessions/scoped/objects.py");
    sandbox.http.send("PUT", &path, Some(OBJECTS.as_bytes())).expect(201);
    sandbox.command("scoped", "cp /workspace/.sessions/scoped/objects.py /tmp/");
    let all = HeldObjects::take(&sandbox, "default", "terminals");
    assert_eq!((all.count, all.refused.as_str()), (64, "ENOSPC"));
    // A terminal over the API is refused with a hint.
    let refused = sandbox.try_terminal("session=default");
    assert_eq!(refused.err(), Some(429));
    assert_eq!(scoped_terminals(&sandbox), "terminals 32 ENOSPC\n");
    others_have_theirs("terminals", &other);
    let mut terminal = other.terminal("session=default");
    terminal.line("echo o''n", "on\r\n");
    drop(all);
    let mut terminal = sandbox.terminal("session=default");
    terminal.line("echo o''n", "on\r\n");
}

fn scoped_terminals(sandbox: &Sandbox) -> Value {
    sandbox.command("scoped", &format!("{PROGRAM} fill terminals </dev/null"))["stdout"].clone()
}

/// When this memory is exhausted, no sandbox can start another program.
/// Promises: B8.
#[test]
fn e53_socket_filters_take_no_compiled_memory_of_the_machine() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let program = "python3 -c 'import socket, struct, ctypes
code = ctypes.create_string_buffer(struct.pack(\"HBBI\", 6, 0, 0, 1))
filter = struct.pack(\"HxxxxxxQ\", 1, ctypes.addressof(code))
one = socket.socket(socket.AF_UNIX)
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
for option in (26, 51):
  try: one.setsockopt(socket.SOL_SOCKET, option, filter); print(option)
  except OSError as error: print(error.errno)'";
    assert_eq!(sandbox.says(program), "1\n1\n");
}

/// Four calls of `io_setup` used up all requests of the machine (`fs.aio-max-nr`).
/// Promises: B8.
#[test]
fn e53_kernel_asynchronous_io_is_refused_inside() {
    let server = Server::start();
    let sandbox = server.sandbox();
    load(&sandbox);
    let before = std::fs::read_to_string("/proc/sys/fs/aio-nr").expect("a number");
    let said = sandbox.says(&format!("{PROGRAM} fill contexts </dev/null"));
    assert_eq!(said, "contexts 0 ENOSYS\n");
    assert_eq!(std::fs::read_to_string("/proc/sys/fs/aio-nr").expect("a number"), before);
}

/// E43: a process that allocates more than the sandbox's memory is refused or killed, and affects
/// no other sandbox.
/// Promises: B7.
#[test]
fn e43_kernel_memory_of_a_sandbox_counts_against_the_sandbox() {
    let server = Server::start();
    let other = server.sandbox();
    let mut shell = other.shell();
    for kind in ["unix", "pipe", "memfd", "shm", "populate", "message", "semaphores"] {
        let sandbox = server.sandbox_with(&json!({ "memory_mib": 64 }));
        let body = json!({ "argv": ["python3", "-c", MEMORY, kind] });
        let said = sandbox.post("/exec", &body).expect(200).json();
        let refused = said["stdout"].as_str().is_some_and(|text| text.starts_with("refused after"));
        assert!(refused || said["oom"] == true, "{kind}: {said}");
        sandbox.delete();
        shell.run("echo well").is("well\n", 0);
    }
}

mod heavy {
    use super::*;

    /// The limit on a user's epoll watches during the test, because reaching the kernel's default
    /// would take a gigabyte of memory.
    const POLLS: &str = "20000";

    /// Each kind is allocated up to its limit in one sandbox, by root inside and then by another
    /// user.
    /// Promises: B7.
    #[test]
    fn e39_objects_exhausted_by_one_sandbox_remain_available_to_others_and_the_host() {
        let server = Server::start();
        let sandbox = server.sandbox();
        let other = server.sandbox();
        load(&sandbox);
        load(&other);
        others_have_theirs("nothing is taken", &other);
        for (kind, refused) in [
            ("instances", "EMFILE"),
            ("watches", "ENOSPC"),
            ("timers", "EAGAIN"),
            ("signals", "EAGAIN"),
            ("queues", "EMFILE"),
            ("pipes", "EPERM"),
            ("memory", "ENOMEM"),
        ] {
            let held = HeldObjects::take(&sandbox, "default", kind);
            assert_eq!(held.refused, refused, "{kind} after {}", held.count);
            assert!(held.count > 0, "{kind}");
            others_have_theirs(kind, &other);
            if matches!(kind, "instances" | "watches") {
                assert_eq!(watched(&sandbox), 429, "its own watch, {kind}");
            }
        }
        for kind in ["keys", "namespaces"] {
            let held = HeldObjects::take(&sandbox, "default", kind);
            assert_eq!((held.count, held.refused.as_str()), (0, "EPERM"), "{kind}");
        }
        assert_eq!(watched(&sandbox), 200, "its own watch, after they were released");
        let _setting = Setting::set("/proc/sys/fs/epoll/max_user_watches", POLLS);
        let held = HeldObjects::take(&sandbox, "default", "polls");
        assert_eq!(held.refused, "ENOSPC", "after {}", held.count);
        others_have_theirs("polls", &other);
        drop(held);
        server.healthy();
    }
}
