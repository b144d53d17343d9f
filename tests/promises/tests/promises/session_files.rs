//! Files of sessions across sandboxes: the dialect's shapes and statuses, with real files.

use isolet_kit::{Http, Reply, Rows, Server, Value, json};

fn made(http: &Http, spec: &Value) -> String {
    let session = http.post("/v1/sessions", spec).expect(201).json();
    format!("/v1/sessions/{}", session["id"].as_str().expect("an id"))
}

fn put(http: &Http, at: &str, path: &str, body: &[u8]) -> Reply {
    http.send("PUT", &format!("{at}/files/{path}"), Some(body))
}

fn names(list: &Value) -> Vec<String> {
    let all = list.as_array().expect("an array").iter();
    all.map(|one| format!("{} {}", one["name"].as_str().unwrap(), one["type"].as_str().unwrap()))
        .collect()
}

fn fields(one: &Value) -> Vec<&str> {
    let mut all: Vec<_> = one.as_object().expect("an object").keys().map(String::as_str).collect();
    all.sort_unstable();
    all
}

fn now() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs_f64()
}

/// Promises: P10.
#[test]
fn a_session_writes_reads_lists_and_removes_files() {
    let server = Server::start();
    let http = server.http();
    let at = made(&http, &json!({"persistent": true}));
    let body: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let mut rows = Rows::new();
    rows.row("a written file is reported, new or not", || {
        for _ in 0..2 {
            let saved = put(&http, &at, "deep/er/b.bin", &body).expect(201).json();
            assert_eq!(
                (&saved["path"], &saved["size"]),
                (&json!("deep/er/b.bin"), &json!(100_000))
            );
            let modified = saved["modified"].as_f64().expect("seconds");
            assert!((modified - now()).abs() < 60.0, "{saved}");
            assert_eq!(fields(&saved), ["modified", "path", "size"], "{saved}");
        }
    });
    rows.row("a file is read in whole and in part", || {
        let path = format!("{at}/files/deep/er/b.bin");
        assert!(http.get(&path).expect(200).body == body);
        let part = http.with("range", "bytes=10-19").get(&path).expect(206);
        assert_eq!(part.body, body[10..20]);
        assert_eq!(part.header("content-range"), Some("bytes 10-19/100000"));
        assert_eq!(http.with("range", "bytes=100000-").get(&path).expect(416).error(), "bad_range");
        let head = http.try_open("HEAD", &path, None).expect("an answer");
        assert_eq!(head.status, 200);
        assert!(head.headers.contains(&("content-length".to_owned(), "100000".to_owned())));
    });
    rows.row("a directory lists its entries, by its path and by ?path=", || {
        put(&http, &at, "deep/.dot", b"x").expect(201);
        let list = http.get(&format!("{at}/files/deep")).expect(200).json();
        assert_eq!(names(&list), [".dot file", "er directory"]);
        assert_eq!(list[0]["size"], 1);
        assert!((list[0]["modified"].as_f64().expect("seconds") - now()).abs() < 60.0);
        assert_eq!(fields(&list[0]), ["modified", "name", "size", "type"], "{list}");
        assert_eq!(http.get(&format!("{at}/files?path=deep")).expect(200).json(), list);
        let top = http.get(&format!("{at}/files")).expect(200).json();
        assert_eq!(names(&top), ["deep directory"]);
        for same in ["files/", "files?path=", "files?path=.", "files/."] {
            assert_eq!(http.get(&format!("{at}/{same}")).expect(200).json(), top, "{same}");
        }
    });
    rows.row("a list is paged", || {
        let first = http.get(&format!("{at}/files?path=deep&limit=1")).expect(200);
        assert_eq!(names(&first.json()), [".dot file"]);
        let link = first.header("link").expect("a next page");
        let next = link.strip_prefix('<').and_then(|link| link.split_once('>')).expect("a link").0;
        let second = http.get(next).expect(200);
        assert_eq!(
            (names(&second.json()), second.header("link")),
            (vec!["er directory".into()], None)
        );
    });
    rows.row("a removed file is not found", || {
        let path = format!("{at}/files/deep/er/b.bin");
        http.delete(&path).expect(204);
        http.delete(&path).expect(404);
        http.get(&path).expect(404);
        assert_eq!(http.delete(&format!("{at}/files/deep")).expect(409).error(), "not_empty");
        http.delete(&format!("{at}/files/deep?recursive=1")).expect(204);
        assert_eq!(http.get(&format!("{at}/files")).json(), json!([]));
    });
}

/// Promises: P11.
#[test]
fn absolute_and_parent_paths_are_refused() {
    let server = Server::start();
    let http = server.http();
    let at = made(&http, &json!({}));
    let mut rows = Rows::new();
    let bad = [
        "../etc/passwd",
        "a/../../etc/passwd",
        "%2e%2e/x",
        "..%2fx",
        "a/..",
        "/etc/passwd",
        "%2Fetc",
    ];
    for path in bad {
        rows.row(path, || {
            for method in ["GET", "PUT", "DELETE"] {
                let body = (method == "PUT").then_some(&b"x"[..]);
                let refused = http.send(method, &format!("{at}/files/{path}"), body).expect(403);
                assert_eq!(refused.error(), "outside_scope");
                let said = refused.json()["message"].clone();
                assert_eq!(said, "Path outside session scope, or invalid file path");
            }
        });
    }
    rows.row("in the query", || {
        for path in ["../x", "%2Fetc", "a/../b"] {
            http.get(&format!("{at}/files?path={path}")).expect(403);
        }
    });
    rows.row("an invalid path", || {
        let long = "x".repeat(5000);
        for path in ["%00", "a%00b", "%zz", &long] {
            assert_eq!(http.get(&format!("{at}/files/{path}")).status, 400, "{}", &path[..3]);
        }
    });
    rows.row("a symbolic link that leads out resolves inside the sandbox", || {
        let run = json!({"command": "ln -s /etc/isolet-none out; ln -s / up"});
        http.post(&format!("{at}/exec"), &run).expect(200);
        http.get(&format!("{at}/files/out")).expect(404);
        let root = http.get(&format!("{at}/files/up")).expect(200).json();
        assert!(names(&root).contains(&"workspace directory".to_owned()), "{root}");
    });
}

