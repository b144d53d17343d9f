//! Files of sandboxes and sessions: raw bytes in both directions, and their metadata.

use isolet_kit::{
    Http, Reply, Rows, SOON, Sandbox, Server, Value, json, one, process, quickly, wait_until,
};
use std::io::{Read as _, Write as _};

/// How much memory a copy of any size may add to the server or the agent, in KiB.
pub(super) const GROWTH_KIB: u64 = 24 * 1024;

pub(super) fn at(sandbox: &Sandbox, path: &str) -> String {
    sandbox.path(&format!("/files/{path}"))
}

pub(super) fn get(sandbox: &Sandbox, path: &str) -> Reply {
    sandbox.http.get(&at(sandbox, path))
}

pub(super) fn put(sandbox: &Sandbox, path: &str, body: &[u8]) -> Reply {
    sandbox.http.send("PUT", &at(sandbox, path), Some(body))
}

pub(super) fn file_operation(sandbox: &Sandbox, body: &Value) -> Reply {
    sandbox.post("/files", body)
}

pub(super) fn paths(list: &Value) -> Vec<String> {
    let all = list.as_array().expect("an array").iter();
    all.map(|one| one["path"].as_str().expect("a path").to_owned()).collect()
}

/// Promises: W1.
#[test]
fn a_file_is_read_back_byte_for_byte_and_belongs_to_root() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let all: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for path in
        ["a", "deep/er/b", "sp%20ace+plus", "%f0%9f%a6%80", "-rf", "%2Ftmp/abs", "/tmp/abs2"]
    {
        rows.row(path, || {
            let saved = put(&sandbox, path, &all).expect(201);
            assert_eq!(saved.json()["size"], 300_000);
            assert!(saved.json()["modified_ms"].as_i64().is_some_and(|ms| ms > 1_600_000_000_000));
            let got = get(&sandbox, path).expect(200);
            assert!(got.body == all);
            assert_eq!(got.header("content-type"), Some("application/octet-stream"));
            assert_eq!(got.header("etag"), saved.header("etag"));
            put(&sandbox, path, b"").expect(200);
            assert!(get(&sandbox, path).expect(200).body.is_empty());
        });
    }
    rows.row("the shell sees root's files and directories, by the mask", || {
        let seen = sandbox.says("stat -c '%n %u %g %a' deep deep/er deep/er/b /tmp/abs");
        assert_eq!(seen, "deep 0 0 755\ndeep/er 0 0 755\ndeep/er/b 0 0 644\n/tmp/abs 0 0 644\n");
    });
    rows.row("a mode is preserved, and set when given", || {
        assert_eq!(put(&sandbox, "run.sh?mode=0755", b"echo ran\n").status, 201);
        assert_eq!(put(&sandbox, "run.sh?fsync=1", b"echo again\n").status, 200);
        assert_eq!(sandbox.says("./run.sh; stat -c %a run.sh"), "again\n755\n");
        put(&sandbox, "run.sh?mode=600", b"").expect(200);
        assert_eq!(sandbox.says("stat -c %a run.sh"), "600\n");
    });
    rows.row("an append goes to the end", || {
        put(&sandbox, "log?append=1", b"one\n").expect(201);
        put(&sandbox, "log?append=1", b"two\n").expect(200);
        assert_eq!(sandbox.says("cat log; stat -c %a log"), "one\ntwo\n644\n");
    });
    rows.row("a write follows a symbolic link", || {
        sandbox.says("mkdir t; ln -s t/new link");
        put(&sandbox, "link", b"through").expect(201);
        assert_eq!(sandbox.says("cat t/new; readlink link"), "throught/new\n");
    });
    rows.row("nothing temporary is left", || {
        assert_eq!(sandbox.says("find / -xdev -name '.isolet-*' 2>/dev/null"), "");
    });
    drop(rows);
    server.healthy();
}

