//! Snapshots, creations from snapshots and forks on a disk without space or without free inodes, and
//! over files that cannot be read.

use isolet_kit::{Http, Options, Reply, Rows, SOON, Sandbox, Server, json, wait_until};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Files and bytes of the sandbox that is copied.
const FILES: usize = 600;
const MIB: usize = 24;
/// The most snapshots that any disk of these tests has space for.
const COPIES_MAX: usize = 40;

fn listed(http: &Http) -> Vec<String> {
    let all = http.get("/v1/snapshots").expect(200).json();
    let all = all["snapshots"].as_array().expect("a list").iter();
    all.filter_map(|one| one["id"].as_str().map(str::to_owned)).collect()
}

/// Checks that a request was refused because the disk is full.
#[track_caller]
fn full(reply: &Reply) {
    assert_eq!(reply.status, 507, "{}", reply.text());
    // On a disk that is full to the last block, the records may be the first that do not fit.
    assert!(["no_space", "store_full"].contains(&reply.error().as_str()), "{}", reply.text());
}

/// Checks that exactly the listed snapshots have files, and that these sandboxes are the only ones.
#[track_caller]
fn nothing_else(server: &Server, sandboxes: &[&str]) {
    let http = server.http();
    let count = listed(&http).len();
    wait_until("only listed snapshots have files", SOON, || {
        (server.snapshot_files().len() == count).then_some(())
    });
    let mut ids = server.ids(&http);
    ids.sort();
    assert_eq!(ids, sandboxes);
    server.wait_until_tidy();
}

fn fill(sandbox: &Sandbox) {
    let filled = sandbox.command(
        "dev",
        &format!(
            "mkdir many; for ((i = 0; i < {FILES}; i++)); do echo $i >many/$i; done; \
             head -c {MIB}M /dev/urandom >large; sha1sum large >sum; STATE=here; sync"
        ),
    );
    assert_eq!(filled["exit_code"], 0, "{filled}");
}

#[track_caller]
fn intact(sandbox: &Sandbox) {
    let seen = sandbox.command("dev", "sha1sum -c sum; ls many | wc -l; echo $STATE");
    assert_eq!(seen["stdout"], format!("large: OK\n{FILES}\nhere\n"), "{seen}");
}

/// Takes snapshots until one is refused, tries everything else then, and makes space again.
fn until_full(options: Options, disk_mib: u64) {
    let server = options.start();
    let http = server.http();
    let sandbox = server.sandbox_with(&json!({"id": "one", "disk_mib": disk_mib}));
    let other = server.sandbox_with(&json!({"id": "other"}));
    fill(&sandbox);
    other.command("dev", "STATE=other; echo kept >/workspace/kept");
    let take = || sandbox.post("/snapshots", &json!({}));
    let mut rows = Rows::new();
    rows.row("snapshots", || {
        let refused =
            (0..COPIES_MAX).find_map(|_| Some(take()).filter(|reply| reply.status != 201));
        full(&refused.expect("the disk has an end"));
        assert!(!listed(&http).is_empty(), "not even one fits");
        nothing_else(&server, &["one", "other"]);
    });
    rows.row("a creation from a snapshot", || {
        let from = &listed(&http)[0];
        let create = |n: usize| {
            let spec = json!({"id": format!("new{n}"), "snapshot": from});
            http.post("/v1/sandboxes", &spec)
        };
        // Where copies share blocks with the original, some fit.
        let refused =
            (0..COPIES_MAX).find_map(|n| Some((n, create(n))).filter(|(_, one)| one.status != 201));
        let (n, reply) = refused.expect("the disk has an end");
        full(&reply);
        assert_eq!(http.get(&format!("/v1/sandboxes/new{n}")).status, 404);
        for n in 0..n {
            server.named(&format!("new{n}")).delete();
        }
        nothing_else(&server, &["one", "other"]);
    });
    rows.row("a fork", || {
        let reply = sandbox.post("/fork", &json!({"count": 20}));
        full(&reply);
        nothing_else(&server, &["one", "other"]);
    });
    rows.row("a restore in place", || {
        let from = &listed(&http)[0];
        let reply = sandbox.post("/restore", &json!({"snapshot": from}));
        // Where copies share blocks with the original, it fits.
        if reply.status != 200 {
            full(&reply);
        }
        nothing_else(&server, &["one", "other"]);
    });
    rows.row("both sandboxes continue", || {
        intact(&sandbox);
        assert_eq!(other.command("dev", "echo $STATE; cat kept")["stdout"], "other\nkept\n");
    });
    rows.row("after a deletion there is space", || {
        for id in listed(&http) {
            http.delete(&format!("/v1/snapshots/{id}")).expect(200);
        }
        nothing_else(&server, &["one", "other"]);
        let taken =
            wait_until("space is free", SOON, || Some(take()).filter(|one| one.status == 201));
        let copy = server.sandbox_with(&json!({"snapshot": taken.json()["id"]}));
        intact(&copy);
        copy.delete();
        nothing_else(&server, &["one", "other"]);
    });
    drop(rows);
    server.healthy();
}

