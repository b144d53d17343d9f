//! Programs without a shell, and commands in a session's shell, both over HTTP.

use isolet_kit::{Rows, SOON, Sandbox, Value, json, one, quickly, wait_until, with_growing_limit};
use std::time::Duration;

/// Far shorter than the children of these programs run.
const AT_ONCE: Duration = SOON;

fn exec(sandbox: &Sandbox, body: Value) -> Value {
    sandbox.post("/exec", &body).expect(200).json()
}

fn said(answer: &Value) -> (&str, &str, i64) {
    let text = |name: &str| answer[name].as_str().unwrap_or("(none)");
    (text("stdout"), text("stderr"), answer["exit_code"].as_i64().unwrap_or(-1))
}

/// Promises: X1.
#[test]
fn an_exec_reports_truly_how_it_ended() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let cases = [
        ("streams apart", json!({"command": "echo out; echo err >&2"}), ("out\n", "err\n", 0)),
        ("a code", json!({"command": "exit 42"}), ("", "", 42)),
        ("no newline", json!({"command": "printf a"}), ("a", "", 0)),
        ("a newline", json!({"command": "printf 'a\\n'"}), ("a\n", "", 0)),
        ("blank lines", json!({"command": "printf '\\n\\n'"}), ("\n\n", "", 0)),
        ("NUL in output", json!({"command": "printf 'a\\000b'"}), ("a\0b", "", 0)),
        (
            "argv is not a shell's",
            json!({"argv": ["echo", "$HOME", "a b", ";"]}),
            ("$HOME a b ;\n", "", 0),
        ),
        ("cwd", json!({"command": "pwd", "cwd": "/usr"}), ("/usr\n", "", 0)),
        ("the default cwd", json!({"argv": ["pwd"]}), ("/workspace\n", "", 0)),
        ("env", json!({"command": "echo $A", "env": {"A": "it's"}}), ("it's\n", "", 0)),
        ("stdin", json!({"command": "cat; echo .", "stdin": "in\nput"}), ("in\nput.\n", "", 0)),
        (
            "stdin of another kind",
            json!({"argv": ["wc", "-c"], "stdin": "x".repeat(300_000)}),
            ("300000\n", "", 0),
        ),
        ("no stdin is the end", json!({"command": "cat; echo $?"}), ("0\n", "", 0)),
        ("heredoc", json!({"command": "cat <<END\nx\nEND"}), ("x\n", "", 0)),
    ];
    for (name, body, wanted) in cases {
        rows.row(name, || assert_eq!(said(&exec(&sandbox, body)), wanted));
    }
    rows.row("a missing command in a text", || {
        assert_eq!(exec(&sandbox, json!({"command": "no-such-command"}))["exit_code"], 127);
    });
    rows.row("a missing program", || {
        let reply = sandbox.post("/exec", &json!({"argv": ["no-such-program"]}));
        assert!(
            reply.json()["exit_code"] == 127 || reply.error() == "not_found",
            "{}",
            reply.text()
        );
    });
    rows.row("a signal", || {
        let answer = exec(&sandbox, json!({"command": "kill -9 $$"}));
        assert_eq!((&answer["signal"], &answer["exit_code"]), (&json!(9), &json!(137)), "{answer}");
    });
    rows.row("invalid UTF-8 is added as base64", || {
        let answer = exec(&sandbox, json!({"command": "printf 'a\\377'"}));
        assert_eq!(
            (&answer["stdout"], &answer["stdout_b64"]),
            (&json!("a\u{fffd}"), &json!("Yf8=")),
            "{answer}"
        );
    });
    rows.row("nothing was cut", || {
        let answer = exec(&sandbox, json!({"command": "seq 100000"}));
        assert_eq!((said(&answer).0.len(), &answer["truncated"]), (588_895, &Value::Null));
    });
    rows.row("truncated output is counted", || {
        let answer = exec(
            &sandbox,
            json!({"command": "head -c 20000000 /dev/zero | tr '\\0' a; echo e >&2"}),
        );
        let cut = answer["truncated"]["stdout_bytes"].as_u64().expect("it is reported");
        assert_eq!(said(&answer).0.len() as u64 + cut, 20_000_000);
        assert_eq!((said(&answer).1, said(&answer).2), ("e\n", 0));
    });
}

