//! Malicious or broken images and registries: each is refused with a reason, leaves nothing
//! half-made, and reaches nothing outside.

use isolet_kit::docker::INDEX;
use isolet_kit::image::{EntryType, Image, Layer, Registry, RegistryFault, busybox, digest};
use isolet_kit::{Options, Rows, SOON, Server, json, wait_until};

fn asking(registry: &Registry, more: &str) -> Server {
    let host = registry.host();
    Options::new().config(&format!("[images]\nregistries = [\"{host}\"]\n{more}")).start()
}

/// The number of complete and of staged entries in the layer store.
fn left(server: &Server) -> (usize, usize) {
    let count = |name: &str| {
        std::fs::read_dir(server.data().join("images").join(name)).expect("there").count()
    };
    (count("layers"), count("staging"))
}

/// Waits until nothing is left, because an answer may arrive before the end of the clean-up.
#[track_caller]
fn nothing_left(server: &Server) {
    wait_until("no layer is left, staged or complete", SOON, || {
        (left(server) == (0, 0)).then_some(())
    });
}

fn bad_layers() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let with =
        |kind, path: &str, link: &str| Layer::new().entry(kind, path, link, 0o644, b"").bytes();
    let mut lies = Layer::new().file("a", &[7; 600]).bytes();
    lies.truncate(700);
    // A header that announces a file of 1 PiB without content.
    let mut huge = Layer::new().file("a", b"").bytes();
    huge[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0]);
    let sum: u32 = huge[..512]
        .iter()
        .enumerate()
        .map(|(at, b)| u32::from(if (148..156).contains(&at) { b' ' } else { *b }))
        .sum();
    huge[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut name =
        Layer::new().entry(EntryType::XHeader, "x", "", 0o644, b"999999999 path=a\n").bytes();
    name.extend([0; 1024]);
    vec![
        ("../x", with(EntryType::Regular, "../x", ""), "leads out"),
        ("a/../../x", with(EntryType::Regular, "a/../../x", ""), "leads out"),
        ("a whiteout of ..", with(EntryType::Regular, "a/.wh...", ""), "no name"),
        ("a hard link outside", with(EntryType::Link, "a", "../../etc/passwd"), "leads out"),
        ("a hard link to a lower layer", with(EntryType::Link, "a", "etc/passwd"), "hard link"),
        ("a sparse file", with(EntryType::GNUSparse, "a", ""), "sparse"),
        ("one cut off", lies, "cut off"),
        ("1 PiB", huge, "more than"),
        ("a PAX record that lies", name, "PAX"),
        ("no tar at all", vec![b'x'; 4096], "tar"),
    ]
}

/// Promises: A5.
#[test]
fn i8_a_malicious_layer_is_refused_and_leaves_nothing() {
    let registry = Registry::start();
    let server = asking(&registry, "");
    let http = server.http();
    let mut rows = Rows::new();
    for (what, layer, word) in bad_layers() {
        rows.row(what, || {
            let name = registry.has("bad", Image::new(&[layer], &json!({})));
            let reply = http.post("/v1/images/pull", &json!({"image": name}));
            assert!(matches!(reply.status, 413 | 422), "{} {}", reply.status, reply.text());
            assert!(reply.text().contains(word), "{}", reply.text());
            nothing_left(&server);
        });
    }
    rows.row("a bomb", || {
        let zeros = vec![0; 200 << 20];
        let name =
            registry.has("bad", Image::new(&[Layer::new().file("a", &zeros).bytes()], &json!({})));
        let reply = http.post("/v1/images/pull", &json!({"image": name})).expect(413);
        assert!(reply.text().contains("per compressed byte"), "{}", reply.text());
        nothing_left(&server);
    });
    drop(rows);
    server.healthy();
}

