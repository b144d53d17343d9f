//! Images that are made from snapshots, and sandboxes that start from them.

use isolet_kit::image::{Image, Layer, busybox};
use isolet_kit::{Http, Options, SOON, Sandbox, Server, Value, json, one, wait_until};

fn take(sandbox: &Sandbox, name: &str) {
    sandbox.post("/snapshots", &json!({"name": name})).expect(201);
}

fn commit(http: &Http, snapshot: &str, name: &str) -> Value {
    http.post("/v1/images", &json!({"snapshot": snapshot, "name": name})).expect(201).json()
}

fn names(http: &Http) -> Vec<String> {
    let all = http.get("/v1/images").expect(200).json();
    let all = all.as_array().expect("a list").iter();
    all.flat_map(|one| one["names"].as_array().cloned().unwrap_or_default())
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect()
}

/// The names in a directory of the images, sorted.
fn below_images(server: &Server, directory: &str) -> Vec<String> {
    let all = std::fs::read_dir(server.data().join("images").join(directory)).expect("reads");
    let mut all: Vec<_> =
        all.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all
}

/// Changes of every kind: new files, changed and deleted ones, a replaced directory, owners, links.
const CHANGES: &str = "set -e; echo tool >/usr/local/bin/tool; chmod 755 /usr/local/bin/tool; \
    rm /usr/bin/env; rm -r /usr/share/perl5; mkdir /usr/share/perl5; echo own >/usr/share/perl5/own; \
    echo changed >/etc/debian_version; rm /etc/protocols; mkdir -p /opt/a/b; echo x >/opt/a/b/c; \
    ln /opt/a/b/c /opt/hard; ln -s /etc/shadow /opt/soft; chmod 4755 /opt/a/b/c; \
    chown 1000:1000 /opt/a; echo token >/root/.netrc; echo 10.0.0.1 own >>/etc/hosts; \
    mkdir -p /workspace/project; echo main >/workspace/project/main; \
    chown -R 1000:1000 /workspace/project; ln -s /etc/passwd /workspace/link; \
    touch /opt/.wh.wrong; mkfifo /opt/pipe; mknod /workspace/white c 0 0 || true";

const LOOK: &str = "cat /usr/local/bin/tool; ls /usr/bin/env /etc/protocols 2>/dev/null; \
    ls /usr/share/perl5; cat /etc/debian_version /opt/a/b/c; stat -c '%h %a' /opt/hard; \
    readlink /opt/soft; stat -c %u /opt/a; cat /root/.netrc; grep -c own /etc/hosts; \
    cat /workspace/project/main; stat -c %u:%g /workspace/project/main; readlink /workspace/link; \
    ls -A /opt; test -e /workspace/white || echo none; \
    mv /workspace/project /workspace/moved && echo moved";
const SEEN: &str = "tool\nown\nchanged\nx\n2 4755\n/etc/shadow\n1000\ntoken\n0\nmain\n1000:1000\n\
    /etc/passwd\na\nhard\npipe\nsoft\nnone\nmoved\n";

