//! Quotas: what the sandboxes and the images of one tenant take from the server's disk is limited,
//! and other tenants do not notice.

use isolet_kit::image::{Image, Layer, busybox};
use isolet_kit::{Http, LONG, Options, Reply, SOON, Sandbox, Server, json, wait_until};

const DISK: &str =
    "[limits]\ndisk_mib = 64\n[quotas]\ndisk_mib = 24\n[tenants.other]\ndisk_mib = 0\n";

fn put(sandbox: &Sandbox, path: &str, body: &[u8]) -> Reply {
    sandbox.http.send("PUT", &sandbox.path(&format!("/files/{path}")), Some(body))
}

/// A server with `config`, and a client of another tenant.
fn two_tenants(config: &str) -> (Server, Http) {
    let mut server = Options::new().config(config).start();
    let other = server.add_key(&["--tenant", "other"]);
    let other = Http::new(server.port(), Some(&other));
    (server, other)
}

#[test]
fn a_tenant_at_its_disk_quota_creates_and_uploads_nothing_until_it_deletes() {
    let (server, other) = two_tenants(DISK);
    let sandbox = server.sandbox();
    let fill = sandbox.exec("head -c 40M /dev/urandom >fill; sync fill");
    assert_eq!(fill["exit_code"], 0, "{fill}");
    let refused = wait_until("the files are counted", LONG, || {
        let reply = put(&sandbox, "more", b"x");
        (reply.status == 507).then_some(reply)
    });
    assert_eq!(refused.error(), "quota_exceeded");
    assert!(refused.text().contains("quota of 24 MiB"), "{}", refused.text());
    let create = |http: &Http, id: &str| http.post("/v1/sandboxes", &json!({"id": id}));
    assert_eq!(create(&server.http(), "second").expect(507).error(), "quota_exceeded");
    create(&other, "second").expect(201);
    other.delete("/v1/sandboxes/second").expect(200);
    assert_eq!(sandbox.says("echo alive; head -c 3 fill | wc -c"), "alive\n3\n");
    let unlimited = server.http().post("/v1/sandboxes", &json!({"id": "u", "disk_mib": 0}));
    assert_eq!(unlimited.expect(400).error(), "bad_field");
    // The space comes back when the file system has written the removal.
    sandbox.exec("rm fill; sync -f .; fstrim . 2>/dev/null; true");
    wait_until("the removal is counted", LONG, || {
        (put(&sandbox, "more", b"x").status < 300).then_some(())
    });
    create(&server.http(), "second").expect(201);
    server.http().delete("/v1/sandboxes/second").expect(200);
    sandbox.delete();
    server.healthy();
}

/// Uploads for builds once did not count. Clients cannot delete them, so that they make room.
#[test]
fn uploads_for_builds_count_until_the_tenant_needs_their_space() {
    let (server, other) = two_tenants(DISK);
    let upload = |http: &Http, letter: &str, bytes: usize| {
        let archive = Layer::new().file("a", &vec![7; bytes]).bytes();
        let path = format!("/v1/images/builds/files/{}", letter.repeat(64));
        http.send("PUT", &path, Some(&archive))
    };
    for http in [&server.http(), &other] {
        assert_eq!(upload(http, "a", 30 << 20).status, 200);
    }
    let refused = wait_until("the upload is counted", LONG, || {
        let reply = upload(&server.http(), "b", 1);
        (reply.status != 200).then_some(reply)
    });
    assert_eq!(refused.expect(507).error(), "quota_exceeded");
    wait_until("it has made room", LONG, || {
        (upload(&server.http(), "c", 1).status == 200).then_some(())
    });
    let present = |http: &Http| {
        let path = format!("/v1/images/builds/files/{}", "a".repeat(64));
        http.get(&path).expect(200).json()["present"].clone()
    };
    assert_eq!(present(&server.http()), false);
    assert_eq!(present(&other), true, "another tenant keeps its own");
}

#[test]
fn images_count_by_the_unpacked_bytes_of_their_layers() {
    let (server, other) =
        two_tenants("[quotas]\nimages_mib = 8\n[tenants.other]\nimages_mib = 0\n");
    let base = busybox().bytes();
    let image = |mib: usize, name: &str| {
        let content = vec![b'x'; mib << 20];
        let own = Layer::new().file("own", &content).file("name", name.as_bytes()).bytes();
        Image::new(&[base.clone(), own], &json!({})).layout()
    };
    let import = |http: &Http, archive: &[u8], name: &str| {
        http.send("POST", &format!("/v1/images/import?name=local/{name}:1"), Some(archive))
    };
    let http = server.http();
    import(&http, &image(1, "small"), "small").expect(201);
    // The common layer counts once.
    import(&http, &image(1, "second"), "second").expect(201);
    let large = image(9, "large");
    let refused = import(&http, &large, "large").expect(507);
    assert_eq!(refused.error(), "quota_exceeded");
    assert!(refused.text().contains("quota of 8 MiB"), "{}", refused.text());
    import(&other, &large, "large").expect(201);
    let layers = std::fs::read_dir(server.data().join("images/layers")).expect("reads").count();
    assert_eq!(layers, 4, "the base and three others; nothing is left of the refused one");
    http.delete("/v1/images/local/small:1").expect(204);
    import(&http, &image(3, "third"), "third").expect(201);
    server.healthy();
}