/// Promises: A5.
#[test]
fn i8_e19_e20_links_devices_and_mode_bits_of_an_image_reach_nothing() {
    let secret = std::env::temp_dir().join(format!("isolet-outside-{}", std::process::id()));
    std::fs::write(&secret, "outside").expect("writes");
    let outside = secret.display().to_string();
    let registry = Registry::start();
    let layer = busybox().link("out", &outside).file("out/x", b"through a link to a file").bytes();
    let server = asking(&registry, "");
    let http = server.http();
    let name = registry.has("through", Image::new(&[layer], &json!({})));
    http.post("/v1/images/pull", &json!({"image": name})).expect(422);
    assert_eq!(std::fs::read_to_string(&secret).expect("there"), "outside");
    std::fs::remove_file(&secret).expect("removes");

    let layer = busybox()
        .link("proc", "/etc")
        .file("sys", b"a file")
        .link("dev", "/bin")
        .link("workspace", "/etc")
        .link("tmp", "/nowhere/at/all")
        .directory("etc")
        .link("etc/hosts", "/bin/busybox")
        .link("to", "/tmp")
        .entry(EntryType::Char, "null", "", 0o666, b"")
        .entry(EntryType::Block, "disk", "", 0o666, b"")
        .entry(EntryType::Regular, "bits", "", 0o6755, b"#!/bin/sh\n")
        .file("twice", b"first")
        .link("twice", "/bin/busybox")
        .file("twice", b"second\n")
        .bytes();
    let name = registry.has("links", Image::new(&[layer], &json!({})));
    let sandbox = server.sandbox_with(&json!({"image": name}));
    let said = sandbox.says("cat /proc/self/comm; stat -c %F /proc /sys /dev /workspace /tmp; cat /sys/nothing 2>/dev/null; echo x >/dev/null; cat /twice; stat -c %a /bits; ls / | cat");
    let names: Vec<&str> = said.lines().collect();
    assert_eq!(
        names[..8],
        ["cat", "directory", "directory", "directory", "directory", "directory", "second", "6755"],
        "{said}"
    );
    assert!(!names.contains(&"null") && !names.contains(&"disk"), "{said}");
    assert_eq!(http.get(&format!("/v1/images/{name}")).json()["skipped"], 2);
    let twice = sandbox.says("cat /proc/mounts; sleep 0; readlink /proc/self/ns/mnt");
    assert!(twice.contains("/proc proc rw"), "{twice}");
    server.healthy();
}

/// Promises: A6.
#[test]
fn i9_a_malicious_manifest_or_configuration_is_refused_with_a_reason() {
    let registry = Registry::start();
    let server = asking(&registry, "");
    let http = server.http();
    let mut rows = Rows::new();
    let long = "x".repeat(900_000);
    for (settings, word) in [
        (json!({"WorkingDir": "/proc/self/fd/7"}), "kernel"),
        (json!({"WorkingDir": "/a/../.."}), "leads out"),
        (json!({"User": "../.."}), "/etc/passwd"),
        (json!({"User": "nobody-here"}), "/etc/passwd"),
        (json!({"User": "0:none"}), "/etc/group"),
        (json!({"User": "4294967295"}), "65533"),
        (json!({"Env": [format!("A={long}")]}), "more than"),
    ] {
        rows.row(word, || {
            let name = registry.has("bad", Image::new(&[busybox().bytes()], &settings));
            let reply = http.post("/v1/sandboxes", &json!({"image": name}));
            assert!(matches!(reply.status, 413 | 422), "{} {}", reply.status, reply.text());
            assert!(reply.text().contains(word), "{}", reply.text());
        });
    }
    let mut refused = |what: &str, manifest: Vec<u8>, word: &str| {
        rows.row(what, || {
            let mut image = Image::new(&[busybox().bytes()], &json!({}));
            image.digest = digest(&manifest);
            image.manifest = manifest;
            let name = registry.has("bad", image);
            let reply = http.post("/v1/images/pull", &json!({"image": name}));
            assert!(matches!(reply.status, 413 | 422), "{} {}", reply.status, reply.text());
            assert!(reply.text().contains(word), "{}", reply.text());
        });
    };
    refused("5 MiB", vec![b' '; 5 << 20], "4194304");
    refused("no JSON", b"<html>".to_vec(), "cannot be parsed");
    let part = |size: u64| {
        let digest = "a".repeat(64);
        json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": format!("sha256:{digest}"), "size": size})
    };
    let config = json!({"mediaType": "application/vnd.oci.image.config.v1+json", "digest": part(1)["digest"], "size": 100 << 20});
    let whole = json!({"schemaVersion": 2, "config": config, "layers": [part(1)]});
    refused("a configuration of 100 MiB", whole.to_string().into_bytes(), "1 MiB");
    let layers = vec![part(1); 20_000];
    let config = json!({"mediaType": "application/vnd.oci.image.config.v1+json", "digest": part(1)["digest"], "size": 1});
    let whole = json!({"schemaVersion": 2, "config": config, "layers": layers});
    refused("20,000 layers", whole.to_string().into_bytes(), "256");
    rows.row("an index of an index, and so on", || {
        let mut image = Image::new(&[busybox().bytes()], &json!({}));
        for _ in 0..4 {
            let part = json!({"mediaType": INDEX, "digest": image.digest, "size": image.manifest.len(),
                "platform": {"os": "linux", "architecture": "amd64"}});
            let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [part]});
            let inner = std::mem::replace(&mut image.manifest, index.to_string().into_bytes());
            let known = std::mem::replace(&mut image.digest, digest(&image.manifest));
            image.blobs.insert(known, inner);
        }
        let name = registry.has("bad", image);
        let reply = http.post("/v1/images/pull", &json!({"image": name}));
        assert_eq!(reply.status, 422, "{}", reply.text());
        assert!(reply.text().contains("only to further indexes"), "{}", reply.text());
    });
    drop(rows);
    let other = server.http().post("/v1/sandboxes", &json!({"image": "localhost:1/x"})).expect(403);
    assert_eq!(other.error(), "registry_not_asked");
    let other =
        server.http().post("/v1/sandboxes", &json!({"image": "169.254.169.254/x"})).expect(403);
    assert_eq!(other.error(), "registry_not_asked");
    server.healthy();
}

