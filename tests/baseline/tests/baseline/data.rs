//! The data directory of the baseline, opened by the current programs.

use crate::{digest, path, read};
use isolet_kit::{Http, Options, Rows, Sandbox, Server, Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

/// A server on the baseline's data in a directory with another name, as after a reboot.
fn restored() -> Server {
    Options::new().key(crate::record::KEY).restore(&path("data.tar.gz"), lengthen).start()
}

/// Moves the expiry of idempotency keys into the future, because they expire after a day.
fn lengthen(data: &std::path::Path) {
    let change = "import sqlite3, sys, time
with sqlite3.connect(sys.argv[1]) as records:
    records.execute('UPDATE answers SET expires_ms = ?', (int(time.time() * 1000) + 3600000,))";
    let mut python = Command::new("python3");
    let done = python.args(["-c", change]).arg(data.join("isolet.db")).status();
    assert!(done.expect("python3 is there").success());
}

/// Promises: B11, F39.
#[test]
fn the_data_directory_of_the_baseline_opens_with_everything_in_it() {
    let expected = read("data.json");
    let server = restored();
    let mut rows = Rows::new();
    rows.row("sandboxes are asleep, and a failed one has failed", || {
        let list = server.http().get("/v1/sandboxes").expect(200).json();
        let states = list.as_array().expect("a list").iter();
        let states: Value =
            states.map(|one| json!([one["id"].clone(), one["state"].clone()])).collect();
        let asleep = ["asleep", "files", "running"].map(|id| json!([id, "sleeping"]));
        let all = [json!(["failed", "failed"])].into_iter().chain(asleep);
        let mut all: Vec<Value> = all.collect();
        all.sort_by_key(Value::to_string);
        assert_eq!(states, Value::Array(all));
    });
    rows.row("a shell that was saved before a sleep", || {
        let said = server.named("asleep").command("dev", crate::record::SHOW);
        assert_eq!(said["stdout"], expected["shell"], "{said}");
    });
    rows.row("a sandbox that ran", || ran(&server.named("running")));
    rows.row("files", || files(&server.named("files"), &expected));
    rows.row("owners of files", || owners(&server));
    rows.row("keys", || {
        let other = Http::new(server.port(), expected["other_key"].as_str());
        let list = other.get("/v1/sandboxes").expect(200).json();
        assert_eq!(list[0]["id"], "theirs", "{list}");
        other.get("/v1/sandboxes/files").expect(404);
        let gone = other.delete("/v1/sandboxes/theirs");
        assert!(matches!(gone.status, 200 | 204), "{}", gone.text());
    });
    rows.row("an idempotency key", || {
        let again = server.http().with("idempotency-key", "baseline");
        let again = again.post("/v1/sandboxes", &json!({"id": "files"})).expect(201).json();
        assert_eq!(again["created_at_ms"], expected["files_created_at_ms"], "{again}");
    });
    rows.row("a network profile", || {
        let profile = server.http().get("/v1/network-profiles/web").expect(200).json();
        assert_eq!(profile["allow"], json!(["*:443"]), "{profile}");
    });
    rows.row("ended sandboxes", || {
        let history = server.http().get("/v1/runs/history").expect(200).text();
        assert!(history.contains("\"gone\""), "{history}");
    });
    rows.row("the audit log", || {
        let log = server.http().get("/v1/audit").expect(200).text();
        assert!(log.contains("\"gone\""), "{log}");
        let verified = server.command(&["audit", "verify"]);
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    });
    rows.row("each can be deleted", || {
        for id in ["asleep", "failed", "files", "running"] {
            server.named(id).delete();
        }
    });
    drop(rows);
    server.healthy();
}

/// Checks a sandbox that was running when the machine stopped.
fn ran(sandbox: &Sandbox) {
    let web = sandbox.http.get(&sandbox.path("/processes/web")).expect(200).json();
    assert_eq!(web["status"], "lost", "{web}");
    let links = sandbox.http.get(&sandbox.path("/links")).expect(200).json();
    assert!(links.is_array(), "{links}");
    let said = sandbox.command("dev", "echo $y; cat acknowledged");
    assert_eq!(said["stdout"], "saved\nwritten\n", "{said}");
    let lost = said["lost"].as_array().expect("it reports what was lost");
    assert!(lost.contains(&"processes".into()), "{said}");
}

/// Files of the baseline have the ids of their sandbox's slot on the disk. New files of such a
/// sandbox have them too, and files of a new sandbox have ids from 0 on.
fn owners(server: &Server) {
    let create = "touch new; chown 1000:1001 new; stat -c %u:%g new private";
    let files = server.named("files");
    assert_eq!(files.says(create), "1000:1001\n1000:1000\n");
    let new = server.sandbox();
    new.says("touch private; chown 1000:1000 private");
    new.says(create);
    let mut on_disk = Vec::new();
    for directory in fs::read_dir(server.data().join("sandboxes")).expect("reads").flatten() {
        let workspace = directory.path().join("workspace");
        let Ok(about) = fs::metadata(workspace.join("new")) else { continue };
        let earlier = fs::metadata(workspace.join("private")).expect("it was recorded");
        assert_eq!((about.uid(), about.gid()), (earlier.uid(), earlier.gid() + 1));
        on_disk.push(about.uid());
    }
    on_disk.sort_unstable();
    assert_eq!((on_disk.len(), on_disk[0]), (2, 1000), "{on_disk:?}");
    assert!(on_disk[1] >= 0x7000_0000 && on_disk[1] % 65_536 == 1000, "{on_disk:?}");
    new.delete();
}

fn files(sandbox: &Sandbox, expected: &Value) {
    let all = expected["files"].as_object().expect("files");
    assert!(all.len() >= 4, "{all:?}");
    for (path, hash) in all {
        let bytes = sandbox.http.get(&sandbox.path(&format!("/files/{path}"))).expect(200).body;
        assert_eq!(digest(&bytes), hash.as_str().expect("a hash"), "{path}");
    }
    assert_eq!(sandbox.says(crate::record::LIST), expected["list"].as_str().expect("a list"));
    assert_eq!(sandbox.says("tool"), "from a tool\n", "it is installed below /usr/local");
}
