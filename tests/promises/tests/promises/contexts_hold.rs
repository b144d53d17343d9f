//! Code contexts: no code can hang its context, hide its output or make it lie.

use crate::engines;
use isolet_kit::{LONG, Rows, SOON, Sandbox, Server, Value, json, one, quickly, wait_until};

fn post(sandbox: &Sandbox, context: &str, body: &Value) -> Value {
    sandbox.post(&format!("/contexts/{context}/run"), body).expect(200).json()
}

fn python(sandbox: &Sandbox, code: &str) -> Value {
    post(sandbox, "python", &json!({ "code": code, "timeout_ms": 60_000 }))
}

fn value(answer: &Value) -> &str {
    let results = answer["results"].as_array().expect("results");
    results.last().and_then(|one| one["data"]["text/plain"].as_str()).unwrap_or("(none)")
}

/// Checks that the context still has what an earlier run defined.
fn stays(sandbox: &Sandbox, answer: &Value) {
    assert_eq!(answer["died"], Value::Null, "{answer}");
    assert_eq!(value(&python(sandbox, "kept")), "'kept'");
}

/// Checks that the interpreter ended, that this was reported, and that the next run gets a new one.
fn gets_a_new_interpreter(sandbox: &Sandbox, answer: &Value) {
    assert!(answer["died"].is_object(), "{answer}");
    assert_eq!(answer["exception"]["name"], "ContextDied", "{answer}");
    let next = python(sandbox, "kept = 'kept'");
    assert_eq!((&next["fresh"], &next["exception"]), (&json!(true), &Value::Null), "{next}");
    assert_eq!(python(sandbox, "kept")["fresh"], false);
}