/// Promises: W3.
#[test]
fn a_file_is_served_by_ranges_and_conditions() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    put(&sandbox, "f", b"0123456789").expect(201);
    let ask = |name: &str, value: &str| sandbox.http.with(name, value).get(&at(&sandbox, "f"));
    for (range, expected, of) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=-20", "0123456789", "bytes 0-9/10"),
        ("bytes=5-500", "56789", "bytes 5-9/10"),
    ] {
        rows.row(range, || {
            let reply = ask("range", range).expect(206);
            assert_eq!(reply.text(), expected);
            assert_eq!(reply.header("content-range"), Some(of));
        });
    }
    for range in ["bytes=10-", "bytes=-0", "bytes=18446744073709551615-"] {
        rows.row(range, || {
            let reply = ask("range", range).expect(416);
            assert_eq!(reply.error(), "bad_range");
            assert_eq!(reply.header("content-range"), Some("bytes */10"));
        });
    }
    rows.row("malformed and multiple ranges are ignored", || {
        for range in ["bytes=4-2", "bytes=0-1,3-4", "bytes=x", "lines=1-2"] {
            assert_eq!(ask("range", range).expect(200).text(), "0123456789");
        }
    });
    rows.row("HEAD answers like GET without the body", || {
        let head = sandbox.http.try_open("HEAD", &at(&sandbox, "f"), None).expect("an answer");
        let says = |name: &str, value: &str| head.headers.contains(&(name.into(), value.into()));
        assert!(head.status == 200 && says("content-length", "10"), "{head:?}");
        assert!(says("accept-ranges", "bytes"), "{head:?}");
    });
    rows.row("a version that the client already has is not sent", || {
        let tag = get(&sandbox, "f").header("etag").expect("a tag").to_owned();
        let same = ask("if-none-match", &tag).expect(304);
        assert!(same.body.is_empty());
        assert_eq!(same.header("etag"), Some(tag.as_str()));
        ask("if-none-match", &format!("\"x\", W/{tag}")).expect(304);
        let part = |tag: &str| {
            let http = sandbox.http.with("range", "bytes=0-1").with("if-range", tag);
            http.get(&at(&sandbox, "f"))
        };
        assert_eq!(part(&tag).expect(206).text(), "01");
        put(&sandbox, "f", b"abcdefghij").expect(200);
        assert_eq!(ask("if-none-match", &tag).expect(200).text(), "abcdefghij");
        assert_eq!(part(&tag).expect(200).text(), "abcdefghij");
    });
}

/// Promises: W17.
#[test]
fn a_conditional_write_replaces_only_the_version_that_was_read() {
    let (_server, sandbox) = one();
    let write = |tag: &str, content: &str| {
        sandbox.http.with("if-match", tag).send("PUT", &at(&sandbox, "f"), Some(content.as_bytes()))
    };
    let none = write("*", "x").expect(412);
    assert_eq!(none.error(), "file_changed");
    // What is refused has changed nothing.
    let deep = at(&sandbox, "new/deep/f");
    sandbox.http.with("if-match", "*").send("PUT", &deep, Some(b"x")).expect(412);
    get(&sandbox, "new").expect(404);
    let other = "/v1/sandboxes/no-such-sandbox";
    let missing = format!("{other}/files/f");
    let missing = sandbox.http.with("if-match", "*").send("PUT", &missing, Some(b"x"));
    assert_eq!(missing.expect(404).error(), "no_sandbox");
    sandbox.http.get(other).expect(404);
    let first = put(&sandbox, "f", b"first").expect(201);
    let tag = first.header("etag").expect("a tag").to_owned();
    assert_eq!(first.json()["etag"], json!(tag));
    sandbox.exec("echo other > f");
    assert_eq!(write(&tag, "second").expect(412).error(), "file_changed");
    assert_eq!(get(&sandbox, "f").expect(200).text(), "other\n");
    for bad in ["x", "\"1-2\"", "W/\"1-2-3\""] {
        assert_eq!(write(bad, "x").expect(400).error(), "bad_field", "{bad}");
    }

    // Of writers with the same version, exactly one succeeds, in each round.
    for _ in 0..10 {
        let tag = get(&sandbox, "f").header("etag").expect("a tag").to_owned();
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8)
                .map(|writer| {
                    let write = &write;
                    let tag = &tag;
                    scope.spawn(move || write(tag, &format!("{writer}")).status)
                })
                .collect();
            writers.into_iter().map(|one| one.join().expect("it answers")).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 412).count(), 7, "{statuses:?}");
    }
}

