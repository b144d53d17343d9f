//! A node whose disk, or whose data directory, is an earlier one.

use crate::fixture::Fixture;
use isolet_kit::{LONG, Sandbox, json, wait_until};
use std::path::Path;
use std::process::Command;

/// Writes a file, and pushes a snapshot with it.
fn push(sandbox: &Sandbox, text: &str) -> String {
    sandbox.says(&format!("echo {text} >/workspace/file"));
    let taken = sandbox.post("/snapshots", &json!({})).expect(201).json();
    let id = taken["id"].as_str().expect("an id").to_owned();
    sandbox.http.post(&format!("/v1/snapshots/{id}/push"), &json!({})).expect(200);
    id
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp is there");
    assert!(done.success(), "{} is not copied", from.display());
}

/// Only the epoch was compared, which was still that of the node: it pushed the old files as the newest, and the
/// acknowledged ones were deleted.
/// Promises: FL40.
#[test]
fn a_copy_on_an_earlier_disk_is_superseded_by_what_its_node_has_pushed() {
    let mut fixture = Fixture::new();
    let counting = fixture.counting("box", "store");
    let through = &counting.sandbox;
    push(through, "old");
    fixture.server.lose_machine();
    let data = fixture.server.data();
    let earlier = data.with_file_name("earlier");
    copy(&data, &earlier);
    fixture.server.launch();
    let newest = push(through, "new");
    fixture.server.lose_machine();
    std::fs::remove_dir_all(&data).expect("nothing uses it");
    std::fs::rename(&earlier, &data).expect("the disk is an earlier one");
    // Its data directory is not the one that holds the lease.
    fixture.waits_for_the_end_of_the_lease();
    fixture.server.launch();
    let first = wait_until("it is restored", LONG, || {
        let command = json!({"command": "cat /workspace/file"});
        let reply = through.http.post(&through.path("/exec"), &command);
        (reply.status != 503).then(|| reply.expect(200))
    });
    assert_eq!(first.json()["stdout"], "new\n", "what was acknowledged");
    assert_eq!(through.info()["restored_from"]["snapshot"], json!(newest));
    let [kept] = fixture.superseded().try_into().expect("one directory");
    let old = std::fs::read_to_string(kept.join("workspace/file")).expect("its files are kept");
    assert_eq!(old, "old\n");
    // It is pushed as any other from then on, and a server that is only killed continues.
    push(through, "newer");
    fixture.server.kill();
    fixture.server.launch();
    assert_eq!(through.says("cat /workspace/file"), "newer\n");
    assert_eq!(fixture.superseded().len(), 1, "it is not taken for an earlier one");
}