fn with_floor(mib: usize) -> Options {
    Options::new().config(&format!("free_space_floor_mib = {mib}\n"))
}

/// Promises: SN21.
#[test]
fn a_snapshot_on_a_disk_without_space_fails_and_leaves_nothing() {
    until_full(with_floor(0).loop_disk("ext4", 160, &[]), 0);
}

/// Promises: SN21.
#[test]
fn a_snapshot_on_a_disk_with_less_space_than_its_floor_fails_and_leaves_nothing() {
    until_full(with_floor(16).loop_disk("ext4", 160, &[]), 0);
}

/// Promises: SN21.
#[test]
fn a_snapshot_of_a_disk_on_a_disk_without_space_fails_and_leaves_nothing() {
    until_full(with_floor(0).loop_disk("ext4", 160, &[]), 64);
}

/// Promises: SN21.
#[test]
fn a_snapshot_without_free_inodes_fails_and_leaves_nothing() {
    until_full(with_floor(0).loop_disk("ext4", 400, &["-N", "3000"]), 0);
}

/// Where copies share blocks with the original, any number fits until other files fill the disk. Then
/// each operation has all files, by reference, or is refused and leaves nothing.
fn by_reference_until_full(options: Options, disk_mib: u64) {
    let server = options.start();
    let http = server.http();
    let sandbox = server.sandbox_with(&json!({"id": "one", "disk_mib": disk_mib}));
    fill(&sandbox);
    // Together many times the size of the disk.
    for _ in 0..COPIES_MAX {
        sandbox.post("/snapshots", &json!({})).expect(201);
    }
    for id in listed(&http).iter().skip(2) {
        http.delete(&format!("/v1/snapshots/{id}")).expect(200);
    }
    nothing_else(&server, &["one"]);
    let kept = listed(&http);
    let mut rows = Rows::new();
    // How much is free when an operation begins: what each takes lies in between.
    for free_kib in [0, 64, 256, 512, 1024, 2048, 4096, 16_384] {
        let ballast = server.data().join("ballast");
        rows.row(&format!("{free_kib} KiB are free"), || {
            fill_disk(&ballast, free_kib);
            let mut done = Vec::new();
            let taken = sandbox.post("/snapshots", &json!({}));
            done.push(("a snapshot", taken.status));
            if taken.status != 201 {
                full(&taken);
            }
            let created = http.post("/v1/sandboxes", &json!({"id": "new", "snapshot": kept[0]}));
            done.push(("a sandbox from a snapshot", created.status));
            if created.status != 201 {
                full(&created);
                http.get("/v1/sandboxes/new").expect(404);
            }
            let forked = sandbox.post("/fork", &json!({"count": 2}));
            done.push(("a fork", forked.status));
            if forked.status != 201 {
                full(&forked);
            }
            println!("{free_kib} KiB: {done:?}");
            fs::remove_file(&ballast).expect("it is removed");
            if taken.status == 201 {
                let id = taken.json()["id"].clone();
                let copy = server.sandbox_with(&json!({"id": "copy", "snapshot": id}));
                intact(&copy);
                copy.delete();
                let id = id.as_str().expect("an id");
                http.delete(&format!("/v1/snapshots/{id}")).expect(200);
            }
            for id in server.ids(&http).into_iter().filter(|id| id != "one") {
                let copy = server.named(&id);
                intact(&copy);
                copy.delete();
            }
            intact(&sandbox);
            assert_eq!(listed(&http), kept);
            nothing_else(&server, &["one"]);
        });
    }
    drop(rows);
    server.healthy();
}

