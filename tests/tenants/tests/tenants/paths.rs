//! Paths of the files API: no request touches anything but the sandbox's own files.

use isolet_kit::{Options, Reply, Rows, SOON, Sandbox, Server, Value, json, quickly};

/// A server whose runs need no pulled image, one run, and a file of the host beside its data
/// directory.
fn run() -> (Server, Sandbox, String) {
    let server = Options::new().config("[images.aliases]\n\"node:22-slim\" = \"host\"\n").start();
    let made = server.http().post("/v1/runs", &json!({"timeout": 300}));
    assert!(matches!(made.status, 200 | 201), "{}", made.text());
    let id = made.json()["id"].as_str().expect("it has an id").to_owned();
    let canary = server.data().join("../canary");
    std::fs::write(&canary, "host-canary").expect("writes");
    let sandbox = server.named(&id);
    let canary = std::fs::canonicalize(&canary).expect("it is there").display().to_string();
    (server, sandbox, canary)
}

fn escape(path: &[u8]) -> String {
    path.iter().map(|byte| format!("%{byte:02x}")).collect()
}

fn read(sandbox: &Sandbox, path: &[u8]) -> Reply {
    sandbox.http.get(&format!("/v1/runs/{}/files/download?path={}", sandbox.id, escape(path)))
}

fn write(sandbox: &Sandbox, path: &[u8], body: &[u8]) -> Reply {
    let path = format!("/v1/runs/{}/files/upload?path={}", sandbox.id, escape(path));
    sandbox.http.with("content-type", "application/octet-stream").send("POST", &path, Some(body))
}

#[test]
fn files_round_trip_unchanged() {
    let (_server, sandbox, _) = run();
    let mut rows = Rows::new();
    let all: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    let names: [&[u8]; 6] = [
        b"plain",
        b"with space",
        "ünï 🦀".as_bytes(),
        b"deep/er/still",
        b"bad\xff\xfebytes",
        b"-rf",
    ];
    for name in names {
        rows.row(&String::from_utf8_lossy(name), || {
            assert!(matches!(write(&sandbox, name, &all).status, 200..=204));
            assert!(read(&sandbox, name).expect(200).body == all);
        });
    }
    rows.row("empty", || {
        assert!(matches!(write(&sandbox, b"/tmp/empty", b"").status, 200..=204));
        assert!(read(&sandbox, b"/tmp/empty").expect(200).body.is_empty());
    });
    rows.row("the shell sees them", || {
        write(&sandbox, b"/workspace/seen", b"by the shell\n");
        assert_eq!(sandbox.says("cat seen"), "by the shell\n");
    });
}

