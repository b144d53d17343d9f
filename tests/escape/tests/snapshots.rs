//! Files that a tenant makes so that a snapshot, a copy or a fork reaches out of the sandbox, fails, or
//! shows another sandbox than the original.
#![allow(missing_docs)]

use isolet_kit::{LONG, Sandbox, Server, Value, json, tries, wait_until};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

const FILES: &str = include_str!("../snapshot_files.py");
const SCOPE_PROBES: &str = include_str!("../scope_probes.py");
const CANARY: &str = "host-canary-3391";

fn run(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    let argv = [&["python3", "-c", FILES], arguments].concat();
    let body = json!({"argv": argv, "max_output_bytes": 16 << 20, "timeout_ms": 100_000});
    let answer = sandbox.post("/exec", &body).expect(200).json();
    let text = answer["stdout"].as_str().expect("a text");
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Every file below a directory on the host. Follows no link.
fn all(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a directory").flatten() {
        // Tens of thousands of directories in each other are too deep for a path.
        if entry.file_type().expect("known").is_dir() && entry.file_name() != "deep" {
            all(&entry.path(), found);
        }
        found.push(entry.path());
    }
}

/// Whether the first bytes of a regular file are those of the host's.
fn has_canary(path: &Path) -> bool {
    use std::io::Read as _;
    let mut start = [0; CANARY.len()];
    let read = fs::File::open(path).and_then(|mut file| file.read(&mut start));
    read.is_ok_and(|count| &start[..count] == CANARY.as_bytes())
}

/// The host's view of a snapshot: no file of the host, no device, and no way in for other users.
fn holds_only_its_own(server: &Server) {
    let directory = server.data().join("snapshots");
    let mut found = Vec::new();
    all(&directory, &mut found);
    for path in found {
        let status = fs::symlink_metadata(&path).expect("it is there");
        let kind = status.file_type();
        assert!(!kind.is_block_device() && !kind.is_socket(), "{}", path.display());
        assert!(!kind.is_char_device() || status.rdev() == 0, "{}", path.display());
        assert!(!kind.is_file() || !has_canary(&path), "{}", path.display());
    }
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "ls"]).arg(&directory);
    let listed = other.output().expect("setpriv runs");
    assert!(!listed.status.success(), "another user of the host lists {}", directory.display());
}

/// Plants the files in a sandbox, and compares a copy and a fork with it.
fn hostile_files(disk_mib: u64) {
    let server = Server::start();
    let canary = server.data().with_file_name("canary");
    fs::write(&canary, CANARY).expect("writes");
    let path = fs::canonicalize(&canary).expect("it is there").display().to_string();
    let sandbox = server.sandbox_with(&json!({"disk_mib": disk_mib}));
    let depth = tries(500, 20_000).to_string();
    let width = tries(2_000, 100_000).to_string();
    let refused = run(&sandbox, &["plant", &path, &depth, &width]);
    for device in ["null", "disk", "memory"] {
        let outcome = &refused[format!("{device} in /workspace/hostile")];
        assert!(outcome == "EPERM" || outcome == "EACCES", "{device}: {refused}");
    }
    let planted = run(&sandbox, &["look"]);
    let taken = sandbox.post("/snapshots", &json!({"name": "hostile"})).expect(201).json();
    let size = taken["size_bytes"].as_u64().expect("a size");
    assert!(size < 1 << 30, "the holes of a sparse file were copied: {size}");
    holds_only_its_own(&server);
    let copy = server.sandbox_with(&json!({"snapshot": "hostile"}));
    let forked = sandbox.post("/fork", &json!({"count": 1})).expect(201).json();
    let fork = server.named(forked["forks"][0]["id"].as_str().expect("an id"));
    // A copy of a copy.
    let again = copy.post("/snapshots", &json!({"name": "again"})).expect(201).json();
    assert_eq!(again["lost"], json!([]), "{again}");
    let second = server.sandbox_with(&json!({"snapshot": "again"}));
    for copy in [&copy, &fork, &second] {
        same(&planted, &run(copy, &["look"]));
        assert!(!copy.says("cat /workspace/hostile/link-* 2>/dev/null").contains(CANARY));
    }
    assert_eq!(fs::read_to_string(&canary).expect("it is there"), CANARY);
    for name in ["hostile", "again"] {
        server.http().delete(&format!("/v1/snapshots/{name}")).expect(200);
    }
    same(&planted, &run(&sandbox, &["look"]));
    for sandbox in [sandbox, copy, fork, second] {
        sandbox.delete();
    }
    // As many files take a while to delete.
    let trash = server.data().join("trash");
    wait_until("the trash is empty", LONG, || {
        (fs::read_dir(&trash).expect("is there").count() == 0).then_some(())
    });
    server.healthy();
}