/// Whether a program that first prints `up` came so far before its timeout.
fn printed_up(answer: &Value) -> Option<()> {
    let printed = said(answer).0;
    assert!(matches!(printed, "" | "up\n"), "{answer}");
    (printed == "up\n").then_some(())
}

/// Promises: X2.
#[test]
fn a_timeout_kills_the_whole_group() {
    let (_server, sandbox) = one();
    for text in ["sleep 4243 & sleep 4243", "bash -c 'trap \"\" TERM INT; sleep 4243; sleep 4243'"]
    {
        with_growing_limit(200, |timeout_ms| {
            let body = json!({"command": format!("echo up; {text}"), "timeout_ms": timeout_ms});
            let answer = quickly("an exec with a timeout", AT_ONCE, || exec(&sandbox, body));
            assert_eq!(answer["timed_out"], true, "{answer}");
            wait_until("none of its processes runs", SOON, || {
                (sandbox.says("pgrep -cf 'sleep 424[3]'; :") == "0\n").then_some(())
            });
            printed_up(&answer)
        });
    }
    assert_eq!(exec(&sandbox, json!({"command": ":", "timeout_ms": 60000}))["timed_out"], false);
}

/// A child that held the pipes open once delayed the answer forever.
/// Promises: X2.
#[test]
fn f10_a_child_that_holds_the_pipes_does_not_delay_the_answer() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    for text in [
        "sleep 1000 & echo done",
        "(sleep 1000; echo late) & echo done",
        "setsid sleep 1000 & echo done",
    ] {
        rows.row(&format!("exec: {text}"), || {
            let answer = quickly("exec", AT_ONCE, || exec(&sandbox, json!({"command": text})));
            assert_eq!(said(&answer), ("done\n", "", 0));
        });
        rows.row(&format!("session: {text}"), || {
            let answer = quickly("command", AT_ONCE, || sandbox.command("default", text));
            assert_eq!(said(&answer).0, "done\n");
        });
        rows.row(&format!("shell: {text}"), || {
            let mut shell = sandbox.shell();
            quickly("shell", AT_ONCE, || shell.run(text).is("done\n", 0));
            shell.run("echo usable").is("usable\n", 0);
        });
    }
    drop(rows);
    server.healthy();
}

#[test]
fn i13_unusual_environments_affect_only_the_tenant() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let evil = json!({"LD_PRELOAD": "/tmp/no.so", "BASH_ENV": "/tmp/env", "PS4": "$(touch /tmp/ps4)",
        "PROMPT_COMMAND": "touch /tmp/pc", "IFS": "/", "PATH": "/tmp", "SHELLOPTS": "xtrace", "TMPDIR": "/no"});
    rows.row("of an exec", || {
        let answer = exec(&sandbox, json!({"argv": ["/bin/echo", "ok"], "env": evil}));
        assert_eq!((said(&answer).0, said(&answer).2), ("ok\n", 0), "{answer}");
    });
    rows.row("of a session", || {
        let made = sandbox.post("/sessions", &json!({"id": "evil", "env": evil}));
        assert_eq!(made.status, 201, "{}", made.text());
        let answer = sandbox.command("evil", "builtin echo ok");
        assert_eq!((said(&answer).0, said(&answer).2), ("ok\n", 0), "{answer}");
    });
    rows.row("the next ones are cut completely", || {
        assert_eq!(sandbox.says("echo ${LD_PRELOAD-clean}; ls /tmp"), "clean\n");
    });
    for (name, value) in [("A=B", "x"), ("", "x"), ("A\0", "x"), ("A", "x\0y")] {
        rows.row(&format!("name {name:?}, value {value:?}"), || {
            let reply = sandbox.post("/exec", &json!({"command": ":", "env": {name: value}}));
            assert_eq!(reply.status, 400, "{}", reply.text());
        });
    }
    rows.row("arguments of 2 MiB", || {
        let big = "x".repeat(100_000);
        let argv: Vec<&str> =
            std::iter::once("/bin/true").chain(std::iter::repeat_n(big.as_str(), 21)).collect();
        let reply = sandbox.post("/exec", &json!({ "argv": argv }));
        assert!(matches!(reply.status, 200 | 400 | 413), "{} {}", reply.status, reply.text());
    });
    drop(rows);
    server.healthy();
}

