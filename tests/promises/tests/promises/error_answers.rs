//! Error answers name the fault, and the same fault gets the same answer on every route.

use isolet_kit::{Reply, Rows, Sandbox, Start, Value, json, one};

fn refused(reply: Reply, status: u16, code: &str) -> Value {
    let reply = reply.expect(status);
    assert_eq!(reply.error(), code, "{}", reply.text());
    reply.json()
}

/// Promises: L13.
#[test]
fn a_missing_directory_is_bad_cwd_on_every_route() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let body = json!({"command": "touch ran", "cwd": "/no/such"});
    for rest in ["/exec", "/sessions/default/exec", "/sessions/other/exec", "/processes"] {
        rows.row(rest, || {
            let said = refused(sandbox.post(rest, &body), 400, "bad_cwd");
            let message = said["message"].as_str().unwrap_or_default();
            assert!(message.contains("cannot enter the start directory"), "{message}");
        });
    }
    rows.row("as events", || {
        for rest in ["/exec", "/sessions/default/exec"] {
            let mut answer = sandbox.http.events(&sandbox.path(rest), &body);
            // A busy server may have answered before it detects the fault.
            if answer.status != 400 {
                let event = answer.event().expect("an event");
                assert_eq!(event.name, "error", "{rest}: {event:?}");
                assert!(event.data.contains("bad_cwd"), "{rest}: {event:?}");
            }
        }
    });
    rows.row("a file is no directory", || {
        let body = json!({"command": "touch ran", "cwd": "/etc/passwd"});
        refused(sandbox.post("/exec", &body), 400, "bad_cwd");
        refused(sandbox.post("/sessions/default/exec", &body), 400, "bad_cwd");
    });
    rows.row("nothing ran, and the session continues", || {
        assert_eq!(sandbox.says("ls -A"), "");
        assert_eq!(sandbox.command("default", "pwd")["stdout"], "/workspace\n");
    });
    rows.row("a shell's command", || {
        let mut shell = sandbox.shell();
        let outcome = shell.run_with(Start::new("true").with("cwd", "/no/such"));
        assert_eq!(outcome.refused["error"], "bad_cwd", "{}", outcome.refused);
        shell.run_with(Start::new("pwd")).is("/workspace\n", 0);
    });
    rows.row("a session", || {
        let spec = |id: &str, cwd: &str| json!({"id": id, "cwd": cwd});
        refused(sandbox.post("/sessions", &spec("s", "/no/such")), 400, "bad_cwd");
        refused(sandbox.post("/sessions", &spec("s", "/etc/passwd")), 400, "bad_cwd");
        sandbox.exec("mkdir -p dir");
        sandbox.post("/sessions", &spec("s", "dir")).expect(201);
        assert_eq!(sandbox.command("s", "pwd")["stdout"], "/workspace/dir\n");
    });
    drop(rows);
    server.healthy();
}

/// Promises: L13.
#[test]
fn a_session_survives_the_deletion_of_its_directory_and_reports_where_it_is() {
    let (server, sandbox) = one();
    sandbox.exec("mkdir -p top/deep/er");
    sandbox.post("/sessions", &json!({"id": "s", "cwd": "top/deep/er"})).expect(201);
    sandbox.exec("rm -r top/deep");
    let first = sandbox.command("s", "pwd");
    assert_eq!(first["stdout"], "/workspace/top\n", "{first}");
    let said = "isolet: cannot enter /workspace/top/deep/er; the shell starts in /workspace/top\n";
    assert_eq!(first["stderr"], said);
    assert_eq!(sandbox.command("s", "echo on")["stderr"], "");
    // The next shell starts in its directory once that exists again.
    sandbox.exec("mkdir -p top/deep/er");
    sandbox.command("s", "exit 0");
    let again = sandbox.command("s", "pwd");
    assert_eq!(
        (&again["stdout"], &again["stderr"]),
        (&json!("/workspace/top/deep/er\n"), &json!(""))
    );
    server.healthy();
}

/// Promises: L14.
#[test]
fn a_number_out_of_bounds_is_refused_with_its_bounds() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    for (name, rest, body) in [
        ("a link", "/links", json!({"port": 70_000})),
        ("a link to 0", "/links", json!({"port": 0})),
        ("a link below 0", "/links", json!({"port": -1})),
        ("a link to a text", "/links", json!({"port": "80"})),
        ("a wait", "/processes/a/wait", json!({"port": {"port": 70_000}})),
    ] {
        rows.row(name, || {
            let said = refused(sandbox.post(rest, &body), 400, "bad_request");
            let message = said["message"].as_str().unwrap_or_default();
            assert!(message.contains("from 1 to 65535"), "{message}");
        });
    }
    rows.row("a ticket", || {
        let body = json!({"sandbox": sandbox.id, "use": "port", "port": 70_000});
        let said = refused(sandbox.http.post("/v1/tickets", &body), 400, "bad_request");
        assert!(said["message"].as_str().is_some_and(|text| text.contains("from 1 to 65535")));
    });
    rows.row("a status", || {
        let body = json!({"port": {"port": 80, "path": "/", "status": 70_000}});
        let said = refused(sandbox.post("/processes/a/wait", &body), 400, "bad_request");
        assert!(said["message"].as_str().is_some_and(|text| text.contains("from 100 to 599")));
    });
    drop(rows);
    server.healthy();
}

/// Promises: L14.
#[test]
fn deleting_a_missing_thing_of_any_kind_is_not_found() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let gone = |sandbox: &Sandbox, rest: &str, code: &str| {
        refused(sandbox.http.delete(&sandbox.path(rest)), 404, code);
    };
    for (rest, code) in [
        ("/processes/never", "no_such_process"),
        ("/contexts/never", "no_context"),
        ("/terminals/never", "no_terminal"),
        ("/terminals/never/recording", "no_recording"),
        ("/recordings/never", "no_recording"),
        ("/sessions/never", "no_session"),
        ("/links/4711", "no_link"),
        ("/files/never", "not_found"),
    ] {
        rows.row(rest, || gone(&sandbox, rest, code));
    }
    rows.row("a second delete is 404", || {
        sandbox.post("/processes", &json!({"id": "p", "command": "sleep 1000"})).expect(201);
        sandbox.http.delete(&sandbox.path("/processes/p")).expect(204);
        gone(&sandbox, "/processes/p", "no_such_process");
    });
    rows.row("a bulk delete may match nothing", || {
        sandbox.http.delete(&sandbox.path("/processes")).expect(204);
    });
    rows.row("a sandbox and an image", || {
        sandbox.http.delete("/v1/sandboxes/never").expect(404);
        sandbox.http.delete("/v1/images/never").expect(404);
    });
    drop(rows);
    server.healthy();
}