fn an_image_of_host_programs(disk_mib: u64) {
    let server = Server::start();
    let http = server.http();
    let sandbox = server.sandbox_with(&json!({"disk_mib": disk_mib, "env": {"SECRET": "env"}}));
    let done = sandbox.command("dev", &format!("({CHANGES}); LEFT=shell"));
    assert_eq!(done["exit_code"], 0, "{done}");
    take(&sandbox, "ready");
    let made = commit(&http, "ready", "tools");
    assert_eq!(made["name"], "docker.io/library/tools:latest");
    assert_eq!((&made["source"], &made["owner"]), (&json!("snapshot"), &json!("default")));
    assert_eq!((&made["on_host"], &made["workspace"]), (&json!(true), &json!(true)));
    assert!(made["skipped"].as_u64().is_some_and(|count| count >= 1), "{made}");
    let warned = json!([{"path": "/root/.netrc", "kind": "credentials"}]);
    assert_eq!((&made["warnings"], &made["warnings_total"]), (&warned, &json!(1)));
    sandbox.delete();
    http.delete("/v1/snapshots/ready").expect(200);
    let copy = server.sandbox_with(&json!({"image": "tools", "disk_mib": disk_mib}));
    assert_eq!(copy.info()["image"], "tools");
    assert_eq!(copy.says(LOOK), SEEN);
    let left_out = copy.command("dev", "echo $SECRET$LEFT; type env 2>&1 | head -1; pwd");
    assert_eq!(left_out["stdout"].as_str().map(|text| text.lines().count()), Some(3));
    assert!(left_out["stdout"].as_str().is_some_and(|text| text.starts_with('\n')), "{left_out}");
    // One more layer, with a workspace that has less.
    copy.says("rm -r /usr/share/perl5 /opt/a; rm -r /workspace/moved; echo more >/workspace/more");
    take(&copy, "second");
    let second = commit(&http, "second", "tools:2");
    assert_eq!(second["layers"], 2, "{second}");
    copy.delete();
    http.delete("/v1/snapshots/second").expect(200);
    http.delete("/v1/images/tools").expect(204);
    let next = server.sandbox_with(&json!({"image": "tools:2", "disk_mib": disk_mib}));
    let look = "ls -A /workspace /opt; ls -d /usr/share/perl5 2>&1 | grep -c 'No such'; \
                cat /usr/local/bin/tool";
    assert_eq!(next.says(look), "/opt:\nhard\npipe\nsoft\n\n/workspace:\nlink\nmore\n1\ntool\n");
    assert_eq!(http.delete("/v1/images/tools:2").expect(409).error(), "image_in_use");
    // It sleeps and wakes with the same root.
    wait_until("it sleeps", SOON, || (next.post("/sleep", &json!({})).status == 200).then_some(()));
    assert_eq!(next.says("cat /workspace/more /usr/local/bin/tool"), "more\ntool\n");
    next.delete();
    http.delete("/v1/images/tools:2").expect(204);
    assert_eq!(below_images(&server, "layers"), [""; 0]);
    server.healthy();
}

/// Promises: TP1.
#[test]
fn an_image_has_what_its_sandbox_changed_on_a_disk() {
    an_image_of_host_programs(128);
}

/// Promises: TP1.
#[test]
fn an_image_has_what_its_sandbox_changed_without_a_disk() {
    an_image_of_host_programs(0);
}

/// An image with a user, and a file that the sandbox will hide.
fn based() -> Image {
    let programs = ["rm", "ln", "touch", "chown"];
    let with_programs = programs
        .iter()
        .fold(busybox(), |layer, name| layer.link(&format!("bin/{name}"), "busybox"));
    let layer = with_programs
        .directory("etc")
        .file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nann:x:1234:55:Ann:/home/ann:/bin/sh\n")
        .directory("srv/full")
        .file("srv/full/low", b"low")
        .file("srv/kept", b"kept\n");
    let top = Layer::new().directory("opt/app").file("opt/app/rights", b"x");
    let settings =
        json!({"Env": ["FROM_IMAGE=yes", "PATH=/bin"], "WorkingDir": "/opt/app", "User": "root"});
    Image::new(&[layer.bytes(), top.bytes()], &settings)
}

/// Promises: TP1, TP2.
#[test]
fn an_image_on_an_image_keeps_its_layers_and_settings() {
    let server = Server::start();
    let http = server.http();
    let archive = based().layout();
    http.send("POST", "/v1/images/import?name=base:1", Some(&archive)).expect(201);
    let spec = json!({"image": "base:1", "env": {"GIVEN": "1"}});
    let sandbox = server.sandbox_with(&spec);
    sandbox.says(
        "rm -r /srv/full; mkdir /srv/full; echo high >/srv/full/high; echo new >/opt/app/new; \
         echo project >/workspace/a; echo x >/workspace/.bash_history",
    );
    take(&sandbox, "s");
    let body = json!({"snapshot": "s", "name": "made:1", "env": true});
    let once = http.with("idempotency-key", "c1");
    let made = once.post("/v1/images", &body).expect(201);
    let again = once.post("/v1/images", &body).expect(201);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(made.json(), again.json());
    let made = made.json();
    assert_eq!((&made["layers"], &made["on_host"]), (&json!(3), &json!(false)));
    assert_eq!(made["warnings"], json!([{"path": "/workspace/.bash_history", "kind": "history"}]));
    let body = json!({"snapshot": "s", "name": "bare:1", "workspace": false});
    http.post("/v1/images", &body).expect(201);
    http.delete("/v1/images/base:1").expect(409);
    sandbox.delete();
    http.delete("/v1/snapshots/s").expect(200);
    http.delete("/v1/images/base:1").expect(204);
    let copy = server.sandbox_with(&json!({"image": "made:1"}));
    let look = "pwd; echo $FROM_IMAGE $GIVEN; cat new rights; echo; ls /srv /srv/full; \
                cat /workspace/a";
    let seen = "/opt/app\nyes 1\nnew\nx\n/srv:\nfull\nkept\n\n/srv/full:\nhigh\nproject\n";
    assert_eq!(copy.says(look), seen);
    let bare = server.sandbox_with(&json!({"image": "bare:1"}));
    assert_eq!(bare.says("ls -A /workspace; echo $GIVEN; cat new"), "\nnew\n");
    for (body, status, error) in [
        (json!({"snapshot": "none", "name": "a"}), 404, "no_snapshot"),
        (json!({"snapshot": "none", "name": "A b"}), 400, "bad_image"),
        (json!({"snapshot": "none", "name": "host"}), 400, "bad_field"),
        (json!({"snapshot": "none"}), 400, "bad_request"),
    ] {
        let refused = http.post("/v1/images", &body);
        assert_eq!((refused.status, &*refused.error()), (status, error), "{body}");
    }
    server.healthy();
}