#[test]
fn file_operations_do_what_they_say_and_report_conflicts() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let ok = |body: Value| file_operation(&sandbox, &body).expect(200).json();
    let no = |body: Value| {
        let reply = file_operation(&sandbox, &body);
        (reply.status, reply.error())
    };
    put(&sandbox, "d/f", b"one").expect(201);
    rows.row("stat and exists", || {
        sandbox.says("ln -s d/f good; ln -s d/none bad");
        let stat = ok(json!({"op": "stat", "path": "d/f"}));
        assert_eq!((&stat["path"], &stat["name"]), (&json!("/workspace/d/f"), &json!("f")));
        assert_eq!(
            (&stat["type"], &stat["size"], &stat["mode"]),
            (&json!("file"), &json!(3), &json!("0644"))
        );
        assert_eq!(ok(json!({"op": "stat", "path": "good"}))["target"], "d/f");
        assert_eq!(ok(json!({"op": "stat", "path": "good", "follow": true}))["type"], "file");
        for (path, there) in
            [("d/f", true), ("good", true), ("bad", false), ("d/f/g", false), ("/etc", true)]
        {
            assert_eq!(
                ok(json!({"op": "exists", "path": path})),
                json!({"exists": there}),
                "{path}"
            );
        }
    });
    rows.row("mkdir", || {
        assert_eq!(ok(json!({"op": "mkdir", "path": "m/n/o"}))["type"], "directory");
        ok(json!({"op": "mkdir", "path": "m/n/o"}));
        assert_eq!(no(json!({"op": "mkdir", "path": "d/f"})), (409, "exists".into()));
    });
    rows.row("chmod", || {
        assert_eq!(ok(json!({"op": "chmod", "path": "d/f", "mode": "0750"}))["mode"], "0750");
        for mode in [json!("rwx"), json!(""), json!("99"), json!(755), json!("10000")] {
            assert_eq!(no(json!({"op": "chmod", "path": "d/f", "mode": mode})).0, 400);
        }
    });
    rows.row("copy", || {
        ok(json!({"op": "copy", "path": "d/f", "to": "c/f"}));
        assert_eq!(sandbox.says("cat c/f; stat -c %a c/f"), "one750\n");
        sandbox.says("mkdir -p tree/ro tree/e; echo x >tree/ro/x; ln -s ro tree/l; mkfifo tree/p; chmod 555 tree/ro");
        ok(json!({"op": "copy", "path": "tree", "to": "/tmp/tree"}));
        assert_eq!(sandbox.says("diff -r --exclude=p tree /tmp/tree; ls -F /tmp/tree; stat -c %a /tmp/tree/ro"), "e/\nl@\np|\nro/\n555\n");
        assert_eq!(no(json!({"op": "copy", "path": "tree", "to": "tree/e/in"})), (409, "wrong_kind".into()));
        assert_eq!(no(json!({"op": "copy", "path": "tree", "to": "c"})), (409, "exists".into()));
        assert_eq!(sandbox.says("ls tree/e"), "");
    });
    rows.row("move", || {
        assert_eq!(
            ok(json!({"op": "move", "path": "c/f", "to": "p/q/f"}))["path"],
            "/workspace/p/q/f"
        );
        ok(json!({"op": "move", "path": "tree", "to": "/dev/shm/tree"}));
        assert_eq!(sandbox.says("ls tree 2>&1 | wc -l; cat /dev/shm/tree/ro/x"), "1\nx\n");
        put(&sandbox, "way", b"in the way").expect(201);
        let keep = json!({"op": "move", "path": "p/q/f", "to": "way", "replace": false});
        assert_eq!(no(keep), (409, "exists".into()));
        ok(json!({"op": "move", "path": "p/q/f", "to": "way"}));
        assert_eq!(get(&sandbox, "way").text(), "one");
        assert_eq!(no(json!({"op": "move", "path": "d", "to": "d/e/f"})).0, 409);
        assert_eq!(no(json!({"op": "move", "path": "none", "to": "x"})), (404, "not_found".into()));
    });
    rows.row("delete", || {
        assert_eq!(sandbox.http.delete(&at(&sandbox, "way")).status, 204);
        let again = sandbox.http.delete(&at(&sandbox, "way"));
        assert_eq!((again.status, again.error()), (404, "not_found".into()));
        let full = sandbox.http.delete(&at(&sandbox, "m"));
        assert_eq!((full.status, full.error()), (409, "not_empty".into()));
        assert_eq!(sandbox.http.delete(&at(&sandbox, "m?recursive=1")).status, 204);
        for path in [".", "%2Fworkspace", "%2Fproc"] {
            let status = sandbox.http.delete(&at(&sandbox, path)).status;
            assert!(matches!(status, 403 | 409), "{path}: {status}");
        }
        sandbox.says("mkdir keep; touch keep/me; ln -s keep gone");
        assert_eq!(sandbox.http.delete(&at(&sandbox, "gone?recursive=1")).status, 204);
        assert_eq!(sandbox.says("ls keep"), "me\n");
    });
    rows.row("unknown fields are refused by name", || {
        for (body, name) in [
            (json!({"op": "stat", "path": "d", "nope": 1}), "nope"),
            (json!({"op": "stat"}), "path"),
            (json!({"op": "stat", "path": ""}), "path"),
            (json!({"op": "stat", "path": "a\u{0}b"}), "path"),
            (json!({"op": "stat", "path": "x".repeat(5000)}), "path"),
            (json!({"op": "stat", "path": "d", "path_b64": "ZA=="}), "path"),
            (json!({"op": "stat", "path_b64": "?"}), "path_b64"),
            (json!({"op": "stat", "path": "d", "to": "e"}), "to"),
            (json!({"op": "move", "path": "d"}), "to"),
            (json!({"op": "copy", "path": "d", "to": "e", "mode": "0644"}), "mode"),
            (json!({"op": "burn", "path": "d"}), "op"),
            (json!({"path": "d"}), "op"),
        ] {
            let reply = file_operation(&sandbox, &body).expect(400);
            let message = reply.json()["message"].as_str().unwrap_or_default().to_owned();
            assert!(message.contains(name), "{body}: {message}");
        }
    });
}