#[test]
fn a_session_runs_commands_by_http() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("state persists", || {
        assert_eq!(said(&sandbox.command("a", "cd /usr; X=1; false")), ("", "", 1));
        assert_eq!(said(&sandbox.command("a", "echo $? $X $PWD")), ("1 1 /usr\n", "", 0));
    });
    rows.row("fields for one command", || {
        let body = json!({"command": "pwd; echo $E; cat", "cwd": "/tmp", "env": {"E": "e"}, "stdin": "in"});
        let answer = sandbox.post("/sessions/b/exec", &body).expect(200).json();
        assert_eq!(said(&answer), ("/tmp\ne\nin", "", 0));
        assert_eq!(said(&sandbox.command("b", "pwd; echo ${E-unset}")), ("/workspace\nunset\n", "", 0));
    });
    rows.row("a timeout keeps the shell", || {
        let pid = said(&sandbox.command("c", "echo $$")).0.to_owned();
        with_growing_limit(200, |timeout_ms| {
            let body = json!({"command": "echo up; sleep 1000", "timeout_ms": timeout_ms});
            let answer = sandbox.post("/sessions/c/exec", &body).expect(200).json();
            assert_eq!(answer["timed_out"], true, "{answer}");
            assert_eq!(said(&sandbox.command("c", "echo $$")).0, pid);
            printed_up(&answer)
        });
    });
    rows.row("the session's own timeout", || {
        let spec = json!({"id": "ci", "command_timeout_ms": 200});
        assert_eq!(sandbox.post("/sessions", &spec).status, 201);
        assert_eq!(sandbox.command("ci", "sleep 100")["timed_out"], true);
        let body = json!({"command": "sleep 0.5; echo own", "timeout_ms": 60_000});
        let answer = sandbox.post("/sessions/ci/exec", &body).expect(200).json();
        assert_eq!(
            (said(&answer).0, &answer["timed_out"]),
            ("own\n", &json!(false)),
            "a command's own is stronger"
        );
    });
    rows.row("the fields of the first call do not become the session's", || {
        let body = json!({"command": ":", "cwd": "/tmp", "env": {"E": "e"}, "timeout_ms": 60_000});
        sandbox.post("/sessions/first/exec", &body).expect(200);
        assert_eq!(
            said(&sandbox.command("first", "pwd; echo ${E-unset}")),
            ("/workspace\nunset\n", "", 0)
        );
        let session = sandbox.http.get(&sandbox.path("/sessions/first")).expect(200).json();
        assert!(matches!(session["command_timeout_ms"].as_u64(), None | Some(0)), "{session}");
    });
    rows.row("commands queue in order", || {
        sandbox.command("q", "n=0");
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| sandbox.command("q", "sleep 0.01; n=$((n+1))"));
            }
        });
        assert_eq!(said(&sandbox.command("q", "echo $n")).0, "20\n");
    });
    rows.row("a thousand commands leave the session's variables alone", || {
        sandbox.command("vars", "log=1 dir=2 sp=3 ep=4 EXIT_CODE=5 PREV_DIR=6; cleanup() { echo mine; }; trap 'echo bye' EXIT");
        let answer = sandbox.command("vars", "echo $log $dir $sp $ep $EXIT_CODE $PREV_DIR; cleanup; trap -p EXIT");
        assert_eq!(said(&answer).0, "1 2 3 4 5 6\nmine\ntrap -- 'echo bye' EXIT\n");
    });
}

#[test]
fn events_carry_output_as_it_happens_and_end_with_the_exit() {
    let (_server, sandbox) = one();
    for path in ["/sessions/live/exec", "/exec"] {
        sandbox.says("rm -f /tmp/go; mkfifo /tmp/go");
        let body =
            json!({"command": "printf early; read x </tmp/go; echo ' late'; echo err >&2; exit 3"});
        let mut stream = sandbox.http.events(&sandbox.path(path), &body);
        assert_eq!(stream.status, 200, "{path}");
        let mut out = String::new();
        let mut err = String::new();
        let mut last = Value::Null;
        let mut released = false;
        while let Some(event) = stream.event() {
            let data: Value = serde_value(&event.data);
            match event.name.as_str() {
                "stdout" => out.push_str(data["data"].as_str().expect("text")),
                "stderr" => err.push_str(data["data"].as_str().expect("text")),
                _ => {}
            }
            if out == "early" && !released {
                released = true;
                sandbox.says("echo >/tmp/go");
            }
            last = data;
            last["event"] = event.name.into();
        }
        assert_eq!((out.as_str(), err.as_str()), ("early late\n", "err\n"), "{path}");
        assert_eq!(
            (&last["event"], &last["exit_code"]),
            (&json!("exit"), &json!(3)),
            "{path}: {last}"
        );
    }
}

