//! Files of snapshots, and what differs between two, read without a sandbox.

use isolet_kit::{Http, Reply, SOON, Sandbox, Server, Value, json, wait_until};
use std::collections::BTreeMap;

fn take(sandbox: &Sandbox, name: &str) {
    sandbox.post("/snapshots", &json!({"name": name})).expect(201);
}

fn file(http: &Http, snapshot: &str, path: &str) -> Reply {
    http.get(&format!("/v1/snapshots/{snapshot}/files/{path}"))
}

/// All entries of a list, over all its pages.
fn list(http: &Http, path: &str) -> Vec<Value> {
    let mut next = Some(path.to_owned());
    let mut all = Vec::new();
    while let Some(path) = next {
        let page = http.get(&path).expect(200);
        let link = page.header("link").and_then(|link| link.strip_prefix('<')?.split('>').next());
        next = link.map(str::to_owned);
        all.extend(page.json().as_array().expect("a list").clone());
    }
    all
}

fn changes(http: &Http, from: &str, to: &str, limit: usize) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/snapshots/{from}/diff/{to}?limit={limit}{cursor}");
        let page = http.get(&path).expect(200).json();
        let changed = page["changes"].as_array().expect("a list");
        assert!(changed.len() <= limit, "{} on a page of {limit}", changed.len());
        for change in changed {
            let path = change["path"].as_str().expect("a path").to_owned();
            let how = change["change"].as_str().expect("a word").to_owned();
            assert!(all.insert(path, how).is_none(), "twice: {change}");
        }
        let Some(next) = page["next_cursor"].as_str() else { return all };
        cursor = format!("&cursor={next}");
    }
}

/// Checks that lists of a snapshot have the same names, types, sizes and modes as those of the sandbox.
#[track_caller]
fn assert_same_lists(sandbox: &Sandbox, snapshot: &str, directories: &[&str], more: &str) {
    let http = &sandbox.http;
    for directory in directories {
        let query = format!("?hidden=1&limit=700&path={directory}{more}");
        let mut own = list(http, &format!("{}{query}", sandbox.path("/files")));
        let mut seen = list(http, &format!("/v1/snapshots/{snapshot}/files{query}"));
        // What a running sandbox mounts is not part of its files.
        let mounted = ["/etc/isolet", "/proc", "/dev", "/sys"];
        for all in [&mut own, &mut seen] {
            all.retain(|one| !mounted.iter().any(|path| one["path"] == *path));
            for one in all {
                let about = one.as_object_mut().expect("an object");
                if about["type"] == "directory" {
                    about.remove("size");
                }
                about.remove("modified_ms");
            }
        }
        assert_eq!(seen, own, "{directory}");
    }
}

/// What a tenant could make to see more than its own files.
const HOSTILE: &str = "cd /workspace && ln -s /etc/shadow shadow && ln -s ../../../../../etc/shadow far && \
     ln -s /proc/1/root proc && ln -s loop loop && ln -s a/../../etc/hosts around && mkfifo fifo && \
     mkdir a && echo x >a/set && chmod 6755 a/set && echo y >\"$(printf 'n\\377')\" && \
     (mkdir deep && cd deep && for i in $(seq 300); do mkdir d && cd d || exit 1; done; echo end >end) && \
     rm /usr/bin/yes && rm -r /etc/alternatives && mkdir /etc/alternatives && echo new >/etc/alternatives/new && \
     rm -r /var/log && echo file >/var/log && echo top >/etc/hosts && mkdir many && cd many && seq 3000 | xargs touch";

