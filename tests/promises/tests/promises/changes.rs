//! What changed in a directory since a version.

use isolet_kit::{Reply, Rows, Sandbox, Value, json, one};

fn ask(sandbox: &Sandbox, rest: &str) -> Reply {
    sandbox.http.get(&sandbox.path(&format!("/files{rest}")))
}

fn version(answer: &Value) -> String {
    answer["version"].as_str().expect("a version").to_owned()
}

/// The version of the whole workspace.
fn now(sandbox: &Sandbox) -> String {
    let answer = ask(sandbox, "?changes_since=now&recursive=1").expect(200).json();
    assert_eq!((&answer["changes"], &answer["more"]), (&json!([]), &json!(false)), "{answer}");
    version(&answer)
}

/// The changes as `+path`, `~path` and `-path`; directories end with a slash.
fn signs(answer: &Value) -> Vec<String> {
    let all = answer["changes"].as_array().expect("an array").iter();
    all.map(|one| {
        let sign = match one["change"].as_str().expect("a change") {
            "created" => '+',
            "modified" => '~',
            "deleted" => '-',
            other => panic!("{other}"),
        };
        let path = one["path"].as_str().expect("a path").trim_start_matches("/workspace/");
        let end = if one["type"] == "directory" { "/" } else { "" };
        format!("{sign}{path}{end}")
    })
    .collect()
}

fn since(sandbox: &Sandbox, version: &str, rest: &str) -> Value {
    ask(sandbox, &format!("?changes_since={version}&recursive=1{rest}")).expect(200).json()
}

/// Runs a command, and returns what it changed.
fn changed_by(sandbox: &Sandbox, command: &str) -> Vec<String> {
    let before = now(sandbox);
    let ran = sandbox.exec(command);
    assert_eq!(ran["exit_code"], 0, "{ran}");
    signs(&since(sandbox, &before, ""))
}

/// Writes to a file through a shared mapping, without a system call that writes.
const MAPPED: &str = "python3 -c 'import mmap
file = open(\"mapped\", \"r+b\")
mmap.mmap(file.fileno(), 4)[:4] = b\"blue\"'";

/// Promises: W16.
#[test]
fn every_change_since_a_version_is_reported() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    sandbox.exec("mkdir -p a/deep b; echo 1 >a/one; echo 2 >a/deep/two; echo pink >mapped; echo 3 >three; sync mapped");
    let cases: [(&str, &str, &[&str]); 11] = [
        ("a new file", "echo x >.new", &["+.new"]),
        (
            "a directory is moved",
            "mv a b/moved",
            &[
                "-a/",
                "-a/deep/",
                "-a/deep/two",
                "-a/one",
                "+b/moved/",
                "+b/moved/deep/",
                "+b/moved/deep/two",
                "+b/moved/one",
            ],
        ),
        (
            "and another takes its place",
            "mkdir a; echo 9 >a/one; mv b/moved/deep a/",
            &["+a/", "+a/deep/", "+a/deep/two", "+a/one", "-b/moved/deep/", "-b/moved/deep/two"],
        ),
        (
            "directories are exchanged",
            "mv a t; mv b/moved a; mv t b/moved",
            &[
                "-a/deep/",
                "-a/deep/two",
                "~a/one",
                "+b/moved/deep/",
                "+b/moved/deep/two",
                "~b/moved/one",
            ],
        ),
        ("times are set back", "printf '4\\n' >three; touch -d 2001-01-01 three", &["~three"]),
        ("a write through a mapping", MAPPED, &["~mapped"]),
        ("attributes", "chmod 700 b; chmod 600 three", &["~b/", "~three"]),
        ("a file becomes a link", "rm three; ln -s mapped three", &["~three"]),
        ("a file is replaced by a copy of itself", "cp -p mapped c; mv c mapped", &["~mapped"]),
        ("created and removed", "touch x; rm x", &[]),
        (
            "everything is removed",
            "rm -r a b mapped three .new",
            &[
                "-.new",
                "-a/",
                "-a/one",
                "-b/",
                "-b/moved/",
                "-b/moved/deep/",
                "-b/moved/deep/two",
                "-b/moved/one",
                "-mapped",
                "-three",
            ],
        ),
    ];
    for (name, command, expected) in cases {
        rows.row(name, || {
            let mut seen = changed_by(&sandbox, command);
            seen.sort_by(|a, b| a[1..].cmp(&b[1..]));
            assert_eq!(seen, expected);
        });
    }
    rows.row("a write through a hard link elsewhere", || {
        sandbox.exec("mkdir in out; echo 1 >in/one; ln in/one out/two");
        let at = |version: &str| ask(&sandbox, &format!("/in?changes_since={version}"));
        let before = version(&at("now").expect(200).json());
        sandbox.exec("echo 2 >>out/two");
        assert_eq!(signs(&at(&before).expect(200).json()), ["~in/one"]);
        sandbox.exec("rm -r in out");
    });
    rows.row("no two changes share a clock tick unseen", || {
        sandbox.exec("echo 0 >tick");
        let mut at = now(&sandbox);
        for round in 0..40 {
            // Two calls follow a write at once, and the next write follows them at once.
            let body = format!("{}", round % 10);
            let path = sandbox.path("/files/tick?append=1");
            sandbox.http.send("PUT", &path, Some(body.as_bytes())).expect(200);
            let answer = since(&sandbox, &at, "");
            assert_eq!(signs(&answer), ["~tick"], "round {round}");
            at = version(&answer);
        }
        assert_eq!(signs(&since(&sandbox, &at, "")), [""; 0], "and none is reported twice");
    });
    rows.row("uploads are seen under their names only", || {
        let before = now(&sandbox);
        sandbox.http.send("PUT", &sandbox.path("/files/up"), Some(b"x")).expect(201);
        sandbox.http.send("PUT", &sandbox.path("/files/na%ffme"), Some(b"x")).expect(201);
        let answer = since(&sandbox, &before, "");
        assert_eq!(signs(&answer), ["+na\u{fffd}me", "+up"]);
        assert_eq!(answer["changes"][0]["path_b64"], "L3dvcmtzcGFjZS9uYf9tZQ==");
    });
    rows.row("the version outlives a sleep", || {
        let before = now(&sandbox);
        sandbox.exec("echo y >late");
        sandbox.post("/sleep", &json!({})).expect(200);
        assert_eq!(signs(&since(&sandbox, &before, "")), ["+late"]);
    });
    drop(rows);
    server.healthy();
}

