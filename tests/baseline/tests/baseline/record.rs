//! Records the baseline with the programs in `ISOLET_PROGRAMS`; only `make baseline` runs this.

use crate::golden::{self, DIALECTS};
use crate::{digest, path, read};
use isolet_kit::{Http, Options, SOON, Server, Value, json, process, wait_until};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The key of the tenant `default`, used in this data directory only.
pub(crate) const KEY: &str = "a-key-of-the-baseline-for-tests-alone";
/// Commands that create shell state.
const FILL: &str = "cd /tmp; x=kept; export COLOUR=blue; list=(1 2 3); set -o pipefail; umask 027
greet() { echo \"hello $1\"; }";
/// Prints the shell's state.
pub(crate) const SHOW: &str =
    "echo $x $COLOUR ${list[1]} $PWD $A; greet you; umask; set -o | grep pipefail";
/// Lists names, modes, owners, link counts and targets of the files.
pub(crate) const LIST: &str =
    "cd /workspace; find . -mindepth 1 -printf '%p %y %m %U %n %l\\n' | sort";

#[test]
#[ignore = "writes tests/baseline/golden"]
fn record_baseline_answers() {
    for dialect in DIALECTS {
        let file = format!("golden/{dialect}.json");
        let mut calls = read(&file);
        let calls = calls.as_array_mut().expect("a list");
        let server = golden::server();
        let answers = golden::play(&server, calls);
        for (call, answer) in calls.iter_mut().zip(answers) {
            let fields = call.as_object_mut().expect("a call");
            fields.remove("now");
            fields.remove("why");
            fields.insert("answer".to_owned(), answer);
        }
        let lines: Vec<_> = calls.iter().map(Value::to_string).collect();
        fs::write(path(&file), format!("[\n{}\n]\n", lines.join(",\n"))).expect("writes");
    }
}

#[test]
#[ignore = "writes tests/baseline/data.tar.gz"]
fn record_baseline_data_directory() {
    let mut server = Options::new().key(KEY).start();
    failed(&server);
    let http = server.http();
    http.send("PUT", "/v1/network-profiles/web", Some(br#"{"allow":["*:443"]}"#)).expect(201);
    server.sandbox_with(&json!({"id": "gone"})).delete();
    let (list, hashes, created) = files(&server);
    let shell = asleep(&server);
    let other = server.add_key(&["--tenant", "other"]);
    let theirs = Http::new(server.port(), Some(&other));
    theirs.post("/v1/sandboxes", &json!({"id": "theirs"})).expect(201);
    theirs.post("/v1/sandboxes/theirs/sleep", &json!({})).expect(200);
    running(&server);
    let expected = json!({"shell": shell, "list": list, "files": hashes, "other_key": other,
        "files_created_at_ms": created});
    server.power_off();
    plain_groups(&server.data());
    pack(&server.data());
    let text = serde_json::to_string_pretty(&expected).expect("JSON");
    fs::write(path("data.json"), text + "\n").expect("writes");
}

/// Creates a sandbox whose agent was killed. It must be the first one: its agent is the only one.
fn failed(server: &Server) {
    let failed = server.sandbox_with(&json!({"id": "failed"}));
    failed.exec("echo kept >kept");
    process::kill(server.agent());
    wait_until("it has failed", SOON, || (failed.info()["state"] == "failed").then_some(()));
}

fn asleep(server: &Server) -> Value {
    let asleep = server.sandbox_with(&json!({"id": "asleep", "env": {"A": "b"}}));
    asleep.command("dev", FILL);
    let shown = asleep.command("dev", SHOW)["stdout"].clone();
    asleep.post("/sleep", &json!({})).expect(200);
    shown
}

/// Creates a sandbox with files; returns the listing, the hashes of the files, and the time of
/// creation.
fn files(server: &Server) -> (String, Value, Value) {
    let http = server.http().with("idempotency-key", "baseline");
    let made = http.post("/v1/sandboxes", &json!({"id": "files"})).expect(201).json();
    let sandbox = server.named("files");
    let bytes: Vec<u8> = (0..=255).cycle().take(3000).collect();
    let mut hashes = serde_json::Map::new();
    for (name, bytes) in [
        ("all.bin", &bytes[..]),
        ("a%20b/%C3%BC.txt", "über\n".as_bytes()),
        ("empty", b""),
        ("private", b"of a user\n"),
    ] {
        let at = sandbox.path(&format!("/files/{name}"));
        server.http().send("PUT", &at, Some(bytes)).expect(201);
        hashes.insert(name.to_owned(), digest(bytes).into());
    }
    sandbox.says(
        "chown 1000:1000 private; chmod 600 private; ln -s all.bin link; ln all.bin hard; mkdir -m 1777 open
         printf '#!/bin/sh\\necho from a tool\\n' >/usr/local/bin/tool; chmod 755 /usr/local/bin/tool",
    );
    let list = sandbox.says(LIST);
    assert_eq!(sandbox.says("tool"), "from a tool\n");
    sandbox.post("/sleep", &json!({})).expect(200);
    (list, Value::Object(hashes), made["created_at_ms"].clone())
}

/// Creates a sandbox that runs until the machine stops, with a saved shell, a process, and a port
/// URL.
fn running(server: &Server) {
    let sandbox = server.sandbox_with(&json!({"id": "running"}));
    sandbox.command("dev", "y=saved; echo written >acknowledged");
    sandbox.post("/processes", &json!({"id": "web", "argv": ["sleep", "1000"]})).expect(201);
    sandbox.post("/links", &json!({"port": 8000})).expect(201);
    let folders = || fs::read_dir(server.data().join("sandboxes")).expect("reads").flatten();
    wait_until("its shell is saved", SOON, || {
        let saved = folders().any(|folder| {
            let state = fs::read_to_string(folder.path().join("shells/dev"));
            state.is_ok_and(|text| text.contains("saved"))
        });
        saved.then_some(())
    });
}

/// Rewrites the recorded cgroup paths to those of a machine whose servers run at the top of each
/// hierarchy, so that the record does not depend on this machine.
fn plain_groups(data: &Path) {
    for folder in fs::read_dir(data.join("sandboxes")).expect("reads").flatten() {
        let file = folder.path().join("cgroups");
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let plain = |line: &str| {
            let parts: Vec<&str> = line.split('/').collect();
            let top = parts[..parts.len().min(5)].join("/");
            let own = parts[parts.len() - 2..].join("/");
            format!("{top}/{own}")
        };
        let lines: Vec<String> = text.lines().map(plain).collect();
        fs::write(&file, lines.join("\n") + if text.ends_with('\n') { "\n" } else { "" })
            .expect("writes");
    }
}

/// Writes the archive without the image of the host's programs, which every server builds.
fn pack(data: &Path) {
    let archive = path("data.tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "--sort=name", "--warning=no-file-ignored"]);
    tar.args(["--exclude=./image", "-I", "gzip -9", "-cf"]);
    let done = tar.arg(&archive).arg("-C").arg(data).arg(".").status().expect("tar is there");
    assert!(done.success(), "{done}");
    let bytes = fs::metadata(&archive).expect("it is there").len();
    assert!(bytes <= 300 * 1024, "{bytes} bytes");
}