/// Promises: CX5.
#[test]
fn no_code_hangs_its_context() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"pids": 100, "memory_mib": 256}));
    engines::driver(&sandbox);
    let mut rows = Rows::new();
    python(&sandbox, "kept = 'kept'");
    let cases = [
        ("input() without input", "input()", "EOFError"),
        (
            "reading standard input",
            "import sys; assert sys.stdin.read() == ''; open(0).read() and 1/0; input()",
            "EOFError",
        ),
        ("sys.exit", "import sys; sys.exit()", "SystemExit"),
        ("exit()", "exit(2)", "SystemExit"),
        ("deep recursion", "def r(): return r()\nr()", "RecursionError"),
        ("standard output closed", "import os; os.close(1); print('x')", "OSError"),
        ("sys.stdout replaced", "import sys; sys.stdout = None; 1/0", "ZeroDivisionError"),
        (
            "a fork that comes back",
            "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\n1/0",
            "ZeroDivisionError",
        ),
        (
            "a value that cannot be shown",
            "class V:\n    def __repr__(self): raise OSError\nV()",
            "OSError",
        ),
        (
            "a signal handler",
            "import signal; signal.signal(2, signal.SIG_IGN); 1/0",
            "ZeroDivisionError",
        ),
        (
            "threads that go on",
            "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start(); 1/0",
            "ZeroDivisionError",
        ),
    ];
    for (name, code, wanted) in cases {
        rows.row(name, || {
            let answer = python(&sandbox, code);
            assert_eq!(answer["exception"]["name"], wanted, "{answer}");
            stays(&sandbox, &answer);
        });
    }
    rows.row("an endless loop", || {
        let answer =
            post(&sandbox, "python", &json!({"code": "while True: pass", "timeout_ms": 300}));
        assert_eq!(
            (&answer["timed_out"], &answer["exception"]["name"]),
            (&json!(true), &json!("KeyboardInterrupt")),
            "{answer}"
        );
        stays(&sandbox, &answer);
    });
    rows.row("an endless loop of JavaScript", || {
        post(&sandbox, "javascript", &json!({"code": "let kept = 1"}));
        for code in [
            "while (true) {}",
            "await new Promise(() => {})",
            "await 1; while (true) {}",
            "await new Promise(done => setTimeout(done, 1)); for (;;) {}",
            "await new Promise(() => setTimeout(() => { for (;;) {} }))",
            "for (;;) await 1",
            "require('fs').readFile('/etc/hostname', () => { for (;;) {} }); await new Promise(() => {})",
        ] {
            let answer = post(&sandbox, "javascript", &json!({"code": code, "timeout_ms": 300}));
            assert_eq!(
                (&answer["timed_out"], &answer["exception"]["name"]),
                (&json!(true), &json!("Interrupted")),
                "{answer}"
            );
            assert_eq!(value(&post(&sandbox, "javascript", &json!({"code": "kept"}))), "1");
        }
    });
    rows.row("code that ignores interrupts", || {
        let code =
            "import time\nwhile True:\n    try: time.sleep(100)\n    except BaseException: pass";
        let answer = post(&sandbox, "python", &json!({"code": code, "timeout_ms": 300}));
        assert_eq!(answer["timed_out"], true, "{answer}");
        gets_a_new_interpreter(&sandbox, &answer);
    });
    rows.row("the interpreter exits", || {
        gets_a_new_interpreter(&sandbox, &python(&sandbox, "import os; os._exit(3)"));
        gets_a_new_interpreter(&sandbox, &python(&sandbox, "import os; os.kill(os.getpid(), 11)"));
    });
    rows.row("all descriptors closed", || {
        gets_a_new_interpreter(&sandbox, &python(&sandbox, "import os; os.closerange(0, 1000)"));
    });
    rows.row("more memory than there is", || {
        let answer = python(&sandbox, "x = bytearray(1)\nwhile True: x += bytes(1 << 24)");
        if answer["exception"]["name"] != "MemoryError" {
            assert_eq!(answer["oom"], true, "{answer}");
            gets_a_new_interpreter(&sandbox, &answer);
        }
    });
    rows.row("a fork bomb", || {
        let code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass";
        let answer = post(&sandbox, "python", &json!({"code": code, "timeout_ms": 500}));
        assert_eq!(answer["timed_out"], true, "{answer}");
        let next = wait_until("there is room for a process again", SOON, || {
            let reply = sandbox.post("/contexts/python/run", &json!({"code": "kept = 'kept'; 1"}));
            (reply.status == 200 && reply.json()["exception"].is_null()).then(|| reply.json())
        });
        assert_eq!(value(&next), "1");
    });
    drop(sandbox);
    server.healthy();
}

/// Promises: CX3.
#[test]
fn large_output_is_cut_with_a_notice_or_streamed_completely() {
    engines::each(|sandbox| {
        let code = "print('a' * 30_000_000)";
        let answer = python(sandbox, code);
        assert_eq!(answer["stdout"].as_str().map(str::len), Some(8 * 1024 * 1024));
        assert_eq!(answer["truncated"]["stdout_bytes"], 30_000_001 - 8 * 1024 * 1024);
        let mut stream =
            sandbox.http.events(&sandbox.path("/contexts/python/run"), &json!({"code": code}));
        let mut bytes = 0;
        quickly("all of it", LONG, || {
            while let Some(event) = stream.event() {
                let data: Value = event.data.parse().expect("JSON");
                bytes += data["data"].as_str().map_or(0, str::len);
            }
        });
        assert_eq!(bytes, 30_000_001);
        assert_eq!(value(&python(sandbox, "range(3)")), "range(0, 3)");
    });
}

/// Promises: CX5.
#[test]
fn input_of_a_run_comes_with_its_request() {
    let (_server, sandbox) = one();
    engines::driver(&sandbox);
    let ask = |context: &str, code: &str| {
        post(&sandbox, context, &json!({"code": code, "stdin": "one\ntwo"}))
    };
    let answer = ask("python", "a, b = input('? '), input()\n(a, b)");
    assert_eq!((value(&answer), &answer["stdout"]), ("('one', 'two')", &json!("? ")), "{answer}");
    assert_eq!(ask("python", "input(); input(); input()")["exception"]["name"], "EOFError");
    let code = "let all = ''; for await (const piece of process.stdin) all += piece; all";
    assert_eq!(value(&ask("javascript", code)), "'one\\ntwo'");
}