/// An image whose `WorkingDir` was below `/etc/isolet`, or below a link into a kernel filesystem,
/// was once accepted, and every create from it failed with 500.
/// Promises: A16.
#[test]
fn i9_an_image_whose_working_directory_cannot_be_created_is_refused() {
    let registry = Registry::start();
    let server = asking(&registry, "");
    let http = server.http();
    let mut rows = Rows::new();
    let layer = || {
        busybox()
            .directory("etc")
            .link("own", "/etc/isolet")
            .link("kernel", "/proc")
            .link("devices", "dev")
            .link("lost", "/nowhere/at/all")
            .link("loop", "/loop")
            .link("away", "/opt/there")
            .directory("opt/there")
            .bytes()
    };
    for (cwd, well) in [
        ("/etc/isolet", false),
        ("/etc/isolet/x", false),
        ("/own/x", false),
        ("/kernel/x", false),
        ("/kernel", false),
        ("/devices/x", false),
        ("/lost", false),
        ("/lost/x", false),
        ("/loop/x", false),
        ("/etc/hosts/x", false),
        ("/away/lost/x", true),
        ("/away/x", true),
        ("/etc/x", true),
        ("/tmp/x", true),
        ("/run/x", true),
        ("/home/x", true),
        ("/root/x", true),
        ("/var/tmp/x", true),
        ("/workspace/x", true),
    ] {
        rows.row(cwd, || {
            let name = registry.has("cwd", Image::new(&[layer()], &json!({"WorkingDir": cwd})));
            let reply = http.post("/v1/images/pull", &json!({"image": name}));
            assert_eq!(reply.status, if well { 200 } else { 422 }, "{}", reply.text());
            if !well {
                assert!(reply.text().contains(cwd), "{}", reply.text());
                return;
            }
            let sandbox = server.sandbox_with(&json!({"image": name}));
            let at = cwd.replace("/away", "/opt/there");
            assert_eq!(sandbox.says("readlink /proc/self/cwd"), format!("{at}\n"));
            sandbox.delete();
        });
    }
    drop(rows);
    server.healthy();
}

/// Promises: A7.
#[test]
fn f32_a_registry_that_fails_is_bounded_and_the_next_pull_is_clean() {
    let registry = Registry::start();
    let name = registry.has("app", Image::new(&[busybox().bytes()], &json!({})));
    let server = asking(&registry, "");
    let http = server.http();
    let mut rows = Rows::new();
    for (part, fault, statuses) in [
        ("/manifests/", RegistryFault::Status(500), &[502][..]),
        ("/blobs/", RegistryFault::Status(429), &[502][..]),
        ("/blobs/", RegistryFault::Cut, &[422, 502][..]),
        ("/blobs/", RegistryFault::Wrong, &[422][..]),
        ("/blobs/", RegistryFault::Loop, &[422][..]),
        ("/manifests/", RegistryFault::Endless, &[413][..]),
        ("/blobs/", RegistryFault::Endless, &[413][..]),
    ] {
        rows.row(&format!("{fault:?} of {part}"), || {
            registry.fault(part, Some(fault.clone()));
            let reply = http.post("/v1/images/pull", &json!({"image": name}));
            assert!(statuses.contains(&reply.status), "{} {}", reply.status, reply.text());
            nothing_left(&server);
        });
    }
    rows.row("a registry that sends a byte now and then", || {
        let hasty = asking(&registry, "idle_s = 2\npull_timeout_s = 2\n");
        registry.fault("/manifests/", Some(RegistryFault::Drip));
        let reply = hasty.http().post("/v1/images/pull", &json!({"image": name}));
        assert_eq!(reply.status, 504, "{}", reply.text());
        nothing_left(&hasty);
    });
    drop(rows);
    registry.fault("", None);
    http.post("/v1/images/pull", &json!({"image": name})).expect(200);
    let sandbox = server.sandbox_with(&json!({"image": name}));
    assert_eq!(sandbox.says("echo well"), "well\n");
    server.healthy();
}
