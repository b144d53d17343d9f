//! Code contexts of bash: what persists in them, what a run reports about its end, and what cannot
//! hang them.

use isolet_kit::{Rows, Sandbox, Value, json, one};

fn post(sandbox: &Sandbox, body: &Value) -> Value {
    sandbox.post("/contexts/bash/run", body).expect(200).json()
}

fn bash(sandbox: &Sandbox, code: &str) -> Value {
    post(sandbox, &json!({ "code": code, "timeout_ms": 60_000 }))
}

fn says(sandbox: &Sandbox, code: &str) -> String {
    let answer = bash(sandbox, code);
    assert_eq!(answer["exception"], Value::Null, "{answer}");
    answer["stdout"].as_str().expect("a text").to_owned()
}

/// Promises: CX1.
#[test]
fn definitions_of_a_bash_run_persist() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    bash(
        &sandbox,
        "x=20; list=(a 'b c'); twice() { echo $((2 * $1)); }; cd /tmp; shopt -s nullglob",
    );
    let cases = [
        ("a variable", "echo $x", "20\n"),
        ("an array", "printf '<%s>' \"${list[@]}\"", "<a><b c>"),
        ("a function", "twice 21", "42\n"),
        ("the directory", "pwd", "/tmp\n"),
        ("an option", "echo /none*", "\n"),
        ("several lines", "for n in 1 2; do\n  echo $n\ndone", "1\n2\n"),
        ("a here-document", "cat <<END\n$x\nEND", "20\n"),
        ("no code", "", ""),
        ("a comment", "# nothing", ""),
        ("the last exit status", "true; echo $?", "0\n"),
        ("standard input is empty", "cat; echo on", "on\n"),
    ];
    for (name, code, wanted) in cases {
        rows.row(name, || assert_eq!(says(&sandbox, code), wanted));
    }
    rows.row("other names are other contexts", || {
        for language in ["bash", "sh", "shell"] {
            let made =
                sandbox.post("/contexts", &json!({ "language": language })).expect(201).json();
            assert_eq!((&made["language"], &made["cwd"]), (&json!("bash"), &json!("/workspace")));
            let path = format!("/contexts/{}/run", made["id"].as_str().expect("an id"));
            let answer = sandbox.post(&path, &json!({"code": "echo ${x-none}"})).expect(200).json();
            assert_eq!(answer["stdout"], "none\n");
        }
    });
    rows.row("no session's shell sees it", || {
        assert_eq!(sandbox.says("echo ${x-none}"), "none\n");
        let all = sandbox.http.get(&sandbox.path("/sessions")).expect(200).json();
        assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    });
    rows.row("input that came with the run", || {
        let body = json!({"code": "read a; read b; echo $b$a", "stdin": "one\ntwo\n"});
        assert_eq!(post(&sandbox, &body)["stdout"], "twoone\n");
    });
}

/// Promises: CX2.
#[test]
fn a_bash_run_returns_its_exit_status_and_its_output_in_order() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    for (code, status) in
        [("false", "1"), ("(exit 7)", "7"), ("none-such", "127"), ("f() { return 3; }; f", "3")]
    {
        rows.row(code, || {
            let answer = bash(&sandbox, code);
            let wanted = json!({"name": "ExitCode", "message": status, "traceback": []});
            assert_eq!(
                (&answer["exception"], &answer["died"]),
                (&wanted, &Value::Null),
                "{answer}"
            );
        });
    }
    rows.row("a quote that never closes", || {
        let answer = bash(&sandbox, "echo 'open");
        assert_eq!(answer["exception"]["name"], "ExitCode", "{answer}");
        assert!(answer["stderr"].as_str().is_some_and(|text| text.contains("unexpected EOF")));
    });
    rows.row("code is passed unchanged", || {
        let path = sandbox.path("/contexts/bash/run");
        let code = "echo one; until [ -e /workspace/go ]; do sleep .02; done; echo two >&2; false";
        let mut stream = sandbox.http.events(&path, &json!({ "code": code }));
        let first = stream.event().expect("an event");
        assert!(first.name == "stdout" && first.data.contains("one"), "{first:?}");
        sandbox.exec("touch /workspace/go");
        let mut names = Vec::new();
        while let Some(event) = stream.event() {
            names.push(event.name);
        }
        assert_eq!(names, ["stderr", "exception", "end"]);
    });
    rows.row("a large output", || {
        let answer = bash(&sandbox, "head -c 30000000 /dev/zero | tr '\\0' a");
        assert_eq!(answer["truncated"]["stdout_bytes"], 30_000_000 - 8 * 1024 * 1024);
        assert_eq!(says(&sandbox, "echo on"), "on\n");
    });
}

