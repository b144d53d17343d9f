//! Snapshots on other file systems, and on disks that are full or broken.

use isolet_kit::{
    Options, Reply, Rows, SOON, Sandbox, Server, Value, cut, end_on_disk, evict, json, subvolumes,
    truncate, wait_until, with_growing_limit,
};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

fn take(sandbox: &Sandbox) -> String {
    let taken = sandbox.post("/snapshots", &json!({})).expect(201).json();
    taken["id"].as_str().expect("an id").to_owned()
}

fn start_from(server: &Server, snapshot: &str) -> Sandbox {
    server.sandbox_with(&json!({"snapshot": snapshot}))
}

/// The only directory in a directory of the data directory, except the staging area.
fn only(server: &Server, directory: &str) -> PathBuf {
    let found = fs::read_dir(server.data().join(directory)).expect("is there");
    let mut found: Vec<_> = found.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| !path.ends_with("staging"));
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// What is left of snapshots that failed.
fn staged(server: &Server) -> usize {
    fs::read_dir(server.data().join("snapshots/staging")).expect("is there").count()
}

fn no_subvolumes(server: &Server) {
    wait_until("no subvolume is left", SOON, || {
        subvolumes(&server.data()).is_empty().then_some(())
    });
}

fn asleep(sandbox: &Sandbox) {
    wait_until("it sleeps", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
}

const FILL: &str = "echo one >/workspace/a; ln /workspace/a /workspace/b; echo own >/opt/own; \
                    echo usr >/usr/local/own; rm -r /usr/share/doc; chown 7:8 /opt/own; X=5";
const LOOK: &str = "cat /workspace/b /opt/own /usr/local/own; stat -c %u:%g /opt/own; \
                    ls -d /usr/share/doc; echo $X";
const SEEN: &str = "one\nown\nusr\n7:8\n5\n";

/// Promises: SN1, SN3.
#[test]
fn on_btrfs_snapshots_and_forks_are_subvolumes_and_none_is_left() {
    let mut server =
        Options::new().config("free_space_floor_mib = 1\n").loop_disk("btrfs", 256, &[]).start();
    assert_eq!(server.http().get("/health").json()["storage"], "btrfs");
    let sandbox = server.sandbox();
    sandbox.command("dev", FILL);
    assert_eq!(subvolumes(&server.data()).len(), 3, "root, usr and workspace");
    let taken = take(&sandbox);
    assert_eq!(subvolumes(&server.data()).len(), 6);
    let files = only(&server, "snapshots");
    assert!(fs::write(files.join("workspace/new"), "").is_err(), "it cannot be changed");
    assert!(!files.join("unclaimed").try_exists().expect("looks"));
    sandbox.command("dev", "echo two >/workspace/a; rm /opt/own");
    let first = start_from(&server, &taken);
    assert_eq!(first.command("dev", LOOK)["stdout"], SEEN);
    assert_eq!(first.says("echo new >/workspace/c; echo new >/opt/new; cat /opt/new"), "new\n");
    // A copy of a copy, of a sandbox that sleeps.
    asleep(&first);
    let second = start_from(&server, &take(&first));
    assert_eq!(second.command("dev", LOOK)["stdout"], SEEN);
    assert_eq!(second.says("cat /workspace/c"), "new\n");
    let forked = second.post("/fork", &json!({"count": 3})).expect(201).json();
    for fork in forked["forks"].as_array().expect("a list") {
        let fork = server.named(fork["id"].as_str().expect("an id"));
        assert_eq!(fork.command("dev", LOOK)["stdout"], SEEN);
    }
    // A tenant makes no subvolume, which a snapshot would leave out, and makes none read-only.
    for request in ["0x5000940e", "0x50009418", "0x50009401", "0x50009417", "0x4008941a"] {
        let refused = sandbox.says(&format!(
            "python3 -c 'import fcntl,os\n\
             try: fcntl.ioctl(os.open(\"/workspace\", 0), {request}, 0)\n\
             except OSError as error: print(error.errno)'"
        ));
        assert_eq!(refused, "1\n", "{request}");
    }
    server.restart();
    assert_eq!(sandbox.says("cat /workspace/a"), "two\n");
    for id in server.ids(&server.http()) {
        server.named(&id).delete();
    }
    let all = server.http().get("/v1/snapshots").json();
    for snapshot in all["snapshots"].as_array().expect("a list") {
        let id = snapshot["id"].as_str().expect("an id");
        server.http().delete(&format!("/v1/snapshots/{id}")).expect(200);
    }
    no_subvolumes(&server);
}

/// Directories that were copied or restored from a backup are no subvolumes.
/// Promises: SN1.
#[test]
fn on_btrfs_plain_directories_and_subvolumes_in_subvolumes_are_copied_file_by_file() {
    let server =
        Options::new().config("free_space_floor_mib = 1\n").loop_disk("btrfs", 256, &[]).start();
    let sandbox = server.sandbox();
    sandbox.command("dev", FILL);
    asleep(&sandbox);
    let directory = only(&server, "sandboxes");
    let shell = |command: &str| {
        let done = Command::new("sh").args(["-ec", command]).current_dir(&directory).status();
        assert!(done.expect("sh runs").success(), "{command}");
    };
    shell("cp -a workspace plain; btrfs -q subvolume delete workspace; mv plain workspace");
    let copy = start_from(&server, &take(&sandbox));
    assert_eq!(copy.command("dev", LOOK)["stdout"], SEEN);
    copy.delete();
    shell("btrfs -q subvolume create workspace/inner; echo in >workspace/inner/file");
    let taken = take(&sandbox);
    let copy = start_from(&server, &taken);
    assert_eq!(copy.says("cat /workspace/inner/file"), "in\n");
    sandbox.delete();
    copy.delete();
    let all = server.http().get("/v1/snapshots").json();
    for snapshot in all["snapshots"].as_array().expect("a list") {
        let id = snapshot["id"].as_str().expect("an id");
        server.http().delete(&format!("/v1/snapshots/{id}")).expect(200);
    }
    no_subvolumes(&server);
}

fn refused(sandbox: &Sandbox) -> Value {
    let reply = sandbox.post("/snapshots", &json!({}));
    assert!(reply.status >= 400, "{}", reply.text());
    json!([reply.status, reply.error(), reply.text()])
}

/// Creates a sandbox with one file that takes all blocks at the end of the disk, in a directory, so that
/// nothing else is written there. Returns its path on the host and its name.
fn at_the_end_of_the_disk(
    server: &Server,
    sandbox: &Sandbox,
    directory: &str,
) -> (PathBuf, String) {
    sandbox.says(&format!(
        "mkdir {directory}/d; cd {directory}/d; for i in {{1..400}}; do \
         dd if=/dev/urandom of=$i bs=1M count=4 conv=fsync 2>&1 | grep -q 'No space' && break; done"
    ));
    let own = only(server, "sandboxes");
    let files = match directory {
        "/workspace" => own.join("workspace/d"),
        other => own.join("root/upper").join(other.trim_start_matches('/')).join("d"),
    };
    let all = fs::read_dir(&files).expect("is there").flatten().map(|entry| entry.path());
    let last = all.filter(|path| path.metadata().is_ok_and(|file| file.len() > 0));
    let last = last.max_by_key(|path| end_on_disk(path)).expect("a file");
    let name = last.file_name().and_then(|name| name.to_str()).expect("text").to_owned();
    sandbox.says(&format!("cd {directory}/d; ls | grep -vx {name} | xargs rm; sync -f ."));
    evict(&last);
    (last, name)
}

fn small(kind: &'static str, mib: u64, args: &[&str]) -> Server {
    Options::new().config("free_space_floor_mib = 0\n").loop_disk(kind, mib, args).start()
}

fn small_ext4() -> Server {
    small("ext4", 96, &["-m", "0", "-O", "^has_journal"])
}

/// Promises: SN3.
#[test]
fn a_read_error_is_reported_with_its_path_and_the_sandbox_goes_on() {
    let server = small_ext4();
    let sandbox = server.sandbox();
    let (last, name) = at_the_end_of_the_disk(&server, &sandbox, "/workspace");
    cut(&server.disk_image(), end_on_disk(&last) - (1 << 20));
    let error = refused(&sandbox);
    assert_eq!(error[1], "copy_failed", "{error}");
    let said = error[2].as_str().expect("text");
    assert!(said.contains(&format!("workspace/d/{name}: ")), "{said}");
    assert_eq!(staged(&server), 0);
    assert_eq!(sandbox.says("rm /workspace/d/*; echo on"), "on\n");
    take(&sandbox);
}

/// Every operation that reads the files of a sandbox, one of which cannot be read, and every one that
/// reads those of a snapshot.
fn unreadable(server: &Server) {
    let http = server.http();
    let sandbox = server.sandbox_with(&json!({"id": "one", "snapshot_on_destroy": true}));
    sandbox.command("dev", "echo good >/workspace/good; echo good >/opt/good; X=5");
    let good = take(&sandbox);
    let (last, name) = at_the_end_of_the_disk(server, &sandbox, "/workspace");
    truncate(&server.disk_image(), end_on_disk(&last) - (1 << 20));
    let layers = server.snapshot_layers().len();
    let shown = format!("workspace/d/{name}: ");
    let mut rows = Rows::new();
    let assert_refused = |reply: &Reply, path: &str| {
        assert_eq!(
            (reply.status, reply.error().as_str()),
            (500, "copy_failed"),
            "{}",
            reply.text()
        );
        assert!(reply.text().contains(path), "{path}: {}", reply.text());
        assert_eq!(staged(server), 0);
        assert_eq!(server.snapshot_files().len(), 1, "the first snapshot");
        wait_until("no layer is left", SOON, || {
            (server.snapshot_layers().len() == layers).then_some(())
        });
        assert_eq!(server.ids(&http), ["one"]);
        let seen = sandbox.command("dev", "cat /workspace/good /opt/good; echo $X");
        assert_eq!(seen["stdout"], "good\ngood\n5\n", "{seen}");
    };
    rows.row("a running sandbox", || {
        assert_refused(&sandbox.post("/snapshots", &json!({})), &shown);
    });
    rows.row("a fork", || assert_refused(&sandbox.post("/fork", &json!({"count": 3})), &shown));
    rows.row("a paused sandbox", || {
        sandbox.post("/pause", &json!({})).expect(200);
        let reply = sandbox.post("/snapshots", &json!({}));
        assert_eq!(sandbox.info()["state"], "paused");
        sandbox.post("/resume", &json!({})).expect(200);
        assert_refused(&reply, &shown);
    });
    rows.row("a sleeping sandbox", || {
        asleep(&sandbox);
        let reply = sandbox.post("/snapshots", &json!({}));
        assert_eq!(sandbox.info()["state"], "sleeping");
        assert_refused(&reply, &shown);
    });
    rows.row("the last snapshot before a delete", || {
        assert_refused(&http.delete(&sandbox.path("")), &shown);
    });
    // Now a file of the snapshot is the one that cannot be read.
    let files = server.snapshot_files().pop().expect("its files");
    fs::rename(&last, files.join("workspace/bad")).expect("moved");
    rows.row("a sandbox from the snapshot", || {
        let reply = http.post("/v1/sandboxes", &json!({"id": "new", "snapshot": good}));
        assert_refused(&reply, "workspace/bad: ");
    });
    rows.row("a restore in place", || {
        assert_refused(&sandbox.post("/restore", &json!({"snapshot": good})), "workspace/bad: ");
    });
    rows.row("an image", || {
        let reply = http.post("/v1/images", &json!({"snapshot": good, "name": "bad"}));
        assert!(reply.status >= 500, "{}", reply.text());
        assert_eq!(http.get("/v1/images").json(), json!([]));
        let work = fs::read_dir(server.data().join("images/staging")).expect("is there");
        assert_eq!(work.count(), 0);
    });
    rows.row("the file itself", || {
        let path = format!("/v1/snapshots/{good}/files/bad");
        let size = files.join("workspace/bad").metadata().expect("is there").len();
        // An error, or an answer that ends before its announced length.
        let whole = http
            .try_send("GET", &path, None)
            .is_ok_and(|reply| reply.status == 200 && u64::try_from(reply.body.len()) == Ok(size));
        assert!(!whole, "{size} bytes were read");
        let reply = http.get(&format!("/v1/snapshots/{good}/files/good"));
        assert_eq!(reply.expect(200).text(), "good\n");
    });
    rows.row("when it is readable again", || {
        fs::remove_file(files.join("workspace/bad")).expect("removed");
        let copy = server.sandbox_with(&json!({"snapshot": good}));
        assert_eq!(copy.says("cat /workspace/good /opt/good"), "good\ngood\n");
        copy.delete();
        let reply = http.delete(&sandbox.path("")).expect(200).json();
        assert!(reply["snapshot"].is_string(), "{reply}");
    });
}

/// Promises: SN3, SN21.
#[test]
fn a_file_that_cannot_be_read_ends_every_copy_and_leaves_nothing() {
    unreadable(&small_ext4());
}

/// Promises: SN3, SN21.
#[test]
#[ignore = "needs xfsprogs: make soak"]
fn soak_a_snapshot_of_a_file_that_cannot_be_read_on_xfs() {
    unreadable(&small("xfs", 300, &["-m", "reflink=0"]));
}

/// The delete of a sandbox once waited for the whole copy, for up to 15 minutes.
/// Promises: SN3.
#[test]
fn a_delete_ends_the_copy_that_runs() {
    with_growing_limit(1500, a_delete_comes_within);
}

/// Deletes a sandbox while its copy waits for `delay_ms`; `None` if the copy was through
/// before.
fn a_delete_comes_within(delay_ms: u64) -> Option<()> {
    let delayed = format!("snapshot.held=delay({delay_ms})");
    let server = Options::new().env("ISOLET_FAILPOINTS", &delayed).start();
    let sandbox = server.sandbox();
    let begun = Instant::now();
    let taken = std::thread::scope(|scope| {
        let taken = scope.spawn(|| sandbox.post("/snapshots", &json!({})));
        wait_until("the sandbox stands still", SOON, || {
            server.log().contains("failpoint: delayed").then_some(())
        });
        sandbox.delete();
        taken.join().expect("it is answered")
    });
    if taken.status == 201 && begun.elapsed().as_millis() >= u128::from(delay_ms) {
        return None;
    }
    assert_eq!((taken.status, taken.error().as_str()), (404, "no_sandbox"));
    wait_until("nothing is staged", SOON, || (staged(&server) == 0).then_some(()));
    assert_eq!(server.http().get("/v1/snapshots").json(), json!({"snapshots": []}));
    Some(())
}