/// Fills the disk with one file until only this number of KiB is free.
fn fill_disk(file: &Path, free_kib: u64) {
    let free = || {
        let disk = rustix::fs::statvfs(file.parent().expect("a directory")).expect("it is there");
        disk.f_bavail * disk.f_frsize / 1024
    };
    let mut out = File::create(file).expect("it is created");
    let block = vec![0x5a_u8; 16 * 1024];
    while free() > free_kib {
        let written = out.write_all(&block).and_then(|()| out.sync_all());
        if written.is_err() {
            break;
        }
        // In large steps while much is free.
        let more = free().saturating_sub(free_kib + 4096) / 16;
        for _ in 0..more {
            if out.write_all(&block).is_err() {
                break;
            }
        }
    }
}

/// Promises: SN21.
#[test]
#[ignore = "needs xfsprogs: make soak"]
fn soak_a_snapshot_on_a_full_xfs_has_all_files_or_fails_and_leaves_nothing() {
    for disk_mib in [0, 64] {
        by_reference_until_full(with_floor(0).loop_disk("xfs", 320, &[]), disk_mib);
    }
}

/// The directory of the only sandbox.
fn directory(server: &Server) -> PathBuf {
    let mut all = fs::read_dir(server.data().join("sandboxes")).expect("is there").flatten();
    all.next().expect("a sandbox").path()
}

/// A disk image whose end is missing, as after a damage of the host's file system.
/// Promises: SN21.
#[test]
fn a_damaged_disk_is_not_copied_and_a_damaged_snapshot_starts_no_sandbox() {
    let server = Server::start();
    let http = server.http();
    let sandbox = server.sandbox_with(&json!({"id": "one", "disk_mib": 64}));
    fill(&sandbox);
    let taken = sandbox.post("/snapshots", &json!({"name": "good"})).expect(201).json();
    let mut rows = Rows::new();
    let cut = |path: PathBuf| {
        let file = File::options().write(true).open(path).expect("it is there");
        file.set_len(8 << 20).expect("it is cut");
    };
    rows.row("a snapshot of a sandbox", || {
        wait_until("it sleeps", SOON, || {
            (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
        });
        let image = directory(&server).join("disk.ext4");
        let whole = fs::read(&image).expect("it is read");
        cut(image.clone());
        let refused = sandbox.post("/snapshots", &json!({}));
        assert_eq!(
            (refused.status, refused.error().as_str()),
            (500, "copy_failed"),
            "{}",
            refused.text()
        );
        assert!(refused.text().contains("disk.ext4"), "{}", refused.text());
        File::options()
            .write(true)
            .open(&image)
            .and_then(|mut file| file.write_all(&whole))
            .expect("repaired");
        intact(&sandbox);
        assert_eq!(listed(&http).len(), 1);
        nothing_else(&server, &["one"]);
    });
    rows.row("a sandbox from a snapshot", || {
        let snapshot = server.snapshot_files().pop().expect("its files");
        cut(snapshot.join("disk.ext4"));
        let refused = http.post("/v1/sandboxes", &json!({"id": "new", "snapshot": "good"}));
        assert_eq!(
            (refused.status, refused.error().as_str()),
            (500, "copy_failed"),
            "{}",
            refused.text()
        );
        assert!(refused.text().contains("disk.ext4"), "{}", refused.text());
        http.get("/v1/sandboxes/new").expect(404);
        let refused = sandbox.post("/restore", &json!({"snapshot": "good"}));
        assert_eq!(refused.error(), "copy_failed", "{}", refused.text());
        nothing_else(&server, &["one"]);
        intact(&sandbox);
    });
    drop(rows);
    http.delete(&format!("/v1/snapshots/{}", taken["id"].as_str().expect("an id"))).expect(200);
    server.healthy();
}