/// Promises: W7.
#[test]
fn i1_i3_no_path_and_no_symlink_leads_to_the_host() {
    let (server, sandbox, canary) = run();
    let mut rows = Rows::new();
    sandbox.says(&format!("ln -s {canary} /workspace/abs; ln -s ../../../../../..{canary} rel; ln -s / rootdir; \
        ln -s /proc/self/root magic; ln -s /proc/1/root one; ln -s /proc/1/cwd cwd; ln -s loop1 loop2; ln -s loop2 loop1; \
        ln -s /no/such dangling; for i in 3 4 5 6 7 8 9; do ln -s /proc/self/fd/$i fd$i; done"));
    let up = "../".repeat(40);
    let asks: Vec<String> = vec![
        canary.clone(),
        format!("{up}{canary}"),
        format!("a/../..{canary}"),
        format!("/workspace/{up}{canary}"),
        "abs".into(),
        "rel".into(),
        format!("rootdir{canary}"),
        format!("magic{canary}"),
        format!("one{canary}"),
        format!("cwd{canary}"),
        format!("/proc/self/root{canary}"),
        format!("/proc/1/root{canary}"),
        format!("/proc/self/cwd/..{canary}"),
        format!("fd3/..{canary}"),
        format!("fd4{canary}"),
        "loop1".into(),
        "dangling".into(),
        ".".into(),
        "/".into(),
        "x".repeat(5000),
        "d/".repeat(300),
        "plain/".into(),
    ];
    for ask in asks {
        rows.row(&ask[..ask.len().min(50)], || {
            let reply = quickly("an answer", SOON, || read(&sandbox, ask.as_bytes()));
            assert!((400..500).contains(&reply.status), "{} {}", reply.status, reply.text());
            assert!(!reply.text().contains("host-canary"));
            write(&sandbox, ask.as_bytes(), b"overwritten");
            // The write created the same names inside, and the next row must not read them.
            sandbox.says("rm -rf /tmp/isolet-*");
            assert_eq!(std::fs::read_to_string(&canary).expect("it is there"), "host-canary");
        });
    }
    for raw in ["", "%00", "a%00b", "%", "%zz"] {
        rows.row(&format!("path={raw}"), || {
            let reply =
                sandbox.http.get(&format!("/v1/runs/{}/files/download?path={raw}", sandbox.id));
            assert_eq!(reply.status, 400, "{}", reply.text());
        });
    }
    rows.row("the passwd file that is read is the sandbox's own", || {
        let own = read(&sandbox, b"/etc/passwd");
        assert_eq!(own.text(), sandbox.says("cat /etc/passwd"));
        let doubly = read(&sandbox, b"..%2f..%2fetc%2fpasswd");
        assert_eq!(doubly.status, 404, "a doubly escaped path is a literal name");
    });
    drop(rows);
    server.healthy();
}

/// A race between check and open: the symbolic link changes between the two. Elsewhere 20 of 100
/// tries succeeded.
/// Promises: W7.
#[test]
fn heavy_i4_a_continuously_exchanged_symlink_never_leads_out() {
    let (server, sandbox, canary) = run();
    let racer = format!(
        "mkdir -p d other; echo inside >d/canary; ln -sfn {} link\n\
         python3 - <<'END' &\nimport ctypes\nc = ctypes.CDLL(None)\nwhile True: c.syscall(316, -100, b'd', -100, b'link', 2)\nEND\necho racing",
        canary.trim_end_matches("/canary")
    );
    assert_eq!(sandbox.command("race", &racer)["stdout"], "racing\n");
    let mut inside = 0;
    for _ in 0..isolet_kit::tries(1500, 50_000) {
        let reply = read(&sandbox, b"d/canary");
        assert!(!reply.text().contains("host-canary"), "it led out");
        inside += usize::from(reply.text() == "inside\n");
        write(&sandbox, b"d/canary2", b"overwritten");
    }
    assert!(inside > 50, "the race did not run: {inside}");
    assert_eq!(std::fs::read_to_string(&canary).expect("it is there"), "host-canary");
    let beside = std::path::Path::new(&canary).with_file_name("canary2");
    assert!(!beside.try_exists().expect("it can be searched"), "a write led out");
    server.healthy();
}

