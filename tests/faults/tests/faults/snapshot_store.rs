//! Copies of snapshots in an object store: in a directory, and in a real S3 server behind a proxy
//! that injects faults.

use isolet_kit::s3::{BUCKET, Fault, FaultyProxy, S3Server};
use isolet_kit::{
    Http, LONG, Options, SOON, Sandbox, Server, Value, WallClock, json, process, wait_until,
};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;

/// What no log, error, process or file may show.
const SECRET: &str = "canary-of-the-store";
const MIB: u64 = 1 << 20;

/// A directory with a key file, and with the objects unless they are in S3.
struct Store {
    folder: TempDir,
    s3: Option<(S3Server, FaultyProxy)>,
}

impl Store {
    fn directory() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        fs::create_dir(folder.path().join("objects")).expect("is new");
        Self { folder, s3: None }
    }

    fn s3() -> Self {
        let s3 = S3Server::start();
        let proxy = FaultyProxy::start(&s3);
        Self { folder: tempfile::tempdir().expect("a directory"), s3: Some((s3, proxy)) }
    }

    fn proxy(&self) -> &FaultyProxy {
        &self.s3.as_ref().expect("it is in S3").1
    }

    fn objects(&self) -> PathBuf {
        self.folder.path().join("objects")
    }

    fn config(&self) -> String {
        let key = self.folder.path().join("key");
        let key = format!("key_file = \"{}\"", key.display());
        match &self.s3 {
            None => format!("[store]\nurl = \"file://{}\"\n{key}\n", self.objects().display()),
            Some((_, proxy)) => format!(
                "[store]\nurl = \"s3://{BUCKET}/some/prefix\"\n{key}\n[store.options]\n\
                 endpoint = \"http://{}\"\nregion = \"us-east-1\"\nallow_http = \"true\"\n",
                proxy.address()
            ),
        }
    }

    fn options(&self) -> Options {
        let options = Options::new().config(&self.config());
        options.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", SECRET)
    }

    /// Starts a server that uses the store.
    fn server(&self) -> Server {
        let server = self.options().start();
        let mut init = server.program();
        init.args(["store", "init"]).env("AWS_ACCESS_KEY_ID", "test");
        let init = init.env("AWS_SECRET_ACCESS_KEY", SECRET).output().expect("it starts");
        assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
        server
    }
}

fn take(sandbox: &Sandbox, name: &str) -> String {
    let taken = sandbox.post("/snapshots", &json!({"name": name})).expect(201).json();
    taken["id"].as_str().expect("an id").to_owned()
}

fn push(http: &Http, snapshot: &str) -> Value {
    http.post(&format!("/v1/snapshots/{snapshot}/push"), &Value::Null).expect(200).json()
}

fn pull(http: &Http, snapshot: &str) -> Value {
    http.post(&format!("/v1/store/snapshots/{snapshot}/pull"), &json!({})).expect(200).json()
}

fn stored(http: &Http) -> Vec<Value> {
    let list = http.get("/v1/store/snapshots").expect(200).json();
    list["snapshots"].as_array().expect("a list").clone()
}

/// Everything in the staging area of snapshots, and the directories of snapshots.
fn left(server: &Server) -> (usize, usize) {
    let all = server.data().join("snapshots");
    let count = |path: &Path| {
        let names = fs::read_dir(path).into_iter().flatten().flatten().map(|one| one.file_name());
        names.filter(|name| name != "staging" && name != "layers").count()
    };
    (count(&all.join("staging")), count(&all))
}

fn remove_all(server: &Server) {
    let http = server.http();
    for one in http.get("/v1/snapshots").json()["snapshots"].as_array().into_iter().flatten() {
        http.delete(&format!("/v1/snapshots/{}", one["id"].as_str().expect("an id"))).expect(200);
    }
}

const FILL: &str = "echo one >/workspace/a; ln /workspace/a /workspace/hard; ln -s a /workspace/soft; \
    echo own >/usr/local/own; echo etc >/etc/isolet-test; rm -f /usr/bin/cal /usr/bin/ncal; \
    echo user >/workspace/user; chown 1000:1000 /workspace/user; chmod 4755 /workspace/user; \
    mkfifo /workspace/pipe; truncate -s 64M /workspace/sparse; \
    mkdir -p /workspace/deep/er; cd /workspace/deep; PLAIN=two; greet() { echo hello $1; }";