/// Promises: W1, G2.
#[test]
fn a_session_has_the_files_of_its_sandbox() {
    let server = Server::start();
    let sandbox = server.named("by-file");
    let inside = |rest: &str| sandbox.path(&format!("/sessions/dev/files{rest}"));
    assert_eq!(sandbox.http.get(&inside("/f")).status, 404);
    assert_eq!(sandbox.http.delete(&inside("/f")).status, 404);
    assert!(server.ids(&server.http()).is_empty(), "reading creates nothing");
    sandbox.http.send("PUT", &inside("/f"), Some(b"by a session")).expect(201);
    assert_eq!(server.ids(&server.http()), ["by-file"], "a write creates its sandbox");
    assert_eq!(sandbox.command("dev", "cat f")["stdout"], "by a session");
    assert_eq!(get(&sandbox, "f").text(), "by a session");
    let stat = sandbox.http.post(&inside(""), &json!({"op": "stat", "path": "f"})).expect(200);
    assert_eq!(stat.json()["size"], 12);
    let other = sandbox.http.get(&sandbox.path("/sessions/none/files/f"));
    assert_eq!((other.status, other.error()), (404, "no_session".into()));
    assert_eq!(paths(&sandbox.http.get(&inside("")).expect(200).json()), ["/workspace/f"]);
    assert_eq!(sandbox.http.delete(&inside("/f")).status, 204);
}

/// A reader that opens the name at any time sees the old bytes or the new ones, never a part.
/// Promises: W2.
#[test]
fn an_interrupted_write_changes_nothing() {
    let (server, sandbox) = one();
    put(&sandbox, "whole", b"the old bytes").expect(201);
    let mut stream = sandbox.http.connect();
    let head = format!(
        "PUT {} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\ncontent-length: 1000000\r\n\r\n",
        at(&sandbox, "whole"),
        sandbox.http.port,
        sandbox.http.key.as_deref().expect("a key"),
    );
    stream.write_all(head.as_bytes()).expect("written");
    stream.write_all(&[b'x'; 500_000]).expect("written");
    wait_until("the write has started", SOON, || {
        (process::atomic_writes(server.agent()) == 1).then_some(())
    });
    assert_eq!(get(&sandbox, "whole").text(), "the old bytes");
    drop(stream);
    wait_until("nothing temporary is left", SOON, || {
        (process::atomic_writes(server.agent()) == 0).then_some(())
    });
    assert_eq!(sandbox.says("ls -A"), "whole\n");
    assert_eq!(get(&sandbox, "whole").text(), "the old bytes");
    server.healthy();
}

