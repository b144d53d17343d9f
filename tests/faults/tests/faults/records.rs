//! Records that are damaged while the server is down.

use isolet_kit::{Rows, Server};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Damages a file or a directory.
type Damage<'a> = &'a dyn Fn(&Path);

/// Runs an SQL statement on the records of a server that is down.
fn sql(server: &Server, statement: &str) {
    let program = "import sqlite3, sys\n\
                   db = sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.commit()";
    let file = server.data().join("isolet.db");
    let done = Command::new("python3").args(["-c", program]).arg(file).arg(statement).status();
    assert!(done.expect("python3 runs").success(), "{statement}");
}

/// The files of the store with their content.
fn files(server: &Server) -> Vec<(PathBuf, Vec<u8>)> {
    let names = ["isolet.db", "isolet.db-wal", "isolet.db-shm"];
    let paths = names.map(|name| server.data().join(name));
    paths.into_iter().filter_map(|path| Some((path.clone(), fs::read(path).ok()?))).collect()
}

fn put_back(server: &Server, files: &[(PathBuf, Vec<u8>)]) {
    for name in ["isolet.db", "isolet.db-wal", "isolet.db-shm"] {
        let _ = fs::remove_file(server.data().join(name));
    }
    files.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("writes"));
}

/// Starts the server, which must refuse to start, and returns its error.
fn refused(server: &mut Server) -> String {
    let before = server.log().len();
    server.launch_with("ISOLET_LOG", "info");
    assert!(!server.wait().success(), "it must not start");
    server.log()[before..].to_owned()
}