const LOOK: &str = "pwd; echo $PLAIN; greet you; cat /workspace/a /workspace/soft /usr/local/own \
    /etc/isolet-test; stat -c '%u:%g %a' /workspace/user; stat -c %h /workspace/a; \
    stat -c '%s %F' /workspace/sparse /workspace/pipe; touch /workspace/user && echo writable";
const SEEN: &str = "/workspace/deep\ntwo\nhello you\none\none\nown\netc\n1000:1000 4755\n2\n\
    67108864 regular file\n0 fifo\nwritable\n";

fn another_server_starts_from_a_pushed_snapshot(disk_mib: u64) {
    let store = Store::directory();
    let first = store.server();
    let sandbox = first.sandbox_with(&json!({"disk_mib": disk_mib, "metadata": {"a": 1}}));
    assert_eq!(sandbox.command("dev", FILL)["exit_code"], 0);
    let id = take(&sandbox, "filled");
    let pushed = push(&first.http(), "filled");
    assert_eq!((&pushed["existed"], &pushed["left_out"]), (&json!(false), &json!(0)), "{pushed}");
    let sent = pushed["transferred_bytes"].as_u64().expect("a number");
    assert!(sent > 0 && sent < 16 * MIB, "{pushed}");
    assert_eq!(push(&first.http(), &id)["existed"], true);
    remove_all(&first);

    let second = store.server();
    // Takes the first range of ids, so that the copy has another one than its original.
    let other = second.sandbox();
    let http = second.http();
    let list = stored(&http);
    assert_eq!((&list[0]["id"], &list[0]["is_here"]), (&json!(id), &json!(false)));
    let pulled = pull(&http, &id);
    assert_eq!(pulled["snapshot"]["name"], "filled");
    assert!(pulled["transferred_bytes"].as_u64().expect("a number") > 0);
    assert_eq!(pull(&http, &id)["existed"], true);
    assert_eq!(stored(&http)[0]["is_here"], true);
    assert_eq!(left(&second), (0, 1));
    let copy = second.sandbox_with(&json!({"snapshot": id}));
    assert_eq!(copy.info()["metadata"], json!({"a": 1}));
    assert_eq!(copy.command("dev", LOOK)["stdout"], SEEN);
    http.delete(&format!("/v1/store/snapshots/{id}")).expect(204);
    assert!(stored(&http).is_empty());
    remove_all(&second);
    copy.delete();
    other.delete();
}

/// Promises: SS1.
#[test]
fn another_server_starts_from_a_pushed_snapshot_with_a_disk() {
    another_server_starts_from_a_pushed_snapshot(128);
}

/// Promises: SS1.
#[test]
fn another_server_starts_from_a_pushed_snapshot_without_a_disk() {
    another_server_starts_from_a_pushed_snapshot(0);
}

#[test]
fn the_command_line_pushes_lists_pulls_and_deletes() {
    let store = Store::directory();
    let server = store.server();
    let sandbox = server.sandbox();
    sandbox.says("echo x >/workspace/x");
    let id = take(&sandbox, "filled");
    let run = |args: &[&str]| {
        let output = server.command(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {error}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), error)
    };
    let (printed, said) = run(&["snapshot", "push", "filled"]);
    assert_eq!(printed, format!("{id}\n"));
    assert!(said.contains("sent "), "{said}");
    let (printed, _) = run(&["snapshot", "ls", "--store"]);
    assert!(printed.contains(&id) && printed.contains("yes"), "{printed}");
    run(&["snapshot", "rm", "filled"]);
    let (printed, _) = run(&["snapshot", "pull", &id, "--name", "again", "--json"]);
    let done: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(done["snapshot"]["name"], "again");
    run(&["snapshot", "rm", "--store", &id]);
    let (_, said) = run(&["snapshot", "ls", "--store"]);
    assert!(said.contains("no snapshots in the store"), "{said}");
    run(&["store", "check"]);
    let found: Value =
        serde_json::from_slice(&server.command(&["doctor", "--json"]).stdout).expect("JSON");
    let all = found["findings"].as_array().expect("a list").iter();
    let own: Vec<&Value> = all.filter(|one| one["group"] == "snapshot store").collect();
    assert_eq!((own.len(), &own[0]["status"]), (1, &json!("ok")), "{own:?}");
    let (printed, _) = run(&["store", "prune", "--json"]);
    let pruned: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(pruned["marked_packs"], 1, "{pruned}");
    let output = server.command(&["snapshot", "pull", &id]);
    assert_eq!(output.status.code(), Some(0), "it is here under another name");
    remove_all(&server);
    let output = server.command(&["snapshot", "pull", &id]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no snapshot"), "{said}");
}