/// Promises: W5.
#[test]
fn heavy_256_mb_go_up_and_down_in_constant_memory() {
    const SIZE: u64 = 256 * 1024 * 1024;
    let (server, sandbox) = one();
    put(&sandbox, "warm", &vec![7; 1 << 20]).expect(201);
    get(&sandbox, "warm").expect(200);
    let look = || (process::memory_kib(server.pid()), process::memory_kib(server.agent()));
    let before = look();
    let mut stream = sandbox.http.connect();
    let head = format!(
        "PUT {} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\ncontent-length: {SIZE}\r\nconnection: close\r\n\r\n",
        at(&sandbox, "big"),
        sandbox.http.port,
        sandbox.http.key.as_deref().expect("a key"),
    );
    stream.write_all(head.as_bytes()).expect("written");
    let block: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    for _ in 0..SIZE >> 20 {
        stream.write_all(&block).expect("written");
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let middle = look();
    let mut down = sandbox.http.try_open("GET", &at(&sandbox, "big"), None).expect("an answer");
    let mut total = 0_u64;
    let mut part = vec![0; 1 << 20];
    loop {
        let count = down.body.read(&mut part).expect("bytes");
        if count == 0 {
            break;
        }
        let first = (total % 256) as u8;
        assert!(
            part[..count]
                .iter()
                .zip(0_usize..)
                .all(|(byte, n)| *byte == first.wrapping_add(n as u8))
        );
        total += count as u64;
    }
    assert_eq!(total, SIZE);
    let after = look();
    for (now, then) in [(middle, before), (after, before)] {
        assert!(now.0 < then.0 + GROWTH_KIB, "server: {} to {} KiB", then.0, now.0);
        assert!(now.1 < then.1 + GROWTH_KIB, "agent: {} to {} KiB", then.1, now.1);
    }
}

/// Promises: W6.
#[test]
fn i5_files_that_never_end_are_refused_or_bounded_and_delay_nobody() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    sandbox.says(
        "mkfifo fifo; truncate -s 1T sparse; mkdir loop; ln -s . loop/self; ln -s turn turn; \
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'",
    );
    let mut shell = sandbox.shell();
    shell.run("(while :; do echo more; done) >growing & echo").is("\n", 0);
    for path in [
        "/dev/zero",
        "/dev/urandom",
        "/dev/tty",
        "fifo",
        "sock",
        "turn",
        "/proc/kmsg",
        "/proc/kcore",
    ] {
        rows.row(&format!("read {path}"), || {
            let path = path.replacen('/', "%2F", 1);
            let reply = quickly("an answer", SOON, || {
                sandbox.http.try_send("GET", &at(&sandbox, &path), None)
            });
            let bounded = reply.map(|reply| reply.status >= 400 || reply.body.len() < 1 << 20);
            assert!(bounded.unwrap_or(true));
        });
        rows.row(&format!("write {path}"), || {
            let path = path.replacen('/', "%2F", 1);
            for query in ["", "?append=1"] {
                let reply =
                    quickly("an answer", SOON, || put(&sandbox, &format!("{path}{query}"), b"x"));
                assert!((400..500).contains(&reply.status), "{} {}", reply.status, reply.text());
            }
        });
    }
    rows.row("files of the kernel are read to their end", || {
        assert!(get(&sandbox, "%2Fproc/self/status").expect(200).text().contains("Name:"));
        let page = get(&sandbox, "%2Fsys/kernel/mm/transparent_hugepage/enabled");
        assert!(page.status == 404 || !page.text().is_empty(), "{}", page.status);
    });
    rows.row("a sparse file of 1 TiB, and a file that grows", || {
        let tail = sandbox.http.with("range", "bytes=-3").get(&at(&sandbox, "sparse")).expect(206);
        assert_eq!(
            (tail.body.as_slice(), tail.header("content-range")),
            (&[0; 3][..], Some("bytes 1099511627773-1099511627775/1099511627776"))
        );
        let begun: Vec<_> = (0..4)
            .map(|_| {
                sandbox.http.try_open("GET", &at(&sandbox, "sparse"), None).expect("it begins")
            })
            .collect();
        quickly("a call beside", SOON, || assert_eq!(sandbox.says("echo on"), "on\n"));
        drop(begun);
        let whole =
            sandbox.http.try_open("GET", &at(&sandbox, "growing"), None).expect("it begins");
        let said: u64 = whole
            .headers
            .iter()
            .find(|(name, _)| name == "content-length")
            .and_then(|(_, n)| n.parse().ok())
            .expect("a length");
        let mut body = whole.body;
        assert_eq!(std::io::copy(&mut body, &mut std::io::sink()).expect("it ends"), said);
    });
    rows.row("a walk follows no loop", || {
        let all = get(&sandbox, "loop?recursive=1").expect(200).json();
        assert_eq!(paths(&all), ["/workspace/loop/self"]);
    });
    shell.run("kill %1; rm -f growing").is("", 0);
    wait_until("no worker is left", SOON, || {
        let tree = sandbox.says("ls /proc | grep -c '^[0-9]'");
        tree.trim().parse::<u32>().is_ok_and(|count| count < 12).then_some(())
    });
    drop(rows);
    server.healthy();
}