/// Promises: F14.
#[test]
fn f14_a_file_that_is_no_store_is_named_and_sandboxes_keep_running() {
    let mut server = Server::start();
    let id = server.sandbox().id;
    let pid = server.named(&id).command("s", "x=kept; echo $$")["stdout"].clone();
    server.kill();
    let agents = server.agents();
    // Otherwise the complete log would replace the file.
    sql(&server, "PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = files(&server);
    let main = server.data().join("isolet.db");
    let mut rows = Rows::new();
    let broken: [(&str, Damage<'_>); 3] = [
        ("another magic", &|file| fs::write(file, b"no store at all".repeat(500)).expect("writes")),
        ("a newer schema", &|_| sql(&server, "PRAGMA user_version = 99")),
        ("a directory", &|file| {
            fs::remove_file(file).expect("removes");
            fs::create_dir(file).expect("makes");
        }),
    ];
    let mut damaged = Vec::new();
    for (name, damage) in broken {
        damage(&main);
        damaged.push((name, main.is_dir(), files(&server)));
        let _ = fs::remove_dir(&main);
        put_back(&server, &whole);
    }
    for (name, directory, found) in damaged {
        put_back(&server, &found);
        if directory {
            fs::create_dir(&main).expect("makes");
        }
        rows.row(name, || {
            let said = refused(&mut server);
            assert!(said.contains("isolet.db"), "it names the file: {said}");
            assert_eq!(files(&server).len(), found.len());
            assert_eq!(server.agents(), agents, "running sandboxes were not touched");
        });
        let _ = fs::remove_dir(&main);
        put_back(&server, &whole);
    }
    drop(rows);
    server.launch();
    let said = server.named(&id).command("s", "echo $$; echo $x");
    assert_eq!(said["stdout"], format!("{}kept\n", pid.as_str().unwrap_or_default()));
    server.healthy();
}

/// Promises: F14.
#[test]
fn f14_a_log_truncated_anywhere_opens_at_a_commit() {
    let mut server = Server::start();
    let ids: Vec<String> = (0..4)
        .map(|n| server.sandbox_with(&isolet_kit::json!({"id": format!("s{n}")})).id)
        .collect();
    server.kill();
    let whole = files(&server);
    let log = server.data().join("isolet.db-wal");
    let length = fs::metadata(&log).expect("a log").len();
    let step = usize::try_from(length / 12).expect("small");
    // From the end backwards: a start ends what a shorter log does not contain.
    for cut in (0..=length).rev().step_by(step.max(1)) {
        put_back(&server, &whole);
        fs::OpenOptions::new().write(true).open(&log).expect("opens").set_len(cut).expect("cuts");
        server.launch();
        let found = server.ids(&server.http());
        assert_eq!(found, ids[..found.len()], "a prefix of the created records, at byte {cut}");
        for id in &found {
            let state = server.named(id).info()["state"].clone();
            assert!(state == "running" || state == "failed", "{id} is {state} at byte {cut}");
        }
        if cut == length {
            assert_eq!(found, ids, "nothing was cut");
        }
        server.kill();
    }
    put_back(&server, &whole);
    server.launch();
    ids.iter().for_each(|id| server.named(id).delete());
    server.healthy();
}

/// Promises: F14.
#[test]
fn f14_a_damaged_record_hides_no_other() {
    let mut server = Server::start();
    let bad = server.sandbox().id;
    let good = server.sandbox().id;
    server.named(&good).command("s", "x=kept");
    server.kill();
    sql(&server, &format!("UPDATE sandboxes SET body = '{{\"no\": ' WHERE id = '{bad}'"));
    server.launch();
    assert_eq!(server.named(&good).command("s", "echo $x")["stdout"], "kept\n");
    let answer = server.named(&bad).info();
    assert_eq!(answer["state"], "failed", "{answer}");
    assert!(answer["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{answer}");
    server.named(&bad).delete();
    server.healthy();
}

/// A start without records once removed every directory that it did not know.
/// Promises: F14.
#[test]
fn f14_sandboxes_whose_records_are_missing_are_not_removed() {
    let mut server = Server::start();
    let id = server.sandbox().id;
    server.named(&id).command("s", "x=kept; echo acked >/workspace/f");
    server.kill();
    let whole = files(&server);
    let agents = server.agents();
    let mut rows = Rows::new();
    let main = server.data().join("isolet.db");
    for name in ["missing", "empty"] {
        put_back(&server, &[]);
        if name == "empty" {
            fs::write(&main, "").expect("writes");
        }
        rows.row(name, || {
            let said = refused(&mut server);
            for word in ["isolet.db", "1 sandboxes", "backup", "mv "] {
                assert!(said.contains(word), "the error contains {word}: {said}");
            }
            let keys = server.command(&["keys", "add", "--label", "new"]);
            assert!(!keys.status.success(), "a key would begin new records");
            assert_eq!(server.agents(), agents, "running sandboxes were not touched");
        });
    }
    drop(rows);
    put_back(&server, &whole);
    server.launch();
    assert_eq!(server.named(&id).command("s", "echo $x; cat f")["stdout"], "kept\nacked\n");
    server.healthy();
}

/// Promises: F14.
#[test]
fn f14_files_of_a_sandbox_unknown_to_older_records_are_set_aside() {
    let mut server = isolet_kit::Options::new().warm_pool(2).start();
    let known = server.sandbox().id;
    server.named(&known).command("s", "x=kept");
    server.kill();
    sql(&server, "PRAGMA wal_checkpoint(TRUNCATE)");
    let older = files(&server);
    server.launch();
    let lost = server.sandbox();
    lost.says("echo acked >/workspace/f");
    let disk = server.sandbox_with(&isolet_kit::json!({"disk_mib": 64}));
    disk.says("echo acked >/workspace/f");
    server.kill();
    put_back(&server, &older);
    server.launch();
    assert_eq!(server.ids(&server.http()), [known.as_str()]);
    assert_eq!(server.named(&known).command("s", "echo $x")["stdout"], "kept\n");
    let aside = server.data().join("orphaned");
    let all: Vec<PathBuf> =
        fs::read_dir(aside).expect("it is made").flatten().map(|one| one.path()).collect();
    assert_eq!(all.len(), 2, "unused sandboxes are not among them: {all:?}");
    let found = all.iter().filter_map(|one| fs::read_to_string(one.join("workspace/f")).ok());
    assert_eq!(found.collect::<Vec<_>>(), ["acked\n"]);
    assert_eq!(all.iter().filter(|one| one.join("disk.ext4").is_file()).count(), 1);
    server.healthy();
}

/// Promises: F16.
#[test]
fn f16_a_damaged_directory_affects_one_sandbox() {
    let mut server = Server::start();
    let mut rows = Rows::new();
    let damages: [(&str, Damage<'_>); 4] = [
        ("missing", &|folder| fs::remove_dir_all(folder).expect("removes")),
        ("a file", &|folder| {
            fs::remove_dir_all(folder).expect("removes");
            fs::write(folder, "x").expect("writes");
        }),
        ("a symlink to another", &|folder| {
            fs::remove_dir_all(folder).expect("removes");
            std::os::unix::fs::symlink("/etc", folder).expect("links");
        }),
        ("of another owner", &|folder| {
            std::os::unix::fs::chown(folder, Some(12345), Some(12345)).expect("chowns");
        }),
    ];
    for (name, damage) in damages {
        rows.row(name, || {
            let good = server.sandbox().id;
            server.named(&good).command("s", "x=kept");
            let before: Vec<_> = folders(&server);
            let hurt = server.sandbox().id;
            let folder =
                folders(&server).into_iter().find(|f| !before.contains(f)).expect("its own");
            server.kill();
            damage(&folder);
            server.launch();
            assert_eq!(server.named(&good).command("s", "echo $x")["stdout"], "kept\n");
            let answer = server.named(&hurt).info();
            assert!(answer["state"] == "failed" || name == "of another owner", "{answer}");
            server.named(&hurt).delete();
            fs::metadata("/etc/passwd").expect("the target of a symbolic link is not touched");
            server.named(&good).delete();
        });
    }
    drop(rows);
    server.healthy();
}

fn folders(server: &Server) -> Vec<PathBuf> {
    let all = fs::read_dir(server.data().join("sandboxes")).expect("reads").flatten();
    all.map(|entry| entry.path()).collect()
}
