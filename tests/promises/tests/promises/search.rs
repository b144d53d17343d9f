//! Searches for lines in files, and watches of changes to files.

use isolet_kit::{Event, Reply, Rows, SOON, Sandbox, Stream, Value, one, quickly, wait_until};

fn get(sandbox: &Sandbox, rest: &str) -> Reply {
    sandbox.http.get(&sandbox.path(&format!("/files{rest}")))
}

fn search(sandbox: &Sandbox, rest: &str) -> Value {
    get(sandbox, rest).expect(200).json()
}

/// The matches as `path:line:text`; lines around a match have a dash.
fn lines(found: &Value) -> Vec<String> {
    let all = found["lines"].as_array().expect("an array").iter();
    all.map(|line| {
        let sign = if line["context"] == true { '-' } else { ':' };
        let path = line["path"].as_str();
        let text = line["text"].as_str();
        let path = path.expect("a path").trim_start_matches("/workspace/");
        format!("{path}{sign}{}{sign}{}", line["line"], text.expect("a text"))
    })
    .collect()
}

const TREE: &str = r"
mkdir -p src/deep .hidden build && cd src
printf 'fn main() {\n    let needle = 1;\n}\n' >main.rs
printf 'Needle in a comment\nnothing\nneedle again\n' >deep/notes.txt
cd ..
printf 'needle\n' >.hidden/h; printf 'needle\n' >build/out; printf 'build/\n' >.gitignore
printf 'needle\n\0needle\n' >data.bin
printf 'caf\351 needle\n' >latin.txt
printf 'needle\n' >$'na\377me'
mkfifo pipe; ln -s src/main.rs link; ln -s /proc/self/root/etc out";

/// Promises: W10.
#[test]
fn a_search_returns_lines_with_positions_and_reports_what_it_left_out() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    sandbox.exec(TREE);
    rows.row("a regular expression over a tree", || {
        let found = search(&sandbox, "?search=needle%5Cb.*");
        let expected = [
            "latin.txt:1:caf\u{fffd} needle",
            "na\u{fffd}me:1:needle",
            "src/deep/notes.txt:3:needle again",
            "src/main.rs:2:    let needle = 1;",
        ];
        assert_eq!(lines(&found), expected, "{found}");
        assert_eq!((&found["binary"], &found["files"]), (&1.into(), &5.into()), "{found}");
        assert_eq!((&found["more"], &found["unread"]), (&false.into(), &0.into()), "{found}");
        let latin = &found["lines"][0];
        let odd = &found["lines"][1];
        assert_eq!(latin["text_b64"], "Y2Fm6SBuZWVkbGU=", "{latin}");
        assert_eq!(odd["path_b64"], "L3dvcmtzcGFjZS9uYf9tZQ==", "{odd}");
        assert_eq!(found["lines"][3]["spans"], serde_of(&[[8, 19]]), "{found}");
    });
    rows.row("hidden and ignored files only on request", || {
        let found = lines(&search(&sandbox, "?search=needle&hidden=1&ignored=1"));
        assert!(found.contains(&".hidden/h:1:needle".to_owned()), "{found:?}");
        assert!(found.contains(&"build/out:1:needle".to_owned()), "{found:?}");
    });
    rows.row("one file, literal text, case, context lines", || {
        let found = search(&sandbox, "/src/main.rs?search=needle%20%3D&literal=1&context=1");
        let expected =
            ["src/main.rs-1-fn main() {", "src/main.rs:2:    let needle = 1;", "src/main.rs-3-}"];
        assert_eq!(lines(&found), expected);
        let found = search(&sandbox, "/src?search=NEEDLE&ignore_case=1&glob=*.txt");
        assert_eq!(lines(&found).len(), 2, "{found}");
        assert!(lines(&search(&sandbox, "/src?search=n.e.d.l.e&literal=1")).is_empty());
    });
    rows.row("a limit", || {
        let found = search(&sandbox, "?search=e&limit=2");
        assert_eq!((lines(&found).len(), &found["more"]), (2, &true.into()), "{found}");
    });
    rows.row("invalid requests are refused by name", || {
        for bad in [
            "?search=",
            "?search=(",
            "?search=a&limit=0",
            "?search=a&context=21",
            "?search=a&tar=1",
            "?literal=1",
            "?search=%ff",
            "?search=(((a%7B1000%7D)%7B1000%7D)%7B1000%7D)%7B1000%7D",
        ] {
            let reply = quickly("a refusal", SOON, || get(&sandbox, bad)).expect(400);
            assert!(!reply.error().is_empty(), "{bad}: {}", reply.text());
        }
        get(&sandbox, "/nowhere?search=a").expect(404);
        get(&sandbox, "/pipe?search=a").expect(409);
    });
    drop(rows);
    server.healthy();
}

fn serde_of(spans: &[[u32; 2]]) -> Value {
    isolet_kit::json!(spans)
}

/// Promises: W10.
#[test]
fn a_search_of_large_or_unusual_files_is_bounded() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("long lines, many matches", || {
        sandbox.exec("yes needle | head -n 300000 >many; head -c 20M /dev/zero | tr '\\0' x >long; printf '%5000sneedle' y >cut");
        let found = quickly("a search", SOON, || search(&sandbox, "?search=needle&limit=10000"));
        assert_eq!(found["more"], true, "{}", found["files"]);
        let found = quickly("a search", SOON, || search(&sandbox, "/cut?search=needle"));
        assert_eq!(found["lines"][0]["cut"], true, "{found}");
        assert_eq!(found["lines"][0]["text"].as_str().map(str::len), Some(2048));
        assert_eq!(search(&sandbox, "/long?search=needle")["unread"], 1);
    });
    rows.row("a sparse file of 1 TiB is binary at once", || {
        sandbox.exec("truncate -s 1T big");
        let found = quickly("a search", SOON, || search(&sandbox, "/big?search=needle"));
        assert_eq!(found["binary"], 1, "{found}");
    });
    drop(rows);
    server.healthy();
}

