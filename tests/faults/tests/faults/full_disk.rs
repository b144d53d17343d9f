//! Deletes and changes on a disk that is full to the last block.
//!
//! A `DELETE` was once answered with 507 "nothing was changed" although the sandbox was gone; after
//! a kill of the server it came back as `failed`.

use isolet_kit::{
    Http, Options, Reply, Rows, SOON, Sandbox, Server, Value, json, process, wait_until,
};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Takes every block of a server's disk as soon as it is free, until this value is dropped.
struct Greedy {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Greedy {
    fn begin(server: &Server) -> Self {
        let path = server.data().join("fill");
        let stop = Arc::new(AtomicBool::new(false));
        let mut file = File::create(&path).expect("makes");
        let ended = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let large = vec![1; 1 << 20];
            let small = vec![1; 4096];
            while !ended.load(Ordering::Relaxed) {
                while file.write_all(&large).is_ok() {}
                while file.write_all(&small).is_ok() {}
                std::thread::yield_now();
            }
        });
        Self { stop, thread: Some(thread), path }
    }

    /// Stops taking blocks that become free; the disk stays full.
    fn rest(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends");
        }
    }

    fn free(mut self) {
        self.rest();
        fs::remove_file(&self.path).expect("frees");
    }
}

impl Drop for Greedy {
    fn drop(&mut self) {
        self.rest();
    }
}

/// Fills the disk until the store refuses a change: its log first uses the space that it has
/// reserved.
fn fill(server: &Server, sandbox: &Sandbox) -> Greedy {
    let greedy = Greedy::begin(server);
    let large = json!({"metadata": {"text": "x".repeat(15_000)}});
    wait_until("the records are full", SOON, || {
        let reply = sandbox.post("/sessions", &large);
        (reply.status == 507).then(|| assert_eq!(reply.error(), "store_full"))
    });
    greedy
}

fn server() -> Server {
    Options::new().config("free_space_floor_mib = 0\n").disk_mib(64).start()
}

fn ids(http: &Http) -> Vec<String> {
    let all = http.get("/v1/sandboxes").expect(200).json();
    let ids = all.as_array().expect("a list").iter().filter_map(|one| one["id"].as_str());
    ids.map(str::to_owned).collect()
}

#[track_caller]
fn full(reply: Reply) {
    assert_eq!((reply.status, reply.error().as_str()), (507, "store_full"), "{}", reply.text());
}

fn asleep(sandbox: &Sandbox) {
    wait_until("it sleeps", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
}

/// Promises: F45.
#[test]
fn f45_a_delete_on_a_full_disk_is_permanent() {
    let mut server = server();
    let undeleted = server.sandbox_with(&json!({"id": "kept"}));
    let all = ["asleep", "failed", "running"].map(|id| server.sandbox_with(&json!({"id": id})));
    asleep(&all[0]);
    process::kill(agent_of(&server, &all[1]));
    wait_until("it has failed", SOON, || (all[1].info()["state"] == "failed").then_some(()));
    undeleted.post("/sessions", &json!({"id": "dev"})).expect(201);
    undeleted.command("dev", "true");
    let profile = json!({"allow": ["example.com:443"]});
    let web = "/v1/network-profiles/web";
    server.http().send("PUT", web, Some(profile.to_string().as_bytes()));
    server.http().get(web).expect(200);
    let link = undeleted.post("/links", &json!({"port": 8000})).expect(201).json();
    assert_eq!(
        undeleted.http.get(&undeleted.path("/links")).expect(200).json()[0]["port"],
        8000,
        "{link}"
    );
    undeleted.post("/processes", &json!({"id": "web", "argv": ["sleep", "1000"]})).expect(201);
    let mut greedy = fill(&server, &undeleted);
    let mut rows = Rows::new();
    for sandbox in &all {
        rows.row(&format!("a sandbox: {}", sandbox.id), || {
            let reply = sandbox.http.delete(&sandbox.path(""));
            assert!(matches!(reply.status, 200 | 204), "{}: {}", reply.status, reply.text());
            sandbox.http.get(&sandbox.path("")).expect(404);
        });
    }
    rows.row("a session", || {
        undeleted.http.delete(&undeleted.path("/sessions/dev")).expect(204);
        undeleted.http.get(&undeleted.path("/sessions/dev")).expect(404);
    });
    rows.row("a process", || {
        undeleted.http.delete(&undeleted.path("/processes/web")).expect(204);
        undeleted.http.get(&undeleted.path("/processes/web")).expect(404);
    });
    rows.row("a link", || {
        undeleted.http.delete(&undeleted.path("/links/8000")).expect(204);
        assert_eq!(undeleted.http.get(&undeleted.path("/links")).expect(200).json(), json!([]));
    });
    rows.row("a network profile", || {
        server.http().delete("/v1/network-profiles/web").expect(204);
        server.http().get("/v1/network-profiles/web").expect(404);
    });
    let gone = |server: &Server| {
        assert_eq!(ids(&server.http()), ["kept"]);
        let undeleted = server.named("kept");
        undeleted.http.get(&undeleted.path("/sessions/dev")).expect(404);
        undeleted.http.get(&undeleted.path("/processes/web")).expect(404);
        assert_eq!(undeleted.http.get(&undeleted.path("/links")).expect(200).json(), json!([]));
        server.http().get("/v1/network-profiles/web").expect(404);
    };
    rows.row("after a kill, on the full disk", || {
        greedy.rest();
        server.restart();
        gone(&server);
    });
    rows.row("after a kill, when there is space", || {
        greedy.free();
        server.restart();
        gone(&server);
        server.http().post("/v1/sandboxes", &json!({"id": "running"})).expect(201);
        server.restart();
        assert_eq!(ids(&server.http()), ["kept", "running"]);
        assert_eq!(server.named("running").says("echo new"), "new\n");
    });
    drop(rows);
    server.healthy();
}

/// The pid of one sandbox's agent among several.
fn agent_of(server: &Server, sandbox: &Sandbox) -> i32 {
    let mark = format!("mark-{}", sandbox.id);
    sandbox
        .post("/processes", &json!({"id": "mark", "argv": ["sleep", "777"], "env": {"MARK": mark}}))
        .expect(201);
    let of = |pid: i32| {
        let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&env).contains(&mark)
    };
    let sleeper =
        wait_until("it runs", SOON, || server.processes("sleep").into_iter().find(|pid| of(*pid)));
    process::parent(sleeper).expect("an agent started it")
}