fn serde_value(text: &str) -> Value {
    text.parse().unwrap_or_else(|error| panic!("event data is JSON: {error}: {text:?}"))
}

/// A client that disconnects ends its exec; a command of a session continues.
#[test]
fn a_client_that_disconnects_ends_its_exec() {
    let (_server, sandbox) = one();
    let stream =
        sandbox.http.events(&sandbox.path("/exec"), &json!({"command": "sleep 4244; sleep 4244"}));
    wait_until("it runs", SOON, || {
        (sandbox.says("pgrep -cf 'sleep 424[4]'; :") != "0\n").then_some(())
    });
    drop(stream);
    wait_until("it is gone", SOON, || {
        (sandbox.says("pgrep -cf 'sleep 424[4]'; :") == "0\n").then_some(())
    });
}

/// Promises: X3.
#[test]
fn a_program_in_a_session_starts_with_the_sessions_settings() {
    let (_server, sandbox) = one();
    let spec = json!({"id": "dev", "cwd": "/srv", "env": {"A": "1", "B": "2"}});
    sandbox.post("/sessions", &spec).expect(201);
    let brief = json!({"id": "brief", "command_timeout_ms": 200});
    sandbox.post("/sessions", &brief).expect(201);
    let run = |more: Value| {
        let mut body = json!({"command": "echo $PWD $A $B", "session": "dev"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        exec(&sandbox, body)
    };
    let mut rows = Rows::new();
    rows.row("directory and environment", || {
        let answer = run(json!({}));
        assert_eq!((said(&answer), &answer["session"]), (("/srv 1 2\n", "", 0), &json!("dev")));
    });
    rows.row("fields of the call take precedence", || {
        let own = run(json!({"cwd": "/tmp", "env": {"A": "own", "B": null}}));
        assert_eq!(said(&own), ("/tmp own\n", "", 0));
    });
    rows.row("changes of its shell do not apply", || {
        sandbox.command("dev", "cd /; export A=shell; C=3");
        assert_eq!(said(&run(json!({}))), ("/srv 1 2\n", "", 0));
        assert_eq!(said(&sandbox.command("dev", "echo $PWD $A")), ("/ shell\n", "", 0));
    });
    rows.row("the session's timeout is the default", || {
        let endless = json!({"command": "sleep 1000", "session": "brief"});
        assert_eq!(run(endless)["timed_out"], true);
        let own = json!({"command": "sleep 0.5", "session": "brief", "timeout_ms": 0});
        assert_eq!(run(own)["exit_code"], 0);
    });
    rows.row("it does not wait for a command of the shell", || {
        let slow = json!({"command": "read x </tmp/go", "timeout_ms": 0});
        sandbox.says("mkfifo /tmp/go");
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| sandbox.post("/sessions/dev/exec", &slow));
            wait_until("it runs", SOON, || {
                (sandbox.http.get(&sandbox.path("/sessions/dev")).json()["busy"] == true)
                    .then_some(())
            });
            assert_eq!(said(&run(json!({}))), ("/srv 1 2\n", "", 0));
            assert!(!slow.is_finished());
            sandbox.says("echo >/tmp/go");
            slow.join().expect("it is answered").expect(200);
        });
    });
    rows.row("a missing session is created", || {
        assert_eq!(said(&run(json!({"session": "new"}))), ("/workspace\n", "", 0));
        sandbox.http.get(&sandbox.path("/sessions/new")).expect(200);
    });
    rows.row("an impossible session id", || {
        for bad in [json!("../x"), json!(""), json!(1), Value::Null] {
            sandbox.post("/exec", &json!({"command": "true", "session": bad})).expect(400);
        }
    });
}
