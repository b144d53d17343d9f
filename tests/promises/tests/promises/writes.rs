//! What a write through the API changes besides the bytes: nothing that a watch, a list or the
//! file's owner could notice.

use isolet_kit::{
    Event, Reply, Rows, SOON, Sandbox, Stream, Value, json, one, process, wait_until,
};
use std::io::Write as _;

fn at(sandbox: &Sandbox, path: &str) -> String {
    sandbox.path(&format!("/files/{path}"))
}

fn put(sandbox: &Sandbox, path: &str, body: &[u8]) -> Reply {
    sandbox.http.send("PUT", &at(sandbox, path), Some(body))
}

fn list(sandbox: &Sandbox, query: &str) -> Vec<String> {
    let all = sandbox.http.get(&sandbox.path(&format!("/files?{query}"))).expect(200).json();
    let names = all.as_array().expect("an array").iter();
    names.map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

fn watch(sandbox: &Sandbox) -> Stream {
    let path = sandbox.path("/files?watch=1&recursive=1");
    let mut stream = sandbox.http.try_open("GET", &path, None).expect("an answer");
    assert_eq!(stream.event().expect("an event").name, "watching");
    stream
}

fn summary(event: &Event) -> String {
    let data: Value = event.data.parse().expect("JSON");
    let path = data["path"].as_str().unwrap_or_default();
    format!("{} {}", event.name, path.trim_start_matches("/workspace/"))
}

/// All events up to the creation of `mark`, a file that this function creates inside.
fn until(sandbox: &Sandbox, stream: &mut Stream, mark: &str) -> Vec<String> {
    sandbox.exec(&format!("mkdir {mark}"));
    let mut seen = Vec::new();
    loop {
        let one = summary(&stream.event().expect("one more event"));
        if one == format!("created {mark}") {
            return seen;
        }
        seen.push(one);
    }
}

/// Promises: W14.
#[test]
fn a_write_is_one_event_of_the_name_that_was_written() {
    let (server, sandbox) = one();
    let mut stream = watch(&sandbox);
    let mut rows = Rows::new();
    let large = vec![b'x'; 3_000_000];
    rows.row("a new file is created", || {
        put(&sandbox, "a", &large).expect(201);
        assert_eq!(until(&sandbox, &mut stream, "m1"), ["created a"]);
    });
    rows.row("an existing file is modified, also when its owner is preserved", || {
        put(&sandbox, "a", &large).expect(200);
        assert_eq!(until(&sandbox, &mut stream, "m2"), ["modified a"]);
        sandbox.exec("chown 1000:1000 a; chmod 600 a");
        until(&sandbox, &mut stream, "m3");
        put(&sandbox, "a", b"short").expect(200);
        assert_eq!(until(&sandbox, &mut stream, "m4"), ["modified a"]);
    });
    rows.row("so is the target of a symbolic link, and not the link", || {
        sandbox.exec("ln -s a link");
        until(&sandbox, &mut stream, "m5");
        put(&sandbox, "link", b"through").expect(200);
        assert_eq!(until(&sandbox, &mut stream, "m6"), ["modified a"]);
    });
    rows.row("a copy", || {
        sandbox.post("/files", &json!({"op": "copy", "path": "a", "to": "b"})).expect(200);
        assert_eq!(until(&sandbox, &mut stream, "m7"), ["created b"]);
        sandbox.post("/files", &json!({"op": "copy", "path": "a", "to": "b"})).expect(200);
        assert_eq!(until(&sandbox, &mut stream, "m8"), ["modified b"]);
    });
    rows.row("in a directory that is also new", || {
        put(&sandbox, "new/file", b"x").expect(201);
        assert_eq!(until(&sandbox, &mut stream, "m9"), ["created new", "created new/file"]);
    });
    rows.row("a tenant's file with a similar name", || {
        sandbox.exec("mkdir .isolet-x; rmdir .isolet-x");
        let seen = until(&sandbox, &mut stream, "m10");
        assert_eq!(seen, ["created .isolet-x", "deleted .isolet-x"]);
        // The kernel's name for a file without a name.
        sandbox.exec("mkdir '#6'; rmdir '#6'");
        let seen = until(&sandbox, &mut stream, "m11");
        assert_eq!(seen, ["created #6", "deleted #6"]);
        sandbox.exec("mkdir '#7'");
        assert_eq!(until(&sandbox, &mut stream, "m12"), ["created #7"]);
        sandbox.exec("mv '#7' plain");
        assert_eq!(until(&sandbox, &mut stream, "m13"), ["moved #7"]);
    });
    drop(rows);
    server.healthy();
}

/// Promises: W14.
#[test]
fn an_upload_is_invisible_before_it_is_complete() {
    let (server, sandbox) = one();
    sandbox.exec("echo old >old; echo own >.isolet-x");
    let mut stream = watch(&sandbox);
    let uploads: Vec<_> = ["new", "old"]
        .iter()
        .map(|name| {
            let mut upload = sandbox.http.connect();
            let key = sandbox.http.key.as_deref().unwrap_or_default();
            let head = format!(
                "PUT {} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {key}\r\ncontent-length: 1000000\r\n\r\n",
                at(&sandbox, name),
                sandbox.http.port
            );
            upload.write_all(head.as_bytes()).expect("written");
            upload.write_all(&[b'n'; 500_000]).expect("written");
            upload
        })
        .collect();
    // The agent's workers have their files open, with a name or without.
    wait_until("both are being written", SOON, || {
        (process::atomic_writes(server.agent()) == 2).then_some(())
    });
    assert_eq!(list(&sandbox, "hidden=1"), [".isolet-x", "old"]);
    assert_eq!(list(&sandbox, "hidden=1&recursive=1"), [".isolet-x", "old"]);
    let found = sandbox.http.get(&sandbox.path("/files?search=n&hidden=1")).expect(200).json();
    assert_eq!(found["files"], 2, "{found}");
    drop(uploads);
    assert!(until(&sandbox, &mut stream, "mark").is_empty(), "it changed nothing");
    assert_eq!(sandbox.says("cat old; ls -A"), "old\n.isolet-x\nmark\nold\n");
    server.healthy();
}

/// Promises: W15.
#[test]
fn an_overwritten_file_keeps_its_owner_and_mode() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let seen = |path: &str| sandbox.says(&format!("stat -c '%u:%g %a' {path}; cat {path}"));
    sandbox.exec("echo old >f; chown 1000:1001 f; chmod 600 f");
    rows.row("a write", || {
        put(&sandbox, "f", b"new\n").expect(200);
        assert_eq!(seen("f"), "1000:1001 600\nnew\n");
        put(&sandbox, "f?mode=640", b"mode\n").expect(200);
        assert_eq!(seen("f"), "1000:1001 640\nmode\n");
        put(&sandbox, "f?append=1", b"more\n").expect(200);
        assert_eq!(seen("f"), "1000:1001 640\nmode\nmore\n");
    });
    rows.row("through a symbolic link, which stays", || {
        sandbox.exec("ln -s f link");
        put(&sandbox, "link", b"linked\n").expect(200);
        assert_eq!(seen("f"), "1000:1001 640\nlinked\n");
        assert_eq!(sandbox.says("readlink link"), "f\n");
    });
    rows.row("set-user-id and set-group-id bits", || {
        sandbox.exec("cp /bin/true s; chown 1000 s; chmod 4755 s");
        put(&sandbox, "s", b"#!/bin/sh\n").expect(200);
        assert_eq!(sandbox.says("stat -c '%u %a' s"), "1000 4755\n");
    });
    rows.row("user attributes", || {
        let set = "import os; os.setxattr('f', 'user.note', b'kept')";
        let read = "import os; print(os.getxattr('f', 'user.note'))";
        if sandbox.exec(&format!("python3 -c \"{set}\""))["exit_code"] == 0 {
            put(&sandbox, "f", b"again\n").expect(200);
            assert_eq!(sandbox.says(&format!("python3 -c \"{read}\"")), "b'kept'\n");
        }
    });
    rows.row("a copy keeps those of the file that it replaces", || {
        sandbox.exec("echo from >from; chmod 755 from");
        sandbox.post("/files", &json!({"op": "copy", "path": "from", "to": "f"})).expect(200);
        assert_eq!(seen("f"), "1000:1001 640\nfrom\n");
        sandbox.post("/files", &json!({"op": "copy", "path": "f", "to": "fresh"})).expect(200);
        assert_eq!(seen("fresh"), "0:0 640\nfrom\n");
    });
    rows.row("a moved file keeps its own, also between file systems", || {
        sandbox.exec("echo moved >m; chown 1002:1003 m; chmod 604 m");
        for to in ["f", "/dev/shm/there", "back"] {
            let from = if to == "f" {
                "m"
            } else if to == "back" {
                "/dev/shm/there"
            } else {
                "f"
            };
            sandbox.post("/files", &json!({"op": "move", "path": from, "to": to})).expect(200);
            assert_eq!(seen(to), "1002:1003 604\nmoved\n", "{to}");
        }
    });
    rows.row("files of an archive keep the owner of those that they replace", || {
        sandbox.exec("mkdir -p in out; echo packed >in/f; echo old >out/f; chown 1000:1001 out/f");
        let archive = sandbox.http.get(&at(&sandbox, "in?tar=1")).expect(200).body;
        put(&sandbox, "out?untar=1", &archive).expect(200);
        assert_eq!(seen("out/f"), "1000:1001 644\npacked\n");
    });
    drop(rows);
    server.healthy();
}