/// Promises: TP2.
#[test]
fn an_image_belongs_to_its_tenant() {
    let (mut server, sandbox) = one();
    let other = server.add_key(&["--tenant", "other"]);
    let other = server.client(Some(&other));
    let reader = server.add_key(&["--read-only"]);
    let reader = server.client(Some(&reader));
    let own = server.http();
    sandbox.says("echo default >/opt/whose");
    take(&sandbox, "s");
    let made = commit(&own, "s", "same:1");
    let body = json!({"snapshot": "s", "name": "same:1"});
    assert_eq!(other.post("/v1/images", &body).expect(404).error(), "no_snapshot");
    assert_eq!(reader.post("/v1/images", &body).expect(403).error(), "read_only");
    let digest = made["digest"].as_str().expect("a digest");
    for name in ["same:1".to_owned(), format!("same@{digest}")] {
        assert_eq!(other.get(&format!("/v1/images/{name}")).expect(404).error(), "no_image");
        assert_eq!(other.delete(&format!("/v1/images/{name}")).expect(404).error(), "no_image");
        let create = other.post("/v1/sandboxes", &json!({"image": name}));
        assert!(create.status >= 400, "{}", create.text());
        reader.get(&format!("/v1/images/{name}")).expect(200);
    }
    assert_eq!(other.get("/v1/images").json(), json!([]));
    // The same name is free for another tenant, and stands for its own image.
    other.post("/v1/sandboxes", &json!({"id": "theirs"})).expect(201);
    let write = json!({"command": "echo other >/opt/whose"});
    other.post("/v1/sandboxes/theirs/exec", &write).expect(200);
    other.post("/v1/sandboxes/theirs/snapshots", &json!({"name": "s"})).expect(201);
    let theirs = commit(&other, "s", "same:1");
    assert_ne!(theirs["digest"], made["digest"]);
    assert_eq!(theirs["owner"], "other");
    other.post("/v1/sandboxes", &json!({"id": "copy", "image": "same:1"})).expect(201);
    let read = json!({"command": "cat /opt/whose"});
    let said = other.post("/v1/sandboxes/copy/exec", &read).expect(200).json();
    assert_eq!(said["stdout"], "other\n");
    let copy = server.sandbox_with(&json!({"image": "same:1"}));
    assert_eq!(copy.says("cat /opt/whose"), "default\n");
    for id in ["theirs", "copy"] {
        other.delete(&format!("/v1/sandboxes/{id}"));
    }
    other.delete("/v1/snapshots/s").expect(200);
    assert_eq!(names(&own), ["docker.io/library/same:1"]);
}

/// Restarts the server such that it aborts at a point of this request, and starts it once more.
fn abort_at(server: &mut Server, point: &str, path: &str, body: &Value) {
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", &format!("{point}=abort"));
    server.wait_until_ready();
    let _ = server.http().try_send("POST", path, Some(body.to_string().as_bytes()));
    assert!(!server.wait().success(), "{point}");
    server.launch();
}

