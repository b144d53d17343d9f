//! Images that cost more than their size suggests (I8): too deep to be walked, or too large for
//! memory or disk.

use isolet_kit::hostile::{deep, gzipped, long, plain, repeated};
use isolet_kit::image::{EntryType, Image, Layer, Registry, busybox};
use isolet_kit::{Http, Options, Reply, Rows, SOON, Server, json, wait_until};
use std::fs;
use std::io::Write as _;

/// The number of complete and of staged entries in the layer store.
fn left(server: &Server) -> (usize, usize) {
    let count =
        |name: &str| fs::read_dir(server.data().join("images").join(name)).expect("there").count();
    (count("layers"), count("staging"))
}

/// Waits until nothing is left, because an answer may arrive before the end of the clean-up.
#[track_caller]
fn nothing_left(server: &Server) {
    wait_until("no layer is left, staged or complete", SOON, || {
        (left(server) == (0, 0)).then_some(())
    });
}

fn import(http: &Http, archive: &[u8]) -> Reply {
    http.send("POST", "/v1/images/import?name=local/bad:1", Some(archive))
}

/// The peak memory of the server, in MiB.
fn peak_mib(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is there");
    peak.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

/// Each entry had at most 128 parts, but through symbolic links a layer of 0.5 MB was 15,360
/// directories deep. Removing or merging such a tree recursed on a thread of the runtime: the stack
/// overflowed, and the server crashed.
/// Promises: A5.
#[test]
fn i8_a_layer_too_deep_through_symlinks_is_refused_and_the_server_survives() {
    let registry = Registry::start();
    let host = registry.host();
    let server = Options::new().config(&format!("[images]\nregistries = [\"{host}\"]\n")).start();
    let http = server.http();
    let first = server.pid();
    let mut rows = Rows::new();
    for levels in [129, 3_840, 15_360] {
        let tree = || deep(Layer::new(), levels);
        let wrong = vec![format!("sha256:{}", "a".repeat(64))];
        let other = Image::of_blobs(vec![gzipped(&tree().bytes())], wrong, &json!({}));
        // The lower five layers are merged into one.
        let small = |number: usize| Layer::new().file(&format!("f{number}"), b"x").bytes();
        let low = [tree().bytes(), tree().file("f", b"x").bytes()];
        let many: Vec<_> = low.into_iter().chain((0..26).map(small)).collect();
        for (what, image) in [
            ("alone", Image::new(&[tree().bytes()], &json!({}))),
            ("replaced by a file", Image::new(&[tree().file("a", b"x").bytes()], &json!({}))),
            ("with another digest", other),
            ("below 26 layers", Image::new(&many, &json!({}))),
        ] {
            rows.row(&format!("{levels} levels, {what}"), || {
                let name = registry.has("deep", image);
                let reply = http.post("/v1/images/pull", &json!({"image": name})).expect(413);
                assert!(reply.text().contains("counted through symlinks"), "{}", reply.text());
                http.post("/v1/images/gc", &json!({})).expect(200);
                nothing_left(&server);
            });
        }
    }
    rows.row("128 levels are accepted", || {
        let layer = busybox().directory(&"a/".repeat(40));
        let layer = long(layer, EntryType::Symlink, "near", &"a/".repeat(40));
        let deepest = format!("near/{}", "b/".repeat(88));
        let layer = long(layer, EntryType::Directory, &deepest, "");
        let name = registry.has("deep", Image::new(&[layer.bytes()], &json!({})));
        let sandbox = server.sandbox_with(&json!({"image": name}));
        assert_eq!(sandbox.says(&format!("test -d /{deepest} && echo whole")), "whole\n");
        sandbox.delete();
    });
    drop(rows);
    assert_eq!(server.pid(), first);
    server.healthy();
}

/// 493 KB of zstd once wrote 15 GB into the staging directory; headers without content were not
/// counted; all paths and names were held in memory.
/// Promises: A5.
#[test]
fn i8_an_import_that_grows_is_bounded_in_disk_and_memory() {
    let server = Server::start();
    let http = server.http();
    let mut rows = Rows::new();
    let names = (0..100).fold(Layer::new(), |layer, number| {
        let name = format!("{number}{}", "n".repeat(1_000_000));
        long(layer, EntryType::Regular, &name, "")
    });
    let headers = (0..80_000)
        .fold(Layer::new(), |layer, _| layer.entry(EntryType::XGlobalHeader, "h", "", 0o644, b""));
    for (what, archive, word) in [
        ("a member of 200 MiB", Layer::new().file("a", &vec![0; 200 << 20]), "per compressed byte"),
        ("names of 1 MB", names, "4095 bytes"),
        ("80,000 headers without content", headers, "PAX records"),
    ] {
        rows.row(what, || {
            let reply = import(&http, &gzipped(&archive.bytes())).expect(413);
            assert!(reply.text().contains(word), "{}", reply.text());
            nothing_left(&server);
        });
    }
    drop(rows);
    server.healthy();
}

/// The path of every entry of a directory was once held until the layer's end: 24 MB of input used
/// 2.5 GB. The test uses a separate server, whose peak memory nothing else has raised.
/// Promises: A5.
#[test]
fn long_i8_one_directory_repeated_uses_no_memory() {
    let server = Server::start();
    let http = server.http();
    let archive = plain(vec![repeated(busybox(), 25_000).bytes()]).layout();
    let before = peak_mib(&server);
    import(&http, &archive).expect(201);
    let more = peak_mib(&server) - before;
    assert!(more < 48, "{more} MiB more");
    wait_until("nothing is staged", SOON, || (left(&server).1 == 0).then_some(()));
    server.healthy();
}

/// Promises: A18.
#[test]
fn imports_of_one_tenant_at_once_are_bounded_and_end_with_their_clients() {
    let server = Server::start();
    let http = server.http();
    let begin = || {
        let mut stream = http.connect();
        let head = format!(
            "POST /v1/images/import?name=local/a:1 HTTP/1.1\r\nhost: 127.0.0.1:{}\r\n\
             authorization: Bearer {}\r\ncontent-length: 1000000\r\n\r\n",
            server.port(),
            server.key()
        );
        stream.write_all(head.as_bytes()).expect("sends");
        stream
    };
    let staged = |count: usize| {
        wait_until("the imports are staged", SOON, || (left(&server).1 == count).then_some(()));
    };
    let under_way: Vec<_> = (0..8).map(|_| begin()).collect();
    staged(8);
    let archive = plain(vec![busybox().bytes()]).layout();
    assert_eq!(import(&http, &archive).expect(429).error(), "too_many_imports");
    drop(under_way);
    staged(0);
    import(&http, &archive).expect(201);
    server.healthy();
}