#[track_caller]
fn same(planted: &Value, copied: &Value) {
    let planted = planted.as_object().expect("an object");
    let copied = copied.as_object().expect("an object");
    for (path, value) in planted {
        assert_eq!(copied.get(path), Some(value), "{}", shown(path));
    }
    let more: Vec<_> = copied.keys().filter(|path| !planted.contains_key(*path)).collect();
    assert!(more.is_empty(), "only in the copy: {more:?}");
}

fn shown(path: &str) -> String {
    let bytes = hex::decode(path).unwrap_or_else(|_| path.into());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Promises: SN20.
#[test]
fn files_that_a_tenant_made_do_not_lead_out_of_a_snapshot() {
    hostile_files(0);
}

/// Promises: SN20.
#[test]
fn files_that_a_tenant_made_do_not_lead_out_of_a_snapshot_of_a_disk() {
    hostile_files(2048);
}

/// A device in the files of a sandbox is in no copy, also if a user of the host made it.
/// Promises: SN20.
#[test]
fn a_device_in_the_files_of_a_sandbox_is_not_copied() {
    let server = Server::start();
    let sandbox = server.sandbox();
    sandbox.says("touch /workspace/marker");
    let directories = fs::read_dir(server.data().join("sandboxes")).expect("is there").flatten();
    let own = directories.map(|one| one.path()).find(|one| one.join("workspace/marker").is_file());
    let workspace = own.expect("its directory").join("workspace");
    for (name, kind) in [("zero", ["c", "1", "5"]), ("disk", ["b", "254", "0"])] {
        let made = Command::new("mknod").arg(workspace.join(name)).args(kind).status();
        assert!(made.is_ok_and(|status| status.success()));
    }
    let taken = sandbox.post("/snapshots", &json!({})).expect(201).json();
    holds_only_its_own(&server);
    let copy = server.sandbox_with(&json!({"snapshot": taken["id"]}));
    assert_eq!(copy.says("ls /workspace"), "marker\n");
}

/// A lease delays every other open of a file, for a program that is frozen as well.
/// Promises: SN20.
#[test]
fn a_file_with_a_lease_does_not_hang_a_snapshot() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let lease = "python3 -c 'import fcntl, os, signal\nfile = os.open(\"/workspace/leased\", os.O_RDWR | os.O_CREAT)\n\
                 fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\nopen(\"/workspace/taken\", \"w\")\nsignal.pause()' & \
                 until [ -e /workspace/taken ]; do sleep 0.01; done; echo held";
    assert_eq!(sandbox.command("dev", lease)["stdout"], "held\n");
    let answer = sandbox.post("/snapshots", &json!({}));
    match answer.status {
        201 => {}
        _ => assert!(answer.text().contains("leased"), "{}", answer.text()),
    }
    assert_eq!(sandbox.says("echo on"), "on\n");
}

/// Promises: SN5, V4.
#[test]
fn root_in_a_scope_of_a_copy_or_a_fork_gets_nowhere() {
    let server = Server::start();
    let sandbox = server.sandbox();
    sandbox.command(
        "default",
        "mkdir -p docs/sub src secret; echo canary-5127 > secret/key; echo a > docs/a.txt; echo 1 > one.txt
         ln -s ../secret/key docs/relative; ln -s /workspace/secret/key docs/absolute
         ln -s /proc/1/root/workspace/secret/key docs/proc
         for p in /tmp /var/tmp /root /home; do echo canary-5127 > $p/planted; done",
    );
    let spec = json!({"id": "one", "file_access": {"read": ["docs", "one.txt"], "write": ["src"]}});
    sandbox.post("/sessions", &spec).expect(201);
    let path = sandbox.path("/sessions/one/files/.sessions/one/probes.py");
    sandbox.http.send("PUT", &path, Some(SCOPE_PROBES.as_bytes())).expect(201);
    sandbox.command("one", "true");
    sandbox.post("/snapshots", &json!({"name": "scoped"})).expect(201);
    let copy = server.sandbox_with(&json!({"snapshot": "scoped"}));
    let forked = sandbox.post("/fork", &json!({"count": 1})).expect(201).json();
    let fork = server.named(forked["forks"][0]["id"].as_str().expect("an id"));
    for sandbox in [copy, fork] {
        let run = "PLANTED_PIDS='2 3 4 5 6 7 8' python3 /workspace/.sessions/one/probes.py";
        let said = sandbox.command("one", run);
        let outcomes: Value = serde_json::from_str(said["stdout"].as_str().expect("a text"))
            .unwrap_or_else(|_| panic!("{said}"));
        let outcomes = outcomes.as_object().expect("an object");
        assert!(outcomes.len() > 80, "only {} probes ran", outcomes.len());
        let out: Vec<_> = outcomes
            .iter()
            .filter(|(_, one)| one.as_str().is_none_or(|text| text.starts_with("out")))
            .collect();
        assert!(out.is_empty(), "{out:#?}");
    }
    server.http().delete("/v1/snapshots/scoped").expect(200);
}