fn files_are_those_that_the_sandbox_saw(disk_mib: u64) {
    let mut server = Server::start();
    let http = server.http();
    let sandbox = server.sandbox_with(&json!({"disk_mib": disk_mib, "memory_mib": 512}));
    let made = sandbox.exec(HOSTILE);
    assert_eq!(made["exit_code"], 0, "{made}");
    take(&sandbox, "one");
    let directories = ["/workspace", "/workspace/many", "/etc", "/usr/bin", "/var", "/", "/home"];
    assert_same_lists(&sandbox, "one", &directories, "");
    let text = |path: &str| file(&http, "one", path).expect(200).text();
    assert_eq!(text("a/set"), "x\n");
    assert_eq!(text("n%ff"), "y\n");
    assert_eq!(text("around"), "top\n", "a link stays in the snapshot");
    assert_eq!(text("%2Fetc/hosts"), "top\n");
    let inside = sandbox.says("cat /etc/shadow");
    for path in ["shadow", "far", "%2F..%2F..%2Fetc/shadow"] {
        assert_eq!(text(path), inside, "{path}");
    }
    for (path, error) in [
        ("fifo", "wrong_kind"),
        ("loop", "wrong_kind"),
        ("proc/etc/passwd", "not_found"),
        ("%2Fusr/bin/yes", "not_found"),
        ("%2Fvar/log/dpkg.log", "wrong_kind"),
        ("%2Fetc/alternatives/awk", "not_found"),
    ] {
        assert_eq!(file(&http, "one", path).error(), error, "{path}");
    }
    let deep = "deep/".to_owned() + &"d/".repeat(300) + "end";
    assert_eq!(text(&deep), "end\n");
    let about = file(&http, "one", "shadow?stat=1").expect(200).json();
    assert_eq!((&about["type"], &about["target"]), (&json!("symlink"), &json!("/etc/shadow")));
    // Ranges and tags as in a sandbox.
    let part = http.with("range", "bytes=1-2").get("/v1/snapshots/one/files//etc/hosts");
    assert_eq!((part.status, part.text().as_str()), (206, "op"));
    let tag = part.header("etag").expect("a tag").to_owned();
    let same = http.with("if-none-match", &tag).get("/v1/snapshots/one/files//etc/hosts");
    assert_eq!(same.status, 304);
    let beyond = http.with("range", "bytes=99-").get("/v1/snapshots/one/files//etc/hosts");
    assert_eq!(beyond.status, 416);
    // Others see nothing; a key that may only read sees the files.
    let other = server.add_key(&["--tenant", "other"]);
    let other = server.client(Some(&other));
    assert_eq!(file(&other, "one", "a/set").expect(404).error(), "no_snapshot");
    let reader = server.add_key(&["--read-only"]);
    let reader = server.client(Some(&reader));
    assert_eq!(file(&reader, "one", "a/set").expect(200).text(), "x\n");
    assert_eq!(server.http().get("/v1/sandboxes").json().as_array().map(Vec::len), Some(1));
    http.delete("/v1/snapshots/one").expect(200);
    assert_eq!(file(&http, "one", "a/set").expect(404).error(), "no_snapshot");
}

/// Promises: SN10.
#[test]
fn files_are_those_that_the_sandbox_saw_with_a_disk() {
    files_are_those_that_the_sandbox_saw(256);
}

/// Promises: SN10.
#[test]
fn files_are_those_that_the_sandbox_saw_without_a_disk() {
    files_are_those_that_the_sandbox_saw(0);
}

