//! The format of a data directory: a server refuses a directory of another one, changes nothing, and
//! `isolet teardown` ends what still runs of it.

use isolet_kit::{Options, Server, Traces, json, net, process, veth};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A server that was killed while a sandbox with a network ran, and the id of that sandbox.
fn killed() -> (Server, String) {
    let mut server = Options::new().start();
    let allow = json!({"network": {"allow": [format!("{}:80", net::PUBLIC), "web.example"]}});
    let sandbox = server.sandbox_with(&allow);
    sandbox.says("echo acked >/workspace/f");
    sandbox.post("/processes", &json!({"id": "p", "argv": ["sleep", "1000"]})).expect(201);
    server.kill();
    (server, sandbox.id)
}

fn sql(server: &Server, statements: &str) {
    let change = "import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as records:
    records.executescript(sys.argv[2])";
    let mut python = Command::new("python3");
    let done = python.args(["-c", change]).arg(server.data().join("isolet.db")).arg(statements);
    assert!(done.status().expect("python3 is there").success());
}

/// The names and bytes of the files directly in a directory, but for the shared index of SQLite.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let all = fs::read_dir(directory).expect("reads").flatten();
    all.map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let bytes = fs::read(entry.path()).unwrap_or_default();
        (name, bytes)
    })
    .filter(|(name, _)| name != "isolet.db-shm")
    .collect()
}

/// Checks that a server and offline commands refuse the directory with this sentence, and that they
/// change nothing.
fn refused(server: &mut Server, sentence: &str) {
    let before = files(&server.data());
    let agents = Traces::agents(&server.data());
    let log = server.log().len();
    server.launch_with("ISOLET_LOG", "info");
    assert_eq!(server.wait().code(), Some(1), "{}", server.log());
    let said = server.log()[log..].to_owned();
    assert!(said.contains(sentence), "{said}");
    let data = server.data().display().to_string();
    assert!(said.contains(&format!("`isolet teardown --data-dir {data}`")), "{said}");
    for args in [
        &["keys", "ls"][..],
        &["keys", "add"],
        &["keys", "rotate", "links"],
        &["audit", "verify"],
        &["backup", "/nonexistent/backup"],
    ] {
        let output = server.command(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(sentence), "{args:?}: {said}");
    }
    let doctor = server.command(&["doctor"]);
    assert!(String::from_utf8_lossy(&doctor.stdout).contains(sentence), "{doctor:?}");
    assert_eq!(files(&server.data()), before);
    assert_eq!(Traces::agents(&server.data()), agents, "running sandboxes were not touched");
}

/// Ends what runs of the directory, and checks that nothing is left.
fn torn_down(server: &Server) {
    let data = server.data();
    let manager = veth::manager(&data);
    assert_eq!(Traces::agents(&data).len(), 1);
    let ended = server.command(&["teardown"]);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("ended 1 sandboxes"), "{said}");
    assert_eq!(Traces::agents(&data).len(), 0);
    assert!(server.processes("sleep").is_empty());
    assert!(!process::alive(manager) && veth::find_manager(&data).is_none());
    assert!(server.cgroups().is_empty() && server.parent_cgroups().is_empty());
    let traces = server.traces();
    assert_eq!(traces, Traces { directories: traces.directories.clone(), ..Traces::default() });
}

/// What an earlier version has left runs on after an upgrade, and nothing would have found it again.
/// Promises: F49.
#[test]
fn a_directory_of_an_earlier_version_is_refused_and_torn_down() {
    let _world = net::World::new();
    let (mut server, id) = killed();
    let data = server.data();
    let format = fs::read(data.join("format")).expect("a new directory has it");
    fs::remove_file(data.join("format")).expect("it is removed");
    sql(&server, "PRAGMA application_id = 0; PRAGMA user_version = 6;");
    let shown = data.display();
    let sentence =
        format!("{shown} was made by an earlier version of isolet, which this version cannot read");
    refused(&mut server, &sentence);
    torn_down(&server);
    refused(&mut server, &sentence);
    // Records that were copied from such a directory are recognised too.
    fs::write(data.join("format"), &format).expect("it is written");
    server.launch_with("ISOLET_LOG", "info");
    assert_eq!(server.wait().code(), Some(1));
    let sentence = "isolet.db was made by an earlier version of isolet";
    assert!(server.log().contains(sentence), "{}", server.log());
    sql(&server, "PRAGMA application_id = 0x69736f6c; PRAGMA user_version = 1;");
    server.launch();
    assert_eq!(server.named(&id).says("cat /workspace/f"), "acked\n", "nothing was changed");
    server.healthy();
}

/// Promises: F49.
#[test]
fn a_directory_with_another_number_is_refused_and_torn_down() {
    let _world = net::World::new();
    let (mut server, id) = killed();
    let file = server.data().join("format");
    let own = fs::read_to_string(&file).expect("a new directory has it");
    fs::write(&file, "999\n").expect("it is written");
    let shown = server.data().display().to_string();
    let sentence = format!("{shown} has format 999, and this isolet uses format {}", own.trim());
    refused(&mut server, &sentence);
    torn_down(&server);
    fs::write(&file, &own).expect("it is written");
    server.launch();
    assert_eq!(server.named(&id).says("cat /workspace/f"), "acked\n");
    server.healthy();
}