fn watch(sandbox: &Sandbox, rest: &str) -> Stream {
    let path = sandbox.path(&format!("/files{rest}"));
    let mut stream = sandbox.http.try_open("GET", &path, None).expect("an answer");
    assert_eq!(stream.status, 200, "{path}");
    assert_eq!(next(&mut stream).name, "watching");
    stream
}

fn next(stream: &mut Stream) -> Event {
    stream.event().expect("one more event")
}

fn said(event: &Event) -> Value {
    event.data.parse().expect("one line of JSON")
}

/// The events up to the one of this name and path.
fn until(stream: &mut Stream, name: &str, path: &str) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let event = next(stream);
        let data = said(&event);
        let path_of = |field: &str| {
            let text = data[field].as_str().unwrap_or_default();
            text.trim_start_matches("/workspace/").to_owned()
        };
        let to = data["to"].as_str().map_or_else(String::new, |_| format!(" {}", path_of("to")));
        let one = format!("{} {}{to}", event.name, path_of("path"));
        let found = one == format!("{name} {path}");
        if seen.last() != Some(&one) {
            seen.push(one);
        }
        if found {
            return seen;
        }
    }
}

/// Promises: W11.
#[test]
fn a_watch_reports_changes_as_they_happen() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("one directory", || {
        let mut stream = watch(&sandbox, "?watch=1");
        sandbox.exec("echo a >a; mv a b; rm b; mkdir d; echo in >d/not-told; touch end");
        let seen = until(&mut stream, "created", "end");
        assert_eq!(
            seen,
            ["created a", "modified a", "moved a b", "deleted b", "created d", "created end"]
        );
    });
    rows.row("recursively, including new and moved directories", || {
        sandbox.exec("mkdir -p top/one/two");
        let mut stream = watch(&sandbox, "/top?watch=1&recursive=1");
        sandbox.exec("cd top; echo x >one/two/f; mkdir -p new/er; sleep 0.2; echo y >new/er/g; mv one uno; echo z >uno/two/h; mv uno ..; echo no >../uno/two/f; touch end");
        let seen = until(&mut stream, "created", "top/end");
        for expected in ["created top/one/two/f", "created top/new", "created top/new/er", "created top/new/er/g",
            "moved top/one top/uno", "created top/uno/two/h", "deleted top/uno"] {
            assert!(seen.contains(&expected.to_owned()), "{expected}: {seen:?}");
        }
        assert!(!seen.iter().any(|one| one.contains("../")), "{seen:?}");
        assert!(seen.iter().position(|one| one == "deleted top/uno") > seen.iter().position(|one| one == "created top/uno/two/h"));
    });
    rows.row("names are exact", || {
        let mut stream = watch(&sandbox, "?watch=1");
        sandbox.exec("touch $'n\\377\\n'");
        let said = said(&next(&mut stream));
        assert_eq!(said["path_b64"], "L3dvcmtzcGFjZS9u/wo=", "{said}");
    });
    rows.row("the end of the directory is the last event", || {
        sandbox.exec("mkdir gone");
        let mut stream = watch(&sandbox, "/gone?watch=1");
        sandbox.exec("rmdir gone");
        until(&mut stream, "gone", "gone");
        assert!(stream.event().is_none(), "it has ended");
    });
    rows.row("a file, a missing path, too many watches", || {
        sandbox.exec("touch file");
        get(&sandbox, "/file?watch=1").expect(409);
        get(&sandbox, "/nowhere?watch=1").expect(404);
        get(&sandbox, "?watch=1&glob=x").expect(400);
        let held: Vec<_> = (0..32).map(|_| watch(&sandbox, "?watch=1")).collect();
        get(&sandbox, "?watch=1").expect(429);
        drop(held);
        wait_until("watches of disconnected clients are gone", SOON, || {
            let stream =
                sandbox.http.try_open("GET", &sandbox.path("/files?watch=1"), None).ok()?;
            (stream.status == 200).then_some(())
        });
    });
    drop(rows);
    server.healthy();
}

/// What fills is the kernel's queue: neither server nor agent buffer what a client does not read.
/// Promises: W11.
#[test]
fn an_unread_watch_gets_an_overflow_and_delays_nobody() {
    let (server, sandbox) = one();
    let mut stream = watch(&sandbox, "?watch=1");
    let agent = server.agent();
    let before =
        (isolet_kit::process::memory_kib(server.pid()), isolet_kit::process::memory_kib(agent));
    sandbox.exec("n=$(printf %0200d 7); for i in {1..70000}; do : >$n$((i % 100)); done");
    let after =
        (isolet_kit::process::memory_kib(server.pid()), isolet_kit::process::memory_kib(agent));
    assert!(
        after.0 < before.0 + 16 * 1024 && after.1 < before.1 + 16 * 1024,
        "{before:?} {after:?}"
    );
    let mut seen = 0;
    while next(&mut stream).name != "overflow" {
        seen += 1;
    }
    assert!(seen > 1000, "{seen} before it");
    // From here on, changes are reported again.
    sandbox.exec("touch end");
    until(&mut stream, "created", "end");
    drop(stream);
    quickly("a delete", SOON, || sandbox.delete());
    server.healthy();
}
