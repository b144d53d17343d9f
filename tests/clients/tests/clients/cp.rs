//! `isolet cp`: the path rules of `docker cp`, with real trees, pipes and a full disk.

use crate::programs::{ProgramOutput, run};
use isolet_kit::{SOON, Server, wait_until};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

/// Runs `isolet cp` in a directory.
fn cp(server: &Server, directory: &Path, args: &[&str]) -> ProgramOutput {
    run(server.program().arg("cp").args(args).current_dir(directory))
}

/// The output of a command in the sandbox `a`.
fn inside(server: &Server, command: &str) -> String {
    run(server.program().args(["exec", "a", command])).well().out
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("it exists").mode() & 0o777
}

#[test]
fn files_go_where_docker_cp_puts_them() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let here = folder.path();
    fs::write(here.join("f"), "one").expect("writes");
    fs::set_permissions(here.join("f"), PermissionsExt::from_mode(0o751)).expect("sets");
    // The first copy creates the sandbox, as the first command does.
    for args in [["f", "a:"], ["f", "a:g"], ["f", "a:/tmp"], ["f", "a:/tmp/."], ["f", "a:g"]] {
        let done = cp(&server, here, &args).well();
        assert_eq!((done.out.as_str(), done.err.as_str()), ("", ""), "{args:?}");
    }
    assert_eq!(
        inside(&server, "cat f g /tmp/f; stat -c %a f g /tmp/f"),
        "oneoneone751\n751\n751\n"
    );
    for (args, word) in [
        (["f", "a:none/f"], "the directory a:/workspace/none does not exist"),
        (["f", "a:none/"], "the directory a:/workspace/none does not exist"),
        (["f", "a:f/"], "a:/workspace/f is not a directory"),
        (["nosuch", "a:"], "nosuch"),
        (["f/", "a:"], "f/"),
        (["a:nosuch", "."], "a:/workspace/nosuch does not exist"),
        (["a:f", "none/g"], "the directory none does not exist"),
        (["a:f", "none/"], "the directory none/ does not exist"),
        (["b:f", "."], "no sandbox b"),
        (["a:f", "b:f"], "isolet cp A:PATH - | isolet cp - B:PATH"),
        (["f", "g"], "SANDBOX:PATH"),
        (["f", "a!:g"], "a!"),
    ] {
        let refused = cp(&server, here, &args);
        assert!(matches!(refused.code, Some(1 | 2)), "{args:?}: {refused:?}");
        assert!(refused.err.contains(word), "{args:?}: {}", refused.err);
    }
    assert_eq!(server.ids(&server.http()), ["a"], "reading creates no sandbox");
    inside(
        &server,
        "printf 'spaces\\n' >'a b\nc'; chmod 600 'a b\nc'; touch -d @1000000000 'a b\nc'",
    );
    cp(&server, here, &["a:a b\nc", "."]).well();
    cp(&server, here, &["a:a b\nc", "named"]).well();
    for name in ["a b\nc", "named"] {
        let file = here.join(name);
        assert_eq!(fs::read_to_string(&file).expect("reads"), "spaces\n");
        assert_eq!(
            (mode(&file), file.metadata().expect("is there").mtime()),
            (0o600, 1_000_000_000)
        );
    }
    symlink("named", here.join("link")).expect("links");
    cp(&server, here, &["a:f", "link"]).well();
    assert_eq!(fs::read_to_string(here.join("named")).expect("reads"), "one", "a link is followed");
    cp(&server, here, &["link", "a:kept"]).well();
    cp(&server, here, &["-L", "link", "a:followed"]).well();
    assert_eq!(inside(&server, "readlink kept; cat followed"), "named\none");
    cp(&server, here, &["a:kept", "back"]).well();
    assert_eq!(fs::read_link(here.join("back")).expect("is a link"), Path::new("named"));
    let names: Vec<_> =
        fs::read_dir(here).expect("reads").map(|one| one.expect("is").file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains(".isolet-")), "{names:?}");
}

