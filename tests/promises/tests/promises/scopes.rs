//! Sessions that see only a part of their sandbox's workspace.

use isolet_kit::{Reply, Rows, SOON, Sandbox, Server, Value, json, one, process, wait_until};

/// Creates `docs/a.txt`, `secret/key` and `one.txt` from a session without a scope.
fn filled(sandbox: &Sandbox) {
    let made = sandbox.command(
        "default",
        "mkdir -p docs/sub secret; echo a >docs/a.txt; echo key >secret/key; echo 1 >one.txt",
    );
    assert_eq!(made["exit_code"], 0, "{made}");
}

fn scoped(sandbox: &Sandbox, id: &str, read: &[&str], write: &[&str]) -> Reply {
    let access = json!({ "read": read, "write": write });
    sandbox.post("/sessions", &json!({ "id": id, "file_access": access }))
}

fn says(sandbox: &Sandbox, session: &str, command: &str) -> String {
    let answer = sandbox.command(session, command);
    answer["stdout"].as_str().expect("text").to_owned()
}

/// Promises: V1.
#[test]
fn a_scope_contains_only_what_was_granted() {
    let (server, sandbox) = one();
    filled(&sandbox);
    let made = scoped(&sandbox, "one", &["docs"], &["src/app"]).expect(201).json();
    assert_eq!(made["file_access"], json!({"read": ["docs"], "write": ["src/app"]}));
    let all = "find . -mindepth 1 | sort";
    let seen = "./.sessions\n./.sessions/one\n./docs\n./docs/a.txt\n./docs/sub\n./src\n./src/app\n";
    let no = "cat secret/key; echo $?; ls /workspace/one.txt; echo $?; touch docs/a.txt; echo $?; mkdir new; echo $?";
    let refused = "cat: secret/key: No such file or directory\n\
                   ls: cannot access '/workspace/one.txt': No such file or directory\n\
                   touch: cannot touch 'docs/a.txt': Read-only file system\n\
                   mkdir: cannot create directory ‘new’: Read-only file system\n";
    let mut rows = Rows::new();
    rows.row("its shell", || {
        assert_eq!(says(&sandbox, "one", all), seen);
        let answer = sandbox.command("one", no);
        assert_eq!(
            (&answer["stdout"], &answer["stderr"]),
            (&json!("1\n2\n1\n1\n"), &json!(refused))
        );
        let mine = "echo x >src/app/x && echo y >.sessions/one/y && cat src/app/x .sessions/one/y";
        assert_eq!(says(&sandbox, "one", mine), "x\ny\n");
    });
    rows.row("a shell over a socket", || {
        let mut shell = sandbox.session("one");
        shell
            .run("ls secret 2>&1")
            .is("ls: cannot access 'secret': No such file or directory\n", 2);
        shell.close();
    });
    rows.row("its programs", || {
        let exec = |text: &str| {
            let body = json!({"command": text, "session": "one"});
            sandbox.post("/exec", &body).expect(200).json()
        };
        assert_eq!(exec("find . -mindepth 1 -name a.txt")["stdout"], "./docs/a.txt\n");
        assert_eq!(exec(no)["stdout"], "1\n2\n1\n1\n");
    });
    rows.row("its files", || {
        let at = |path: &str| sandbox.path(&format!("/sessions/one/files/{path}"));
        let http = &sandbox.http;
        assert_eq!(http.get(&at("docs/a.txt")).expect(200).text(), "a\n");
        for path in ["secret/key", "one.txt", "%2Fworkspace%2Fsecret%2Fkey", "docs/../secret/key"] {
            http.get(&at(path)).expect(404);
            http.delete(&at(path)).expect(404);
        }
        let put = |path: &str| http.send("PUT", &at(path), Some(b"new")).status;
        assert_eq!((put("src/app/f"), put("docs/f"), put("docs/a.txt")), (201, 403, 403));
        assert_eq!(put("secret/key"), 403, "nothing can be created outside the grants");
    });
    rows.row("a session without a scope", || {
        let mine = "cat secret/key src/app/x .sessions/one/y src/app/f; stat -c %U:%a src src/app";
        assert_eq!(says(&sandbox, "default", mine), "key\nx\ny\nnewroot:755\nroot:755\n");
    });
    server.healthy();
}

