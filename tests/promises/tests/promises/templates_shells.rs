//! Images with the sessions of a snapshot and the saved states of their shells.

use isolet_kit::{Http, Reply, Sandbox, Server, Value, json, one};
use std::path::{Path, PathBuf};

/// One of each kind of shell state.
const HELD: &str = "mkdir -p /opt/dir; cd /opt/dir; V='a  b'; export E=exported; \
    f() { echo \"f $1 $V\"; }; shopt -s expand_aliases; alias greet='echo hi'; set -o noclobber";
const LOOK: &str =
    "pwd; echo \"$V\"; printenv E; f 1; eval greet; [[ -o noclobber ]] && echo noclobber";
const SEEN: &str = "/opt/dir\na  b\nexported\nf 1 a  b\nhi\nnoclobber\n";

fn take(sandbox: &Sandbox, name: &str) {
    sandbox.post("/snapshots", &json!({"name": name})).expect(201);
}

fn commit(http: &Http, snapshot: &str, name: &str, shells: bool) -> Reply {
    http.post("/v1/images", &json!({"snapshot": snapshot, "name": name, "shells": shells}))
}

fn sessions(sandbox: &Sandbox) -> Vec<Value> {
    let listed = sandbox.http.get(&sandbox.path("/sessions")).expect(200).json();
    listed.as_array().expect("a list").clone()
}

/// The files with the sessions of images.
fn files(server: &Server) -> Vec<PathBuf> {
    let all = std::fs::read_dir(server.data().join("images/sessions")).expect("reads");
    all.flatten().map(|entry| entry.path()).collect()
}

/// Promises: TP1, TP2, TP6.
#[test]
fn sandboxes_start_with_the_shell_states_of_an_image_that_has_them() {
    let (mut server, sandbox) = one();
    let other = server.add_key(&["--tenant", "other"]);
    let http = server.http();
    sandbox.says("mkdir -p /workspace/mine /workspace/hidden; echo s >/workspace/hidden/s");
    let scope = json!({"id": "part", "env": {"OWN": "1"}, "file_access": {"write": ["mine"]}});
    sandbox.post("/sessions", &scope).expect(201);
    assert_eq!(sandbox.command("part", "echo x >/workspace/mine/x; X=5")["exit_code"], 0);
    assert_eq!(sandbox.command("dev", HELD)["exit_code"], 0);
    take(&sandbox, "s");
    let plain = commit(&http, "s", "plain:1", false).expect(201).json();
    assert_eq!(plain["shells"], false);
    assert_eq!(files(&server), [""; 0].map(PathBuf::from));
    let made = commit(&http, "s", "full:1", true).expect(201).json();
    assert_eq!(made["shells"], true);
    assert_ne!(made["digest"], plain["digest"]);
    sandbox.delete();
    http.delete("/v1/snapshots/s").expect(200);
    let created = server.client(Some(&other)).post("/v1/sandboxes", &json!({"image": "full:1"}));
    assert!(created.status >= 400, "{}", created.text());
    let bare = server.sandbox_with(&json!({"image": "plain:1"}));
    assert_eq!(
        bare.command("dev", "echo $V$E; pwd; type f 2>&1 | grep -c 'not found'")["stdout"],
        "\n/workspace\n1\n"
    );
    let stray = server.data().join("images/sessions/00");
    std::fs::write(&stray, "x").expect("writes");
    let early = server.sandbox_with(&json!({"image": "full:1", "disk_mib": 0}));
    server.restart();
    assert_eq!(files(&server).len(), 1, "a file without an image is removed");
    let late = server.sandbox_with(&json!({"image": "full:1"}));
    for copy in [server.named(&early.id), late] {
        let listed = sessions(&copy);
        let part = listed.iter().find(|one| one["id"] == "part").expect("it is listed");
        assert_eq!(part["file_access"]["write"], json!(["mine"]), "{part}");
        assert_eq!(copy.command("dev", LOOK)["stdout"], SEEN);
        let seen =
            copy.command("part", "cat /workspace/mine/x; echo $X $OWN; cat /workspace/hidden/s");
        assert_eq!(seen["stdout"], "x\n5 1\n", "{seen}");
        assert_ne!(seen["exit_code"], 0);
        // Ending the session ends its state.
        copy.http.delete(&copy.path("/sessions/dev"));
        assert_eq!(copy.command("dev", "echo \"[$V]\"")["stdout"], "[]\n");
        let refused = copy.http.delete("/v1/images/full:1").expect(409);
        assert_eq!(refused.error(), "image_in_use");
        copy.delete();
    }
    server.http().delete("/v1/images/full:1").expect(204);
    assert_eq!(files(&server).len(), 0, "they end with the image");
    server.healthy();
}

