//! Backups under load: the rehearsal of a lost data directory, and kills at any moment.

use isolet_kit::image::{Image, busybox};
use isolet_kit::{LONG, Options, SOON, Sandbox, Server, Value, json, process, tries, wait_until};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Files that are hard to copy. Prints nothing.
const ODD: &str = r#"mkdir -p /workspace/odd/sub && cd /workspace/odd &&
echo a >a && ln a sub/b && ln -s /etc/passwd link && ln -s nowhere dangling && mkfifo fifo &&
truncate -s 64M hole && truncate -s 32M sparse && echo middle | dd of=sparse bs=1M seek=7 conv=notrunc 2>/dev/null &&
echo n >"$(printf 'new\nline \377')" && chmod 4751 a && chmod 1777 sub && touch -d '2001-02-03 04:05:06.123456789' a link &&
mkdir -p deep && (cd deep && for i in $(seq 200); do mkdir d && cd d; done && echo bottom >f) &&
rm -rf /etc/os-release && mkdir -p /opt/x && echo o >/opt/x/o"#;
/// Prints a line for each file, with all that a backup preserves of it.
const DESCRIBE: &str = r#"cd /workspace/odd && find . -printf '%p %y %m %U %G %s %b %T@ %n %l\n' | sort | sha256sum &&
find . -type f | sort | xargs -d '\n' sha256sum | sha256sum; cat sub/b; test -e /etc/os-release; echo $?; cat /opt/x/o"#;

/// Writes each number into a file that is copied early, and then into one that is copied late.
const COUNT: &str = "(n=0; while :; do n=$((n+1)); echo $n >>/root/early; echo $n >>/workspace/zz-late; \
sleep 0.001; done) >/dev/null 2>&1 & disown";

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("fits")
}

pub(crate) fn run(server: &Server, args: &[&str]) -> Output {
    server.command(args)
}

#[track_caller]
pub(crate) fn succeeds(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
}

#[track_caller]
pub(crate) fn is_refused(output: &Output, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(why), "{said} does not contain {why:?}");
}

pub(crate) fn manifest(backup: &Path) -> Value {
    let text = fs::read(backup.join("manifest.json")).expect("it is complete");
    serde_json::from_slice(&text).expect("JSON")
}

pub(crate) fn exists(path: &Path) -> bool {
    path.try_exists().expect("it can be looked up")
}

/// A file that was acknowledged, and when.
#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    number: u64,
    at_ms: i64,
}

fn content(id: &str, number: u64) -> String {
    format!("{id} {number} ").repeat(usize::try_from(number % 500).expect("small") + 1)
}

