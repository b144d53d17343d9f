//! Full disks, of one sandbox and of the whole server, and the directory trees that fill them.

use isolet_kit::tls::own_mounts;
use isolet_kit::{
    LONG, Options, Rows, SOON, Sandbox, Server, json, one, process, quickly, wait_until,
};
use std::fs;
use std::io::Write as _;
use std::process::Command;

/// Disk limit of the sandbox; it may use at most this much on the host.
const DISK_MIB: u64 = 64;

fn limited(server: &Server) -> Sandbox {
    server.sandbox_with(&json!({"id": "one", "disk_mib": DISK_MIB}))
}

fn put(sandbox: &Sandbox, path: &str, body: &[u8]) -> isolet_kit::Reply {
    sandbox.http.send("PUT", &sandbox.path(&format!("/files/{path}")), Some(body))
}

/// Checks everything that must still work in a sandbox whose disk is full.
fn lives_on(sandbox: &Sandbox) {
    assert_eq!(sandbox.says("echo alive"), "alive\n");
    let refused = put(sandbox, "more", &vec![7; 4 << 20]).expect(507);
    assert_eq!(refused.error(), "no_space");
    assert!(refused.text().contains("hint"), "{}", refused.text());
    assert_eq!(sandbox.http.get(&sandbox.path("/files/kept")).expect(200).text(), "kept");
    assert_eq!(sandbox.says("ls -A /workspace | grep -c '^.isolet-' || true"), "0\n");
}