/// Promises: TP6.
#[test]
fn damaged_or_too_large_shell_states_are_refused() {
    let (server, sandbox) = one();
    let http = server.http();
    sandbox.command("dev", HELD);
    take(&sandbox, "small");
    commit(&http, "small", "full:1", true).expect(201);
    let file = files(&server).remove(0);
    let whole = std::fs::read(&file).expect("reads");
    std::fs::write(&file, &whole[1..]).expect("writes");
    let refused = http.post("/v1/sandboxes", &json!({"id": "none", "image": "full:1"})).expect(422);
    assert_eq!(refused.error(), "bad_image");
    assert!(refused.text().contains("sessions"), "{}", refused.text());
    std::fs::remove_file(&file).expect("removes");
    http.post("/v1/sandboxes", &json!({"id": "none", "image": "full:1"})).expect(422);
    http.get("/v1/sandboxes/none").expect(404);
    // The same image again repairs it.
    commit(&http, "small", "full:1", true).expect(201);
    let copy = server.sandbox_with(&json!({"image": "full:1"}));
    assert_eq!(copy.command("dev", LOOK)["stdout"], SEEN);
    for n in 0..4 {
        let large = "V=$(head -c 900000 /dev/zero | tr '\\0' x)";
        assert_eq!(sandbox.command(&format!("s{n}"), large)["exit_code"], 0);
    }
    take(&sandbox, "large");
    let refused = commit(&http, "large", "large:1", true).expect(413);
    assert_eq!(refused.error(), "image_too_large");
    assert!(refused.text().contains("4 MiB"), "{}", refused.text());
    commit(&http, "large", "large:1", false).expect(201);
    assert_eq!(files(&server).len(), 1);
    server.healthy();
}

/// Changes the sessions in an archive; see the script.
fn changed(from: &Path, change: &[&str]) -> Vec<u8> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/promises/change_sessions.py");
    let to = from.with_extension("changed");
    let mut python = std::process::Command::new("python3");
    let done = python.arg(script).args([from, &to]).args(change).output().expect("runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::read(to).expect("reads")
}

/// Promises: TP5, TP6.
#[test]
fn an_exported_image_keeps_its_shell_states_and_an_import_checks_them() {
    let (server, sandbox) = one();
    // Not the programs of the host, which would be part of the archive.
    let archive =
        isolet_kit::image::Image::new(&[isolet_kit::image::busybox().bytes()], &json!({}));
    server
        .http()
        .send("POST", "/v1/images/import?name=base:1", Some(&archive.layout()))
        .expect(201);
    sandbox.delete();
    let sandbox = server.sandbox_with(&json!({"image": "base:1"}));
    assert_eq!(sandbox.command("dev", "cd /tmp; V='a  b'; f() { echo f; }")["exit_code"], 0);
    let done = server.command(&["image", "commit", "--shells", "--sandbox", &sandbox.id, "full:1"]);
    assert!(done.status.success(), "{done:?}");
    let folder = tempfile::tempdir().expect("makes");
    let file = folder.path().join("full.tar");
    let path = file.to_str().expect("a path");
    let done = server.command(&["image", "export", "full:1", path]);
    assert!(done.status.success(), "{done:?}");
    let other = Server::start();
    let http = other.http();
    for (change, status, word) in [
        (["\"v\":1", "\"v\":2", "valid"], 422, "version 2"),
        (["\"id\":\"dev\"", "\"id\":\"../x\"", "valid"], 422, "session"),
        (["\"cwd\":\"/", "\"cwd\":\"\\u0000", "valid"], 422, "NUL"),
        (["\"v\":1", "\"v\":2", "stale"], 422, "digest"),
        (["\"v\":1", "\"v\":2", "missing"], 422, "no member"),
        (["{\"v\":1", "{\"v\":1", "padded"], 413, "4194304"),
    ] {
        let import = http.send("POST", "/v1/images/import", Some(&changed(&file, &change)));
        assert_eq!(import.status, status, "{change:?}: {}", import.text());
        assert!(import.text().contains(word), "{change:?}: {}", import.text());
    }
    assert_eq!(http.get("/v1/images").json(), json!([]));
    assert_eq!(files(&other).len(), 0);
    let import = other.command(&["image", "import", path]);
    assert!(import.status.success(), "{import:?}");
    let image = http.get("/v1/images/full:1").expect(200).json();
    assert_eq!(image["shells"], true);
    let copy = other.sandbox_with(&json!({"image": "full:1"}));
    assert_eq!(copy.command("dev", "pwd; echo \"$V\"; f")["stdout"], "/tmp\na  b\nf\n");
    copy.delete();
    other.healthy();
    server.healthy();
}