/// Writes files until `stop`, and notes those that were acknowledged. `count` counts them.
fn write_files(sandbox: &Sandbox, stop: &AtomicBool, count: &AtomicUsize) -> Vec<Acknowledged> {
    let mut all = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let path = sandbox.path(&format!("/files/w/{number}"));
        let bytes = content(&sandbox.id, number);
        let sent = sandbox.http.try_send("PUT", &path, Some(bytes.as_bytes()));
        if sent.is_ok_and(|reply| matches!(reply.status, 200 | 201)) {
            all.push(Acknowledged { number, at_ms: now_ms() });
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    all
}

/// Loses the data directory: everything that runs ends, and all files are gone.
fn lose(server: &mut Server) -> PathBuf {
    let data = server.data();
    let image = fs::read_link(data.join("image")).expect("shared between tests");
    server.power_off();
    wait_until("its processes end", SOON, || {
        let text = data.display().to_string();
        let all = process::all().into_iter();
        let left: Vec<i32> = all.filter(|pid| process::arguments(*pid).contains(&text)).collect();
        left.iter().for_each(|pid| process::kill(*pid));
        left.is_empty().then_some(())
    });
    fs::remove_dir_all(&data).expect("it is gone");
    image
}

/// Puts the tests' shared image back and starts the server.
fn start_again(server: &mut Server, image: &Path) {
    std::os::unix::fs::symlink(image, server.data().join("image")).expect("a link");
    server.launch();
}

/// Promises: F48.
#[test]
fn long_a_backup_under_load_brings_back_every_acknowledged_file_after_the_loss_of_the_data() {
    let mut server = Options::new().warm_pool(1).start();
    let folder = tempfile::tempdir().expect("a directory");
    let target = folder.path().join("backup");
    let passphrase = folder.path().join("passphrase");
    fs::write(&passphrase, "correct horse\n").expect("writes");
    let secrets = ["--with-secrets", "--passphrase-file", passphrase.to_str().expect("text")];
    let plain: Vec<Sandbox> = (0..3).map(|_| server.sandbox()).collect();
    let disk = server.sandbox_with(&json!({"id": "disk", "disk_mib": 128}));
    let slept = server.sandbox();
    let short = server.sandbox_with(&json!({"id": "short", "persistent": false}));
    short.exec("echo x >/workspace/x");
    let mut odd = BTreeMap::new();
    for sandbox in plain.iter().chain([&disk, &slept]) {
        let made = sandbox.command("s", &format!("x=kept; {ODD}"));
        assert_eq!(made["exit_code"], 0, "{made}");
        odd.insert(sandbox.id.clone(), sandbox.says(DESCRIBE));
    }
    wait_until("one sleeps", SOON, || {
        (slept.post("/sleep", &json!({})).status == 200).then_some(())
    });
    for sandbox in plain.iter().chain([&disk]) {
        sandbox.command("count", COUNT);
    }
    let stop = AtomicBool::new(false);
    let written = Mutex::new(BTreeMap::new());
    let writers: Vec<&Sandbox> = plain.iter().chain([&disk]).collect();
    let counts: Vec<AtomicUsize> = writers.iter().map(|_| AtomicUsize::new(0)).collect();
    let each_writes = |more: usize| {
        let read = || counts.iter().map(|count| count.load(Ordering::Relaxed));
        let before: Vec<usize> = read().collect();
        wait_until("each writer has written", LONG, || {
            read().zip(&before).all(|(now, before)| now >= before + more).then_some(())
        });
    };
    let done = std::thread::scope(|threads| {
        for (sandbox, count) in writers.iter().zip(&counts) {
            let stop = &stop;
            let written = &written;
            threads.spawn(move || {
                let all = write_files(sandbox, stop, count);
                written.lock().expect("held").insert(sandbox.id.clone(), all);
            });
        }
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let sandbox = server.sandbox();
                sandbox.delete();
            }
        });
        each_writes(30);
        // In the middle of a command whose shell cannot be saved now.
        let busy = json!({"command": "x=kept; sleep 3; echo ended"});
        let path = plain[0].path("/sessions/s/exec");
        let http = plain[0].http.clone();
        let running = threads.spawn(move || http.post(&path, &busy).expect(200).json());
        let text = target.to_str().expect("text");
        let mut args = vec!["backup", text, "--json"];
        args.extend(secrets);
        let done = run(&server, &args);
        // What was written after the backup is lost with the data directory.
        each_writes(10);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(running.join().expect("it ran")["stdout"], "ended\n");
        done
    });
    succeeds(&done);
    eprintln!("{}", String::from_utf8_lossy(&done.stdout));
    for sandbox in &writers {
        assert_eq!(sandbox.info()["state"], "running", "the original goes on");
        assert_eq!(sandbox.says("echo up"), "up\n");
    }
    succeeds(&run(&server, &["backup", "--verify", target.to_str().expect("text")]));
    let about = manifest(&target);
    let moments: BTreeMap<String, i64> = about["sandboxes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| {
            let id = one["id"].as_str().expect("text").to_owned();
            (id, one["at_ms"].as_i64().expect("a number"))
        })
        .collect();
    let image = lose(&mut server);
    let text = target.to_str().expect("text");
    let mut args = vec!["restore", text];
    args.extend(secrets);
    succeeds(&run(&server, &args));
    start_again(&mut server, &image);
    let mut count = 0;
    for sandbox in plain.iter().chain([&disk, &slept]) {
        assert_eq!(sandbox.info()["state"], "sleeping", "{}", sandbox.id);
        assert_eq!(sandbox.says(DESCRIBE), odd[&sandbox.id], "{}", sandbox.id);
        assert_eq!(sandbox.command("s", "echo $x")["stdout"], "kept\n", "{}", sandbox.id);
    }
    for sandbox in plain.iter().chain([&disk]) {
        let counts = sandbox.says("tail -n 1 /root/early /workspace/zz-late | grep '^[0-9]'");
        let counts: Vec<u64> = counts.lines().filter_map(|line| line.parse().ok()).collect();
        let [early, late] = counts[..] else { panic!("{counts:?}") };
        assert!(late > 0 && (early == late || early == late + 1), "one moment: {early}, {late}");
    }
    for (id, all) in written.into_inner().expect("held") {
        let sandbox = server.named(&id);
        let before: Vec<_> = all.iter().filter(|file| file.at_ms < moments[&id]).collect();
        assert!(before.len() > 3, "{id}: {} of {} files", before.len(), all.len());
        for file in before {
            let path = sandbox.path(&format!("/files/w/{}", file.number));
            let found = sandbox.http.get(&path);
            assert_eq!(found.status, 200, "{id}: {file:?}");
            assert_eq!(found.text(), content(&id, file.number), "{id}: {file:?}");
            count += 1;
        }
    }
    eprintln!("{count} acknowledged files compared");
    assert_eq!(short.info()["state"], "sleeping");
    assert_eq!(short.says("ls /workspace"), "", "a sleep loses the files of an ephemeral sandbox");
    succeeds(&run(&server, &["audit", "verify"]));
    let wal = run(&server, &["backup", server.data().join("inside").to_str().expect("text")]);
    is_refused(&wal, "cannot lie in the data directory");
    server.healthy();
}