fn sleep(sandbox: &Sandbox) {
    wait_until("it sleeps", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
}

/// Promises: W9.
#[test]
fn f22_a_full_disk_affects_one_sandbox_which_can_be_emptied_and_deleted() {
    let server = Server::start();
    let other = server.sandbox();
    let mut rows = Rows::new();
    let fills = [
        ("bytes", "head -c 100M /dev/zero >fill; true"),
        ("inodes", "mkdir fill; i=0; while : >fill/$i; do i=$((i+1)); done 2>/dev/null; true"),
        (
            "the system's own directories",
            "mkdir /usr/fill; head -c 100M /dev/zero >/usr/fill/x; ln -s /usr/fill; true",
        ),
    ];
    for (name, fill) in fills {
        rows.row(name, || {
            let sandbox = limited(&server);
            assert_eq!(sandbox.info()["disk_mib"], DISK_MIB);
            put(&sandbox, "kept", b"kept").expect(201);
            sandbox.exec(fill);
            if name == "inodes" {
                assert_eq!(put(&sandbox, "more", b"x").expect(507).error(), "no_space");
                assert_eq!(sandbox.says("echo alive"), "alive\n");
            } else {
                lives_on(&sandbox);
            }
            let used = sandbox.info()["usage"]["disk_bytes"].as_u64().expect("it is reported");
            assert!(used <= DISK_MIB << 20, "{used} bytes");
            sleep(&sandbox);
            assert_eq!(
                sandbox.says("cat kept; rm -rf fill/* fill /usr/fill; echo x >more; cat more"),
                "keptx\n"
            );
            sandbox.exec(fill);
            // One that waits longer than the server does is answered with 504.
            sandbox.delete();
            server.wait_until_tidy();
        });
    }
    rows.row("a sparse file costs nothing, and its copy is bounded", || {
        let sandbox = limited(&server);
        put(&sandbox, "kept", b"kept").expect(201);
        sandbox.exec("truncate -s 1T big");
        let tail = sandbox.http.with("range", "bytes=-3");
        assert_eq!(tail.get(&sandbox.path("/files/big")).expect(206).body, [0, 0, 0]);
        let copy = json!({"op": "copy", "path": "big", "to": "second"});
        assert_eq!(sandbox.post("/files", &copy).expect(507).error(), "no_space");
        put(&sandbox, "fits", &vec![1; 1 << 20]).expect(201);
        assert_eq!(sandbox.says("ls"), "big\nfits\nkept\n");
        sandbox.delete();
    });
    rows.row("no other sandbox notices", || {
        assert_eq!(other.says("head -c 100M /dev/zero >fill; stat -c %s fill"), "104857600\n");
        assert_eq!(other.info()["disk_mib"], 0);
    });
    drop(rows);
    server.healthy();
}

/// Promises: W9.
#[test]
fn a_disk_limit_holds_again_after_any_component_ended() {
    let mut server = Server::start();
    let sandbox = limited(&server);
    sandbox.exec("echo kept >/workspace/kept; echo too >/usr/local/too; mkdir -p /opt/a");
    let look = "cat /workspace/kept /usr/local/too; ls -d /opt/a; df --output=target /workspace | tail -n 1";
    let mut rows = Rows::new();
    let seen =
        |sandbox: &Sandbox| assert_eq!(sandbox.says(look), "kept\ntoo\n/opt/a\n/workspace\n");
    rows.row("a sleep", || {
        sleep(&sandbox);
        assert!(server.traces().disks.is_empty(), "nothing holds it");
        seen(&sandbox);
    });
    rows.row("a killed server and a killed launcher", || {
        let launcher = server.launcher();
        server.kill();
        process::kill(launcher);
        server.launch();
        seen(&sandbox);
    });
    rows.row("a reboot of the host", || {
        server.reboot();
        seen(&sandbox);
    });
    rows.row("everything at full load, repeatedly", || {
        for _ in 0..5 {
            sandbox.exec("head -c 20M /dev/urandom >fill; sha1sum fill >sum");
            sleep(&sandbox);
            assert_eq!(sandbox.says("sha1sum -c sum"), "fill: OK\n");
        }
    });
    rows.row("its size is its own and stays", || {
        let reply = sandbox.http.patch(&sandbox.path(""), &json!({"disk_mib": 128})).expect(400);
        assert!(reply.text().contains("disk_mib"), "{}", reply.text());
    });
    drop(rows);
    server.healthy();
}

/// Gives this thread a `/dev` as that of a container: it never shows a device that is added later.
const OWN_DEV: &str = "
    set -eu
    new=/mnt; mount -t tmpfs dev $new
    for name in null zero full random urandom tty ptmx loop-control; do cp -a /dev/$name $new; done
    for name in pts shm; do mkdir $new/$name; mount --rbind /dev/$name $new/$name; done
    ln -s /proc/self/fd $new/fd
    mount --rbind $new /dev";

/// A server in a container could not create sandboxes once all loop devices were in use that had
/// existed when the container was started: the file of a further device was missing in its `/dev`.
#[test]
fn a_sandbox_gets_a_disk_where_dev_does_not_show_new_loop_devices() {
    own_mounts();
    let status = Command::new("sh").args(["-c", OWN_DEV]).status().expect("sh is there");
    assert!(status.success(), "{status}");
    let server = Server::start();
    let sandbox = limited(&server);
    assert_eq!(sandbox.says("df --output=target /workspace | tail -n 1"), "/workspace\n");
    sleep(&sandbox);
    assert_eq!(sandbox.says("echo awake"), "awake\n");
    sandbox.delete();
    server.healthy();
}

/// `mkdir x; cd x` in a loop: a recursive deletion exhausts its stack or its descriptors and leaves
/// the rest forever.
/// Promises: F22.
#[test]
fn heavy_f22_a_tree_of_any_depth_is_deleted_in_bounded_time() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let dig = |name: &str, depth: usize| {
        let program = format!(
            "import os\nos.mkdir('{name}'); os.chdir('{name}')\n\
             for _ in range({depth}): os.mkdir('d'); os.chdir('d')\n"
        );
        put(&sandbox, "dig.py", program.as_bytes());
        let dug = sandbox.exec("python3 dig.py");
        assert_eq!(dug["exit_code"], 0, "{dug}");
    };
    let mut rows = Rows::new();
    rows.row("by a call", || {
        dig("deep", 20_000);
        let path = sandbox.path("/files/deep?recursive=1");
        quickly("a delete of a deep tree", LONG, || sandbox.http.delete(&path).expect(204));
        assert_eq!(sandbox.says("ls"), "dig.py\n");
    });
    rows.row("with its sandbox", || {
        dig("deep", 20_000);
        sandbox.exec("mkdir wide; cd wide; for i in {1..300}; do mkdir -p $i/{1..100}; done");
        quickly("a delete of its sandbox", SOON, || sandbox.delete());
        let trash = server.data().join("trash");
        wait_until("the trash is empty", LONG, || {
            fs::read_dir(&trash).is_ok_and(|mut all| all.next().is_none()).then_some(())
        });
    });
    drop(rows);
    server.healthy();
}