/// A plan with at most as many faults for each object as the server retries for one request: its
/// requests run at once, so that a plan by number alone could hit one of them each time.
fn bounded(
    plan: impl Fn(&str, &str, u64) -> Fault + Send + 'static,
) -> impl Fn(&str, &str, u64) -> Fault + Send + 'static {
    let counts: Mutex<HashMap<String, (u32, u32)>> = Mutex::default();
    move |method, path, number| {
        let fault = plan(method, path, number);
        let mut counts = counts.lock().expect("no plan panics");
        let (failed, wrong) = counts.entry(path.to_owned()).or_default();
        let (count, most) = match fault {
            Fault::Status500 | Fault::Truncated => (failed, 6),
            Fault::WrongByte => (wrong, 2),
            _ => return fault,
        };
        if *count == most {
            return Fault::None;
        }
        *count += 1;
        fault
    }
}

/// Promises: SS2.
#[test]
fn faults_of_the_store_are_retried_or_reported_and_leave_nothing() {
    let store = Store::s3();
    let mut server = store.server();
    let http = server.http();
    let sandbox = server.sandbox();
    sandbox.says("head -c 40M /dev/urandom >/workspace/noise; echo hello >/workspace/text");
    let id = take(&sandbox, "noise");
    let proxy = store.proxy();
    // Every kind of fault, each time at another place.
    proxy.plan(bounded(|method, _, number| match (method, number % 6) {
        (_, 1) => Fault::Status500,
        (_, 3) => Fault::Delayed(Duration::from_millis(300)),
        ("GET", 5) => Fault::Truncated,
        _ => Fault::None,
    }));
    push(&http, &id);
    remove_all(&server);
    proxy.plan(bounded(|method, path, number| match number % 5 {
        1 => Fault::Status500,
        2 => Fault::Delayed(Duration::from_millis(200)),
        3 if method == "GET" => Fault::Truncated,
        4 if path.contains("/packs/") => Fault::WrongByte,
        _ => Fault::None,
    }));
    pull(&http, &id);
    assert!(proxy.injected() > 8, "{} faults", proxy.injected());
    let copy = server.sandbox_with(&json!({"snapshot": id}));
    let sums = |sandbox: &Sandbox| sandbox.says("cat /workspace/noise /workspace/text | sha256sum");
    assert_eq!(sums(&copy), sums(&sandbox));
    remove_all(&server);

    // A server reads an index object once.
    server.kill();
    server.launch();
    for (place, fault) in [
        ("/index/", Fault::WrongByte),
        ("/packs/", Fault::WrongByte),
        ("/snapshots/", Fault::WrongByte),
        ("/packs/", Fault::Endless),
        ("/snapshots/", Fault::Endless),
        ("list-type", Fault::Endless),
    ] {
        proxy.plan(
            move |method, path, _| {
                if method == "GET" && path.contains(place) { fault } else { Fault::None }
            },
        );
        let refused = http.post(&format!("/v1/store/snapshots/{id}/pull"), &json!({}));
        assert_eq!(refused.status, 502, "{place} {fault:?}: {}", refused.text());
        assert_eq!(refused.error(), "snapshot_store_failed");
        assert_eq!(left(&server), (0, 0), "{place} {fault:?}");
    }
    let memory = process::memory_kib(server.pid());
    assert!(memory < 700 * 1024, "{memory} KiB");
    proxy.plan(|_, _, _| Fault::None);
    pull(&http, &id);
    let log = server.log();
    assert!(!log.contains(SECRET) && !log.contains("FAULTY"), "{log}");
    remove_all(&server);
    server.healthy();
}