/// Promises: F48.
#[test]
fn without_secrets_a_restore_says_what_is_missing_and_the_copy_contains_none() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    sandbox.exec("echo acked >/workspace/f");
    sandbox.command("s", "x=1");
    let link = sandbox.post("/links", &json!({"port": 8080})).expect(201).json();
    assert!(link["url"].is_string(), "{link}");
    let folder = tempfile::tempdir().expect("a directory");
    let target = folder.path().join("backup");
    let text = target.to_str().expect("text");
    server.stop();
    // No server runs, and the sandbox does: this program freezes it.
    succeeds(&run(&server, &["backup", text]));
    let moment = manifest(&target)["sandboxes"][0].clone();
    assert!(moment["frozen_ms"].is_u64());
    assert!(moment["unsaved_shells"].as_u64().is_some_and(|count| count > 0), "{moment}");
    let secret = fs::read_to_string(server.data().join("audit/key")).expect("it exists");
    let mut todo = vec![target.clone()];
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(fs::read_dir(&path).expect("reads").map(|one| one.expect("reads").path()));
            continue;
        }
        let bytes = fs::read(&path).expect("reads");
        let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!found, "{}", path.display());
    }
    server.launch();
    assert_eq!(sandbox.says("cat /workspace/f"), "acked\n");
    let format_file = server.data().join("format");
    let format = || fs::read_to_string(&format_file);
    let before = format().expect("a number");
    let image = lose(&mut server);
    let done = run(&server, &["restore", text]);
    succeeds(&done);
    let said = String::from_utf8_lossy(&done.stderr);
    for part in ["secrets were not restored", "links to ports are invalid", "audit logs begin"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(format().expect("a restore writes it"), before);
    start_again(&mut server, &image);
    assert_eq!(sandbox.says("cat /workspace/f"), "acked\n");
    succeeds(&run(&server, &["audit", "verify"]));
    server.healthy();
}

/// Promises: F48.
#[test]
fn a_backup_or_restore_killed_at_any_moment_leaves_nothing_that_looks_complete() {
    let mut server = Server::start();
    let all: Vec<Sandbox> = (0..3).map(|_| server.sandbox()).collect();
    for sandbox in &all {
        sandbox.exec("head -c 8000000 /dev/urandom >/workspace/data; echo acked >/workspace/f");
    }
    let folder = tempfile::tempdir().expect("a directory");
    let mut complete = 0;
    for round in 0..tries(12, 100) {
        let target = folder.path().join(format!("backup-{round}"));
        let mut command = server.program();
        command.arg("backup").arg(&target).stderr(Stdio::null()).stdin(Stdio::null());
        let mut child = command.spawn().expect("starts");
        std::thread::sleep(Duration::from_millis(u64::from(round as u32) * 37 % 450));
        if round % 4 == 3 {
            server.restart();
        }
        child.kill().expect("it is ours");
        child.wait().expect("ends");
        if exists(&target) {
            complete += 1;
            succeeds(&run(&server, &["backup", "--verify", target.to_str().expect("text")]));
        }
        for sandbox in &all {
            assert_eq!(sandbox.says("cat /workspace/f"), "acked\n", "round {round}");
        }
    }
    let target = folder.path().join("backup-0-again");
    let text = target.to_str().expect("text");
    succeeds(&run(&server, &["backup", text]));
    eprintln!("{complete} backups were complete before the kill");
    let image = lose(&mut server);
    for round in 0..tries(6, 50) {
        let mut command = server.program();
        command.arg("restore").arg(&target).stderr(Stdio::null()).stdin(Stdio::null());
        let mut child = command.spawn().expect("starts");
        std::thread::sleep(Duration::from_millis(u64::from(round as u32) * 61 % 300));
        process::signal(i32::try_from(child.id()).expect("small"), Signal::KILL);
        child.wait().expect("ends");
        let data = server.data();
        if exists(&data.join("restore-incomplete")) {
            is_refused(&run(&server, &["serve"]), "incomplete restore");
        } else if exists(&data.join("isolet.db")) {
            fs::remove_dir_all(&data).expect("removes");
        }
    }
    succeeds(&run(&server, &["restore", text]));
    start_again(&mut server, &image);
    for sandbox in &all {
        assert_eq!(
            sandbox.says("cat /workspace/f; stat -c %s /workspace/data"),
            "acked\n8000000\n"
        );
    }
    server.healthy();
}

