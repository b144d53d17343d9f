//! Malicious archives, and archives that cost more than their size suggests (I8); compressed
//! archives; archives that cannot be complete; and lists of directories that are hard to list.

use isolet_kit::hostile::gzipped;
use isolet_kit::image::{Image, Registry, busybox};
use isolet_kit::process::memory_kib;
use isolet_kit::{Http, LONG, Options, Reply, Rows, Sandbox, Server, Value, json, one, quickly};
use std::fs;
use std::io::Read as _;
use std::process::Command;

/// Creates archives with a program on the test machine; each shape is a function of `t`.
const SHAPES: &str = r#"
import io, sys, tarfile
def entry(t, name, kind=tarfile.REGTYPE, data=b'', **more):
    one = tarfile.TarInfo(name); one.type = kind; one.size = len(data)
    for key, value in more.items(): setattr(one, key, value)
    t.addfile(one, io.BytesIO(data))
def dotdot(t): entry(t, 'fine'); entry(t, '../evil', data=b'x')
def middle(t): entry(t, 'a/../../evil', data=b'x')
def absolute(t): entry(t, '/evil', data=b'x')
def through(t): entry(t, 'way', tarfile.SYMTYPE, linkname='/etc'); entry(t, 'way/evil', data=b'x')
def linked(t): entry(t, 'hard', tarfile.LNKTYPE, linkname='../../etc/hostname')
def devices(t):
    entry(t, 'null', tarfile.CHRTYPE, devmajor=1, devminor=3); entry(t, 'disk', tarfile.BLKTYPE, devmajor=8)
    entry(t, 'pipe', tarfile.FIFOTYPE); entry(t, 'after', data=b'x')
def setuid(t): entry(t, 'suid', data=b'#!/bin/sh\n', mode=0o6755)
def twice(t): entry(t, 'name', data=b'one'); entry(t, 'name', data=b'two')
def long(t):
    part = 'n' * 250
    entry(t, '/'.join([part] * 15), data=b'x'); entry(t, '/'.join([part] * 40), data=b'x')
def lies(t): entry(t, 'liar', data=b'x', pax_headers={'size': str(1 << 50)})
def many(t):
    for n in range(100000): entry(t, 'd%d/f%d' % (n % 100, n))
def sparse(t):
    one = tarfile.TarInfo('huge'); one.type = tarfile.GNUTYPE_SPARSE; one.size = 0
    head = bytearray(one.tobuf(tarfile.GNU_FORMAT))
    head[156:157] = b'S'
    head[386:398] = b'%011o\0' % 0; head[398:410] = b'%011o\0' % 0
    head[483:495] = b'\x80' + (1 << 50).to_bytes(11, 'big')
    head[386:398] = b'\x80' + (1 << 50).to_bytes(11, 'big')
    head[148:156] = b' ' * 8; head[148:156] = b'%06o\0 ' % sum(head[:512])
    t.fileobj.write(bytes(head))
def zeroes(t): entry(t, 'zeroes', data=bytes(64 << 20))
def plain(t):
    entry(t, 'deep/', tarfile.DIRTYPE, mode=0o755); entry(t, 'deep/file', data=b'kept', mode=0o600)
    entry(t, 'deep/link', tarfile.SYMTYPE, linkname='file')
out = io.BytesIO()
t = tarfile.open(fileobj=out, mode='w', format=tarfile.PAX_FORMAT)
t.fileobj = out
globals()[sys.argv[1]](t)
t.close()
open(sys.argv[2], 'wb').write(out.getvalue())
"#;

fn archive(shape: &str) -> Vec<u8> {
    let folder =
        std::env::temp_dir().join(format!("isolet-archive-{}-{shape}", std::process::id()));
    let made = Command::new("python3").args(["-c", SHAPES, shape]).arg(&folder).status();
    assert!(made.expect("python3 runs").success(), "{shape}");
    let bytes = fs::read(&folder).expect("it is written");
    fs::remove_file(&folder).expect("removes");
    bytes
}

fn send(sandbox: &Sandbox, to: &str, body: &[u8]) -> Reply {
    sandbox.http.send("PUT", &sandbox.path(&format!("/files/{to}?untar=1")), Some(body))
}

fn unpack(sandbox: &Sandbox, shape: &str) -> Reply {
    send(sandbox, &format!("in/{shape}"), &archive(shape))
}

/// Checks that nothing was written outside the archive's directory.
fn nothing_outside(server: &Server, sandbox: &Sandbox) {
    let found = "find / -xdev -name evil 2>/dev/null; find /workspace -name evil -not -path '/workspace/in/*/evil'";
    assert_eq!(sandbox.says(found), "");
    assert!(fs::symlink_metadata("/evil").is_err() && fs::symlink_metadata("/etc/evil").is_err());
    assert!(!server.data().join("evil").is_file());
}