/// Promises: SS2.
#[test]
fn a_server_killed_during_a_push_leaves_nothing_visible_and_continues() {
    let store = Store::s3();
    let mut server = store.server();
    let sandbox = server.sandbox();
    sandbox.says("head -c 70M /dev/urandom >/workspace/noise");
    let id = take(&sandbox, "noise");
    let sent =
        |server: &Server| push(&server.http(), &id)["transferred_bytes"].as_u64().expect("it");
    for point in ["push.packed=3*abort", "push.indexed=3*abort", "push.uploaded=abort"] {
        server.stop();
        server.launch_with("ISOLET_FAILPOINTS", point);
        server.wait_until_ready();
        let path = format!("/v1/snapshots/{id}/push");
        assert!(server.http().try_send("POST", &path, None).is_err(), "{point}");
        server.wait();
        server.launch();
        assert!(stored(&server.http()).is_empty(), "{point}");
    }
    let bytes = sent(&server);
    assert!(bytes < 30 * MIB, "{bytes} bytes after packs were sent before");
    remove_all(&server);
    for point in ["pull.begun", "pull.extracted", "snapshot.completed", "snapshot.recorded"] {
        server.stop();
        server.launch_with("ISOLET_FAILPOINTS", &format!("{point}=abort"));
        server.wait_until_ready();
        let path = format!("/v1/store/snapshots/{id}/pull");
        assert!(server.http().try_send("POST", &path, Some(b"{}")).is_err(), "{point}");
        server.wait();
        server.launch();
        let is_recorded = usize::from(point == "snapshot.recorded");
        assert_eq!(left(&server), (0, is_recorded), "{point}");
    }
    assert_eq!(pull(&server.http(), &id)["existed"], true);
    remove_all(&server);
    sandbox.delete();
    server.healthy();
}

/// A clock that was 25 hours ahead made the pack of a push that ran an old one that nobody needs. It was
/// deleted, and the push was acknowledged.
/// Promises: SS4.
#[test]
fn a_prune_with_a_wrong_clock_deletes_nothing_of_a_push_that_runs() {
    let store = Store::s3();
    let mut server = store.server();
    let sandbox = server.sandbox();
    sandbox.says("head -c 3M /dev/urandom >/workspace/noise");
    let sum = sandbox.says("sha256sum /workspace/noise");
    let id = take(&sandbox, "noise");
    server.stop();
    // Its pack is in the store, and in no index yet.
    server.launch_with("ISOLET_FAILPOINTS", "push.packed=delay(10000)");
    server.wait_until_ready();
    let pushing = std::thread::spawn({
        let http = server.http();
        let id = id.clone();
        move || push(&http, &id)
    });
    let (s3, _) = store.s3.as_ref().expect("it is in S3");
    let packs = || s3.keys().iter().filter(|key| key.contains("/packs/")).count();
    wait_until("its pack is sent", LONG, || (packs() > 0).then_some(()));
    let clock = WallClock::new(store.folder.path());
    clock.step(25 * 3600);
    let mut prune = server.program();
    prune.args(["store", "prune", "--json"]).envs(clock.variables());
    let prune =
        prune.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", SECRET).output();
    let prune = prune.expect("isolet starts");
    assert!(prune.status.success(), "{}", String::from_utf8_lossy(&prune.stderr));
    let pruned: Value = serde_json::from_slice(&prune.stdout).expect("JSON");
    assert_eq!(pruned["deleted_packs"], 0, "{pruned}");
    pushing.join().expect("it is pushed");
    server.stop();
    server.launch();
    remove_all(&server);
    pull(&server.http(), &id);
    let copy = server.sandbox_with(&json!({"snapshot": id}));
    assert_eq!(copy.says("sha256sum /workspace/noise"), sum);
    copy.delete();
    remove_all(&server);
}