/// Promises: V2, V3.
#[test]
fn every_grant_has_one_meaning() {
    let (server, sandbox) = one();
    filled(&sandbox);
    says(
        &sandbox,
        "default",
        "mkdir -p deep/er; ln -s secret link; mkfifo pipe; echo x >deep/er/f",
    );
    let mut rows = Rows::new();
    let scope = |id: &str, read: &[&str], write: &[&str]| {
        scoped(&sandbox, id, read, write).expect(201);
    };
    let refused = |read: &[&str], write: &[&str], why: &str| {
        let reply = scoped(&sandbox, "no", read, write).expect(400).json();
        let message = reply["message"].as_str().expect("a message");
        assert!(message.contains("file_access") && message.contains(why), "{reply}");
        sandbox.http.get(&sandbox.path("/sessions/no")).expect(404);
    };
    rows.row("nothing", || {
        scope("none", &[], &[]);
        assert_eq!(says(&sandbox, "none", "find . -mindepth 1"), "./.sessions\n./.sessions/none\n");
    });
    rows.row("something that does not exist", || {
        refused(&["gone"], &[], "\"gone\" is not there");
        refused(&["docs/gone/x"], &[], "is not there");
        scope("made", &[], &["new/sub/", "docs/made"]);
        assert_eq!(
            says(&sandbox, "made", "ls -d new/sub docs/made; ls docs"),
            "docs/made\nnew/sub\nmade\n"
        );
    });
    rows.row("symbolic links and special files", || {
        refused(&["link"], &[], "symbolic link");
        refused(&[], &["link/new"], "symbolic link");
        refused(&["pipe"], &[], "neither a directory nor a file");
        refused(&[], &["one.txt/x"], "no directory");
    });
    rows.row("invalid paths", || {
        refused(&["/etc"], &[], "without a leading slash");
        refused(&["docs/../secret"], &[], "..");
        refused(&[], &["a//b"], "empty part");
        refused(&["a\0b"], &[], "NUL");
        refused(&[&"n/".repeat(2048)], &[], "4095");
        refused(&[&"n".repeat(256)], &[], "255");
        refused(&vec!["docs"; 1001], &[], "at most 1000 paths");
    });
    rows.row("a file", || {
        scope("file", &["one.txt"], &["deep/er/f"]);
        let tried = "cat one.txt deep/er/f; echo y >deep/er/f; echo y >one.txt || ls deep/er";
        assert_eq!(says(&sandbox, "file", tried), "1\nx\nf\n");
        assert_eq!(says(&sandbox, "default", "cat one.txt deep/er/f"), "1\ny\n");
    });
    rows.row("nested grants", || {
        scope("nested", &["deep", "deep/er", "docs"], &["docs", "deep/er/w"]);
        let tried =
            "touch docs/n deep/er/w/n && ls deep/er && touch deep/n || touch deep/er/n || echo no";
        assert_eq!(says(&sandbox, "nested", tried), "f\nw\nno\n");
    });
    rows.row("the whole workspace, read-only", || {
        scope("reader", &[""], &["docs/sub"]);
        let tried =
            "cat secret/key; touch docs/sub/r .sessions/reader/r && touch docs/r || echo no";
        assert_eq!(says(&sandbox, "reader", tried), "key\nno\n");
    });
    rows.row("all of it", || {
        scope("whole", &[], &[""]);
        assert_eq!(says(&sandbox, "whole", "touch beside && cat secret/key"), "key\n");
    });
    rows.row("a thousand", || {
        says(&sandbox, "default", "mkdir many; cd many; seq 1000 | xargs mkdir; touch 777/x");
        let paths: Vec<String> = (1..=1000).map(|n| format!("many/{n}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        scope("many", &paths[..999], &paths[999..]);
        let tried = "ls many | wc -l; ls many/777; touch many/1000/w many/5/w; ls many/1000";
        assert_eq!(says(&sandbox, "many", tried), "1000\nx\nw\n");
    });
    server.healthy();
}

/// Promises: V5.
#[test]
fn scopes_share_neither_processes_nor_temporary_files() {
    let (server, sandbox) = one();
    filled(&sandbox);
    scoped(&sandbox, "one", &["docs"], &[]).expect(201);
    scoped(&sandbox, "two", &["docs"], &["out"]).expect(201);
    for session in ["one", "two"] {
        let mine = "for d in /tmp /var/tmp /run /root /home /dev/shm; do echo $$ >$d/mine; done; sleep 4712 & echo $!";
        assert_ne!(says(&sandbox, session, mine), "");
    }
    let others = "ls /tmp; pgrep -c sleep; ls /proc | grep -c '^[0-9]'; touch /etc/x /usr/x /var/x 2>/dev/null || echo no";
    let seen = says(&sandbox, "one", others);
    let seen: Vec<&str> = seen.lines().collect();
    assert_eq!((seen[0], seen[1], seen[3]), ("mine", "1", "no"));
    assert!(seen[2].parse::<u32>().expect("a count") < 10, "{seen:?}");
    // A session without a scope sees these processes, too, and may end them.
    assert_eq!(
        says(&sandbox, "default", "pgrep -c sleep; ls /tmp; pkill -f 'sleep 4712'; echo $?"),
        "2\n0\n"
    );
    wait_until("ended by it", SOON, || {
        (says(&sandbox, "one", "pgrep -c sleep").trim() == "0").then_some(())
    });
    server.healthy();
}

/// Promises: V6.
#[test]
fn files_moved_or_replaced_from_outside_open_nothing() {
    let (server, sandbox) = one();
    filled(&sandbox);
    says(&sandbox, "default", "mkdir -p p/q/deep/er; echo mine >p/q/f");
    scoped(&sandbox, "one", &["docs"], &["p/q"]).expect(201);
    let mut shell = sandbox.session("one");
    shell.run("cd p/q/deep/er && pwd").is("/workspace/p/q/deep/er\n", 0);
    let mut rows = Rows::new();
    rows.row("a directory moved out of a grant while a shell is in it", || {
        says(&sandbox, "default", "mv p/q/deep secret/deep");
        let up = shell.run("cat ../../key ../key ../../../secret/key; ls ../..; echo end");
        assert_eq!(up.text(), "end\n", "{}", up.errors());
    });
    rows.row("a parent of a grant renamed", || {
        says(&sandbox, "default", "mv p secret/p; ln -s secret p");
        shell.run("cd /workspace/p && ls; cat q/f; ls ../p/key").is("q\nmine\n", 2);
    });
    rows.row("a grant replaced by a symbolic link", || {
        says(&sandbox, "default", "mv docs away; ln -s secret docs");
        shell.run("cat /workspace/docs/a.txt; ls /workspace/docs/key").is("a\n", 2);
    });
    rows.row("a grant removed", || {
        says(&sandbox, "default", "rm -rf secret/p/q");
        shell.run("cd /workspace/p/q; ls; touch new || echo no").is("no\n", 0);
    });
    shell.close();
    rows.row("still in force after a restart", || {
        says(&sandbox, "default", "mkdir -p secret/q; echo stolen >secret/q/f");
        put_to_sleep(&sandbox);
        let reply = sandbox.post("/sessions/one/exec", &json!({"command": "cat p/q/f docs/key"}));
        let reply = reply.expect(409).json();
        assert_eq!(reply["error"], "scope_blocked");
        assert!(reply["message"].as_str().expect("a message").contains("symbolic link"), "{reply}");
        says(&sandbox, "default", "rm p");
        assert_eq!(says(&sandbox, "one", "cd /workspace; ls . p/q"), ".:\np\n\np/q:\n");
    });
    server.healthy();
}

fn put_to_sleep(sandbox: &Sandbox) {
    wait_until("it can be put to sleep", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
}

/// Promises: V7.
#[test]
fn a_scope_lives_as_its_session_does() {
    let (mut server, sandbox) = one();
    filled(&sandbox);
    scoped(&sandbox, "one", &["docs"], &["src"]).expect(201);
    says(&sandbox, "one", "cd src; v=kept; sleep 4713 &");
    let busy = |sandbox: &Sandbox| -> Value {
        sandbox.http.get(&sandbox.path("/sessions/one")).expect(200).json()["busy"].clone()
    };
    let mut rows = Rows::new();
    rows.row("busy, and holding off sleep, while a command runs", || {
        let mut shell = sandbox.session("one");
        let id = shell.start(isolet_kit::Start::new("sleep 100"));
        wait_until("busy", SOON, || (busy(&sandbox) == true).then_some(()));
        assert_eq!(sandbox.post("/sleep", &json!({})).expect(409).error(), "sandbox_in_use");
        shell.cancel(&id);
        let _ = shell.finish(&id);
        wait_until("idle", SOON, || (busy(&sandbox) == false).then_some(()));
        shell.close();
    });
    server.restart();
    let sandbox = server.named(&sandbox.id);
    rows.row("across a killed server", || {
        assert_eq!(
            says(&sandbox, "one", "pwd; echo $v; pgrep -c sleep; ls /workspace"),
            "/workspace/src\nkept\n1\ndocs\nsrc\n"
        );
    });
    rows.row("across a sleep, with its grants and shell state", || {
        put_to_sleep(&sandbox);
        let held = "pwd; echo $v; ls /workspace; pgrep -c sleep";
        assert_eq!(says(&sandbox, "one", held), "/workspace/src\nkept\ndocs\nsrc\n0\n");
    });
    rows.row("across its agent's end, with a fresh shell", || {
        says(&sandbox, "one", "x=1");
        let own = own_agent(&server);
        process::kill(own);
        let fresh = wait_until("another", SOON, || {
            let reply =
                sandbox.post("/sessions/one/exec", &json!({"command": "echo $x; ls /workspace"}));
            (reply.status == 200).then(|| reply.json())
        });
        let reported = (&fresh["stdout"], &fresh["fresh"]);
        assert_eq!(reported, (&json!("\ndocs\nsrc\n"), &json!(true)), "{fresh}");
        assert_eq!(sandbox.command("one", "true")["fresh"], false, "reported once");
    });
    rows.row("and ends with it", || {
        says(&sandbox, "one", "sleep 4714 &");
        sandbox.http.delete(&sandbox.path("/sessions/one")).expect(204);
        assert_eq!(says(&sandbox, "default", "pgrep -c sleep; ls .sessions"), "0\none\n");
        scoped(&sandbox, "one", &[], &[]).expect(201);
        assert_eq!(says(&sandbox, "one", "ls"), "");
    });
    sandbox.delete();
    server.healthy();
    server.wait_until_tidy();
}

/// Two bugs. An agent that ended within 20 ms of its shell's start had not reported the shell: the
/// next answer did not say that it was lost. And a deleted session's programs stayed visible for
/// another moment: an agent leaves its cgroup before it ends what runs below it.
/// Promises: V7.
#[test]
fn a_scope_lost_right_after_its_start_is_reported_and_a_deleted_one_is_gone() {
    let (server, sandbox) = one();
    filled(&sandbox);
    for _ in 0..15 {
        scoped(&sandbox, "one", &["docs"], &["src"]).expect(201);
        says(&sandbox, "one", "x=1");
        process::kill(own_agent(&server));
        let next = wait_until("another", SOON, || {
            let reply = sandbox.post("/sessions/one/exec", &json!({"command": "echo $x"}));
            (reply.status == 200).then(|| reply.json())
        });
        assert_eq!((&next["stdout"], &next["fresh"]), (&json!("\n"), &json!(true)), "{next}");
        assert_eq!(sandbox.command("one", "sleep 4715 &")["fresh"], false, "reported once");
        sandbox.http.delete(&sandbox.path("/sessions/one")).expect(204);
        assert_eq!(says(&sandbox, "default", "pgrep -c sleep"), "0\n");
    }
}

/// Promises: V7.
#[test]
fn a_scope_counts_against_its_sandboxs_disk() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"disk_mib": 64}));
    filled(&sandbox);
    scoped(&sandbox, "one", &["docs"], &["src"]).expect(201);
    let fill = "cat docs/a.txt; head -c 200M /dev/zero >src/big || df --output=size src | tail -1";
    let said = says(&sandbox, "one", fill);
    let size: u64 =
        said.strip_prefix("a\n").expect("read").trim().parse().expect("the disk's size");
    assert!((32_000..65_536).contains(&size), "{said}");
    sandbox.delete();
    server.healthy();
    server.wait_until_tidy();
}