/// Promises: W16.
#[test]
fn changes_are_selected_and_paged() {
    let (_server, sandbox) = one();
    let before = now(&sandbox);
    sandbox.exec("mkdir -p src target; touch src/{a,b,c}.rs src/d.txt target/e.rs");
    let mut rows = Rows::new();
    rows.row("patterns", || {
        let seen = signs(&since(&sandbox, &before, "&include=*.rs&exclude=target"));
        assert_eq!(seen, ["+src/a.rs", "+src/b.rs", "+src/c.rs"]);
    });
    rows.row("only the directory itself", || {
        let flat = version(&ask(&sandbox, "/src?changes_since=now").expect(200).json());
        sandbox.exec("touch src/flat; mkdir src/sub; touch src/sub/below");
        let seen = ask(&sandbox, &format!("/src?changes_since={flat}")).expect(200).json();
        assert_eq!(signs(&seen), ["+src/flat", "+src/sub/"]);
    });
    rows.row("pages", || {
        let mut at = before.clone();
        let mut all = Vec::new();
        loop {
            let page = since(&sandbox, &at, "&limit=2&include=*.rs");
            all.extend(signs(&page));
            assert!(signs(&page).len() <= 2, "{page}");
            at = version(&page);
            if page["more"] == false {
                break;
            }
        }
        assert_eq!(all, ["+src/a.rs", "+src/b.rs", "+src/c.rs", "+target/e.rs"]);
    });
    rows.row("what is no version, and what cannot be combined, is refused", || {
        for bad in [
            "",
            "x",
            "1-1",
            "now&watch=1",
            "now&tar=1",
            "now&glob=a",
            "now&search=a",
            "now&limit=0",
            "now&limit=10001",
            "now&exclude=[",
            "now&hidden=1",
            "now&type=file",
        ] {
            let reply = ask(&sandbox, &format!("?changes_since={bad}")).expect(400);
            assert_eq!(reply.error(), "bad_request", "{bad}");
        }
        assert_eq!(ask(&sandbox, "/none?changes_since=now").expect(404).error(), "not_found");
        assert_eq!(ask(&sandbox, "/src/a.rs?changes_since=now").expect(409).error(), "wrong_kind");
    });
}