/// A read-only key is limited to reading; another tenant's sandbox does not exist for the caller.
#[test]
fn files_are_the_tenants_own() {
    let (server, sandbox) = one();
    put(&sandbox, "secret", b"mine").expect(201);
    let other = server.named(&sandbox.id);
    let stranger = Sandbox { http: Http::new(sandbox.http.port, None), ..other };
    assert_eq!(get(&stranger, "secret").status, 401);
    assert_eq!(put(&stranger, "secret", b"yours").status, 401);
    assert_eq!(get(&sandbox, "secret").text(), "mine");
}

/// Promises: W8.
#[test]
fn a_directory_round_trips_as_an_archive() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let long = "n".repeat(200);
    sandbox.says(&format!(
        "mkdir -p src/empty src/.git src/{long}/{long}; cd src; echo x >a; chmod 755 a; echo h >.git/HEAD; \
         ln -s a link; ln -s /etc/passwd out; echo deep >{long}/{long}/{long}; echo odd >$'odd\\xff'; mkfifo pipe; \
         head -c 3000000 /dev/urandom >big; touch -d @1000000000 a"
    ));
    let seen = |at: &str| {
        sandbox.says(&format!("cd {at}; find . ! -name pipe -printf '%P %y %m %l\\n' | sort; find . -type f | sort | xargs -d '\\n' md5sum; stat -c %Y a"))
    };
    let packed = get(&sandbox, "src?tar=1").expect(200);
    assert_eq!(packed.header("content-type"), Some("application/x-tar"));
    rows.row("by this server", || {
        let saved = put(&sandbox, "back/here?untar=1", &packed.body).expect(200);
        assert_eq!(saved.json()["path"], "/workspace/back/here");
        assert_eq!(seen("back/here"), seen("src"));
        assert!(seen("src").ends_with("\n1000000000\n"));
        assert_eq!(
            sandbox.says("stat -c '%u %g' back/here/a; ls back/here | grep -c pipe"),
            "0 0\n0\n"
        );
    });
    rows.row("by the tar of others", || {
        put(&sandbox, "%2Ftmp/a.tar", &packed.body).expect(201);
        sandbox.says("mkdir /tmp/theirs; tar -xf /tmp/a.tar -C /tmp/theirs");
        assert_eq!(seen("/tmp/theirs"), seen("src"));
        for format in ["gnu", "pax", "ustar"] {
            let all = if format == "ustar" { "a link big" } else { "." };
            sandbox.says(&format!(
                "rm -rf /tmp/own; tar --format={format} -cf /tmp/b.tar -C src {all}"
            ));
            let theirs = get(&sandbox, "%2Ftmp/b.tar").expect(200).body;
            put(&sandbox, "%2Ftmp/own?untar=1", &theirs).expect(200);
            let same = sandbox.says(
                "cmp src/big /tmp/own/big && readlink /tmp/own/link && stat -c %a /tmp/own/a",
            );
            assert_eq!(same, "a\n755\n", "{format}");
        }
    });
    rows.row("an invalid archive or one that leads out is refused", || {
        sandbox.says("cd /tmp; echo x >up; tar -cPf dots.tar ../tmp/up; mkdir l; ln -s /etc l/e; tar -cf link.tar l/e; \
            mkdir -p m/l/e; echo x >m/l/e/f; tar -rf link.tar -C m l/e/f");
        let of = |name: &str| get(&sandbox, &format!("%2Ftmp/{name}")).expect(200).body;
        for (name, body) in [
            ("empty", Vec::new()),
            ("garbage", vec![b'g'; 5000]),
            ("cut", packed.body[..packed.body.len() / 2].to_vec()),
            ("dots", of("dots.tar")),
            ("through a link", of("link.tar")),
        ] {
            let reply = put(&sandbox, "bad/in?untar=1", &body);
            assert!(matches!(reply.status, 400 | 409), "{name}: {} {}", reply.status, reply.text());
        }
        assert_eq!(sandbox.says("ls /etc/f bad/up bad/in/up 2>/dev/null"), "");
        assert_eq!(get(&sandbox, "src/a?tar=1").status, 400);
        assert_eq!(get(&sandbox, "none?tar=1").status, 404);
        assert_eq!(put(&sandbox, "x?untar=1&append=1", b"").status, 400);
        assert_eq!(put(&sandbox, "src/a?untar=1", &packed.body).status, 409);
    });
    rows.row("the whole of /workspace, with HEAD first", || {
        let head =
            sandbox.http.try_open("HEAD", &sandbox.path("/files?tar=1"), None).expect("an answer");
        assert_eq!(head.status, 200);
        let whole = sandbox.http.get(&sandbox.path("/files?tar=1")).expect(200).body;
        assert!(whole.len() > packed.body.len());
    });
    drop(rows);
    server.healthy();
}

