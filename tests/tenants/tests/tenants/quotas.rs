//! Quotas: what the sandboxes and the images of one tenant take from the server's disk is limited,
//! and other tenants do not notice.

use isolet_kit::image::{Image, Layer, busybox};
use isolet_kit::{Http, LONG, Options, Sandbox, Server, json, wait_until};

const DISK: &str =
    "[limits]\ndisk_mib = 64\n[quotas]\ndisk_mib = 24\n[tenants.other]\ndisk_mib = 0\n";

fn put(sandbox: &Sandbox, path: &str, body: &[u8]) -> isolet_kit::Reply {
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