/// Promises: CX5.
#[test]
fn a_run_is_interrupted_and_a_context_restarted() {
    engines::each(|sandbox| {
        python(sandbox, "kept = 'kept'");
        let path = sandbox.path("/contexts/python/run");
        let begin = |code: &str| sandbox.http.events(&path, &json!({ "code": code }));
        let mut stream = begin("print('on')\nwhile True: pass");
        assert_eq!(stream.event().expect("it runs").name, "stdout");
        let reply = sandbox.post("/contexts/python/interrupt", &Value::Null).expect(200);
        assert_eq!(reply.json(), json!({"interrupted": true}));
        let reported = stream.event().expect("an error");
        assert!(
            reported.name == "exception" && reported.data.contains("KeyboardInterrupt"),
            "{reported:?}"
        );
        let end: Value = stream.event().expect("the end").data.parse().expect("JSON");
        assert_eq!((&end["interrupted"], &end["timed_out"]), (&json!(true), &json!(false)));
        let reply = sandbox.post("/contexts/python/interrupt", &Value::Null).expect(200);
        assert_eq!(reply.json(), json!({"interrupted": false}), "nothing runs");
        stays(sandbox, &python(sandbox, "1"));
        let mut stream = begin("print('on')\nwhile True: pass");
        assert_eq!(stream.event().expect("it runs").name, "stdout");
        let info = sandbox.post("/contexts/python/restart", &Value::Null).expect(200).json();
        assert_eq!((&info["restarts"], &info["busy"]), (&json!(1), &json!(false)), "{info}");
        assert_eq!(stream.event().expect("its end is reported").name, "exception");
        let next = python(sandbox, "kept");
        assert_eq!(
            (&next["exception"]["name"], &next["fresh"]),
            (&json!("NameError"), &json!(true))
        );
    });
}

/// Promises: CX6.
#[test]
fn runs_of_a_context_are_queued_for_a_bounded_time() {
    let (_server, sandbox) = one();
    python(&sandbox, "seen = []");
    let code = "while not __import__('os').path.exists('/workspace/go'): pass";
    let path = sandbox.path("/contexts/python/run");
    let first = sandbox.http.events(&path, &json!({ "code": code }));
    let waiting = |queued: u64| {
        wait_until("they wait", SOON, || {
            let info = sandbox.http.get(&sandbox.path("/contexts/python")).expect(200).json();
            (info["busy"] == true && info["queued"] == queued).then_some(())
        });
    };
    let mut streams = Vec::new();
    for n in 0..64 {
        streams.push(sandbox.http.events(&path, &json!({"code": format!("seen.append({n})")})));
        waiting(n + 1);
    }
    let reply = sandbox.post("/contexts/python/run", &json!({"code": "1"})).expect(429);
    assert_eq!(reply.error(), "queue_full");
    // A queued run whose client disconnects is not started; a running one continues without its
    // client.
    drop(streams.remove(5));
    waiting(63);
    drop(first);
    sandbox.exec("touch /workspace/go");
    for stream in &mut streams {
        while let Some(event) = stream.event() {
            assert_ne!(event.name, "exception");
        }
    }
    let all = python(&sandbox, "seen == [n for n in range(64) if n != 5]");
    assert_eq!(value(&all), "True", "in their order");
}

/// Promises: CX5.
#[test]
fn a_run_whose_client_left_is_interrupted() {
    engines::each(|sandbox| {
        python(sandbox, "kept = 'kept'");
        let body = json!({"code": "print('on')\nwhile True: pass", "cancel_on_close": true});
        let mut stream = sandbox.http.events(&sandbox.path("/contexts/python/run"), &body);
        assert_eq!(stream.event().expect("it runs").name, "stdout");
        drop(stream);
        stays(sandbox, &python(sandbox, "1"));
    });
}

