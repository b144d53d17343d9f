//! Records that are older than the files: what they do not name is put aside, and keeps the layers
//! that it needs.

use super::snapshot_layers::{
    has_layers, layers, plain, remove, says, sleep, start_from, take as take_layer,
};
use isolet_kit::{SOON, Sandbox, Server, json, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn take(sandbox: &Sandbox) -> String {
    let taken = sandbox.post("/snapshots", &json!({})).expect(201).json();
    taken["id"].as_str().expect("an id").to_owned()
}

/// Copies the records of a server that is stopped.
fn copy_records(server: &Server, from: &str, to: &str) {
    let copy = format!(
        "for f in isolet.db isolet.db-wal isolet.db-shm; do \
         rm -f {to}$f; [ ! -e {from}$f ] || cp -a {from}$f {to}$f; done"
    );
    let done = Command::new("sh").args(["-ec", &copy]).current_dir(server.data()).status();
    assert!(done.expect("sh runs").success());
}

/// The directories that were put aside, sorted: sandboxes, then snapshots.
fn orphans(server: &Server) -> Vec<PathBuf> {
    let all = fs::read_dir(server.data().join("orphaned")).into_iter().flatten().flatten();
    let mut all: Vec<_> = all.map(|entry| entry.path()).collect();
    all.sort_by_key(|path| path.to_string_lossy().contains("/snapshot-"));
    all
}

/// The layers that a directory names.
fn named(directory: &Path) -> Vec<String> {
    let list = fs::read_to_string(directory.join("layers")).expect("it names its layers");
    list.lines().map(str::to_owned).collect()
}

/// Promises: SN4.
#[test]
fn snapshots_that_older_records_do_not_name_are_put_aside() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    sandbox.says("echo older >/workspace/a");
    let older = take(&sandbox);
    server.stop();
    copy_records(&server, "", "../");
    server.launch();
    sandbox.says("echo newer >/workspace/a");
    take(&sandbox);
    server.stop();
    copy_records(&server, "../", "");
    server.launch();
    let listed = server.http().get("/v1/snapshots").json();
    assert_eq!(listed["snapshots"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["snapshots"][0]["id"], json!(older));
    let [aside] = &orphans(&server)[..] else { panic!("{:?}", orphans(&server)) };
    assert_eq!(fs::read_to_string(aside.join("workspace/a")).expect("is there"), "newer\n");
    let copy = start_from(&server, &older);
    assert_eq!(copy.says("cat /workspace/a"), "older\n");
}

/// The layers that only an orphaned directory named were once deleted as soon as the last record that
/// named them too was gone.
/// Promises: SN4.
#[test]
fn layers_that_orphaned_directories_name_stay_until_those_are_removed() {
    let mut server = Server::start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    says(&sandbox, "echo older >/opt/f");
    sleep(&sandbox);
    let older = take_layer(&sandbox);
    server.stop();
    copy_records(&server, "", "../");
    server.launch();
    says(&sandbox, "echo newer >/opt/f; echo newer >/usr/local/f");
    sleep(&sandbox);
    let newer = take_layer(&sandbox);
    let copy = start_from(&server, &newer);
    says(&copy, "echo copy >/opt/g");
    sleep(&copy);
    server.stop();
    copy_records(&server, "../", "");
    server.launch();
    let aside = orphans(&server);
    assert_eq!(aside.len(), 2, "the copy and the newer snapshot: {aside:?}");
    let needed = named(&aside[1]);
    assert_eq!(needed.len(), 2);
    assert_eq!(named(&aside[0]), needed);
    let directory = server.data().join("snapshots/layers");
    let top = |layer: &str| directory.join(layer);
    let assert_there = |when: &str| {
        for layer in &needed {
            assert!(top(layer).is_dir(), "{when}: {layer} of {needed:?}");
        }
        let text = |path: PathBuf| fs::read_to_string(path).expect("is there");
        assert_eq!(text(top(&needed[0]).join("root/opt/f")), "newer\n", "{when}");
        assert_eq!(text(top(&needed[0]).join("usr/local/f")), "newer\n", "{when}");
        assert_eq!(text(top(&needed[1]).join("root/opt/f")), "older\n", "{when}");
        assert_eq!(text(aside[0].join("root/upper/opt/g")), "copy\n", "{when}");
    };
    assert_there("after the start with older records");
    // As where no layers are used, the files of a sandbox are newer than its record.
    assert_eq!(says(&sandbox, "cat /opt/f /usr/local/f"), "newer\nnewer\n");
    let from_older = start_from(&server, &older);
    assert_eq!(says(&from_older, "cat /opt/f"), "older\n");
    from_older.delete();
    sandbox.delete();
    remove(&server, &older);
    wait_until("the unused layers were looked at", SOON, || {
        server.log().contains("layer stays").then_some(())
    });
    assert_there("when no record names them");
    server.restart();
    assert_there("after one more start");
    for directory in &aside {
        fs::remove_dir_all(directory).expect("it is removed");
    }
    server.restart();
    wait_until("no layer is left", SOON, || layers(&server).is_empty().then_some(()));
}

/// An operator may put any file beside the directories that were put aside.
/// Promises: SN4.
#[test]
fn files_beside_orphans_stop_neither_a_start_nor_the_end_of_layers() {
    let mut server = Server::start();
    if !has_layers(&server) {
        return;
    }
    let sandbox = plain(&server);
    says(&sandbox, "echo one >/opt/f");
    sleep(&sandbox);
    let taken = take_layer(&sandbox);
    assert_eq!(layers(&server).len(), 1);
    server.stop();
    let orphaned = server.data().join("orphaned");
    fs::create_dir_all(orphaned.join("odd")).expect("created");
    fs::write(orphaned.join("README"), "notes").expect("written");
    fs::write(orphaned.join("odd/layers"), [0xff, 0xfe, b'\n']).expect("written");
    server.launch();
    server.wait_until_ready();
    sandbox.delete();
    remove(&server, &taken);
    wait_until("the layer is gone", SOON, || layers(&server).is_empty().then_some(()));
    fs::remove_file(orphaned.join("README")).expect("removed");
    fs::remove_file(orphaned.join("odd/layers")).expect("removed");
    fs::remove_dir(orphaned.join("odd")).expect("removed");
}