/// Promises: F45.
#[test]
fn f45_a_sandbox_that_was_deleted_on_a_full_disk_counts_once_in_the_history() {
    let mut server = server();
    let undeleted = server.sandbox_with(&json!({"id": "kept"}));
    let other = server.sandbox_with(&json!({"id": "other"}));
    let ended = |server: &Server| {
        let all = server.http().get("/v1/runs/history").expect(200).text();
        all.matches("\"other\"").count()
    };
    assert_eq!(ended(&server), 0);
    let greedy = fill(&server, &undeleted);
    other.delete();
    let answer = ended(&server);
    assert!(answer > 0, "usage is reported while the disk is full");
    greedy.free();
    undeleted.post("/sessions", &json!({"id": "dev"})).expect(201);
    assert_eq!(ended(&server), answer);
    server.restart();
    assert_eq!(ended(&server), answer);
    server.healthy();
}

/// Promises: F45.
#[test]
fn f45_the_answer_to_a_change_on_a_full_disk_says_whether_it_was_made() {
    let mut server = server();
    let sandbox = server.sandbox_with(&json!({"id": "one", "metadata": {"n": 1}}));
    let state = |server: &Server| {
        let info = server.named("one").info();
        (info["state"].clone(), info["metadata"].clone(), info["pids"].clone())
    };
    let before = state(&server);
    let mut greedy = fill(&server, &sandbox);
    let mut rows = Rows::new();
    rows.row("PATCH", || {
        let patch = json!({"metadata": {"n": 2, "text": "x".repeat(15_000)}, "pids": 50});
        full(sandbox.http.patch(&sandbox.path(""), &patch));
        assert_eq!(state(&server), before);
    });
    rows.row("sleep", || {
        wait_until("it has no process", SOON, || {
            let reply = sandbox.post("/sleep", &json!({}));
            (reply.status != 409).then(|| full(reply))
        });
        assert_eq!(state(&server), before);
        assert_eq!(sandbox.says("echo on"), "on\n");
    });
    rows.row("a create", || {
        full(server.http().post("/v1/sandboxes", &json!({"id": "two"})));
        server.http().get("/v1/sandboxes/two").expect(404);
    });
    rows.row("a session", || {
        full(sandbox.post("/sessions", &json!({"id": "dev"})));
        sandbox.http.get(&sandbox.path("/sessions/dev")).expect(404);
    });
    rows.row("after a kill", || {
        greedy.rest();
        server.restart();
        assert_eq!(state(&server), before);
        assert_eq!(ids(&server.http()), ["one"]);
    });
    rows.row("when there is space", || {
        greedy.free();
        let sandbox = server.named("one");
        let patched = sandbox.http.patch(&sandbox.path(""), &json!({"metadata": {"n": 3}}));
        assert_eq!(patched.expect(200).json()["metadata"], json!({"n": 3}));
    });
    drop(rows);
    server.healthy();
}

/// A successful revocation guarantees that the key opens nothing.
/// Promises: F45.
#[test]
fn f45_a_key_that_is_revoked_on_a_full_disk_stays_revoked() {
    let mut server = server();
    let key = server.add_key(&["--tenant", "default"]);
    let sandbox = server.sandbox_with(&json!({"id": "one"}));
    let listed = server.command(&["keys", "ls", "--json"]);
    let listed: Value = String::from_utf8_lossy(&listed.stdout).parse().expect("JSON");
    let id = listed[0]["id"].as_str().expect("an id").to_owned();
    let status = |server: &Server| Http::new(server.port(), Some(&key)).get("/v1/sandboxes").status;
    assert_eq!(status(&server), 200);
    let mut greedy = fill(&server, &sandbox);
    let done = server.command(&["keys", "revoke", &id]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    wait_until("it opens nothing", SOON, || (status(&server) == 401).then_some(()));
    greedy.rest();
    server.restart();
    assert_eq!(status(&server), 401, "after a kill");
    greedy.free();
    server.restart();
    assert_eq!(status(&server), 401, "when there is space");
    let again = server.command(&["keys", "revoke", &id]);
    assert!(!again.status.success(), "it was revoked before");
    sandbox.delete();
    server.healthy();
}
