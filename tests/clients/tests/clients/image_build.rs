//! `isolet image build`, and the builds behind it.

use crate::programs::{ProgramOutput, run};
use isolet_kit::{Http, Options, SOON, Server, Value, json, wait_until};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const DOCKERFILE: &str = r#"# syntax=docker/dockerfile:1
ARG BASE=host
FROM ${BASE}
ARG VERSION=1
ENV HOME_DIR=/srv/app GREETING="hello $VERSION"
WORKDIR $HOME_DIR
COPY src .
COPY --chown=mish --chmod=640 one.txt two.txt /opt/files/
RUN echo 'mish:x:1234:1234::/home/mish:/bin/sh' >>/etc/passwd \
  && mkdir /home/mish && chown 1234:1234 /home/mish
USER mish
RUN id -u > /home/mish/who && pwd >> /home/mish/who && echo "$VERSION $GREETING" >> /home/mish/who
RUN ["touch", "/home/mish/a b"]
RUN <<END
echo "$HOME" > /home/mish/home
END
EXPOSE 8080
LABEL org.example.version=$VERSION
ENTRYPOINT ["sleep"]
CMD ["infinity"]
"#;

/// A context with a Dockerfile that puts the account before its use.
fn context() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let path = |name: &str| folder.path().join(name);
    let mut lines: Vec<&str> = DOCKERFILE.lines().collect();
    // The files are given to the account that the first command creates.
    let copy = lines.iter().position(|line| line.starts_with("COPY --chown")).expect("is there");
    let line = lines.remove(copy);
    let user = lines.iter().position(|line| line.starts_with("USER")).expect("is there");
    lines.insert(user, line);
    fs::write(path("Dockerfile"), lines.join("\n")).expect("writes");
    fs::create_dir_all(path("src/sub")).expect("is new");
    for (name, text) in [
        ("src/a.txt", "a\n"),
        ("src/sub/b.txt", "b\n"),
        ("src/x.log", "no\n"),
        ("one.txt", "1\n"),
        ("two.txt", "2\n"),
        (".dockerignore", "**/*.log\n"),
    ] {
        fs::write(path(name), text).expect("writes");
    }
    symlink("/etc/hostname", path("src/link")).expect("links");
    folder
}

fn build(server: &Server, directory: &Path, args: &[&str]) -> ProgramOutput {
    let all = [&["image", "build"], args, &["."]].concat();
    run(server.program().args(all).current_dir(directory))
}

#[test]
fn a_dockerfile_becomes_an_image_whose_sandboxes_have_all_that_it_says() {
    let server = Server::start();
    let folder = context();
    let args = ["-t", "tools:1", "-t", "tools:latest", "--build-arg", "VERSION=7"];
    let done = build(&server, folder.path(), &args).well();
    assert!(done.out.starts_with("sha256:"), "{done:?}");
    assert!(done.err.contains("EXPOSE is ignored") && done.err.contains("USER mish"), "{done:?}");
    let inside =
        |command: &str| server.sandbox_with(&json!({"id": "a", "image": "tools"})).says(command);
    let said = inside(
        "id -u; pwd; echo $GREETING; cat a.txt sub/b.txt; readlink link; ls; \
         stat -c '%u:%g %a' /opt/files/one.txt; cat /home/mish/who /home/mish/home; ls /home/mish",
    );
    assert_eq!(
        said,
        "1234\n/srv/app\nhello 7\na\nb\n/etc/hostname\na.txt\nlink\nsub\n1234:1234 640\n\
         1234\n/srv/app\n7 hello 7\n/home/mish\na b\nhome\nwho\n"
    );
    let again = build(&server, folder.path(), &args).well();
    assert_eq!(again.out, done.out, "the same steps give the same image");
    let cached = again.err.lines().filter(|line| line.starts_with("CACHED")).count();
    assert!(cached > 8 && !again.err.contains("\n[8/"), "{}", again.err);
    let all = [&args[..], &["--no-cache"]].concat();
    assert!(!build(&server, folder.path(), &all).well().err.contains("CACHED"));
    fs::write(folder.path().join("one.txt"), "changed\n").expect("writes");
    let third = build(&server, folder.path(), &args).well();
    let cached = third.err.lines().filter(|line| line.starts_with("CACHED")).count();
    assert!(cached > 2 && third.err.contains("\n["), "{}", third.err);
    let record = server.http().get("/v1/images/tools:1").expect(200).json();
    assert_eq!((&record["user"], &record["working_dir"]), (&json!("mish"), &json!("/srv/app")));
    let ids = server.ids(&server.http());
    assert_eq!(ids, ["a"], "the sandboxes of builds are deleted");
}