/// Promises: W12.
#[test]
fn i8_an_archive_writes_nothing_outside_of_its_directory() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    for shape in ["dotdot", "middle", "through", "linked"] {
        rows.row(shape, || {
            let reply = unpack(&sandbox, shape);
            assert!(matches!(reply.status, 400 | 404), "{}", reply.status);
            assert!(!reply.error().is_empty(), "{}", reply.text());
            nothing_outside(&server, &sandbox);
        });
    }
    rows.row("an absolute name is relative to the directory", || {
        unpack(&sandbox, "absolute").expect(200);
        assert_eq!(sandbox.says("cat in/absolute/evil"), "x");
        sandbox.exec("rm in/absolute/evil");
        nothing_outside(&server, &sandbox);
    });
    drop(rows);
    server.healthy();
}

/// Promises: W12.
#[test]
fn i8_forbidden_entries_of_an_archive_are_left_out() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("devices and FIFOs", || {
        unpack(&sandbox, "devices").expect(200);
        assert_eq!(sandbox.says("ls in/devices"), "after\n");
    });
    rows.row("set-user-id", || {
        unpack(&sandbox, "setuid").expect(200);
        assert_eq!(sandbox.says("stat -c '%a %u' in/setuid/suid"), "755 0\n");
    });
    rows.row("the last entry of a name wins", || {
        unpack(&sandbox, "twice").expect(200);
        assert_eq!(sandbox.says("cat in/twice/name"), "two");
    });
    drop(rows);
    server.healthy();
}

/// Promises: W12.
#[test]
fn long_i8_an_archive_that_lies_or_grows_is_bounded() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("names of 4 KiB and of 10 KiB", || {
        let reply = unpack(&sandbox, "long");
        assert!((400..=413).contains(&reply.status), "{} {}", reply.status, reply.text());
        assert_eq!(sandbox.says("find in/long -type f | wc -l"), "1\n");
    });
    for shape in ["lies", "sparse"] {
        rows.row(shape, || {
            let reply = quickly("a refusal", LONG, || unpack(&sandbox, shape));
            assert_eq!(reply.status, 400, "{}", reply.text());
            let used = sandbox.says("du -sk in | cut -f1").trim().parse::<u64>().expect("a number");
            assert!(used < 64 * 1024, "{used} KiB");
        });
    }
    rows.row("100,000 entries", || {
        quickly("an archive of many", LONG, || unpack(&sandbox, "many").expect(200));
        assert_eq!(sandbox.says("find in/many -type f | wc -l"), "100000\n");
    });
    rows.row("zstd of 64 MiB of zeroes is accepted, of 8 GiB it is a bomb", || {
        sandbox.exec("head -c 64M /dev/zero >zeroes; mkdir z; mv zeroes z");
        let packed = sandbox.http.get(&sandbox.path("/files/z?tar=zstd")).expect(200).body;
        assert!(packed.len() < 64 * 1024, "{} bytes", packed.len());
        send(&sandbox, "back", &packed).expect(200);
        assert_eq!(sandbox.says("cmp z/zeroes back/zeroes && echo same"), "same\n");
        // A sparse file: the archive contains zeroes after its header.
        sandbox.exec("rm -r z back; mkdir z; truncate -s 8G z/zeroes");
        let packed = sandbox.http.get(&sandbox.path("/files/z?tar=zstd")).expect(200).body;
        let reply = quickly("a refusal", LONG, || send(&sandbox, "bomb", &packed)).expect(400);
        assert!(reply.text().contains("1000-fold"), "{}", reply.text());
        assert_eq!(
            sandbox.says("test $(stat -c %s bomb/zeroes) -le 1200000000 && echo bounded"),
            "bounded\n"
        );
    });
    rows.row("a truncated or invalid frame", || {
        let magic = [&[0x28, 0xb5, 0x2f, 0xfd][..], &[0xff; 4096]].concat();
        for body in [&magic[..4], &magic] {
            assert_eq!(send(&sandbox, "bad", body).expect(400).error(), "bad_request");
        }
    });
    drop(rows);
    server.healthy();
}

/// A gzip archive was once answered with an error about the checksum of its first header.
/// Promises: W12.
#[test]
fn an_archive_of_another_format_is_refused_with_the_supported_ones() {
    let (server, sandbox) = one();
    let tar = archive("plain");
    let mut rows = Rows::new();
    for (what, body) in [
        ("gzip", gzipped(&tar)),
        ("zip", [&b"PK\x03\x04"[..], &[7; 1000]].concat()),
        ("xz", [&b"\xfd7zXZ\0"[..], &[7; 1000]].concat()),
        ("bzip2", [&b"BZh91AY"[..], &[7; 1000]].concat()),
        ("text", vec![b'x'; 4096]),
        ("a few bytes", b"hello".to_vec()),
    ] {
        rows.row(what, || {
            let reply = send(&sandbox, "other", &body).expect(400);
            let text = reply.text();
            assert!(text.contains("tar") && text.contains("zstd"), "{text}");
            let named = !matches!(what, "text" | "a few bytes");
            assert!(!named || text.contains(&format!("compressed with {what}")), "{text}");
            assert!(!text.contains("checksum"), "{text}");
        });
    }
    drop(rows);
    server.healthy();
}