/// Promises: TP4.
#[test]
fn an_image_and_a_sandbox_from_it_are_complete_or_leave_nothing() {
    let (mut server, sandbox) = one();
    sandbox.says("echo a >/opt/a; echo b >/workspace/b");
    take(&sandbox, "s");
    let body = json!({"snapshot": "s", "name": "made:1"});
    for point in ["commit.begun", "commit.packed"] {
        abort_at(&mut server, point, "/v1/images", &body);
        let http = server.http();
        assert_eq!(names(&http), [""; 0], "{point}");
        assert_eq!(below_images(&server, "staging"), [""; 0], "{point}");
        http.post("/v1/images/gc", &json!({})).expect(200);
        assert_eq!(below_images(&server, "layers"), [""; 0], "{point}");
    }
    abort_at(&mut server, "commit.recorded", "/v1/images", &body);
    assert_eq!(names(&server.http()), ["docker.io/library/made:1"], "it was complete");
    let again = commit(&server.http(), "s", "made:1");
    assert_eq!(again["names"], json!(["docker.io/library/made:1"]));
    for disk_mib in [0, 64] {
        for point in ["workspace.begun", "workspace.copied", "create.recorded"] {
            let body = json!({"id": "half", "image": "made:1", "disk_mib": disk_mib});
            abort_at(&mut server, point, "/v1/sandboxes", &body);
            wait_until("the half made sandbox is gone", SOON, || {
                (server.http().get("/v1/sandboxes/half").status == 404).then_some(())
            });
        }
    }
    let copy = server.sandbox_with(&json!({"image": "made:1"}));
    assert_eq!(copy.says("cat /opt/a /workspace/b"), "a\nb\n");
    server.healthy();
}

/// Promises: TP4.
#[test]
fn an_image_counts_towards_the_quota_and_a_workspace_must_fit() {
    let server = Options::new().config("[quotas]\nimages_mib = 8\n").start();
    let http = server.http();
    let sandbox = server.sandbox_with(&json!({"disk_mib": 128}));
    sandbox.says("head -c 6000000 /dev/urandom >/workspace/first");
    take(&sandbox, "first");
    sandbox.says("head -c 6000000 /dev/urandom >/workspace/second; rm /workspace/first");
    take(&sandbox, "second");
    commit(&http, "first", "one:1");
    let refused = http.post("/v1/images", &json!({"snapshot": "second", "name": "two:1"}));
    assert_eq!((refused.status, &*refused.error()), (507, "quota_exceeded"));
    assert_eq!(below_images(&server, "layers").len(), 1);
    wait_until("nothing is staged", SOON, || {
        below_images(&server, "staging").is_empty().then_some(())
    });
    let small =
        http.post("/v1/sandboxes", &json!({"image": "one:1", "disk_mib": 32, "id": "small"}));
    if small.status != 201 {
        assert!(small.text().contains("disk_mib"), "{}", small.text());
        http.get("/v1/sandboxes/small").expect(404);
    }
    http.delete("/v1/images/one:1");
    server.healthy();
}

/// Writes an image to a file with the command, and returns what an independent reader finds in it.
fn exported(server: &Server, image: &str, file: &std::path::Path) -> Value {
    let file = file.to_str().expect("a path");
    let done = server.command(&["image", "export", image, file]);
    assert!(done.status.success(), "{done:?}");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/promises/oci_layout.py");
    let read = std::process::Command::new("python3").args([script, file]).output().expect("runs");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    serde_json::from_slice(&read.stdout).expect("JSON")
}