#[test]
fn a_watch_reports_only_the_selected_changes() {
    let (server, sandbox) = one();
    let http = server.http();
    let path =
        sandbox.path("/files?watch=1&recursive=1&include=*.rs&include=docs/*&exclude=target");
    sandbox.exec("mkdir -p /workspace/target /workspace/docs");
    let mut watch = http.try_open("GET", &path, None).expect("an answer");
    assert_eq!(watch.event().map(|event| event.name).as_deref(), Some("watching"));
    sandbox.exec("cd /workspace; touch a.py target/b.rs docs/c.md; touch d.rs");
    let mut seen = Vec::new();
    while seen.last().map(String::as_str) != Some("/workspace/d.rs") {
        let event = watch.event().expect("another event");
        let change: Value = serde_json::from_str(&event.data).expect("JSON");
        seen.push(change["path"].as_str().expect("a path").to_owned());
    }
    seen.dedup();
    assert_eq!(seen, ["/workspace/docs/c.md", "/workspace/d.rs"]);
    for bad in ["watch=1&include=", "watch=1&exclude=[", "include=*.rs", "watch=1&type=file"] {
        http.get(&sandbox.path(&format!("/files?{bad}"))).expect(400);
    }
}

#[test]
fn a_read_can_insist_on_a_file() {
    let (server, sandbox) = one();
    let http = server.http();
    sandbox.exec("mkdir -p /workspace/d; echo text >/workspace/f");
    assert_eq!(http.get(&sandbox.path("/files/f?type=file")).expect(200).text(), "text\n");
    let refused = http.get(&sandbox.path("/files/d?type=file")).expect(409);
    assert_eq!(refused.error(), "wrong_kind");
    http.get(&sandbox.path("/files/d")).expect(200);
    for bad in ["type=directory", "type=file&tar=1", "type=file&recursive=1"] {
        http.get(&sandbox.path(&format!("/files/d?{bad}"))).expect(400);
    }
}