/// The same race for every other call that checks first and acts then.
/// Promises: W7.
#[test]
fn heavy_i4_no_call_acts_outside_through_an_exchanged_symlink() {
    let (server, sandbox, canary) = run();
    let folder = canary.trim_end_matches("/canary").to_owned();
    let before = std::fs::read_dir(&folder).expect("it is there").count();
    let racer = format!(
        "mkdir -p d; echo inside >d/canary; ln -sfn {folder} link\n\
         python3 - <<'END' &\nimport ctypes\nc = ctypes.CDLL(None)\nwhile True: c.syscall(316, -100, b'd', -100, b'link', 2)\nEND\necho racing"
    );
    assert_eq!(sandbox.command("race", &racer)["stdout"], "racing\n");
    let files = sandbox.path("/files");
    let file_operation = |body: Value| sandbox.http.post(&files, &body);
    sandbox.says("mkdir -p /tmp/a/sub; echo unpacked >/tmp/a/canary; echo new >/tmp/a/sub/new");
    let archive = sandbox.http.get(&format!("{files}/%2Ftmp/a?tar=1")).expect(200).body;
    let mut worked = 0;
    for n in 0..isolet_kit::tries(150, 10_000) {
        let inside = sandbox.http.send("PUT", &format!("{files}/d/canary?append=1"), Some(b"more"));
        // A bounded number of names: the calls below read and copy the whole directory.
        let new = format!("{files}/d/new{}", n % 100);
        let made = sandbox.http.send("PUT", &new, Some(b"new"));
        let replies = [
            sandbox.http.get(&format!("{files}/d/canary")),
            sandbox.http.get(&format!("{files}?path=d&recursive=1&hidden=1")),
            sandbox.http.get(&format!("{files}/d?search=canary&hidden=1&ignored=1")),
            sandbox.http.get(&format!("{files}/d/canary?search=canary")),
            sandbox.http.send("PUT", &format!("{files}/d?untar=1"), Some(&archive)),
            file_operation(json!({"op": "copy", "path": "d/canary", "to": "copy"})),
            file_operation(json!({"op": "copy", "path": "copy", "to": "d/back"})),
            file_operation(json!({"op": "copy", "path": "d", "to": "tree"})),
            file_operation(json!({"op": "chmod", "path": "d/canary", "mode": "0777"})),
            file_operation(json!({"op": "move", "path": "d/back", "to": "d/moved"})),
            file_operation(json!({"op": "mkdir", "path": "d/folder"})),
            sandbox.http.delete(&format!("{files}/d/moved")),
            sandbox.http.delete(&format!("{files}/d/folder?recursive=1")),
            sandbox.http.delete(&format!("{files}/tree?recursive=1")),
        ];
        // The archive is cut off when the directory is exchanged during its creation.
        let packed = sandbox.http.try_send("GET", &format!("{files}/d?tar=1"), None);
        for reply in replies.iter().chain([&inside, &made]).chain(&packed) {
            assert!(!reply.text().contains("host-canary"), "it led out");
            assert!(reply.status < 500, "{} {}", reply.status, reply.text());
            worked += usize::from(reply.status < 300);
        }
    }
    assert!(worked > 100, "the race did not run: {worked}");
    assert_eq!(std::fs::read_to_string(&canary).expect("it is there"), "host-canary");
    let mode = std::fs::metadata(&canary).expect("it is there").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o644);
    assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), before);
    server.healthy();
}

/// Promises: W6.
#[test]
fn i5_files_that_never_end_or_never_answer_are_refused_in_time() {
    let (server, sandbox, _) = run();
    let mut rows = Rows::new();
    sandbox.says("mkfifo fifo; truncate -s 1T sparse; (while :; do echo more; done) >growing 2>/dev/null & mkdir dir; \
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; echo up");
    for path in [
        "/dev/zero",
        "/dev/urandom",
        "/dev/null",
        "/dev/tty",
        "fifo",
        "dir",
        "sock",
        "/proc/kcore",
        "/proc/kmsg",
    ] {
        rows.row(&format!("read {path}"), || {
            let reply = quickly("an answer", SOON, || read(&sandbox, path.as_bytes()));
            assert!(reply.status >= 400 || reply.body.len() < 1 << 20, "{}", reply.status);
        });
    }
    for path in ["fifo", "dir", "/dev/zero", "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern"]
    {
        rows.row(&format!("write {path}"), || {
            let reply = quickly("an answer", SOON, || write(&sandbox, path.as_bytes(), b"x"));
            assert!(reply.status < 500 || reply.status == 507, "{} {}", reply.status, reply.text());
        });
    }
    rows.row("a sparse file of 1 TiB and one that grows", || {
        let http = &sandbox.http;
        for path in ["sparse", "growing"] {
            let at = format!("/v1/runs/{}/files/download?path={path}", sandbox.id);
            let begun = http.try_open("GET", &at, None).expect("it begins, or is refused");
            drop(begun);
        }
        quickly("a call beside", SOON, || assert_eq!(sandbox.says("echo on"), "on\n"));
    });
    sandbox.says("rm -f growing; kill %1; :");
    drop(rows);
    server.healthy();
}