#[test]
fn directories_go_where_docker_cp_puts_them() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let here = folder.path();
    fs::create_dir_all(here.join("tree/deep/er")).expect("creates");
    fs::write(here.join("tree/deep/er/file"), "x".repeat(3_000_000)).expect("writes");
    fs::write(here.join("tree/b\u{e9}\n"), "").expect("writes");
    fs::set_permissions(here.join("tree/deep"), PermissionsExt::from_mode(0o750)).expect("sets");
    symlink("deep/er/file", here.join("tree/link")).expect("links");
    for args in
        [["tree", "a:"], ["tree/.", "a:/tmp"], ["tree", "a:/opt/new"], ["tree/", "a:/opt/new"]]
    {
        cp(&server, here, &args).well();
    }
    let list = "find . -mindepth 1 -printf '%P %y %m\\n' | sort | tr '\\n' ';'";
    let tree = inside(&server, &format!("cd tree; {list}"));
    assert!(tree.contains("deep d 750") && tree.contains("link l"), "{tree}");
    for directory in ["/opt/new/tree", "/tmp"] {
        assert_eq!(
            inside(&server, &format!("cd {directory}; {list}")).matches("deep/er/file").count(),
            1
        );
    }
    assert_eq!(
        inside(&server, "test -f /opt/new/deep/er/file && cat tree/link | wc -c"),
        "3000000\n"
    );
    fs::write(here.join("file"), "").expect("writes");
    cp(&server, here, &["file", "a:file"]).well();
    for (args, word) in [
        (["tree", "a:file"], "cannot copy a directory onto the file a:/workspace/file"),
        (["a:tree", "file"], "cannot copy a directory onto the file file"),
        (["tree", "a:none/tree"], "the directory a:/workspace/none does not exist"),
    ] {
        let refused = cp(&server, here, &args);
        assert!(refused.code == Some(1) && refused.err.contains(word), "{args:?}: {}", refused.err);
    }
    for (args, expected) in [
        (["a:tree", "copy"], "copy/deep/er/file"),
        (["a:tree", "copy"], "copy/tree/deep/er/file"),
        (["a:tree/.", "copy/tree/deep"], "copy/tree/deep/deep/er/file"),
    ] {
        cp(&server, here, &args).well();
        assert_eq!(here.join(expected).metadata().expect("is there").len(), 3_000_000, "{args:?}");
    }
    assert_eq!(mode(&here.join("copy/deep")), 0o750);
    assert_eq!(
        fs::read_link(here.join("copy/link")).expect("is a link"),
        Path::new("deep/er/file")
    );
    assert!(here.join("copy/b\u{e9}\n").try_exists().expect("readable"));
}

/// A sandbox cannot write outside of the directory that a person names.
#[test]
fn an_archive_of_a_sandbox_stays_in_its_directory() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let here = folder.path();
    let outside = here.join("outside");
    fs::create_dir_all(&outside).expect("creates");
    inside(&server, "mkdir -p d/sub && echo bad >d/sub/file");
    fs::create_dir(here.join("to")).expect("creates");
    // The tree that the sandbox sends passes through a link of an earlier copy.
    inside(&server, &format!("mkdir first && ln -s {} first/sub", outside.display()));
    cp(&server, here, &["a:first/.", "to"]).well();
    let second = cp(&server, here, &["a:d/.", "to"]);
    assert!(!outside.join("file").try_exists().expect("readable"), "{second:?}");

    // A link that an earlier copy has made is replaced by a file, and no directory is copied through it.
    let links = format!("mkdir e && ln -s {0}/rc e/rc && ln -s {0} e/dir", outside.display());
    inside(&server, &links);
    fs::create_dir(here.join("twice")).expect("creates");
    cp(&server, here, &["a:e/.", "twice"]).well();
    inside(&server, "rm -r e && mkdir -p e/dir && echo evil >e/rc && echo evil >e/dir/new");
    cp(&server, here, &["a:e/rc", "twice"]).well();
    assert_eq!(fs::read_to_string(here.join("twice/rc")).expect("a file"), "evil\n");
    let refused = cp(&server, here, &["a:e/dir", "twice"]);
    assert!(refused.code == Some(1) && refused.err.contains("link"), "{refused:?}");
    assert_eq!(fs::read_dir(&outside).expect("a directory").count(), 0);
}

