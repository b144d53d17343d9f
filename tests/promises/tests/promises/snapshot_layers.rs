//! Snapshots where no two files can share blocks (ext4): the changes of a sandbox without a disk of
//! its own become immutable layers.

use isolet_kit::{Options, SOON, Sandbox, Server, Value, json, wait_until};
use std::path::PathBuf;

/// The layers on the disk.
pub(super) fn layers(server: &Server) -> Vec<PathBuf> {
    server.snapshot_layers()
}

/// Whether the data directory is on a file system where layers are used.
pub(super) fn has_layers(server: &Server) -> bool {
    let storage = server.http().get("/health").json()["storage"].clone();
    if storage != "layers" {
        println!("skipped: the data directory uses {storage}");
    }
    storage == "layers"
}

pub(super) fn plain(server: &Server) -> Sandbox {
    server.sandbox_with(&json!({"disk_mib": 0}))
}

pub(super) fn sleep(sandbox: &Sandbox) {
    wait_until("it sleeps", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
}

pub(super) fn take(sandbox: &Sandbox) -> String {
    let taken = sandbox.post("/snapshots", &json!({})).expect(201).json();
    taken["id"].as_str().expect("an id").to_owned()
}

pub(super) fn start_from(server: &Server, snapshot: &str) -> Sandbox {
    server.sandbox_with(&json!({"snapshot": snapshot}))
}

pub(super) fn remove(server: &Server, snapshot: &str) {
    server.http().delete(&format!("/v1/snapshots/{snapshot}")).expect(200);
}

pub(super) fn says(sandbox: &Sandbox, command: &str) -> String {
    let ran = sandbox.command("dev", command);
    assert_eq!(ran["exit_code"], 0, "{command}: {ran}");
    ran["stdout"].as_str().expect("text").to_owned()
}

/// Files of the root, of `/usr` and of the workspace, some of them deleted or replaced.
const FIRST: &str = "mkdir -p /root/a/b /opt/tree/sub; echo 1 >/root/a/b/f; echo 1 >/opt/tree/sub/x; \
    echo own >/usr/local/own; rm /etc/issue; echo mine >/etc/hostname.mine; \
    rm -r /usr/share/doc/bash; mkdir /usr/share/doc/bash; echo new >/usr/share/doc/bash/new; \
    ln /root/a/b/f /root/hard; echo w >/workspace/w; chown 1000:1000 /root/a; chmod 2711 /root/a; \
    chmod 751 /root";
const LOOK: &str = "cat /root/a/b/f /opt/tree/sub/x /usr/local/own /etc/hostname.mine; \
    ls /usr/share/doc/bash; test -e /etc/issue || echo gone; stat -c '%a %u' /root/a /root; \
    stat -c %h /root/hard; cat /workspace/w";
const SEEN: &str = "1\n1\nown\nmine\nnew\ngone\n2711 1000\n751 0\n2\nw\n";

/// Changes to what already lies in a layer.
const SECOND: &str = "rm -r /opt/tree; mkdir /opt/tree; echo 2 >/opt/tree/other; echo 2 >>/root/a/b/f; \
    rm /usr/local/own; echo back >/etc/issue; mv /root/hard /root/moved; echo w2 >/workspace/w";
const LOOK_AGAIN: &str = "ls /opt/tree; cat /root/a/b/f /root/moved; test -e /usr/local/own || echo gone; \
    cat /etc/issue; test -e /root/hard || echo moved; cat /workspace/w";

/// Promises: SN1.
#[test]
fn a_sleeping_sandbox_gives_its_changes_to_a_layer_and_keeps_working() {
    let server = Server::start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    says(&sandbox, FIRST);
    sleep(&sandbox);
    let first = take(&sandbox);
    assert_eq!(sandbox.info()["state"], "sleeping");
    assert_eq!(layers(&server).len(), 1);
    assert_eq!(says(&sandbox, LOOK), SEEN, "the original over the layer");
    says(&sandbox, SECOND);
    let second_look = says(&sandbox, LOOK_AGAIN);
    sleep(&sandbox);
    let second = take(&sandbox);
    assert_eq!(layers(&server).len(), 2, "the second layer lies on the first");
    let copy = start_from(&server, &first);
    assert_eq!(says(&copy, LOOK), SEEN);
    let again = start_from(&server, &second);
    assert_eq!(says(&again, LOOK_AGAIN), second_look);
    assert_eq!(says(&sandbox, LOOK_AGAIN), second_look);
    says(&again, "echo changed >/root/a/b/f; rm /etc/issue");
    assert_eq!(says(&sandbox, LOOK_AGAIN), second_look, "copies do not change the original");
    for snapshot in [&first, &second] {
        remove(&server, snapshot);
    }
    copy.delete();
    again.delete();
    assert_eq!(says(&sandbox, LOOK_AGAIN), second_look, "its layers stay");
    assert_eq!(layers(&server).len(), 2);
    sandbox.delete();
    wait_until("no layer is left", SOON, || layers(&server).is_empty().then_some(()));
}

/// Promises: SN1.
#[test]
fn a_running_and_a_paused_sandbox_are_copied_into_a_layer() {
    let server = Server::start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    says(&sandbox, FIRST);
    let running = take(&sandbox);
    sandbox.post("/pause", &json!({})).expect(200);
    let paused = take(&sandbox);
    assert_eq!(layers(&server).len(), 2);
    sandbox.post("/resume", &json!({})).expect(200);
    says(&sandbox, SECOND);
    for snapshot in [running, paused] {
        let copy = start_from(&server, &snapshot);
        assert_eq!(says(&copy, LOOK), SEEN);
        // A copy of a copy, running and asleep.
        says(&copy, "echo 3 >/root/third");
        let third = take(&copy);
        sleep(&copy);
        let fourth = take(&copy);
        for snapshot in [third, fourth] {
            let further = start_from(&server, &snapshot);
            assert_eq!(says(&further, LOOK), SEEN);
            assert_eq!(says(&further, "cat /root/third"), "3\n");
            further.delete();
            remove(&server, &snapshot);
        }
        copy.delete();
        remove(&server, &snapshot);
    }
    wait_until("no layer is left", SOON, || layers(&server).is_empty().then_some(()));
}

/// Promises: SN1, SN5.
#[test]
fn forks_and_scopes_see_the_layers() {
    let server = Server::start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    says(&sandbox, FIRST);
    let scope = json!({"id": "part", "file_access": {"read": ["w"]}});
    sandbox.post("/sessions", &scope).expect(201);
    sleep(&sandbox);
    let forked = sandbox.post("/fork", &json!({"count": 3})).expect(201).json();
    for fork in forked["forks"].as_array().expect("a list") {
        let fork = server.named(fork["id"].as_str().expect("an id"));
        assert_eq!(says(&fork, LOOK), SEEN);
        let seen = fork.command("part", "cat /usr/local/own /workspace/w; ls /usr/share/doc/bash");
        assert_eq!(seen["stdout"], "own\nw\nnew\n", "{seen}");
    }
    assert_eq!(layers(&server).len(), 1, "all share one");
}

/// Restarts the server such that it aborts at a point of this request, and starts it once more.
fn abort_at(server: &mut Server, point: &str, method: &str, path: &str, body: &Value) {
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", &format!("{point}=abort"));
    server.wait_until_ready();
    let body = body.to_string();
    let _ = server.http().try_send(method, path, Some(body.as_bytes()));
    assert!(!server.wait().success(), "{point}");
    server.launch();
    server.wait_until_ready();
}

/// Promises: SN3, SN4.
#[test]
fn a_kill_at_any_step_loses_no_layer_and_leaves_none() {
    let mut server = Server::start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    says(&sandbox, FIRST);
    let path = sandbox.path("/snapshots");
    for point in ["layers.created", "snapshot.live", "snapshot.held", "snapshot.copied"] {
        abort_at(&mut server, point, "POST", &path, &json!({}));
        assert_eq!(says(&sandbox, LOOK), SEEN, "{point}");
        let gone = || layers(&server).is_empty().then_some(());
        wait_until(&format!("no layer is left, {point}"), SOON, gone);
    }
    let mut named = 0;
    for point in ["layers.created", "layers.taken", "layers.recorded", "layers.settled"] {
        sleep(&sandbox);
        abort_at(&mut server, point, "POST", &path, &json!({}));
        // From the record on, the sandbox has the layer.
        named += usize::from(["layers.recorded", "layers.settled"].contains(&point));
        let left = || (layers(&server).len() == named).then_some(());
        wait_until(&format!("{named} layers are left, {point}"), SOON, left);
        assert_eq!(server.http().get("/v1/snapshots").json(), json!({"snapshots": []}), "{point}");
        assert_eq!(says(&sandbox, LOOK), SEEN, "{point}");
    }
    sandbox.delete();
    wait_until("no layer is left", SOON, || layers(&server).is_empty().then_some(()));
    let sandbox = plain(&server);
    sleep(&sandbox);
    let snapshot = take(&sandbox);
    sandbox.delete();
    assert_eq!(layers(&server).len(), 1);
    abort_at(
        &mut server,
        "layers.unused",
        "DELETE",
        &format!("/v1/snapshots/{snapshot}"),
        &json!({}),
    );
    wait_until("no layer is left", SOON, || layers(&server).is_empty().then_some(()));
}

/// Promises: SN4.
#[test]
fn a_layer_that_cannot_be_recorded_is_given_back() {
    let server = Options::new().env("ISOLET_FAILPOINTS", "layers.taken=error").start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    says(&sandbox, FIRST);
    sleep(&sandbox);
    assert_eq!(sandbox.post("/snapshots", &json!({})).status, 500);
    wait_until("no layer is left", SOON, || layers(&server).is_empty().then_some(()));
    assert_eq!(says(&sandbox, LOOK), SEEN);
}

/// Adds a layer to a sandbox `times` times, and returns the last snapshot. Each layer adds a file and
/// deletes the one of the layer before.
pub(super) fn add_layers(server: &Server, sandbox: &Sandbox, from: usize, times: usize) -> String {
    let mut last = None;
    for number in from..from + times {
        let before = number.wrapping_sub(1);
        says(
            sandbox,
            &format!(
                "rm -rf /root/d{before}; mkdir -p /root/d{number}; echo {number} >/root/d{number}/f; \
                 echo {number} >>/root/log; echo {number} >/usr/local/u{number}; rm -f /usr/local/u{before}"
            ),
        );
        sleep(sandbox);
        let taken = take(sandbox);
        if let Some(before) = last.replace(taken) {
            remove(server, &before);
        }
    }
    last.expect("at least one")
}

pub(super) fn assert_layered(sandbox: &Sandbox, last: usize) {
    let seen = says(sandbox, "ls -d /root/d* /usr/local/u*; wc -l </root/log");
    assert_eq!(seen, format!("/root/d{last}\n/usr/local/u{last}\n{}\n", last + 1));
    assert_eq!(
        says(sandbox, &format!("cat /root/d{last}/f /usr/local/u{last}")),
        format!("{last}\n{last}\n")
    );
}

/// Promises: SN1.
#[test]
fn more_than_eight_layers_are_folded_in_the_background() {
    let server = Server::start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    let snapshot = add_layers(&server, &sandbox, 0, 9);
    wait_until("they are folded", SOON, || (layers(&server).len() == 5).then_some(()));
    assert_eq!(sandbox.info()["state"], "sleeping");
    assert_layered(&sandbox, 8);
    let copy = start_from(&server, &snapshot);
    assert_layered(&copy, 8);
    remove(&server, &snapshot);
    copy.delete();
    let snapshot = add_layers(&server, &sandbox, 9, 5);
    wait_until("they are folded again", SOON, || (layers(&server).len() <= 6).then_some(()));
    assert_layered(&sandbox, 13);
    remove(&server, &snapshot);
}

/// Promises: SN3, SN4.
#[test]
fn a_kill_at_any_step_of_a_fold_changes_no_file() {
    let mut server = Server::start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    let mut count = 0;
    let mut of_sandbox = 0;
    for point in ["fold.created", "fold.merged", "fold.snapshot", "fold.done"] {
        let more = 9 - of_sandbox;
        if more > 1 {
            let snapshot = add_layers(&server, &sandbox, count, more - 1);
            remove(&server, &snapshot);
        }
        count += more;
        says(&sandbox, ":");
        sleep(&sandbox);
        server.kill();
        server.launch_with("ISOLET_FAILPOINTS", &format!("{point}=abort"));
        server.wait_until_ready();
        let before = count - 2;
        let last = count - 1;
        says(
            &sandbox,
            &format!(
                "rm -rf /root/d{before}; mkdir -p /root/d{last}; echo {last} >/root/d{last}/f; \
                 echo {last} >>/root/log; echo {last} >/usr/local/u{last}; rm -f /usr/local/u{before}"
            ),
        );
        sleep(&sandbox);
        let path = sandbox.path("/snapshots");
        let body = json!({"name": "folded"}).to_string();
        // The fold begins before the answer.
        let _ = server.http().try_send("POST", &path, Some(body.as_bytes()));
        assert!(!server.wait().success(), "{point}");
        server.launch();
        server.wait_until_ready();
        // The sandbox and the snapshot may each have a merged layer, if only one was recorded.
        wait_until("they are folded", SOON, || (layers(&server).len() <= 6).then_some(()));
        let copy = start_from(&server, "folded");
        assert_layered(&copy, last);
        assert_layered(&sandbox, last);
        copy.delete();
        sleep(&sandbox);
        remove(&server, "folded");
        of_sandbox = 5;
    }
}

/// Promises: SN1.
#[test]
fn a_backup_contains_the_layers_that_its_sandboxes_need() {
    let mut server = Server::start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    says(&sandbox, FIRST);
    sleep(&sandbox);
    let snapshot = take(&sandbox);
    let copy = start_from(&server, &snapshot);
    says(&copy, "echo copied >/root/copied");
    says(&sandbox, SECOND);
    let look = says(&sandbox, LOOK_AGAIN);
    let folder = tempfile::tempdir().expect("a directory");
    let target = folder.path().join("backup");
    let backup = target.to_str().expect("a text").to_owned();
    let done = server.command(&["backup", &backup]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let data = server.data();
    let image = std::fs::read_link(data.join("image")).expect("shared between tests");
    server.power_off();
    wait_until("its processes end", SOON, || {
        server.processes("isolet-agent").is_empty().then_some(())
    });
    std::fs::remove_dir_all(&data).expect("it is gone");
    let restored =
        server.program().args(["restore", "--data-dir"]).arg(&data).arg(&backup).output();
    let restored = restored.expect("it runs");
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    std::os::unix::fs::symlink(image, data.join("image")).expect("a link");
    server.launch();
    server.wait_until_ready();
    assert_eq!(layers(&server).len(), 1);
    assert_eq!(says(&sandbox, LOOK_AGAIN), look);
    assert_eq!(says(&copy, LOOK), SEEN);
    assert_eq!(says(&copy, "cat /root/copied"), "copied\n");
}

/// Promises: SN1.
#[test]
fn git_and_mv_work_over_layers_and_a_rename_of_a_directory_needs_a_copy() {
    let server = Server::start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    says(
        &sandbox,
        "cd /root; git config --global user.email a@b; git config --global user.name a; \
         git init -q -b main repo; cd repo; mkdir -p src/deep lib; echo 1 >src/deep/a; echo 2 >lib/b; \
         git add .; git commit -qm one; git checkout -q -b moved; git mv src source; \
         git mv lib/b source/deep/b; git commit -qm two; git checkout -q main; \
         mkdir -p /opt/tree/sub /home/dir; echo x >/opt/tree/sub/x; echo y >/home/dir/y",
    );
    sleep(&sandbox);
    let snapshot = take(&sandbox);
    says(
        &sandbox,
        "cd /root/repo; git status --porcelain | wc -l | grep -qx 0; git checkout -q moved; \
         cat source/deep/a source/deep/b; test ! -e src; git checkout -q main; cat src/deep/a; \
         git mv src again; git commit -qm three; git gc -q; git fsck; git clone -q . /opt/clone; \
         cd /opt/clone; git checkout -q moved; git pull -q origin main --no-rebase -X theirs || true",
    );
    // The system call answers EXDEV for a directory of a layer; `mv` copies it then.
    let rename = |from: &str, to: &str| {
        let program = format!(
            "python3 -c 'import os, sys\ntry: os.rename(\"{from}\", \"{to}\")\n\
             except OSError as error: print(error.errno)'"
        );
        says(&sandbox, &program)
    };
    assert_eq!(rename("/opt/tree", "/opt/renamed"), "18\n");
    assert_eq!(rename("/home/dir/y", "/home/dir/z"), "", "a file");
    says(&sandbox, "mv /opt/tree /opt/moved; test ! -e /opt/tree; cat /opt/moved/sub/x");
    assert_eq!(rename("/opt/moved", "/opt/back"), "", "a directory that is newer than the layer");
    says(&sandbox, "mkdir -p /workspace/d/e; echo w >/workspace/d/e/f");
    sleep(&sandbox);
    remove(&server, &take(&sandbox));
    assert_eq!(rename("/workspace/d", "/workspace/e"), "", "the workspace has no layers");
    remove(&server, &snapshot);
}