/// Whether a sandbox of this server is frozen now.
fn is_frozen(server: &Server) -> bool {
    let all = server.cgroups().into_iter();
    let texts = all.filter_map(|group| fs::read_to_string(group.join("cgroup.freeze")).ok());
    texts.into_iter().any(|text| text.trim() == "1")
}

/// Kills the backup, or the server, while a sandbox is frozen for a backup. On a busy machine the backup
/// may be over before this thread has seen that: then it is begun again.
fn kill_while_frozen(
    server: &mut Server,
    target: &Path,
    mut kill: impl FnMut(&mut Server, &mut Child),
) {
    wait_until("a backup is killed while a sandbox is frozen", LONG, || {
        let mut command = server.program();
        command.arg("backup").arg(target).stderr(Stdio::null()).stdin(Stdio::null());
        let mut child = command.spawn().expect("starts");
        let is_seen = wait_until("it is frozen, or the backup has ended", LONG, || {
            let has_ended = child.try_wait().expect("its child").is_some();
            if is_frozen(server) { Some(true) } else { has_ended.then_some(false) }
        });
        if is_seen {
            kill(server, &mut child);
        }
        if child.wait().expect("ends").success() {
            fs::remove_dir_all(target).expect("it is complete");
            return None;
        }
        assert!(is_seen, "the backup failed");
        Some(())
    });
}

/// A sandbox that stood still for a backup would stand still for ever when the program that must
/// let it continue is killed.
/// Promises: F48.
#[test]
fn a_frozen_sandbox_continues_when_the_backup_or_the_server_is_killed() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    sandbox.exec("head -c 300000000 /dev/urandom >/workspace/data; echo acked >/workspace/f");
    let folder = tempfile::tempdir().expect("a directory");
    for kills_server in [false, true, true] {
        let target = folder.path().join("backup");
        kill_while_frozen(&mut server, &target, |server, child| {
            if kills_server {
                server.restart();
            } else {
                child.kill().expect("it is ours");
            }
        });
        assert_eq!(sandbox.says("cat /workspace/f"), "acked\n");
        assert!(!is_frozen(&server) && !exists(&target));
    }
    // Without a server, a process of the backup freezes the sandbox, and must thaw it.
    for signal in [Signal::KILL, Signal::TERM, Signal::INT] {
        server.stop();
        kill_while_frozen(&mut server, &folder.path().join("backup"), |_, child| {
            process::signal(i32::try_from(child.id()).expect("small"), signal);
        });
        wait_until("it continues", SOON, || (!is_frozen(&server)).then_some(()));
        server.launch();
        assert_eq!(sandbox.says("cat /workspace/f"), "acked\n", "{signal:?}");
    }
    server.healthy();
}

/// Promises: F48.
#[test]
fn sandboxes_of_images_come_back_with_or_without_the_images_in_the_backup() {
    let mut server = Server::start();
    let layers = ["a", "b"].map(|name| busybox().file(name, name.as_bytes()).bytes());
    let archive = Image::new(&layers, &json!({})).layout();
    let import = |server: &Server| {
        let path = "/v1/images/import?name=local/app:1";
        let reply = server.http().send("POST", path, Some(&archive));
        assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
    };
    import(&server);
    let sandbox = server.sandbox_with(&json!({"image": "local/app:1"}));
    assert_eq!(sandbox.says("echo acked >/f; cat /f"), "acked\n");
    let folder = tempfile::tempdir().expect("a directory");
    let text = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    succeeds(&run(&server, &["backup", &text("all")]));
    succeeds(&run(&server, &["backup", &text("few"), "--without-images"]));
    for name in ["all", "few"] {
        let image = lose(&mut server);
        let done = run(&server, &["restore", &text(name)]);
        succeeds(&done);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(said.contains("the backup has no images"), name == "few", "{said}");
        start_again(&mut server, &image);
        if name == "few" {
            let refused = sandbox.post("/exec", &json!({"command": "true"}));
            assert_ne!(refused.status, 200, "its layers are missing");
            import(&server);
        }
        assert_eq!(sandbox.says("cat /f /a /b"), "acked\nab", "{name}");
    }
    server.healthy();
}