/// Promises: SS3.
#[test]
fn a_store_is_closed_to_other_tenants_keys_and_files() {
    let store = Store::directory();
    let mut server = store.server();
    let sandbox = server.sandbox();
    sandbox.says("echo canary-content >/workspace/x");
    let id = take(&sandbox, "canary-name");
    push(&server.http(), &id);
    let other = server.add_key(&["--tenant", "other"]);
    let reader = server.add_key(&["--read-only"]);
    let other = server.client(Some(&other));
    assert!(stored(&other).is_empty());
    let at = format!("/v1/store/snapshots/{id}");
    assert_eq!(other.get(&at).expect(404).error(), "no_stored_snapshot");
    other.delete(&at).expect(404);
    other.post(&format!("{at}/pull"), &json!({})).expect(404);
    other.post(&format!("/v1/snapshots/{id}/push"), &Value::Null).expect(404);
    let reader = server.client(Some(&reader));
    assert_eq!(stored(&reader).len(), 1);
    reader.delete(&at).expect(403);
    reader.post(&format!("{at}/pull"), &json!({})).expect(403);
    let found = Command::new("grep").args(["-r", "canary"]).arg(store.objects()).output();
    assert!(found.expect("grep starts").stdout.is_empty(), "names and contents are encrypted");

    // The environment of the server reaches neither the launcher nor sandboxes.
    let environment = fs::read(format!("/proc/{}/environ", server.launcher())).expect("is there");
    assert!(!String::from_utf8_lossy(&environment).contains(SECRET));
    let inside = sandbox.says("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'");
    assert!(!inside.contains(SECRET) && !inside.contains("AWS_"), "{inside}");
    let printed = server.command(&["serve", "--print-config"]);
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains("[store]") && !printed.contains(SECRET), "{printed}");

    // A key file of another repository, and one that others may read.
    let key = store.folder.path().join("key");
    let right = fs::read_to_string(&key).expect("is there");
    let digits = right.trim_end().len();
    fs::write(&key, format!("{}{:064}\n", &right[..digits - 64], 0)).expect("writes");
    server.restart();
    let refused = server.http().get("/v1/store/snapshots").expect(502);
    assert!(
        refused.text().contains("key file is not that of the repository"),
        "{}",
        refused.text()
    );
    fs::write(&key, right).expect("writes");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("is there");
    let refused = server.http().get("/v1/store/snapshots").expect(502);
    assert!(refused.text().contains("chmod 600"), "{}", refused.text());
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("is there");
    assert_eq!(stored(&server.http()).len(), 1);
    remove_all(&server);
}

#[test]
fn calls_without_a_store_or_an_image_say_what_is_missing() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let id = take(&sandbox, "x");
    let refused = server.http().post(&format!("/v1/snapshots/{id}/push"), &Value::Null).expect(501);
    assert_eq!(refused.error(), "no_snapshot_store");
    assert!(refused.text().contains("[store]"), "{}", refused.text());
    for path in ["/v1/store/snapshots".to_owned(), format!("/v1/store/snapshots/{id}")] {
        assert_eq!(server.http().get(&path).expect(501).error(), "no_snapshot_store");
    }
    remove_all(&server);
    drop(sandbox);
    drop(server);

    let store = Store::directory();
    let first = store.server();
    let archive =
        isolet_kit::image::Image::new(&[isolet_kit::image::busybox().bytes()], &json!({}));
    let archive = archive.layout();
    let import = "/v1/images/import?name=local/tools:1";
    first.http().send("POST", import, Some(&archive)).expect(201);
    let sandbox = first.sandbox_with(&json!({"image": "local/tools:1"}));
    sandbox.says("echo kept >/workspace/x");
    let id = take(&sandbox, "with-image");
    push(&first.http(), &id);
    let second = store.server();
    let http = second.http();
    let refused = http.post(&format!("/v1/store/snapshots/{id}/pull"), &json!({})).expect(409);
    assert_eq!(refused.error(), "image_missing");
    assert!(
        refused.text().contains("local/tools:1 (docker.io/local/tools@sha256:"),
        "{}",
        refused.text()
    );
    http.send("POST", import, Some(&archive)).expect(201);
    pull(&http, &id);
    let copy = second.sandbox_with(&json!({"snapshot": id}));
    assert_eq!(copy.says("cat /workspace/x"), "kept\n");
    remove_all(&first);
    remove_all(&second);
    for server in [&first, &second] {
        wait_until("sandboxes are gone", SOON.max(LONG), || {
            for id in server.ids(&server.http()) {
                server.http().delete(&format!("/v1/sandboxes/{id}"));
            }
            server.ids(&server.http()).is_empty().then_some(())
        });
    }
}
