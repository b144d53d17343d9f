//! Malicious images, from registries that fail, on a disk that fills up.

use isolet_kit::hostile::{deep, gzipped, repeated};
use isolet_kit::image::{Image, Layer, Registry, RegistryFault, busybox};
use isolet_kit::{Http, LONG, Options, Rows, SOON, Server, Value, json, wait_until};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MIB: u64 = 1024 * 1024;

/// The number of complete and of staged entries in the layer store.
fn left(server: &Server) -> (usize, usize) {
    let count =
        |name: &str| fs::read_dir(server.data().join("images").join(name)).expect("there").count();
    (count("layers"), count("staging"))
}

/// Runs `work` and returns the lowest number of bytes that were free on the server's disk during
/// it.
fn least_free<R>(server: &Server, work: impl FnOnce() -> R) -> (R, u64) {
    let over = AtomicBool::new(false);
    let data = server.data();
    let look = || {
        let mut least = u64::MAX;
        while !over.load(Ordering::Relaxed) {
            let disk = rustix::fs::statvfs(&data).expect("the disk is there");
            least = least.min(disk.f_bavail * disk.f_frsize);
            std::thread::sleep(Duration::from_millis(1));
        }
        least
    };
    std::thread::scope(|scope| {
        let looking = scope.spawn(look);
        let done = work();
        over.store(true, Ordering::Relaxed);
        (done, looking.join().expect("no panic"))
    })
}