#[test]
fn a_sandbox_has_a_limited_disk_by_default_and_an_earlier_one_stays_as_it_is() {
    // The server is started without a default, as before there was one.
    let mut server = Server::start();
    let before = server.sandbox();
    before.exec("echo kept >/workspace/f");
    assert_eq!(before.info()["disk_mib"], 0);
    server.stop();
    server.launch_with("ISOLET_DEFAULT_DISK_MIB", "10240");
    server.wait_until_ready();
    let before = server.named(&before.id);
    assert_eq!(before.says("cat f"), "kept\n");
    before.post("/sleep", &json!({})).expect(200);
    assert_eq!(before.says("cat f"), "kept\n", "it wakes on its own files");
    assert_eq!(before.info()["disk_mib"], 0);
    let limited = server.sandbox();
    assert_eq!(limited.info()["disk_mib"], 10_240);
    let size = limited.says("df -k --output=size /workspace | tail -1");
    let size_kib: u64 = size.trim().parse().expect("a number");
    assert!((9_500_000..=10_485_760).contains(&size_kib), "{size_kib}");
    limited.exec("echo kept >f");
    limited.post("/sleep", &json!({})).expect(200);
    assert_eq!(limited.says("cat f"), "kept\n");
    limited.delete();
    before.delete();
    server.healthy();
}

fn asleep(sandbox: &Sandbox) {
    wait_until("it sleeps", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
}

/// Sandboxes without a disk that are older than the quota do not count, but the layers that they share
/// with snapshots do: each once, and not again in the size of a snapshot.
#[test]
fn layers_of_snapshots_count_once_and_a_tenant_at_its_quota_takes_no_snapshot() {
    let mut server = Options::new().config("[limits]\ndisk_mib = 64\n").start();
    if server.http().get("/health").json()["storage"] != "layers" {
        println!("skipped: the data directory does not use layers");
        return;
    }
    let http = server.http();
    let sandbox = server.sandbox_with(&json!({"disk_mib": 0}));
    let take = |name: &str| sandbox.post("/snapshots", &json!({"name": name})).expect(201).json();
    sandbox.exec("head -c 16M /dev/urandom >/opt/shared; mkdir -p /opt/empty");
    asleep(&sandbox);
    // Three snapshots and a sandbox share the layer with the 16 MiB.
    let moved = take("one");
    assert!(moved["size_bytes"].as_u64().is_some_and(|bytes| bytes < 1 << 20), "{moved}");
    take("two");
    let copy = server.sandbox_with(&json!({"snapshot": "one"}));
    assert_eq!(copy.says("wc -c </opt/shared"), "16777216\n");
    // A running sandbox is copied into a layer; the copy of the workspace is the snapshot's own.
    sandbox.exec("head -c 12M /dev/urandom >/opt/own; head -c 2M /dev/urandom >/workspace/own");
    let copied = take("running");
    assert!(copied["size_bytes"].as_u64().is_some_and(|bytes| bytes > 14 << 20), "{copied}");
    let other = server.add_key(&["--tenant", "other"]);
    let other = Http::new(server.port(), Some(&other));
    std::fs::write(server.data().with_file_name("isolet.toml"), DISK).expect("it is written");
    server.restart();
    let refused = wait_until("the layers are counted", LONG, || {
        let reply = put(&sandbox, "more", b"x");
        (reply.status == 507).then_some(reply)
    });
    assert_eq!(refused.error(), "quota_exceeded");
    // 16 + 12 + 2 MiB, and the entries of each directory.
    assert!(refused.text().contains(" 30 MiB"), "{}", refused.text());
    for (path, body) in [
        (sandbox.path("/snapshots"), json!({})),
        (sandbox.path("/fork"), json!({"count": 2})),
        (sandbox.path("/restore"), json!({"snapshot": "one"})),
        ("/v1/sandboxes".to_owned(), json!({"id": "new", "disk_mib": 32})),
    ] {
        assert_eq!(http.post(&path, &body).expect(507).error(), "quota_exceeded", "{path}");
    }
    other.post("/v1/sandboxes", &json!({"id": "second"})).expect(201);
    other.post("/v1/sandboxes/second/snapshots", &json!({"name": "theirs"})).expect(201);
    let all = http.get("/v1/snapshots").expect(200).json();
    assert_eq!(all["snapshots"].as_array().map(Vec::len), Some(3), "{all}");
    assert_eq!(server.snapshot_layers().len(), 3);
    for name in ["two", "running"] {
        http.delete(&format!("/v1/snapshots/{name}")).expect(200);
    }
    wait_until("what was deleted is not counted", LONG, || {
        (put(&sandbox, "more", b"x").status < 300).then_some(())
    });
    other.delete("/v1/snapshots/theirs").expect(200);
    other.delete("/v1/sandboxes/second").expect(200);
    http.delete("/v1/snapshots/one").expect(200);
    assert_eq!(sandbox.says("wc -c </opt/shared"), "16777216\n");
    copy.delete();
    sandbox.delete();
    wait_until("no layer is left", SOON, || server.snapshot_layers().is_empty().then_some(()));
    server.healthy();
}
