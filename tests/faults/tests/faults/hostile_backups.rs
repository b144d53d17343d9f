//! Backups of hostile sandboxes, and backups that a restore refuses.

use crate::backups::{exists, is_refused, manifest, run, succeeds};
use isolet_kit::{SOON, Server, json, wait_until};
use std::fs;
use std::path::Path;

/// A program takes a lease on a file: while it is frozen, nothing can open the file, and the backup of
/// all sandboxes ended there.
/// Promises: F48.
#[test]
fn a_file_with_a_lease_is_left_out_alone_and_named() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let other = server.sandbox();
    for sandbox in [&sandbox, &other] {
        sandbox.exec("echo acked >/workspace/f; echo x >/workspace/leased");
    }
    let program = "import fcntl, os, time; f = os.open('/workspace/leased', os.O_RDWR); \
        fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK); open('/workspace/held', 'w').close(); \
        time.sleep(1000)";
    let line = format!("python3 -c \"{program}\" >/dev/null 2>&1 & disown");
    sandbox.command("s", &line);
    wait_until("the program holds its lease", SOON, || {
        (sandbox.says("ls /workspace").contains("held")).then_some(())
    });
    let folder = tempfile::tempdir().expect("a directory");
    let target = folder.path().join("backup");
    let text = target.to_str().expect("text");
    let done = run(&server, &["backup", text]);
    is_refused(&done, "\"workspace/leased\" is NOT in the backup: a program holds a lease on it");
    let done = run(&server, &["backup", "--verify", text]);
    is_refused(&done, "a program holds a lease on it");
    let about = manifest(&target);
    assert_eq!(about["sandboxes"].as_array().map(Vec::len), Some(2), "{about}");
    assert_eq!(about["left_out"], json!([]));
    let data = folder.path().join("data");
    succeeds(&run(&server, &["restore", text, "--data-dir", data.to_str().expect("text")]));
    for one in about["sandboxes"].as_array().expect("a list") {
        let files = data.join("sandboxes").join(one["name"].as_str().expect("text"));
        let leased = one["id"].as_str() == Some(&sandbox.id);
        assert_eq!(fs::read_to_string(files.join("workspace/f")).expect("reads"), "acked\n");
        assert_eq!(exists(&files.join("workspace/leased")), !leased);
    }
    server.healthy();
}

/// A sandbox from a template on the host's programs has the layer `host`, which no backup accepted: any tenant
/// stopped all backups.
///
/// Promises: F48.
#[test]
fn a_sandbox_from_a_template_of_the_host_is_backed_up_with_the_others() {
    let server = Server::start();
    let sandbox = server.sandbox();
    sandbox.exec("echo tool >/usr/local/bin/tool; echo acked >/workspace/f");
    sandbox.post("/snapshots", &json!({"name": "ready"})).expect(201);
    let image = json!({"snapshot": "ready", "name": "tools"});
    server.http().post("/v1/images", &image).expect(201);
    let other = server.sandbox_with(&json!({"image": "tools"}));
    other.exec("echo own >/workspace/own");
    let folder = tempfile::tempdir().expect("a directory");
    let target = folder.path().join("backup");
    let text = target.to_str().expect("text");
    succeeds(&run(&server, &["backup", text]));
    assert_eq!(manifest(&target)["left_out"], json!([]));
    succeeds(&run(&server, &["backup", "--verify", text]));
    let data = folder.path().join("data");
    succeeds(&run(&server, &["restore", text, "--data-dir", data.to_str().expect("text")]));
    let about = manifest(&target);
    let all = about["sandboxes"].as_array().expect("a list");
    let own = all.iter().find(|one| one["id"].as_str() == Some(&other.id)).expect("the sandbox");
    let files = data.join("sandboxes").join(own["name"].as_str().expect("text"));
    assert_eq!(fs::read_to_string(files.join("workspace/own")).expect("reads"), "own\n");
    assert_eq!(fs::read_to_string(files.join("workspace/f")).expect("reads"), "acked\n");
    server.healthy();
}

fn copy(from: &Path, to: &Path) {
    let done = std::process::Command::new("cp").arg("-a").args([from, to]).status();
    assert!(done.is_ok_and(|status| status.success()));
}