fn a_difference_names_what_changed(disk_mib: u64) {
    let mut server = Server::start();
    let http = server.http();
    let sandbox = server.sandbox_with(&json!({"disk_mib": disk_mib}));
    let begin = "cd /workspace && echo a >same && echo b >content && echo c >mode && echo d >owner && \
                 echo e >gone && mkdir dir && echo f >dir/file && ln -s one link && echo g >touched && \
                 mkdir both && echo h >kind";
    assert_eq!(sandbox.exec(begin)["exit_code"], 0);
    take(&sandbox, "one");
    take(&sandbox, "again");
    assert_eq!(changes(&http, "one", "again", 10), BTreeMap::new());
    let change = "cd /workspace && echo B >content && chmod 755 mode && chown 7 owner && rm gone && \
                  rm -r dir && ln -sf two link && touch -d 2001-01-01 touched && mkdir new && echo n >new/n && \
                  rm kind && mkdir kind && rm /usr/bin/yes && echo own >/usr/local/own && echo x >>/etc/hosts";
    assert_eq!(sandbox.exec(change)["exit_code"], 0);
    wait_until("it sleeps", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    take(&sandbox, "two");
    let wanted = [
        ("/etc/hosts", "changed"),
        ("/usr/bin/yes", "removed"),
        ("/usr/local/own", "added"),
        ("/workspace/content", "changed"),
        ("/workspace/dir", "removed"),
        ("/workspace/dir/file", "removed"),
        ("/workspace/gone", "removed"),
        ("/workspace/kind", "changed"),
        ("/workspace/link", "changed"),
        ("/workspace/mode", "changed"),
        ("/workspace/new", "added"),
        ("/workspace/new/n", "added"),
        ("/workspace/owner", "changed"),
    ];
    let wanted: BTreeMap<_, _> = wanted.map(|(path, how)| (path.to_owned(), how.to_owned())).into();
    for limit in [1, 3, 1000] {
        assert_eq!(changes(&http, "one", "two", limit), wanted, "pages of {limit}");
    }
    let back = changes(&http, "two", "one", 1000);
    assert_eq!(back.get("/workspace/gone").map(String::as_str), Some("added"));
    assert_eq!(back.get("/workspace/new/n").map(String::as_str), Some("removed"));
    let printed = server.command(&["snapshot", "diff", "one", "two"]);
    let printed = String::from_utf8(printed.stdout).expect("text");
    assert!(
        printed.contains("D /workspace/gone\n") && printed.contains("A /workspace/new/\n"),
        "{printed}"
    );
    let shown = server.command(&["snapshot", "cat", "two", "content"]);
    assert_eq!(shown.stdout, b"B\n");
    let other = server.add_key(&["--tenant", "other"]);
    let other = server.client(Some(&other));
    let refused = other.get("/v1/snapshots/one/diff/two").expect(404);
    assert_eq!(refused.error(), "no_snapshot");
    assert_eq!(http.get("/v1/snapshots/one/diff/none").expect(404).error(), "no_snapshot");
    for snapshot in ["one", "again", "two"] {
        http.delete(&format!("/v1/snapshots/{snapshot}")).expect(200);
    }
}

/// Promises: SN11.
#[test]
fn a_difference_names_what_changed_with_a_disk() {
    a_difference_names_what_changed(128);
}

/// Promises: SN11.
#[test]
fn a_difference_names_what_changed_without_a_disk() {
    a_difference_names_what_changed(0);
}

/// A template on the programs of the host has changes of `/usr` in its layer, below those of a sandbox
/// from it. The second template has none in `/usr`.
fn files_of_a_template(disk_mib: u64) {
    let server = Server::start();
    let http = server.http();
    let sandbox = server.sandbox_with(&json!({"disk_mib": disk_mib}));
    let made = sandbox.exec(
        "set -e; echo template >/usr/local/t; mkdir /usr/local/d; echo 1 >/usr/local/d/1; rm /usr/bin/yes; \
         rm -r /usr/share/perl5; mkdir /usr/share/perl5; echo own >/usr/share/perl5/own; \
         echo template >/opt/t; rm -r /var/log; echo first >/etc/hosts.own; echo w >/workspace/w",
    );
    assert_eq!(made["exit_code"], 0, "{made}");
    take(&sandbox, "base");
    http.post("/v1/images", &json!({"snapshot": "base", "name": "template:1"})).expect(201);
    http.delete("/v1/snapshots/base").expect(200);
    sandbox.delete();
    let sandbox = server.sandbox_with(&json!({"image": "template:1", "disk_mib": disk_mib}));
    take(&sandbox, "unchanged");
    let directories = [
        "/workspace",
        "/usr/local",
        "/usr/bin",
        "/usr/share",
        "/usr/share/perl5",
        "/opt",
        "/var",
        "/",
    ];
    assert_same_lists(&sandbox, "unchanged", &directories, "");
    let changed = sandbox.exec(
        "set -e; echo more >>/usr/local/t; rm -r /usr/local/d; rm /usr/share/perl5/own; rm /usr/bin/env; \
         echo new >/usr/bin/yes; rm /opt/t; mkdir /opt/t; echo x >/opt/t/x; rm /workspace/w",
    );
    assert_eq!(changed["exit_code"], 0, "{changed}");
    take(&sandbox, "changed");
    assert_same_lists(&sandbox, "changed", &directories, "");
    assert_same_lists(&sandbox, "changed", &["/opt", "/usr/local", "/etc"], "&recursive=1");
    let text = |snapshot: &str, path: &str| file(&http, snapshot, path).expect(200).text();
    assert_eq!(text("unchanged", "/usr/local/t"), "template\n");
    assert_eq!(text("unchanged", "/usr/local/d/1"), "1\n");
    assert_eq!(text("changed", "/usr/local/t"), "template\nmore\n");
    assert_eq!(text("changed", "/usr/bin/yes"), "new\n");
    assert_eq!(text("changed", "/opt/t/x"), "x\n");
    for (snapshot, path) in [
        ("unchanged", "/usr/bin/yes"),
        ("unchanged", "/usr/share/perl5/strict.pm"),
        ("unchanged", "/var/log"),
        ("changed", "/usr/local/d/1"),
        ("changed", "/usr/share/perl5/own"),
        ("changed", "/usr/bin/env"),
        ("changed", "w"),
    ] {
        assert_eq!(
            file(&http, snapshot, path).expect(404).error(),
            "not_found",
            "{snapshot} {path}"
        );
    }
    // Heads, ranges and tags.
    let path = "/v1/snapshots/changed/files//usr/local/t";
    let head = http.try_open("HEAD", path, None).expect("an answer");
    let header =
        |name: &str| head.headers.iter().find(|(own, _)| own == name).map(|(_, v)| v.as_str());
    assert_eq!((head.status, header("content-length")), (200, Some("14")));
    let tag = header("etag").expect("a tag");
    assert_eq!(http.with("if-none-match", tag).get(path).status, 304);
    let range = |range: &str| {
        let reply = http.with("range", range).get(path);
        (reply.status, reply.header("content-range").map(str::to_owned), reply.text())
    };
    assert_eq!(range("bytes=0-3"), (206, Some("bytes 0-3/14".to_owned()), "temp".to_owned()));
    assert_eq!(range("bytes=-5"), (206, Some("bytes 9-13/14".to_owned()), "more\n".to_owned()));
    let wanted = [
        ("/opt/t", "changed"),
        ("/opt/t/x", "added"),
        ("/usr/bin/env", "removed"),
        ("/usr/bin/yes", "added"),
        ("/usr/local/d", "removed"),
        ("/usr/local/d/1", "removed"),
        ("/usr/local/t", "changed"),
        ("/usr/share/perl5/own", "removed"),
        ("/workspace/w", "removed"),
    ];
    let wanted: BTreeMap<_, _> = wanted.map(|(path, how)| (path.to_owned(), how.to_owned())).into();
    for limit in [2, 1000] {
        assert_eq!(changes(&http, "unchanged", "changed", limit), wanted, "pages of {limit}");
    }
    // A sandbox from the snapshot sees the same.
    let copy = server.sandbox_with(&json!({"snapshot": "changed"}));
    assert_same_lists(&copy, "changed", &directories, "");
    copy.delete();
    sandbox.delete();
    for snapshot in ["unchanged", "changed"] {
        http.delete(&format!("/v1/snapshots/{snapshot}")).expect(200);
    }
    // A template without changes in `/usr`.
    let sandbox = server.sandbox_with(&json!({"disk_mib": disk_mib}));
    assert_eq!(sandbox.exec("echo second >/opt/t")["exit_code"], 0);
    take(&sandbox, "base");
    http.post("/v1/images", &json!({"snapshot": "base", "name": "template:2"})).expect(201);
    let second = server.sandbox_with(&json!({"image": "template:2", "disk_mib": disk_mib}));
    take(&second, "second");
    assert_same_lists(&second, "second", &["/usr/local", "/usr/bin", "/opt", "/"], "");
    assert_eq!(changes(&http, "base", "second", 100), BTreeMap::new());
    // Otherwise its disk stays mounted for ten seconds.
    for snapshot in ["base", "second"] {
        http.delete(&format!("/v1/snapshots/{snapshot}")).expect(200);
    }
}

/// Promises: SN10, SN11.
#[test]
fn files_of_a_sandbox_from_a_template_are_those_that_it_saw_with_a_disk() {
    files_of_a_template(128);
}

/// Promises: SN10, SN11.
#[test]
fn files_of_a_sandbox_from_a_template_are_those_that_it_saw_without_a_disk() {
    files_of_a_template(0);
}
