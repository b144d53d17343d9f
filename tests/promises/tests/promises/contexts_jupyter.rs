//! Code contexts of a Jupyter kernel: a real ipykernel, by Jupyter's own protocol.

use isolet_kit::{Rows, Sandbox, Value, json, one};

fn post(sandbox: &Sandbox, body: &Value) -> Value {
    sandbox.post("/contexts/k/run", body).expect(200).json()
}

fn run(sandbox: &Sandbox, code: &str) -> Value {
    post(sandbox, &json!({ "code": code }))
}

fn value(answer: &Value) -> &str {
    let results = answer["results"].as_array().expect("results");
    let last = results.iter().rfind(|one| one["kind"] == "result");
    last.and_then(|one| one["data"]["text/plain"].as_str()).unwrap_or("(none)")
}

fn make(sandbox: &Sandbox) {
    let made =
        sandbox.post("/contexts", &json!({"id": "k", "kernel": "python3"})).expect(201).json();
    let wanted = (&json!("jupyter"), &json!("python3"), &json!("/workspace"));
    assert_eq!((&made["language"], &made["kernel"], &made["cwd"]), wanted, "{made}");
}

#[test]
fn a_jupyter_kernel_is_a_context() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    make(&sandbox);
    run(&sandbox, "x = 41");
    let cases = [
        ("a value", "x + 1", "42"),
        ("the last value", "_", "42"),
        ("what only IPython knows", "get_ipython().__class__.__name__", "'ZMQInteractiveShell'"),
        ("a magic", "%pwd", "'/workspace'"),
        ("an await", "import asyncio\nawait asyncio.sleep(0)\n'woke'", "'woke'"),
        (
            "the kernel's name is not its own affair",
            "import os; os.environ.get('ISOLET_CONTEXT_KERNEL')",
            "(none)",
        ),
    ];
    for (name, code, wanted) in cases {
        rows.row(name, || {
            let answer = run(&sandbox, code);
            assert_eq!((value(&answer), &answer["exception"]), (wanted, &Value::Null), "{answer}");
        });
    }
    rows.row("what is shown", || {
        let code =
            "from IPython.display import HTML, display\nprint('said')\ndisplay(HTML('<b>'))\n7";
        let answer = run(&sandbox, code);
        assert_eq!(answer["results"][0]["data"]["text/html"], "<b>", "{answer}");
        assert_eq!((&answer["results"][0]["kind"], value(&answer)), (&json!("display"), "7"));
        assert_eq!((&answer["stdout"], &answer["stderr"]), (&json!("said\n"), &json!("")));
    });
    rows.row("what children print, once", || {
        assert_eq!(run(&sandbox, "import os; os.system('echo child');")["stdout"], "child\n");
    });
    rows.row("an error", || {
        let told = run(&sandbox, "def f():\n    return 1 / 0\nf()")["exception"].clone();
        assert_eq!(
            (&told["name"], &told["message"]),
            (&json!("ZeroDivisionError"), &json!("division by zero"))
        );
        let lines = told["traceback"].to_string();
        assert!(lines.contains("return 1 / 0") && !lines.contains("\\u001b"), "{lines}");
    });
    rows.row("input", || {
        let body = json!({"code": "a, b = input('? '), input()\n(a, b)", "stdin": "one\ntwo"});
        let answer = post(&sandbox, &body);
        assert_eq!(
            (value(&answer), &answer["stdout"]),
            ("('one', 'two')", &json!("? ")),
            "{answer}"
        );
        let body = json!({"code": "input(); input()", "stdin": "one"});
        assert_eq!(post(&sandbox, &body)["exception"]["name"], "EOFError");
        assert_eq!(run(&sandbox, "input()")["exception"]["name"], "StdinNotImplementedError");
    });
    rows.row("also without being made", || {
        let answer =
            sandbox.post("/contexts/jupyter/run", &json!({"code": "6 * 7"})).expect(200).json();
        assert_eq!(value(&answer), "42", "{answer}");
        assert_eq!(sandbox.http.delete(&sandbox.path("/contexts/jupyter")).status, 204);
    });
    for body in [json!({"kernel": "a b"}), json!({"kernel": "python3", "language": "bash"})] {
        let refused = sandbox.post("/contexts", &body).expect(400);
        assert!(refused.text().contains("kernel: "), "{}", refused.text());
    }
    let refused = sandbox.post("/contexts", &json!({"kernel": "none-such"})).expect(501);
    let text = refused.text();
    assert!(text.contains("none-such") && text.contains("python3"), "{text}");
}

#[test]
fn nothing_that_runs_in_a_jupyter_kernel_hangs_its_context() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    make(&sandbox);
    run(&sandbox, "kept = 'kept'");
    rows.row("an endless loop", || {
        let answer = post(&sandbox, &json!({"code": "while True: pass", "timeout_ms": 1000}));
        let told = (&answer["timed_out"], &answer["exception"]["name"], &answer["died"]);
        assert_eq!(told, (&json!(true), &json!("KeyboardInterrupt"), &Value::Null), "{answer}");
        assert_eq!(value(&run(&sandbox, "kept")), "'kept'");
    });
    rows.row("an interrupt", || {
        let path = sandbox.path("/contexts/k/run");
        let code = "print('on', flush=True)\nwhile True: pass";
        let mut stream = sandbox.http.events(&path, &json!({ "code": code }));
        assert_eq!(stream.event().expect("it runs").name, "stdout");
        sandbox.post("/contexts/k/interrupt", &Value::Null).expect(200);
        let told = stream.event().expect("an error");
        assert!(told.name == "exception" && told.data.contains("KeyboardInterrupt"), "{told:?}");
        assert_eq!(value(&run(&sandbox, "kept")), "'kept'");
    });
    rows.row("sys.exit", || {
        let answer = run(&sandbox, "import sys; sys.exit(3)");
        assert_eq!(
            (&answer["exception"]["name"], &answer["died"]),
            (&json!("SystemExit"), &Value::Null)
        );
        assert_eq!(value(&run(&sandbox, "kept")), "'kept'");
    });
    rows.row("an end of the kernel", || {
        let code = "import os, subprocess; subprocess.Popen(['sleep', '4716']); os._exit(3)";
        let answer = run(&sandbox, code);
        assert_eq!(answer["died"]["code"], 3, "{answer}");
        assert_eq!(answer["exception"]["name"], "ContextDied");
        let next = run(&sandbox, "'new'");
        assert_eq!((value(&next), &next["fresh"]), ("'new'", &json!(true)), "{next}");
        assert_eq!(sandbox.says("pgrep -fc 'sleep 471[6]'"), "0\n", "what it started ends with it");
    });
    assert_eq!(sandbox.http.delete(&sandbox.path("/contexts/k")).status, 204);
    assert_eq!(sandbox.says("pgrep -fc ipykernel_[l]auncher"), "0\n", "no kernel is left");
    drop(sandbox);
    server.healthy();
}