#[test]
fn a_directory_that_is_copied_is_as_private_as_the_original() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    inside(&server, "mkdir -m 700 private && echo 1 >private/file && mkdir -m 500 private/closed");
    cp(&server, folder.path(), &["a:private", "here"]).well();
    let mode = |name: &str| fs::metadata(folder.path().join(name)).expect("there").mode() & 0o777;
    assert_eq!((mode("here"), mode("here/closed")), (0o700, 0o500));
    assert_eq!(fs::read_to_string(folder.path().join("here/file")).expect("a file"), "1\n");
    // A FIFO has no other end.
    run(std::process::Command::new("mkfifo").arg(folder.path().join("fifo"))).well();
    let refused = cp(&server, folder.path(), &["fifo", "a:"]);
    assert!(refused.code == Some(1) && refused.err.contains("neither"), "{refused:?}");
}

#[test]
fn a_dash_is_a_tar_archive() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let here = folder.path();
    inside(&server, "mkdir -p d/e; echo 1 >d/e/f; ln d/e/f d/hard; ln -s e d/soft; echo 2 >single");
    let list = |source: &str| {
        let mut out = server.program();
        out.args(["cp", source, "-"]).stdout(Stdio::piped());
        let mut out = out.spawn().expect("starts");
        let mut tar = std::process::Command::new("tar");
        let pipe = out.stdout.take().expect("was asked for");
        let listed = tar.args(["-t", "-f", "-"]).stdin(pipe).output().expect("runs");
        assert!(out.wait().expect("ends").success() && listed.status.success(), "{listed:?}");
        let mut names: Vec<String> = String::from_utf8_lossy(&listed.stdout)
            .lines()
            .map(|name| name.trim_end_matches('/').to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(list("a:d"), ["d", "d/e", "d/e/f", "d/hard", "d/soft"]);
    assert!(list("a:d/.").iter().any(|name| name.trim_start_matches("./") == "e/f"));
    assert_eq!(list("a:single"), ["single"]);
    let shell = |text: &str| {
        let isolet = server.program();
        let mut command = std::process::Command::new("bash");
        for (name, value) in isolet.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let program = isolet.get_program().to_string_lossy().into_owned();
        let text = text.replace("isolet ", &format!("'{program}' "));
        run(command.args(["-o", "pipefail", "-c", &text]).current_dir(here))
    };
    run(server.program().args(["exec", "b", "mkdir to"])).well();
    shell("isolet cp a:d - | isolet cp - b:to").well();
    let copied = run(server.program().args(["exec", "b", "cat to/d/e/f to/d/soft/f to/d/hard"]));
    assert_eq!(copied.well().out, "1\n1\n1\n");
    for target in ["b:none", "b:to/d/e/f"] {
        let refused = shell(&format!("tar -c . | isolet cp - {target}"));
        assert!(refused.code == Some(1) && refused.err.contains(&target[2..]), "{refused:?}");
    }
    let broken = shell("echo no archive | isolet cp - b:to");
    assert_eq!(broken.code, Some(1), "{broken:?}");
}

#[test]
fn a_full_disk_on_either_side_is_reported_and_leaves_nothing_incomplete() {
    let server = Server::start();
    run(server.program().args(["create", "a", "--disk", "32m"])).well();
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let here = folder.path();
    let big = fs::File::create(here.join("big")).expect("creates");
    big.set_len(64 << 20).expect("grows");
    for source in ["big", "."] {
        let refused = cp(&server, here, &[source, "a:target"]);
        assert_eq!(refused.code, Some(1), "{source}: {refused:?}");
        assert!(refused.err.contains("a:/workspace/target"), "{}", refused.err);
        inside(&server, "rm -rf target/big; test ! -f target");
    }
    inside(&server, "head -c 1000000 /dev/zero >some");
    let full = cp(&server, here, &["a:some", "/dev/full"]);
    assert!(full.code == Some(1) && full.err.contains("/dev/full"), "{full:?}");
}

#[test]
fn an_interrupted_copy_leaves_the_old_file() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let here = folder.path();
    inside(&server, "truncate -s 20G sparse; echo old >file");
    fs::write(here.join("sparse"), "old").expect("writes");
    let mut command = server.program();
    command.args(["cp", "a:sparse", "."]).current_dir(here);
    let mut child = command.spawn().expect("starts");
    wait_until("it has begun", SOON, || {
        let mut names = fs::read_dir(here).expect("reads").flatten();
        names.find(|one| {
            one.file_name().to_string_lossy().starts_with(".sparse")
                && one.metadata().is_ok_and(|metadata| metadata.len() > 1_000_000)
        })
    });
    run(std::process::Command::new("kill").args(["-INT", &child.id().to_string()])).well();
    assert_eq!(child.wait().expect("ends").code(), Some(130));
    assert_eq!(fs::read_to_string(here.join("sparse")).expect("reads"), "old");
    assert_eq!(fs::read_dir(here).expect("reads").count(), 1, "no part is left");
    let mut command = server.program();
    command.args(["cp", "-L", "/dev/stdin", "a:file"]).stdin(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let mut stdin = child.stdin.take().expect("was asked for");
    stdin.write_all(&vec![b'x'; 4_000_000]).expect("writes");
    run(std::process::Command::new("kill").args(["-INT", &child.id().to_string()])).well();
    assert_eq!(child.wait().expect("ends").code(), Some(130));
    assert_eq!(inside(&server, "cat file"), "old\n");
    drop(stdin);
}

#[test]
fn standard_input_of_a_command_has_no_limit_and_is_not_held_in_memory() {
    let server = Server::start();
    const BYTES: u64 = 128 << 20;
    let mut command = server.program();
    command.args(["exec", "a", "-i", "wc", "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let mut stdin = child.stdin.take().expect("was asked for");
    let piece = vec![7; 1 << 20];
    for _ in 0..BYTES >> 20 {
        stdin.write_all(&piece).expect("is read");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("is in it");
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("is a number");
    assert!(kib < 64_000, "it holds {kib} KiB");
    drop(stdin);
    let mut out = String::new();
    child.stdout.take().expect("was asked for").read_to_string(&mut out).expect("reads");
    assert!(child.wait().expect("ends").success());
    assert_eq!(out, format!("{BYTES}\n"));
}

/// Input that waited for the command goes on as soon as the command reads again.
#[test]
fn a_command_may_stop_reading_its_input_many_times() {
    let server = Server::start();
    let command =
        "for i in $(seq 40); do head -c 1000000 | wc -c; sleep 0.2; done | sort | uniq -c";
    let mut child = server.program();
    child.args(["exec", "-i", "a", command]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().expect("starts");
    let mut stdin = child.stdin.take().expect("was asked for");
    let feeding = std::thread::spawn(move || stdin.write_all(&vec![b'x'; 40_000_000]));
    let output = child.wait_with_output().expect("ends");
    feeding.join().expect("ends").expect("all is read");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "40 1000000");
}

#[test]
fn a_command_gets_its_input_while_it_arrives() {
    let server = Server::start();
    for session in [&[][..], &["--session", "s"]] {
        let mut command = server.program();
        command.args(["exec", "a", "-i"]).args(session).args(["--", "sh", "-c"]);
        command.arg("while read -r line; do echo got $line; done; exit 5");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut stdin = child.stdin.take().expect("was asked for");
        let mut stdout = child.stdout.take().expect("was asked for");
        for word in ["one", "two"] {
            stdin.write_all(format!("{word}\n").as_bytes()).expect("writes");
            let mut answer = vec![0; "got one\n".len()];
            stdout.read_exact(&mut answer).expect("it answers before its input ends");
            assert_eq!(answer, format!("got {word}\n").as_bytes());
        }
        drop(stdin);
        assert_eq!(child.wait().expect("ends").code(), Some(5), "{session:?}");
    }
    for (code, args) in [
        (127, &["nosuch"][..]),
        (126, &["/etc/passwd"]),
        (137, &["kill -9 $$"]),
        (124, &["--timeout", "200ms", "sleep 60"]),
        (7, &["exit 7"]),
    ] {
        let said = run(server.program().args(["exec", "-i", "a"]).args(args));
        assert_eq!(said.code, Some(code), "{args:?}: {}", said.err);
    }
    let placed =
        run(server.program().args(["exec", "-i", "-w", "/tmp", "-e", "X=1", "a", "echo $PWD $X"]));
    assert_eq!(placed.well().out, "/tmp 1\n");
}