/// Promises: F48.
#[test]
fn rotated_keys_end_what_the_old_ones_allowed() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    sandbox.exec("true");
    let link = sandbox.post("/links", &json!({"port": 8080})).expect(201).json();
    let url = link["url"].as_str().expect("text").to_owned();
    let path = url.find("/v1/").map_or(url.as_str(), |at| &url[at..]).to_owned();
    let status = |server: &Server| isolet_kit::Http::new(server.port(), None).get(&path).status;
    assert_ne!(status(&server), 401, "the link works");
    succeeds(&run(&server, &["keys", "rotate", "links"]));
    assert_eq!(status(&server), 401, "at once");
    for round in 0..3 {
        sandbox.exec("true");
        if round == 2 {
            server.stop();
        }
        succeeds(&run(&server, &["keys", "rotate", "audit"]));
        if round == 2 {
            server.launch();
        }
        sandbox.exec("true");
        succeeds(&run(&server, &["audit", "verify"]));
    }
    let log = run(&server, &["audit", "show"]);
    let log = String::from_utf8_lossy(&log.stdout);
    assert_eq!(log.matches("audit.key_rotated").count(), 6, "{log}");
    server.restart();
    sandbox.exec("true");
    succeeds(&run(&server, &["audit", "verify"]));
    let secret = server.add_key(&["--label", "one"]);
    let id = || {
        let list = run(&server, &["keys", "ls", "--json"]);
        let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
        let all = list.as_array().expect("a list").clone();
        let open = all.iter().find(|key| key["label"] == "one" && key["revoked_at_ms"].is_null());
        open.expect("a key")["id"].as_str().expect("text").to_owned()
    };
    let old = id();
    let done = run(&server, &["keys", "rotate", "api", &old]);
    succeeds(&done);
    let new = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    let calls =
        |key: &str| isolet_kit::Http::new(server.port(), Some(key)).get("/v1/sandboxes").status;
    assert_eq!((calls(secret.trim()), calls(&new)), (401, 200));
    assert_ne!(id(), old);
    server.healthy();
}

/// Promises: F48.
#[test]
fn a_rotation_that_cannot_be_used_changes_nothing() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    let secret = server.add_key(&["--label", "one"]);
    let keys = |server: &Server| {
        let list = run(server, &["keys", "ls", "--json"]);
        let list: Vec<Value> = serde_json::from_slice(&list.stdout).expect("JSON");
        list.into_iter().filter(|key| key["revoked_at_ms"].is_null()).collect::<Vec<_>>()
    };
    let before = keys(&server);
    let old = before.iter().find(|key| key["label"] == "one").expect("the key");
    let old = old["id"].as_str().expect("text").to_owned();
    // The new key cannot be printed, so nobody would know it.
    let mut rotate = server.program();
    rotate.args(["keys", "rotate", "api", &old]).stdin(Stdio::null());
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("opens");
    let unread = rotate.stdout(full).output().expect("starts");
    is_refused(&unread, &format!("{old} was not replaced"));
    assert_eq!(keys(&server), before);
    let client = isolet_kit::Http::new(server.port(), Some(secret.trim()));
    assert_eq!(client.get("/v1/sandboxes").status, 200);

    let link = sandbox.post("/links", &json!({"port": 8080})).expect(201).json();
    let url = link["url"].as_str().expect("text").to_owned();
    let path = url.find("/v1/").map_or(url.as_str(), |at| &url[at..]).to_owned();
    let misspelled = ["keys", "rotate", "links", "--tenant", "default", "--sandbox", "missing"];
    is_refused(&run(&server, &misspelled), "missing");
    let status = |server: &Server| isolet_kit::Http::new(server.port(), None).get(&path).status;
    assert_ne!(status(&server), 401, "the link still works");
    server.stop();
    is_refused(&run(&server, &misspelled), "the tenant default has no sandbox missing");
    server.launch();
    assert_ne!(status(&server), 401, "the link still works");
    server.healthy();
}