/// Fills a server's disk except for less than a page.
fn fill(server: &Server) -> std::path::PathBuf {
    let path = server.data().join("fill");
    let mut file = fs::File::create(&path).expect("makes");
    for size in [1 << 20, 4096] {
        let block = vec![1; size];
        while file.write_all(&block).is_ok() {}
    }
    path
}

/// Promises: F12.
#[test]
fn f12_a_full_server_disk_refuses_only_changes_until_space_is_freed() {
    let mut rows = Rows::new();
    for (name, floor_mib, code) in [("the records", 0, "store_full"), ("the floor", 16, "no_space")]
    {
        rows.row(name, || {
            let config = format!("free_space_floor_mib = {floor_mib}\n");
            let server = Options::new().config(&config).disk_mib(64).start();
            let sandbox = server.sandbox_with(&json!({"id": "one"}));
            put(&sandbox, "kept", b"kept").expect(201);
            let before = sandbox.info()["env_names"].clone();
            let filler = fill(&server);
            let large = json!({"metadata": {"text": "x".repeat(15_000)}});
            // The log still accepts records for which it has already reserved space.
            let refused = wait_until("the log is full", SOON, || {
                let reply = match floor_mib {
                    0 => sandbox.post("/sessions", &large),
                    _ => server.http().post("/v1/sandboxes", &json!({})),
                };
                (reply.status != 201).then_some(reply)
            });
            assert_eq!(
                (refused.status, refused.error().as_str()),
                (507, code),
                "{}",
                refused.text()
            );
            let sessions = sandbox.http.get(&sandbox.path("/sessions")).expect(200).text();
            assert_eq!(put(&sandbox, "more", &vec![1; 1 << 20]).expect(507).error(), "no_space");
            let made = server.http().post("/v1/sandboxes", &json!({"id": "two"}));
            assert_eq!(made.status, 507, "{}", made.text());
            server.http().get("/v1/sandboxes/two").expect(404);
            assert_eq!(sandbox.http.get(&sandbox.path("/sessions")).expect(200).text(), sessions);
            assert_eq!(sandbox.info()["env_names"], before);
            assert_eq!(sandbox.says("cat /workspace/kept"), "kept");
            assert_eq!(sandbox.http.get(&sandbox.path("/files/kept")).expect(200).text(), "kept");
            sandbox.http.delete(&sandbox.path("/files/kept")).expect(204);
            fs::remove_file(filler).expect("frees");
            put(&sandbox, "more", &vec![1; 1 << 20]).expect(201);
            server.http().post("/v1/sandboxes", &json!({"id": "two"})).expect(201);
            sandbox.post("/sessions", &large).expect(201);
            server.healthy();
        });
    }
}

/// Whether every thread of a process has a tracer, and whether none has.
fn traced(pid: i32) -> (bool, bool) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let own = tasks.map(|task| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    });
    let own: Vec<bool> = own.collect();
    (own.iter().all(|traced| *traced), own.iter().any(|traced| *traced))
}

/// A server whose writes of records fail until this value is dropped.
struct Failing(std::process::Child, i32);