/// Promises: P12.
#[test]
fn file_calls_need_an_existing_session_and_count_as_its_use() {
    let server = Server::start();
    let http = server.http();
    let at = made(&http, &json!({}));
    let used = || http.get(&at).expect(200).json()["last_activity"].as_f64().expect("seconds");
    let mut last = used();
    put(&http, &at, "a", b"1").expect(201);
    for path in ["a", ""] {
        http.get(&format!("{at}/files/{path}")).expect(200);
        let now = used();
        assert!(now > last, "{path}: {now} after {last}");
        last = now;
    }
    assert_eq!(server.named("default").says("cat a; stat -c %u a"), "10\n");
    http.delete(&at).expect(204);
    for (method, body) in [("GET", None), ("PUT", Some(&b"x"[..])), ("DELETE", None)] {
        let reply = http.send(method, &format!("{at}/files/a"), body).expect(404);
        assert_eq!(reply.error(), "no_session");
    }
    http.get(&format!("{at}/files")).expect(404);
    assert_eq!(server.named("default").says("cat a"), "1", "its file is the sandbox's");
}

/// Promises: P14.
#[test]
fn file_routes_show_granted_paths_and_refuse_the_rest() {
    let server = Server::start();
    let http = server.http();
    let home = server.named("default");
    home.exec(
        "mkdir -p docs/out secret; echo a >docs/a; echo key >secret/key; ln -s ../secret/key docs/link; \
         ln -s /workspace/secret docs/way",
    );
    let access = json!({"read": ["docs"], "write": ["docs/out"]});
    let at = made(&http, &json!({"file_access": access, "persistent": true}));
    let other = made(&http, &json!({"file_access": access}));
    let get = |path: &str| http.get(&format!("{at}/files{path}"));
    let id = at.trim_start_matches("/v1/sessions/").to_owned();
    let others = other.trim_start_matches("/v1/sessions/").to_owned();
    let mut rows = Rows::new();
    rows.row("lists show granted paths and their parents", || {
        let top = names(&get("").expect(200).json());
        assert_eq!(top, [".sessions directory", "docs directory"]);
        assert_eq!(names(&get("?path=.sessions").expect(200).json()), [format!("{id} directory")]);
        let docs = names(&get("/docs").expect(200).json());
        assert_eq!(docs, ["a file", "link file", "out directory", "way file"]);
    });
    rows.row("outside is refused by the record", || {
        for path in ["secret", "secret/key", "doc", "docs2", &format!(".sessions/{others}")] {
            get(&format!("/{path}")).expect(403);
            get(&format!("?path={path}")).expect(403);
            put(&http, &at, path, b"x").expect(403);
            http.delete(&format!("{at}/files/{path}")).expect(403);
        }
    });
    rows.row("a read grant does not allow writing", || {
        assert_eq!(get("/docs/a").expect(200).text(), "a\n");
        for path in ["docs/a", "docs/new", "docs", "", "new", ".sessions/note"] {
            let path = if path.is_empty() { "." } else { path };
            put(&http, &at, path, b"x").expect(403);
            http.delete(&format!("{at}/files/{path}?recursive=1")).expect(403);
        }
        assert_eq!(home.says("cat docs/a"), "a\n");
    });
    rows.row("writable paths", || {
        put(&http, &at, "docs/out/b", b"0123456789").expect(201);
        let part = http.with("range", "bytes=2-3").get(&format!("{at}/files/docs/out/b"));
        assert_eq!(part.expect(206).body, b"23");
        put(&http, &at, &format!(".sessions/{id}/note"), b"n").expect(201);
        assert_eq!(home.says("cat docs/out/b"), "0123456789");
        http.delete(&format!("{at}/files/docs/out/b")).expect(204);
    });
    rows.row("no symbolic link leads out: the kernel decides", || {
        for path in ["/docs/link", "/docs/way", "/docs/way/key"] {
            get(path).expect(404);
        }
        let made =
            json!({"command": "ln -s /workspace/secret docs/out/l; ln -s /proc/1/root docs/out/r"});
        http.post(&format!("{at}/exec"), &made).expect(200);
        get("/docs/out/l/key").expect(404);
        let status = get("/docs/out/r/workspace/secret/key").status;
        assert!(matches!(status, 403 | 404), "{status}");
        let status = put(&http, &at, "docs/out/l/key", b"x").status;
        assert!(status >= 400, "{status}");
        assert_eq!(home.says("cat secret/key"), "key\n");
    });
    rows.row("a program in the session sees the same", || {
        let look = json!({"command": "cat /workspace/secret/key; ls -A /workspace", "session": id});
        let said = http.post("/v1/sandboxes/default/exec", &look).expect(200).json();
        assert_eq!(said["stdout"], ".sessions\ndocs\n", "{said}");
    });
}