/// Bytes that compress to about a fortieth, which is too little for a decompression bomb.
fn compressible(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let mut number = 4_u64;
    for block in bytes.chunks_mut(512) {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        block[..8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// An import was once written completely, however little of the disk was left.
/// Promises: F12.
#[test]
fn long_f12_imports_at_once_leave_the_disk_above_its_floor() {
    let server = Options::new().config("free_space_floor_mib = 64\n").disk_mib(160).start();
    let http = server.http();
    let large = compressible(50 << 20);
    let unpacked = Layer::new().file("a", &large).bytes();
    let layers = ["a", "b"].map(|name| busybox().file(name, &large).bytes());
    let image = Image::new(&layers, &json!({}));
    let mut rows = Rows::new();
    for (what, archive) in [
        ("a compressed archive", gzipped(&[unpacked.as_slice(), &unpacked].concat())),
        ("an archive as it is", unpacked.clone()),
        ("two layers", image.layout()),
    ] {
        rows.row(what, || {
            let send = || {
                let path = "/v1/images/import?name=local/large:1";
                http.try_send("POST", path, Some(&archive)).map_or(507, |reply| reply.status)
            };
            let (statuses, least) = least_free(&server, || {
                std::thread::scope(|scope| {
                    let all: Vec<_> = (0..4).map(|_| scope.spawn(send)).collect();
                    all.into_iter().map(|one| one.join().expect("no panic")).collect::<Vec<_>>()
                })
            });
            assert!(statuses.contains(&507), "{statuses:?}");
            // Each import has a few MiB on their way to the disk when it checks.
            assert!(least > 48 * MIB, "{} MiB were free", least / MIB);
            wait_until("nothing is staged", LONG, || (left(&server).1 == 0).then_some(()));
            http.post("/v1/images/gc", &json!({})).expect(200);
        });
    }
    drop(rows);
    server.healthy();
}

/// A server that refused a layer at its end once removed the tree by recursion, and every later
/// start tried the same: the server could not start any more.
/// Promises: F22.
#[test]
fn f22_a_start_removes_image_trees_of_any_depth() {
    let mut server = Server::start();
    server.kill();
    let images = server.data().join("images");
    for place in ["staging/0/tree", "layers/old/tree"] {
        let at = images.join(place);
        fs::create_dir_all(&at).expect("makes");
        let dig = "import os, sys\nos.chdir(sys.argv[1])\n\
                   for _ in range(15360): os.mkdir('d'); os.chdir('d')\nopen('leaf', 'w').close()";
        let dug = Command::new("python3").args(["-c", dig]).arg(&at).status();
        assert!(dug.expect("python3 runs").success());
    }
    server.launch();
    assert_eq!(left(&server), (1, 0));
    server.http().post("/v1/images/gc", &json!({})).expect(200);
    assert_eq!(left(&server), (0, 0));
    server.restart();
    server.healthy();
}

/// Promises: A7.
#[test]
fn long_f32_hostile_images_of_a_registry_that_fails_leave_nothing_behind() {
    let registry = Registry::start();
    let host = registry.host();
    let config = format!("[images]\nregistries = [\"{host}\"]\nidle_s = 1\npull_timeout_s = 2\n");
    let mut server = Options::new().config(&config).start();
    let http = server.http();
    let mut rows = Rows::new();
    for (what, layer) in [
        ("deep", deep(busybox(), 3_840).file("a", b"x")),
        ("one directory again and again", repeated(busybox(), 2_000)),
        ("a bomb", busybox().file("zeros", &vec![0; 100 << 20])),
        ("links out", busybox().link("out", "/etc").file("out/x", b"x")),
    ] {
        let name = registry.has("app", Image::new(&[busybox().bytes(), layer.bytes()], &json!({})));
        for fault in [
            RegistryFault::Status(500),
            RegistryFault::Cut,
            RegistryFault::Wrong,
            RegistryFault::Drip,
            RegistryFault::Loop,
            RegistryFault::Endless,
        ] {
            rows.row(&format!("{what}, {fault:?}"), || {
                registry.fault("/blobs/", Some(fault));
                let reply = http.post("/v1/images/pull", &json!({"image": name}));
                assert!((400..600).contains(&reply.status), "{}", reply.status);
                assert!(!reply.error().is_empty(), "{}", reply.text());
                // Work that was in progress when the time was up ends without further action.
                wait_until("nothing is staged", LONG, || (left(&server).1 == 0).then_some(()));
                registry.fault("", None);
                http.post("/v1/images/gc", &json!({})).expect(200);
                assert_eq!(left(&server), (0, 0));
            });
        }
    }
    drop(rows);
    // The short limits are meant for the faults.
    let config = format!("[images]\nregistries = [\"{host}\"]\n");
    fs::write(server.data().with_file_name("isolet.toml"), config).expect("writes");
    server.restart();
    let name = registry.has("app", Image::new(&[busybox().bytes()], &json!({})));
    http.post("/v1/images/pull", &json!({"image": name})).expect(200);
    let sandbox = server.sandbox_with(&json!({"image": name}));
    assert_eq!(sandbox.says("echo well"), "well\n");
    server.healthy();
}

/// Two layers that a registry sent byte by byte once occupied both unpacking threads and the locks
/// of these layers: no other tenant could get an image for half an hour.
/// Promises: A17.
#[test]
fn f32_a_slow_registry_delays_only_the_tenant_that_uses_it() {
    let registry = Registry::start();
    let host = registry.host();
    let config = format!("[images]\nregistries = [\"{host}\"]\n");
    let mut server = Options::new().config(&config).start();
    let key = server.add_key(&["--tenant", "other"]);
    let other = Http::new(server.port(), Some(&key));
    let layer = |what: &str| busybox().file(what, what.as_bytes()).bytes();
    let slow = Image::new(&["a", "b"].map(layer), &json!({}));
    let manifest: Value = serde_json::from_slice(&slow.manifest).expect("a manifest");
    let blobs = manifest["layers"].as_array().expect("layers").iter();
    let blobs: Vec<_> = blobs.map(|layer| layer["digest"].as_str().expect("a digest")).collect();
    registry.fault(&blobs.join("|"), Some(RegistryFault::Drip));
    let name = registry.has("slow", slow.clone());
    let mut pull = server.http().events("/v1/images/pull", &json!({"image": name}));
    wait_until("both layers are requested", SOON, || {
        let event = pull.event().expect("the pull goes on");
        let now: Value = serde_json::from_str(&event.data).expect("JSON");
        let coming = now["layers"].as_array()?.iter().filter(|one| one["done"] != json!(0)).count();
        (coming == 2).then_some(())
    });
    let mut rows = Rows::new();
    for (what, image) in [
        ("other layers", Image::new(&["c", "d"].map(layer), &json!({}))),
        ("the same layers", slow),
    ] {
        rows.row(what, || {
            let path = "/v1/images/import?name=local/app:1";
            // The registry would continue for hours.
            other.send("POST", path, Some(&image.layout())).expect(201);
        });
    }
    drop(rows);
    drop(pull);
    registry.fault("", None);
    other.delete("/v1/images/local/app:1").expect(204);
    server.healthy();
}