/// Promises: CX5.
#[test]
fn no_bash_code_hangs_its_context() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let stays = || assert_eq!(says(&sandbox, "echo $kept"), "kept\n");
    bash(&sandbox, "kept=kept");
    for (name, code) in [
        ("an endless loop", "while :; do :; done"),
        ("a program that waits", "sleep 1000"),
        ("a program that heeds no interrupt", "(trap '' INT TERM; while :; do sleep 1; done)"),
        ("an endless pipeline", "yes | cat >/dev/null"),
    ] {
        rows.row(name, || {
            let answer = post(&sandbox, &json!({"code": code, "timeout_ms": 300}));
            assert_eq!(
                (&answer["timed_out"], &answer["died"]),
                (&json!(true), &Value::Null),
                "{answer}"
            );
            assert_eq!(answer["exception"]["name"], "Interrupted", "{answer}");
            stays();
        });
    }
    for (name, code) in [
        ("standard output closed", "exec 1>&-; echo x"),
        ("standard output elsewhere", "exec >/dev/null 2>&1"),
        (
            "all low descriptors closed",
            "for n in 0 1 2 3 4 5 6 7 8 9; do eval \"exec $n>&-\"; done",
        ),
        ("a job that goes on", "sleep 1000 &"),
        ("functions that shadow builtins", "eval() { :; }; read() { :; }; builtin() { :; }"),
        ("a trap", "trap 'echo no' INT EXIT DEBUG; trap - DEBUG"),
    ] {
        rows.row(name, || {
            bash(&sandbox, code);
            let answer = bash(&sandbox, "echo $kept");
            let stdout = answer["stdout"].as_str().unwrap_or_default();
            assert!(stdout.contains("kept") || stdout.is_empty(), "{answer}");
            sandbox.post("/contexts/bash/restart", &Value::Null).expect(200);
            bash(&sandbox, "kept=kept");
            stays();
        });
    }
    for (name, code, died, fault) in [
        ("exit", "exit 3", json!({"code": 3, "signal": null}), "Exit"),
        ("exec", "exec true", json!({"code": 0, "signal": null}), "Exit"),
        ("a signal", "kill -9 $$", json!({"code": null, "signal": 9}), "ContextDied"),
    ] {
        rows.row(name, || {
            let answer = bash(&sandbox, &format!("sleep 4714 & {code}"));
            assert_eq!(
                (&answer["died"], &answer["exception"]["name"]),
                (&died, &json!(fault)),
                "{answer}"
            );
            let next = bash(&sandbox, "echo ${kept-none}; kept=kept");
            assert_eq!(
                (&next["stdout"], &next["fresh"]),
                (&json!("none\n"), &json!(true)),
                "{next}"
            );
            assert_eq!(
                sandbox.says("pgrep -fc 'sleep 471[4]'"),
                "0\n",
                "processes that it started end with it"
            );
            stays();
        });
    }
    drop(sandbox);
    server.healthy();
}

/// Promises: CX5.
#[test]
fn a_run_of_bash_is_interrupted_and_its_context_restarted_and_ended() {
    let (_server, sandbox) = one();
    bash(&sandbox, "kept=kept");
    let begin = || {
        let path = sandbox.path("/contexts/bash/run");
        let mut stream = sandbox.http.events(&path, &json!({"code": "echo on; sleep 4715"}));
        assert_eq!(stream.event().expect("it runs").name, "stdout");
        stream
    };
    let mut stream = begin();
    let info = sandbox.http.get(&sandbox.path("/contexts/bash")).expect(200).json();
    assert_eq!((&info["busy"], &info["language"]), (&json!(true), &json!("bash")), "{info}");
    let reply = sandbox.post("/contexts/bash/interrupt", &Value::Null).expect(200);
    assert_eq!(reply.json(), json!({"interrupted": true}));
    let reported = stream.event().expect("an error");
    assert!(reported.name == "exception" && reported.data.contains("Interrupted"), "{reported:?}");
    let end: Value = stream.event().expect("the end").data.parse().expect("JSON");
    assert_eq!((&end["interrupted"], &end["timed_out"]), (&json!(true), &json!(false)));
    let reply = sandbox.post("/contexts/bash/interrupt", &Value::Null).expect(200);
    assert_eq!(reply.json(), json!({"interrupted": false}), "nothing runs");
    assert_eq!(says(&sandbox, "echo $kept"), "kept\n");
    let mut stream = begin();
    let info = sandbox.post("/contexts/bash/restart", &Value::Null).expect(200).json();
    assert_eq!((&info["restarts"], &info["busy"]), (&json!(1), &json!(false)), "{info}");
    assert_eq!(stream.event().expect("its end is reported").name, "exception");
    let next = bash(&sandbox, "echo ${kept-none}");
    assert_eq!((&next["stdout"], &next["fresh"]), (&json!("none\n"), &json!(true)));
    let _running = begin();
    for status in [204, 404] {
        assert_eq!(sandbox.http.delete(&sandbox.path("/contexts/bash")).status, status);
    }
    assert_eq!(
        sandbox.says("pgrep -fc 'sleep 471[5]'"),
        "0\n",
        "processes that it started end with it"
    );
    assert_eq!(sandbox.http.get(&sandbox.path("/contexts/bash")).expect(404).error(), "no_context");
}

/// Promises: CX9.
#[test]
fn an_idempotency_key_creates_one_context() {
    let (_server, sandbox) = one();
    let make = |key: &str, body: &Value| {
        sandbox.http.with("idempotency-key", key).post(&sandbox.path("/contexts"), body)
    };
    let body = json!({"language": "bash"});
    let first = make("k", &body).expect(201);
    assert!(first.header("idempotency-replayed").is_none());
    let again = make("k", &body).expect(201);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.json()["id"], first.json()["id"]);
    assert_eq!(
        make("k", &json!({"language": "python"})).expect(422).error(),
        "idempotency_mismatch"
    );
    assert_ne!(make("other", &body).expect(201).json()["id"], first.json()["id"]);
    let listed = sandbox.http.get(&sandbox.path("/contexts")).expect(200).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
}