/// Nothing unpacks a request body: a body that is declared as encoded is refused, however small,
/// and a file is stored as it was sent.
/// Promises: W12.
#[test]
fn i8_a_body_is_stored_as_sent_and_never_unpacked() {
    let (server, sandbox) = one();
    let bomb = gzipped(&vec![b' '; 64 << 20]);
    let encoded = server.http().with("content-encoding", "gzip");
    let file = sandbox.path("/files/bomb.gz");
    let before = memory_kib(server.pid());
    let mut rows = Rows::new();
    for (method, path) in [
        ("PUT", file.clone()),
        ("PUT", format!("{file}?append=1")),
        ("PUT", sandbox.path("/files/in?untar=1")),
        ("POST", "/v1/images/import?name=local/a:1".to_owned()),
        ("POST", "/v1/sandboxes".to_owned()),
        ("POST", sandbox.path("/exec")),
        ("POST", sandbox.path("/sessions")),
    ] {
        rows.row(&format!("{method} {path}"), || {
            let reply = encoded.send(method, &path, Some(&bomb)).expect(415);
            assert_eq!(reply.error(), "encoded_body");
            assert!(reply.text().contains("Content-Encoding"), "{}", reply.text());
        });
    }
    rows.row("as a file it is stored as sent", || {
        sandbox.http.send("PUT", &file, Some(&bomb)).expect(201);
        assert_eq!(sandbox.http.get(&file).expect(200).body, bomb);
        let same = server.http().with("content-encoding", "identity");
        same.send("PUT", &file, Some(&bomb)).expect(200);
    });
    rows.row("as an image it is a bomb", || {
        let path = "/v1/images/import?name=local/a:1";
        let large = gzipped(&vec![0; 200 << 20]);
        assert!(matches!(server.http().send("POST", path, Some(&bomb)).status, 413 | 422));
        assert!(matches!(server.http().send("POST", path, Some(&large)).status, 413 | 422));
    });
    drop(rows);
    let more = memory_kib(server.pid()).saturating_sub(before) / 1024;
    assert!(more < 32, "{more} MiB more");
    server.healthy();
}

/// Promises: W12.
#[test]
fn a_compressed_archive_round_trips_unchanged() {
    let (server, sandbox) = one();
    unpack(&sandbox, "plain").expect(200);
    let reply = sandbox.http.get(&sandbox.path("/files/in/plain?tar=zstd")).expect(200);
    assert_eq!(reply.header("content-type"), Some("application/zstd"));
    assert_eq!(reply.body[..4], [0x28, 0xb5, 0x2f, 0xfd]);
    send(&sandbox, "again", &reply.body).expect(200);
    let look = "cd in/plain && find . -printf '%p %m %y %l\\n' | sort; cat deep/file";
    assert_eq!(sandbox.says(look), sandbox.says(&look.replace("in/plain", "again")));
    server.healthy();
}