/// Makes the image `made:1` on an image, with a hidden file, a replaced directory and a workspace.
fn made(server: &Server) {
    let http = server.http();
    let archive = based().layout();
    http.send("POST", "/v1/images/import?name=base:1", Some(&archive)).expect(201);
    let sandbox = server.sandbox_with(&json!({"image": "base:1"}));
    let changed = sandbox.command(
        "dev",
        "set -e; rm /srv/kept; rm -r /srv/full; mkdir /srv/full; echo high >/srv/full/high; \
         echo new >/opt/app/new; ln /opt/app/new /opt/app/hard; mkdir /workspace/src; \
         echo main >/workspace/src/main; chown 1234:55 /workspace/src/main",
    );
    assert_eq!(changed["exit_code"], 0, "{changed}");
    let id = sandbox.info()["id"].as_str().expect("an id").to_owned();
    let done = server.command(&["image", "commit", "--sandbox", &id, "made:1"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(http.get("/v1/snapshots").json(), json!({"snapshots": []}));
    sandbox.delete();
}

/// Promises: TP5.
#[test]
fn an_exported_image_is_an_oci_layout_that_another_server_imports() {
    let server = Server::start();
    made(&server);
    let folder = tempfile::tempdir().expect("makes");
    let file = folder.path().join("made.tar");
    let found = exported(&server, "made:1", &file);
    let name = "docker.io/library/made:1";
    assert_eq!(found["annotations"]["org.opencontainers.image.ref.name"], name);
    let config = &found["config"]["config"];
    assert_eq!(config["WorkingDir"], "/opt/app");
    assert_eq!(config["Labels"], json!({"io.isolet.workspace": "true"}));
    assert!(config["Env"].as_array().is_some_and(|env| env.contains(&json!("FROM_IMAGE=yes"))));
    let layers = found["layers"].as_array().expect("layers");
    assert_eq!(layers.len(), 3);
    let top: Vec<&str> =
        layers[2].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    for name in [
        "srv/.wh.kept",
        "srv/full/.wh..wh..opq",
        "srv/full/high",
        "opt/app/hard",
        "workspace/.wh..wh..opq",
        "workspace/src/main",
    ] {
        assert!(top.contains(&name), "{name}: {top:?}");
    }
    wait_until("nothing is left of the export", SOON, || {
        below_images(&server, "staging").is_empty().then_some(())
    });
    let other = Server::start();
    let import = other.command(&["image", "import", file.to_str().expect("a path")]);
    assert!(import.status.success(), "{import:?}");
    for disk_mib in [0, 64] {
        let copy = other.sandbox_with(&json!({"image": "made:1", "disk_mib": disk_mib}));
        let look = "pwd; cat new hard; stat -c %h new; ls /srv /srv/full; cat /workspace/src/main; \
                    stat -c %u:%g /workspace/src/main; touch /workspace/own && echo own";
        let seen = "/opt/app\nnew\nnew\n2\n/srv:\nfull\n\n/srv/full:\nhigh\nmain\n1234:55\nown\n";
        assert_eq!(copy.says(look), seen, "{disk_mib}");
    }
    let missing = server.http().get("/v1/images/export?name=none:1").expect(404);
    assert_eq!(missing.error(), "no_image");
    other.healthy();
    server.healthy();
}

/// Promises: TP5.
#[test]
fn an_export_that_its_client_abandons_leaves_nothing() {
    let server = Server::start();
    made(&server);
    let mut stream = server.http().connect();
    let head = format!(
        "GET /v1/images/export?name=made:1 HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\n\r\n",
        server.port(),
        server.key()
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).expect("writes");
    let mut first = [0; 100];
    std::io::Read::read_exact(&mut stream, &mut first).expect("it is answered");
    assert!(first.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&first));
    drop(stream);
    wait_until("its files are gone", SOON, || {
        below_images(&server, "staging").is_empty().then_some(())
    });
    server.healthy();
}

/// Podman loads and runs an exported image. Needs podman, and takes about 20 s.
///
/// Promises: TP5.
#[test]
#[ignore = "needs podman"]
fn soak_podman_runs_an_exported_image() {
    let server = Server::start();
    made(&server);
    let folder = tempfile::tempdir().expect("makes");
    let file = folder.path().join("made.tar");
    exported(&server, "made:1", &file);
    let podman = |args: &[&str]| {
        let root = folder.path().join("storage");
        let run = folder.path().join("run");
        let done = std::process::Command::new("podman")
            .args(["--storage-driver", "vfs", "--root"])
            .arg(&root)
            .arg("--runroot")
            .arg(&run)
            .args(["--cgroup-manager", "cgroupfs", "--events-backend", "none"])
            .args(args)
            .output()
            .expect("podman starts");
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    podman(&["load", "-i", file.to_str().expect("a path")]);
    let look = "cat /opt/app/new /opt/app/hard /workspace/src/main; ls /srv /srv/full; pwd";
    let run = [
        "run",
        "--rm",
        "--network",
        "none",
        "--ulimit",
        "nofile=1024:1024",
        "--ulimit",
        "nproc=1024:1024",
        "--security-opt",
        "seccomp=unconfined",
        "docker.io/library/made:1",
        "sh",
        "-c",
        look,
    ];
    let seen = "new\nnew\nmain\n/srv:\nfull\n\n/srv/full:\nhigh\n/opt/app\n";
    assert_eq!(podman(&run), seen);
    server.healthy();
}