/// Promises: F48.
#[test]
fn damaged_hostile_and_newer_backups_are_refused_and_nothing_is_written() {
    let server = Server::start();
    let sandbox = server.sandbox();
    sandbox.exec("echo acked >/workspace/f");
    let folder = tempfile::tempdir().expect("a directory");
    let good = folder.path().join("good");
    let passphrase = folder.path().join("passphrase");
    let wrong = folder.path().join("wrong");
    fs::write(&passphrase, "right").expect("writes");
    fs::write(&wrong, "wrong").expect("writes");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let with = ["--with-secrets", "--passphrase-file"];
    let args = ["backup", &text(&good), with[0], with[1], &text(&passphrase)];
    succeeds(&run(&server, &args));
    is_refused(&run(&server, &args), "is not empty");
    let archive = |at: &Path| {
        let name = manifest(at)["sandboxes"][0]["name"].as_str().expect("text").to_owned();
        at.join(format!("sandboxes/{name}.tar.zst"))
    };
    let edit = |at: &Path, from: &str, to: &str| {
        let file = at.join("manifest.json");
        let old = fs::read_to_string(&file).expect("reads");
        let new = old.replacen(from, to, 1);
        assert_ne!(old, new, "{from}");
        fs::write(file, new).expect("writes");
    };
    type Change<'a> = (&'a str, Box<dyn Fn(&Path) + 'a>);
    let changes: Vec<Change<'_>> = vec![
        (
            "no manifest.json",
            Box::new(|at| fs::remove_file(at.join("manifest.json")).expect("removes")),
        ),
        (
            "cannot be read",
            Box::new(|at| {
                let file = at.join("manifest.json");
                let bytes = fs::read(&file).expect("reads");
                fs::write(file, &bytes[..bytes.len() / 2]).expect("writes");
            }),
        ),
        (
            "format 999",
            Box::new(|at| {
                let own = format!("\"format\": {}", manifest(at)["format"]);
                edit(at, &own, "\"format\": 999");
            }),
        ),
        ("manifest names", Box::new(|at| edit(at, "\"name\": \"", "\"name\": \"../../"))),
        (
            "names the sandbox",
            Box::new(|at| {
                let mut about = manifest(at);
                about["sandboxes"][0]["name"] = "../../mysql".into();
                about["files"]
                    .as_array_mut()
                    .expect("a list")
                    .retain(|one| one["content"] != "sandbox");
                fs::write(at.join("manifest.json"), about.to_string()).expect("writes");
            }),
        ),
        (
            "bytes instead of",
            Box::new(|at| {
                let file = fs::OpenOptions::new().write(true).open(archive(at)).expect("opens");
                let length = file.metadata().expect("stat").len();
                file.set_len(length - 1).expect("cuts");
            }),
        ),
        (
            "another SHA-256",
            Box::new(|at| {
                let file = archive(at);
                let mut bytes = fs::read(&file).expect("reads");
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(file, bytes).expect("writes");
            }),
        ),
        (
            "differs from the manifest",
            Box::new(|at| fs::remove_file(archive(at)).expect("removes")),
        ),
        (
            "differs from the manifest",
            Box::new(|at| {
                let file = archive(at);
                fs::remove_file(&file).expect("removes");
                std::os::unix::fs::symlink("/etc/passwd", file).expect("links");
            }),
        ),
    ];
    let before = fs::read_dir(folder.path()).expect("reads").count();
    for (number, (why, change)) in changes.iter().enumerate() {
        let bad = folder.path().join("bad");
        copy(&good, &bad);
        change(&bad);
        let data = folder.path().join("data");
        let done = run(&server, &["restore", &text(&bad), "--data-dir", &text(&data)]);
        is_refused(&done, why);
        assert!(!exists(&data), "case {number} left a directory");
        is_refused(&run(&server, &["backup", "--verify", &text(&bad)]), why);
        fs::remove_dir_all(&bad).expect("removes");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("reads").count(), before);
    let data = folder.path().join("data");
    let args =
        ["restore", &text(&good), "--data-dir", &text(&data), with[0], with[1], &text(&wrong)];
    is_refused(&run(&server, &args), "cannot be decrypted");
    assert!(!exists(&data));
    is_refused(&run(&server, &["restore", &text(&good)]), "is not empty");
    fs::create_dir(&data).expect("creates");
    fs::write(data.join("mine"), "x").expect("writes");
    let done = run(&server, &["restore", &text(&good), "--data-dir", &text(&data)]);
    is_refused(&done, "is not empty");
    assert_eq!(fs::read_to_string(data.join("mine")).expect("reads"), "x");
    assert_eq!(sandbox.says("cat /workspace/f"), "acked\n");
    server.healthy();
}