#[test]
fn what_cannot_be_built_is_refused_with_its_line() {
    let server = Server::start();
    let folder = context();
    for (text, words) in [
        ("FROM host\nVOLUME /x\n", &["line 2: VOLUME"][..]),
        ("FROM host\n\nCOPY missing /x\n", &["line 3", "missing"]),
        ("FROM host\nCOPY src/x.log /x\n", &["line 2", ".dockerignore"]),
        ("FROM host\nRUN echo why >&2; exit 3\n", &["exit status 3", "why"]),
        ("FROM host\nUSER nobody-known\n", &["nobody-known", "/etc/passwd"]),
        ("FROM Not:A:Name\n", &["not a valid image reference"]),
    ] {
        fs::write(folder.path().join("Dockerfile"), text).expect("writes");
        let refused = build(&server, folder.path(), &["-t", "bad:1"]);
        assert_eq!(refused.code, Some(1), "{text}: {refused:?}");
        for word in words {
            assert!(refused.err.contains(word), "{text}: {}", refused.err);
        }
    }
    assert_eq!(server.http().get("/v1/images/bad:1").status, 404);
    assert!(server.ids(&server.http()).is_empty(), "the sandboxes of builds are deleted");
}

fn start(http: &Http, name: &str, command: &str) -> String {
    let steps = json!([{"type": "run", "command": command}]);
    let body = json!({"names": [name], "from": "host", "steps": steps});
    let build = http.post("/v1/images/builds", &body).expect(202).json();
    build["id"].as_str().expect("an id").to_owned()
}

fn wait_for_line(http: &Http, id: &str, line: &str) {
    wait_until(&format!("the line {line}"), SOON, || {
        let log = http.get(&format!("/v1/images/builds/{id}/log")).expect(200).json();
        let entries = log["entries"].as_array().expect("a list").clone();
        entries.iter().any(|entry| entry["message"] == line).then_some(())
    });
}

#[test]
fn a_build_whose_server_was_killed_has_failed_and_leaves_no_sandbox() {
    let mut server = Server::start();
    let id = start(&server.http(), "killed:1", "echo begun; sleep 1000");
    wait_for_line(&server.http(), &id, "begun");
    assert_eq!(server.ids(&server.http()), [format!("build-{id}")]);
    server.kill();
    server.launch();
    let http = server.http();
    let build = http.get(&format!("/v1/images/builds/{id}")).expect(200).json();
    assert_eq!(build["state"], "failed", "{build}");
    assert!(build["reason"].as_str().expect("a text").contains("server stopped"), "{build}");
    wait_until("the sandbox is deleted", SOON, || server.ids(&http).is_empty().then_some(()));
    assert_eq!(http.get("/v1/images/killed:1").status, 404);
}

#[test]
fn a_build_is_cancelled_with_its_sandbox() {
    let server = Server::start();
    let http = server.http();
    let id = start(&http, "cancelled:1", "echo begun; sleep 1000");
    wait_for_line(&http, &id, "begun");
    let build = http.delete(&format!("/v1/images/builds/{id}")).expect(200).json();
    assert_eq!((&build["state"], &build["failed"]), (&json!("failed"), &json!("build")));
    assert!(server.ids(&http).is_empty());
    let listed = http.get("/v1/images/builds").expect(200).json();
    assert_eq!(listed[0]["id"], Value::from(id));
}

/// A build of the Dockerfile in the directory.
fn build_file(server: &Server, directory: &Path, text: &str, name: &str) -> ProgramOutput {
    fs::write(directory.join("Dockerfile"), text).expect("writes");
    build(server, directory, &["-t", name]).well()
}