impl Failing {
    /// `error` is an errno name and may select the calls that fail (`ENOSPC:when=3`).
    fn begin(server: &Server, calls: &str, error: &str) -> Self {
        let pid = server.pid();
        let mut strace = std::process::Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-p", &pid.to_string()]);
        for name in ["isolet.db", "isolet.db-wal", "isolet.db-shm"] {
            strace.arg("-P").arg(server.data().join(name));
        }
        strace.args(["-e", &format!("trace={calls}")]);
        strace.args(["-e", &format!("inject={calls}:error={error}")]);
        let child = strace.stderr(std::process::Stdio::null()).spawn().expect("strace runs");
        wait_until("it is attached", SOON, || traced(pid).0.then_some(()));
        Self(child, pid)
    }

    fn end(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("waited for");
        wait_until("strace has detached", SOON, || (!traced(self.1).1).then_some(()));
    }
}

/// No space at any single write of a change: the change is made, or it is refused and absent.
/// Promises: F12.
#[test]
fn f12_no_space_at_any_write_leaves_no_partial_change() {
    let (server, sandbox) = one();
    let mut refused = 0;
    for n in 1..=8 {
        let id = format!("s{n}");
        let spec = json!({"id": id, "metadata": {"text": "x".repeat(9000)}});
        let failing =
            Failing::begin(&server, "write,pwrite64,ftruncate", &format!("ENOSPC:when={n}"));
        let reply = sandbox.post("/sessions", &spec);
        let there = sandbox.http.get(&sandbox.path(&format!("/sessions/{id}"))).status;
        failing.end();
        match reply.status {
            201 => assert_eq!(there, 200, "write {n}"),
            507 => {
                refused += 1;
                assert_eq!((reply.error().as_str(), there), ("store_full", 404), "write {n}");
                sandbox.post("/sessions", &spec).expect(201);
            }
            other => panic!("write {n}: {other} {}", reply.text()),
        }
    }
    assert!(refused > 1, "no write was hit");
    server.healthy();
}

/// After a failed fsync the kernel marks the pages as clean: a retry would succeed, and an
/// acknowledged record would be lost with the next power failure.
/// Promises: F13.
#[test]
fn f13_a_record_that_the_disk_did_not_accept_is_neither_acknowledged_nor_retried() {
    let (mut server, sandbox) = one();
    sandbox.post("/sessions", &json!({"id": "before"})).expect(201);
    server.http().post("/v1/sandboxes", &json!({"id": "old"})).expect(201);
    let failing = Failing::begin(&server, "fsync,fdatasync", "EIO");
    let refused = sandbox.post("/sessions", &json!({"id": "lost"})).expect(503);
    assert_eq!(refused.error(), "store_broken");
    let health = || (server.http().get("/health").status, server.http().get("/health").json());
    assert_eq!((health().0, &health().1["status"]), (503, &json!("broken")));
    failing.end();
    let refused = sandbox.post("/sessions", &json!({"id": "later"})).expect(503);
    assert_eq!(refused.error(), "store_broken", "the disk works again, but the store stays broken");
    server.http().post("/v1/sandboxes", &json!({"id": "two"})).expect(503);
    server.http().delete("/v1/sandboxes/old").expect(503);
    assert_eq!(sandbox.says("echo on"), "on\n", "running processes keep running");
    let ids = |sandbox: &Sandbox| {
        let all = sandbox.http.get(&sandbox.path("/sessions")).expect(200).json();
        let ids = all.as_array().expect("a list").iter();
        ids.filter_map(|one| one["id"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(ids(&sandbox), ["before", "default"]);
    server.restart();
    assert_eq!(server.http().get("/health").json()["status"], "ok");
    let sandbox = server.named(&sandbox.id);
    assert!(ids(&sandbox).contains(&"before".to_owned()));
    sandbox.post("/sessions", &json!({"id": "later"})).expect(201);
    server.http().get("/v1/sandboxes/two").expect(404);
    let old = server.http().get("/v1/sandboxes/old").expect(200).json();
    assert_eq!(old["state"], "failed", "its end was not recorded, but it is gone: {old}");
    server.named("old").delete();
    server.healthy();
}