fn expired(reply: Reply) {
    assert_eq!(reply.expect(410).error(), "version_expired");
}

/// Promises: W16.
#[test]
fn long_a_version_whose_changes_are_unknown_has_expired() {
    let (mut server, sandbox) = one();
    sandbox.exec("mkdir -p d");
    let mut rows = Rows::new();
    let again = |version: &str| ask(&sandbox, &format!("?changes_since={version}&recursive=1"));
    rows.row("of another directory, another sandbox, the future", || {
        let mine = now(&sandbox);
        expired(ask(&sandbox, &format!("/d?changes_since={mine}&recursive=1")));
        expired(ask(&sandbox, &format!("?changes_since={mine}")));
        let other = server.sandbox();
        expired(ask(&other, &format!("?changes_since={mine}&recursive=1")));
        let (epoch, next) = mine.split_once('-').expect("a version");
        let next: u64 = next.parse().expect("a number");
        expired(again(&format!("{epoch}-{}", next + 1)));
        again(&mine).expect(200);
    });
    rows.row("behind too many changes", || {
        let before = now(&sandbox);
        sandbox.exec("mkdir many && cd many && seq 60000 | xargs touch");
        let made = since(&sandbox, &before, "&limit=1");
        assert_eq!(made["more"], true);
        sandbox.exec("rm -r many");
        let after = now(&sandbox);
        expired(again(&before));
        assert_eq!(signs(&since(&sandbox, &after, "")), [""; 0]);
    });
    rows.row("more files than a journal holds", || {
        sandbox.exec("mkdir many && cd many && seq 100001 | xargs touch");
        let refused = ask(&sandbox, "/many?changes_since=now").expect(413);
        assert_eq!(refused.error(), "too_large");
        sandbox.exec("rm -r many");
    });
    rows.row("of a directory that was not asked for while 16 others were", || {
        let before = now(&sandbox);
        for n in 0..16 {
            sandbox.exec(&format!("mkdir d/{n}"));
            ask(&sandbox, &format!("/d/{n}?changes_since=now")).expect(200);
        }
        expired(again(&before));
    });
    rows.row("of a server that was killed", || {
        let before = now(&sandbox);
        sandbox.exec("touch while");
        server.restart();
        expired(ask(&sandbox, &format!("?changes_since={before}&recursive=1")));
        now(&sandbox);
    });
    drop(rows);
    server.healthy();
}

/// Promises: W16.
#[test]
fn a_session_learns_of_changes_in_its_part_only() {
    let (_server, sandbox) = one();
    sandbox.exec("mkdir -p mine secret");
    for (id, access) in [("one", json!({"write": ["mine"]})), ("two", json!({"write": ["secret"]}))]
    {
        let spec = json!({"id": id, "file_access": access});
        sandbox.post("/sessions", &spec).expect(201);
    }
    let of = |session: &str, version: &str| {
        let rest = format!("/sessions/{session}/files?changes_since={version}&recursive=1");
        sandbox.http.get(&sandbox.path(&rest))
    };
    let one = version(&of("one", "now").expect(200).json());
    let two = version(&of("two", "now").expect(200).json());
    let whole = now(&sandbox);
    sandbox.exec("echo 1 >mine/a; echo 2 >secret/b; mkdir other; mv secret/b secret/c");
    assert_eq!(signs(&of("one", &one).expect(200).json()), ["+mine/a"]);
    assert_eq!(signs(&of("two", &two).expect(200).json()), ["+secret/c"]);
    let all = signs(&since(&sandbox, &whole, ""));
    assert_eq!(all, ["+mine/a", "+other/", "+secret/c"]);
    for foreign in [&two, &whole] {
        expired(of("one", foreign));
    }
    // Another session of the same name sees another part, and inherits nothing.
    sandbox.http.delete(&sandbox.path("/sessions/two")).expect(204);
    let spec = json!({"id": "two", "file_access": {"write": ["mine"]}});
    sandbox.post("/sessions", &spec).expect(201);
    expired(of("two", &two));
}