/// The pid of the agent that serves a scope and not the whole sandbox.
fn own_agent(server: &Server) -> i32 {
    let agents = server.processes("isolet-agent");
    let own =
        agents.iter().find(|pid| process::parent(**pid).is_some_and(|up| agents.contains(&up)));
    *own.expect("an agent below an agent")
}

/// Promises: P14, V1.
#[test]
fn sessions_of_the_dialect_have_scopes_too() {
    let server = Server::start();
    let http = server.http();
    let home = server.named("default");
    filled(&home);
    let access = json!({"read": ["docs"], "write": ["docs/out"]});
    let made = http.post("/v1/sessions", &json!({"file_access": access})).expect(201).json();
    assert_eq!(made["file_access"], access);
    let id = made["id"].as_str().expect("an id");
    let run = |command: &str| {
        let path = format!("/v1/sessions/{id}/exec");
        http.post(&path, &json!({ "command": command })).expect(200).json()["stdout"].clone()
    };
    assert_eq!(run("echo o >docs/out/o; cat docs/a.txt docs/out/o; ls"), "a\no\ndocs\n");
    let at = |path: &str| format!("/v1/sessions/{id}/files/{path}");
    assert_eq!(http.get(&at("docs/out/o")).expect(200).text(), "o\n");
    let refused = http.get(&at("secret/key")).expect(403).json();
    assert_eq!(refused["message"], "Path outside session scope, or invalid file path");
    http.send("PUT", &at("docs/new"), Some(b"x")).expect(403);
    http.send("PUT", &at(&format!(".sessions/{id}/note")), Some(b"x")).expect(201);
    http.delete(&format!("/v1/sessions/{id}")).expect(204);
    let again = json!({"command": "cat secret/key"});
    let below = home.post(&format!("/sessions/{id}/exec"), &again).expect(404);
    assert_eq!(below.error(), "no_session", "its id creates no session without a scope");
    http.post(&format!("/v1/sessions/{id}/exec"), &again).expect(404);
    server.healthy();
}