/// `--chown` once changed all that lay in the destination, and a replaced file kept its owner.
#[test]
fn a_copy_owns_what_it_copies_and_nothing_else() {
    let server = Server::start();
    let folder = context();
    let text = "FROM host\n\
        RUN mkdir /opt/d && touch /opt/d/own /opt/d/one.txt && chown 7:7 /opt/d /opt/d/*\n\
        COPY one.txt two.txt /opt/d/\n\
        COPY --chown=8:8 src /opt/d\n\
        COPY --chown=8:8 src /opt/new\n";
    build_file(&server, folder.path(), text, "owners:1");
    let sandbox = server.sandbox_with(&json!({"id": "a", "image": "owners:1"}));
    let said = sandbox.says(
        "cd /opt; stat -c '%n %u:%g' d d/own d/one.txt d/two.txt d/a.txt d/sub new new/sub/b.txt",
    );
    assert_eq!(
        said,
        "d 7:7\nd/own 7:7\nd/one.txt 0:0\nd/two.txt 0:0\nd/a.txt 8:8\nd/sub 8:8\nnew 8:8\n\
         new/sub/b.txt 8:8\n"
    );
}

/// Directories of `WORKDIR` behind the last `RUN` once were missing in a build from the cache, and
/// were in the cached base of others.
#[test]
fn a_directory_of_workdir_belongs_to_its_step() {
    let server = Server::start();
    let folder = context();
    let there = |name: &str, text: &str, directory: &str| {
        build_file(&server, folder.path(), text, name);
        let sandbox = server.sandbox_with(&json!({"id": "a", "image": name}));
        let is_there = sandbox.exec(&format!("test -d {directory}"))["exit_code"] == 0;
        server.http().delete("/v1/sandboxes/a").expect(200);
        is_there
    };
    assert!(!there("w:1", "FROM host\nRUN true\n", "/made"));
    for name in ["w:2", "w:3"] {
        assert!(there(name, "FROM host\nRUN true\nWORKDIR /made/here\n", "/made/here"), "{name}");
    }
    assert!(there("w:4", "FROM host\nWORKDIR /only\nENV A=1\n", "/only"));
    assert!(!there("w:5", "FROM host\nENV A=2\n", "/only"), "not in the base");
}

/// The image of a build that was cancelled once appeared after its end.
#[test]
fn a_build_whose_image_is_being_made_cannot_be_cancelled() {
    let slow = "commit.begun=delay(3000)";
    let server = Options::new().env("ISOLET_FAILPOINTS", slow).start();
    let http = server.http();
    let id = start(&http, "late:1", "true");
    wait_for_line(&http, &id, "making the image");
    let build = http.delete(&format!("/v1/images/builds/{id}")).expect(200).json();
    assert_eq!(build["state"], "ready", "{build}");
    let _ = http.get("/v1/images/late:1").expect(200);
}

/// Builds a template that must become ready.
fn template(http: &Http, name: &str, body: &Value) {
    let requested = http.post("/v3/templates", &json!({"name": name})).expect(202).json();
    let id = requested["buildID"].as_str().expect("an id");
    let _ = http.post(&format!("/v2/templates/{name}/builds/{id}"), body).expect(202);
    wait_until("the build is ready", SOON, || {
        let build = http.get(&format!("/v1/images/builds/{id}")).expect(200).json();
        assert_ne!(build["state"], "failed", "{build}");
        (build["state"] == "ready").then_some(())
    });
}

#[test]
fn a_template_begins_where_the_one_below_it_ended() {
    let server = Server::start();
    let http = server.http();
    let env = json!({"type": "ENV", "args": ["APP", "/srv/app"]});
    let workdir = json!({"type": "WORKDIR", "args": ["$APP"]});
    template(&http, "below", &json!({"steps": [env, workdir]}));
    let check = |text: &str| json!({"type": "RUN", "args": [text]});
    let steps = json!([check("test \"$PWD\" = /srv/app")]);
    template(&http, "above", &json!({"fromTemplate": "below", "steps": steps}));
    // A snapshot has the variables and the directory of the image of its sandbox.
    let made = http.post("/sandboxes", &json!({"templateID": "below"})).expect(201).json();
    let sandbox = made["sandboxID"].as_str().expect("an id");
    let path = format!("/v1/sandboxes/{sandbox}/snapshots");
    let snapshot = http.post(&path, &json!({})).expect(201).json();
    let steps = json!([
        {"type": "WORKDIR", "args": ["sub"]},
        {"type": "ENV", "args": ["X", "$APP/x"]},
        check("test \"$PWD $X\" = '/srv/app/sub /srv/app/x'"),
    ]);
    template(&http, "saved", &json!({"fromTemplate": snapshot["id"], "steps": steps}));
}