/// Promises: CX3.
#[test]
fn output_between_runs_arrives_with_the_next_run() {
    engines::each(|sandbox| {
        let code = "import threading, time\ndef late():\n    while not __import__('os').path.exists('/workspace/go'): time.sleep(.01)\n    \
                    print('late'); open('/workspace/done', 'w')\nthreading.Thread(target=late).start()";
        assert_eq!(python(sandbox, code)["stdout"], "");
        sandbox.exec("touch /workspace/go; until [ -e /workspace/done ]; do sleep .02; done");
        let answer = python(sandbox, "print('now')");
        assert_eq!(answer["stdout"], "late\nnow\n", "{answer}");
    });
    let (_server, sandbox) = one();
    engines::driver(&sandbox);
    let flood = "until [ -e /workspace/begin ]; do sleep .02; done; \
                 head -c 1000000 /dev/zero; touch /workspace/full";
    let child = format!("import subprocess; subprocess.Popen('{flood}', shell=True)");
    // A busy agent may read the rest of the pipe only during later runs.
    let mut answers = vec![python(&sandbox, &child)];
    sandbox.exec("touch /workspace/begin; until [ -e /workspace/full ]; do sleep .02; done");
    answers.extend((0..3).map(|_| python(&sandbox, "1")));
    let reported: usize =
        answers.iter().map(|answer| answer["stdout"].as_str().map_or(0, str::len)).sum();
    let lost: u64 = answers.iter().filter_map(|answer| answer["late_lost"].as_u64()).sum();
    assert_eq!(reported as u64 + lost, 1_000_000, "{lost} lost");
    assert!(lost > 0, "the output between runs is bounded");
}

/// Promises: CX8.
#[test]
fn code_that_imitates_its_driver_is_not_believed() {
    let (server, sandbox) = one();
    engines::driver(&sandbox);
    let mut rows = Rows::new();
    let say = |bytes: &str| {
        python(&sandbox, &format!("import os\nos.write(3, {bytes})\nkept = 'kept'\n1"))
    };
    rows.row("a result that is no JSON", || {
        let answer = say("b'\\0\\0\\0\\3\\2abc'");
        assert_eq!(answer["results_lost"], 1, "{answer}");
    });
    rows.row("an end before the end", || {
        let answer = say("b'\\0\\0\\0\\0\\4'");
        assert_eq!(answer["died"], Value::Null, "{answer}");
        let end = wait_until("the real end is not taken for that of the next run", SOON, || {
            Some(python(&sandbox, "40 + 2"))
        });
        assert!(end["exception"].is_null() || end["died"].is_object(), "{end}");
    });
    for (name, bytes) in [
        ("a kind that is none", "b'\\0\\0\\0\\0\\x63'"),
        ("a length beyond all bounds", "b'\\xff\\xff\\xff\\xff\\2'"),
        ("a long word for the agent", "b'\\0\\1\\0\\0\\4'"),
    ] {
        rows.row(name, || {
            let answer = say(&format!("{bytes} + b'x' * 10"));
            assert!(answer["died"].is_object(), "{answer}");
            wait_until("a new interpreter serves", SOON, || {
                let next = python(&sandbox, "6 * 7");
                (value(&next) == "42").then_some(())
            });
        });
    }
    rows.row("half a frame, and then nothing", || {
        let code = "import os, time\nos.write(3, b'\\0\\0\\1\\0\\2ab')\ntime.sleep(100)";
        let answer = post(&sandbox, "python", &json!({"code": code, "timeout_ms": 300}));
        assert_eq!(answer["timed_out"], true, "{answer}");
        wait_until("a new interpreter serves", SOON, || {
            let next = python(&sandbox, "6 * 7");
            (value(&next) == "42").then_some(())
        });
    });
    server.healthy();
}