/// Entries that are deeper than a call can name were once left out of lists and archives, which
/// ended as if they were complete.
/// Promises: W13.
#[test]
fn a_tree_too_deep_for_an_archive_is_an_error() {
    let (server, sandbox) = one();
    sandbox.says(
        "python3 -c '
import os
for name, depth in ((\"d\", 2100), (\"n\" * 250, 20)):
    os.chdir(\"/workspace\")
    os.mkdir(\"of-\" + name[0])
    os.chdir(\"of-\" + name[0])
    for _ in range(depth):
        os.mkdir(name)
        os.chdir(name)
    open(\"leaf\", \"w\").close()
'",
    );
    let get = |rest: &str| sandbox.http.get(&sandbox.path(&format!("/files/{rest}")));
    let mut rows = Rows::new();
    rows.row("an archive that has started is cut off", || {
        let mut reply =
            sandbox.http.try_open("GET", &sandbox.path("/files/of-d?tar=1"), None).unwrap();
        let mut bytes = Vec::new();
        assert!(reply.status == 200 && reply.body.read_to_end(&mut bytes).is_err());
        assert!(!bytes.ends_with(&[0; 1024]), "it has no end");
    });
    for path in ["of-d?tar=zstd", "of-n?tar=zstd"] {
        rows.row(path, || {
            let reply = get(path).expect(413);
            assert_eq!(reply.error(), "too_large");
            assert!(reply.text().contains("File name too long"), "{}", reply.text());
        });
    }
    for path in ["of-d", "of-n"] {
        for query in ["", "&glob=le*"] {
            rows.row(&format!("a list of {path}{query}"), || {
                let list = format!("/files/{path}?recursive=1&limit=10000{query}");
                let all = pages(&server.http(), sandbox.path(&list)).concat();
                let unread: Vec<_> = all.iter().map(|one| &one["unread"]).collect();
                assert_eq!(unread.last(), Some(&&json!("too_large")));
                assert_eq!(unread.iter().filter(|why| !why.is_null()).count(), 1);
            });
        }
    }
    drop(rows);
    server.healthy();
}

/// A file and a directory that the sandbox's user may not read were once left out of archives and
/// lists, which ended as if they were complete.
/// Promises: W13.
#[test]
fn unreadable_files_are_reported_and_not_left_out() {
    let registry = Registry::start();
    let users = b"ann:x:1234:55:Ann:/home/ann:/bin/sh\n";
    let layer = busybox().directory("etc").file("etc/passwd", users);
    let name = registry.has("app", Image::new(&[layer.bytes()], &json!({"User": "ann"})));
    let config = format!("[images]\nregistries = [\"{}\"]\n", registry.host());
    let server = Options::new().config(&config).start();
    let sandbox = server.sandbox_with(&json!({"image": name}));
    sandbox.says(
        "cd /workspace; for at in file dir names late; do mkdir -p $at/sub; echo $at >$at/sub/open; done
         echo x >file/sub/shut; busybox chmod 0 file/sub/shut; busybox chmod 0 dir/sub
         busybox chmod 444 names/sub; busybox head -c 200000 /dev/urandom >late/a; busybox chmod 0 late/sub",
    );
    let get = |rest: &str| sandbox.http.get(&sandbox.path(&format!("/files/{rest}")));
    for (path, shut) in [("file", "sub/shut"), ("dir", "sub"), ("names", "sub")] {
        for tar in ["1", "zstd"] {
            let reply = get(&format!("{path}?tar={tar}")).expect(403);
            assert_eq!(reply.error(), "denied");
            assert!(reply.text().contains(&format!("{path}: {shut}: ")), "{}", reply.text());
        }
    }
    let late = sandbox.path("/files/late?tar=1");
    assert!(sandbox.http.try_send("GET", &late, None).is_err(), "the archive is cut off");
    let answer = |list: Value| -> Vec<_> {
        let all = list.as_array().expect("an array").iter();
        let one = |one: &Value| (one["path"].to_string(), one["unread"].to_string());
        all.map(one).filter(|(_, unread)| unread != "null").collect()
    };
    let shut = ["dir", "late", "names"]
        .map(|path| (format!("\"/workspace/{path}/sub\""), "\"denied\"".to_owned()));
    assert_eq!(answer(get("?recursive=1").expect(200).json()), shut);
    assert_eq!(answer(get("?recursive=1&glob=op*").expect(200).json()), shut);
    let all = pages(&server.http(), sandbox.path("/files?recursive=1&limit=1")).concat();
    assert_eq!(answer(all.into()), shut);
    for path in ["dir/sub", "names/sub"] {
        assert_eq!(get(path).expect(403).error(), "denied", "{path}");
    }
    let found = get("?search=.").expect(200).json();
    assert!(found["unread"].as_u64() >= Some(3), "{found}");
    server.healthy();
}

/// All pages of a list of a directory.
fn pages(http: &Http, first: String) -> Vec<Vec<Value>> {
    let mut pages = Vec::new();
    let mut next = Some(first);
    while let Some(path) = next {
        let page = http.get(&path).expect(200);
        pages.push(page.json().as_array().expect("a list").clone());
        let link = page.header("link");
        next = link.map(|link| link.split(['<', '>']).nth(1).expect("a link").to_owned());
    }
    pages
}

#[test]
fn a_page_of_long_paths_ends_early_and_the_next_one_continues() {
    let server = Server::start();
    let sandbox = server.sandbox();
    // 12 names of 250 bytes lead to 500 files: 1.6 MiB of paths.
    let made = sandbox.command(
        "dev",
        "n=$(printf 'd%.0s' {1..250}); for ((i=0; i<12; i++)); do mkdir $n; cd $n; done; \
         for ((i=0; i<500; i++)); do >f$i; done",
    );
    assert_eq!(made["exit_code"], 0, "{made}");
    let pages = pages(&sandbox.http, sandbox.path("/files?recursive=1&limit=10000"));
    assert!(pages.len() > 1, "one page");
    for page in &pages {
        let relative = |one: &Value| one["path"].as_str().unwrap().len() - "/workspace/".len();
        assert!(page.iter().map(relative).sum::<usize>() <= 1 << 20, "{} entries", page.len());
    }
    assert_eq!(pages.concat().len(), 512);
}
