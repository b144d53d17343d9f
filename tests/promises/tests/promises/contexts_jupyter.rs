//! Code contexts of a Jupyter kernel: a real ipykernel over Jupyter's own protocol.

use isolet_kit::{Rows, SOON, Sandbox, Server, Value, json, one, wait_until};

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

/// Promises: CX10.
#[test]
fn a_jupyter_kernel_serves_as_a_context() {
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
    rows.row("displayed results", || {
        let code =
            "from IPython.display import HTML, display\nprint('said')\ndisplay(HTML('<b>'))\n7";
        let answer = run(&sandbox, code);
        assert_eq!(answer["results"][0]["data"]["text/html"], "<b>", "{answer}");
        assert_eq!((&answer["results"][0]["kind"], value(&answer)), (&json!("display"), "7"));
        assert_eq!((&answer["stdout"], &answer["stderr"]), (&json!("said\n"), &json!("")));
    });
    rows.row("output of children, once", || {
        assert_eq!(run(&sandbox, "import os; os.system('echo child');")["stdout"], "child\n");
    });
    rows.row("an error", || {
        let reply = run(&sandbox, "def f():\n    return 1 / 0\nf()")["exception"].clone();
        assert_eq!(
            (&reply["name"], &reply["message"]),
            (&json!("ZeroDivisionError"), &json!("division by zero"))
        );
        let lines = reply["traceback"].to_string();
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
        assert_eq!(run(&sandbox, "input()")["exception"]["name"], "EOFError");
    });
    rows.row("also without an explicit create", || {
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

/// Promises: CX11.
#[test]
fn python_uses_the_images_kernel_and_without_one_a_driver() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let mut rows = Rows::new();
    sandbox.exec(
        "mkdir -p bare broken/ipykernel beside/ipykernel; cd bare
         printf '#!/bin/sh\nexec /usr/bin/python3 -S \"$@\"\n' >python3; chmod +x python3
         echo 'raise RuntimeError' >../broken/ipykernel/__init__.py; cp ../bare/python3 ../beside",
    );
    let path = |of: &str| json!({"PATH": format!("/workspace/{of}:/usr/bin:/bin")});
    let cases = [
        ("of the image", json!({}), json!("python3")),
        ("none is wanted", json!({"kernel": "none"}), Value::Null),
        ("there is none", json!({"env": path("bare")}), Value::Null),
        (
            "a directory of its name is none",
            json!({"env": path("bare"), "cwd": "/workspace/beside"}),
            Value::Null,
        ),
        (
            "it is broken",
            json!({"env": {"PYTHONPATH": "/workspace/broken"}, "cwd": "/workspace/broken"}),
            Value::Null,
        ),
        ("of JavaScript", json!({"language": "js", "kernel": "none"}), Value::Null),
    ];
    for (name, spec, kernel) in cases {
        rows.row(name, || {
            let made = sandbox.post("/contexts", &spec).expect(201).json();
            assert_eq!(made["kernel"], kernel, "{made}");
            let cwd = spec["cwd"].as_str().unwrap_or("/workspace");
            assert_eq!(made["cwd"], cwd);
            let id = made["id"].as_str().expect("an id");
            let code = if spec["language"] == "js" {
                "'/' + process.cwd().slice(1)"
            } else {
                "x = __import__('os').getcwd()\nx"
            };
            let body = json!({ "code": code });
            let answer = sandbox.post(&format!("/contexts/{id}/run"), &body).expect(200).json();
            assert_eq!(value(&answer), format!("'{cwd}'"), "{answer}");
            let reply = sandbox.http.get(&sandbox.path(&format!("/contexts/{id}"))).expect(200);
            assert_eq!((&reply.json()["kernel"], &reply.json()["runs"]), (&kernel, &json!(1)));
        });
    }
    rows.row("a small sandbox has none unless it is asked for", || {
        let small = server.sandbox_with(&json!({"memory_mib": 128}));
        let made = small.post("/contexts", &json!({})).expect(201).json();
        assert_eq!((&made["language"], &made["kernel"]), (&json!("python"), &Value::Null));
        let made = small.post("/contexts", &json!({"kernel": "python3"})).expect(201).json();
        assert_eq!((&made["language"], &made["kernel"]), (&json!("jupyter"), &json!("python3")));
    });
    let refused = sandbox.post("/contexts", &json!({"kernel": "none", "language": "jupyter"}));
    assert!(refused.text().contains("kernel: ") && refused.status == 400, "{}", refused.text());
}

/// Promises: CX10.
#[test]
fn kernel_messages_that_arrive_faster_than_they_are_read_are_not_lost() {
    let (_server, sandbox) = one();
    make(&sandbox);
    let reply = run(&sandbox, "for n in range(6_000): print(n, flush=True)");
    let said = reply["stdout"].as_str().expect("a text");
    let wanted: String = (0..6_000).map(|n| format!("{n}\n")).collect();
    assert!(said == wanted, "{} of {} bytes", said.len(), wanted.len());
}

/// ipykernel reads the output of children in a thread that nothing waits for at the end of a run:
/// the child's line was missing from the answer and appeared in the next one. The thread ended at a
/// byte that is not UTF-8, and children blocked from then on.
/// Promises: F46.
#[test]
fn f46_output_of_a_kernels_children_is_in_the_answer_of_their_run() {
    let (_server, sandbox) = one();
    make(&sandbox);
    // The reading thread is slow, so that the output is not complete by chance.
    let slow = "import os, sys, threading, time
stream = type(sys.stdout)
write = stream.write
def slow(self, text):
    if threading.current_thread() is not threading.main_thread():
        time.sleep(.05)
    return write(self, text)
stream.write = slow";
    run(&sandbox, slow);
    for turn in 0..10 {
        let code = format!("os.system('echo child {turn}; echo error {turn} >&2'); 'done'");
        let answer = run(&sandbox, &code);
        let streams = (&answer["stdout"], &answer["stderr"]);
        let wanted = (json!(format!("child {turn}\n")), json!(format!("error {turn}\n")));
        assert_eq!(streams, (&wanted.0, &wanted.1), "{answer}");
    }
    let answer = run(&sandbox, "os.system(r\"printf 'a\\377b\\n'\"); 'done'");
    assert_eq!(answer["stdout"], "a\u{FFFD}b\n", "{answer}");
    let answer = run(&sandbox, "os.system('seq 100000 | wc -c >&2; seq 100000 | sed s/$/\u{FC}/')");
    assert_eq!(answer["stderr"], "588895\n", "{}", answer["exception"]);
    let wanted: String = (1..=100_000).map(|n| format!("{n}\u{FC}\n")).collect();
    let said = answer["stdout"].as_str().expect("a text");
    assert!(said == wanted, "{} of {} bytes", said.len(), wanted.len());
}

/// The pids of `python3` processes in the sandbox, each with its parent.
fn pythons(sandbox: &Sandbox) -> Vec<(i64, i64)> {
    let reply = sandbox.says("ps -C python3 -o pid=,ppid=; true");
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).expect("a number");
    let lines = reply.lines().map(str::split_whitespace);
    lines.map(|mut words| (number(words.next()), number(words.next()))).collect()
}

/// Promises: CX12.
#[test]
fn a_spare_kernel_is_started_where_kernels_come_and_go() {
    let (_server, sandbox) = one();
    let make = |spec: Value| {
        let made = sandbox.post("/contexts", &spec).expect(201).json();
        let kernel = made["pid"].as_i64().expect("a process");
        let found = pythons(&sandbox).into_iter().find(|(pid, _)| *pid == kernel);
        (made["id"].as_str().expect("an id").to_owned(), found.expect("it runs").1)
    };
    let (first, _) = make(json!({}));
    assert_eq!(pythons(&sandbox).len(), 2, "a kernel and its driver");
    assert_eq!(sandbox.http.delete(&sandbox.path(&format!("/contexts/{first}"))).status, 204);
    make(json!({}));
    let ahead = wait_until("a spare kernel is started", SOON, || {
        let all = pythons(&sandbox);
        let alone = |one: &&(i64, i64)| !all.iter().any(|(pid, of)| *of == one.0 || *pid == one.1);
        all.iter().find(alone).map(|(pid, _)| *pid)
    });
    let listed = sandbox.http.get(&sandbox.path("/contexts")).expect(200).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "it belongs to no context");
    let (other, by) = make(json!({"env": {"OWN": "1"}}));
    assert_ne!(by, ahead, "it was started with another environment");
    let body = json!({"code": "import os; os.environ['OWN']"});
    let answer = sandbox.post(&format!("/contexts/{other}/run"), &body).expect(200).json();
    assert_eq!(value(&answer), "'1'");
    let (taken, by) = make(json!({}));
    assert_eq!(by, ahead, "the next context gets the spare kernel");
    let answer = sandbox.post(&format!("/contexts/{taken}/run"), &json!({"code": "6 * 7"}));
    assert_eq!(value(&answer.expect(200).json()), "42");
    wait_until("another spare kernel is started", SOON, || {
        (pythons(&sandbox).len() == 7).then_some(())
    });
    wait_until("it can be put to sleep", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    let body = json!({"code": "1"});
    let first = sandbox.post("/contexts/python/run", &body).expect(200).json();
    assert_eq!(first["lost"], json!(["contexts"]), "no other kernel belongs to a context");
}

/// Promises: CX10.
#[test]
fn no_code_in_a_jupyter_kernel_hangs_its_context() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    make(&sandbox);
    run(&sandbox, "kept = 'kept'");
    rows.row("an endless loop", || {
        let answer = post(&sandbox, &json!({"code": "while True: pass", "timeout_ms": 1000}));
        let reply = (&answer["timed_out"], &answer["exception"]["name"], &answer["died"]);
        assert_eq!(reply, (&json!(true), &json!("KeyboardInterrupt"), &Value::Null), "{answer}");
        assert_eq!(value(&run(&sandbox, "kept")), "'kept'");
    });
    rows.row("an interrupt", || {
        let path = sandbox.path("/contexts/k/run");
        let code = "print('on', flush=True)\nwhile True: pass";
        let mut stream = sandbox.http.events(&path, &json!({ "code": code }));
        assert_eq!(stream.event().expect("it runs").name, "stdout");
        sandbox.post("/contexts/k/interrupt", &Value::Null).expect(200);
        let reply = stream.event().expect("an error");
        let is_told = reply.name == "exception" && reply.data.contains("KeyboardInterrupt");
        assert!(is_told, "{reply:?}");
        assert_eq!(value(&run(&sandbox, "kept")), "'kept'");
    });
    // On a busy machine the second interrupt once cut the traceback of the first, and IPython then
    // printed the exception as a line.
    rows.row("a second interrupt while the traceback is made", || {
        let code = "import time\nmaker = get_ipython().InteractiveTB\n\
                    make = maker.structured_traceback\n\
                    def slow(*args, **how):\n    \
                        print('reports', flush=True)\n    \
                        time.sleep(3)\n    \
                        return make(*args, **how)\n\
                    maker.structured_traceback = slow\n\
                    print('on', flush=True)\nwhile True: pass";
        let mut stream =
            sandbox.http.events(&sandbox.path("/contexts/k/run"), &json!({ "code": code }));
        assert!(stream.event().expect("it runs").data.contains("on"));
        sandbox.post("/contexts/k/interrupt", &Value::Null).expect(200);
        assert!(stream.event().expect("it is interrupted").data.contains("reports"));
        sandbox.post("/contexts/k/interrupt", &Value::Null).expect(200);
        let reply = stream.event().expect("an error");
        let is_told = reply.name == "exception" && reply.data.contains("KeyboardInterrupt");
        assert!(is_told, "{reply:?}");
        run(&sandbox, "maker.structured_traceback = make");
        assert_eq!(value(&run(&sandbox, "kept")), "'kept'");
    });
    let cases = [
        ("sys.exit", "import sys; sys.exit(3)", "SystemExit"),
        ("exit()", "exit()", "SystemExit"),
        ("exit(2)", "exit(2)", "SystemExit"),
        ("deep recursion", "def r(): return r()\nr()", "RecursionError"),
        ("standard output closed", "import os; os.close(1); 1/0", "ZeroDivisionError"),
        ("sys.stdout replaced", "import sys; sys.stdout = None; 1/0", "KernelError"),
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
    ];
    for (name, code, wanted) in cases {
        rows.row(name, || {
            let answer = run(&sandbox, code);
            assert_eq!(
                (&answer["exception"]["name"], &answer["died"]),
                (&json!(wanted), &Value::Null),
                "{answer}"
            );
            let next = run(&sandbox, "import os; os.system('echo child'); kept");
            assert_eq!((value(&next), &next["stdout"]), ("'kept'", &json!("child\n")), "{next}");
        });
    }
    rows.row("code that ignores interrupts", || {
        let code =
            "import time\nwhile True:\n    try: time.sleep(100)\n    except BaseException: pass";
        let answer = post(&sandbox, &json!({"code": code, "timeout_ms": 300}));
        assert!(answer["timed_out"] == true && answer["died"].is_object(), "{answer}");
        assert_eq!(run(&sandbox, "kept = 'kept'")["fresh"], true);
    });
    rows.row("the kernel exits", || {
        let code = "import os, subprocess; subprocess.Popen(['sleep', '4716']); os._exit(3)";
        let answer = run(&sandbox, code);
        assert_eq!(answer["died"]["code"], 3, "{answer}");
        assert_eq!(answer["exception"]["name"], "ContextDied");
        let next = run(&sandbox, "'new'");
        assert_eq!((value(&next), &next["fresh"]), ("'new'", &json!(true)), "{next}");
        assert_eq!(
            sandbox.says("pgrep -fc 'sleep 471[6]'"),
            "0\n",
            "processes that it started end with it"
        );
    });
    // Found by its pid, because there may also be a spare kernel for the next context.
    let reply = run(&sandbox, "import os; os.getpid()");
    let pid = value(&reply).to_owned();
    assert_eq!(sandbox.says(&format!("cat /proc/{pid}/comm")), "python3\n", "{reply}");
    assert_eq!(sandbox.http.delete(&sandbox.path("/contexts/k")).status, 204);
    wait_until("the kernel has ended", SOON, || {
        (sandbox.says(&format!("ls -d /proc/{pid} 2>&1 | grep -c No")) == "1\n").then_some(())
    });
    drop(sandbox);
    server.healthy();
}

/// Adds a kernel for the caller, whose program is `argv`.
fn add_kernel(sandbox: &Sandbox, name: &str, language: &str, argv: &Value) {
    let spec = json!({"argv": argv, "display_name": name, "language": language});
    let directory = format!("/root/.local/share/jupyter/kernels/{name}");
    sandbox.exec(&format!("mkdir -p {directory}; cat >{directory}/kernel.json <<'E'\n{spec}\nE"));
}

#[test]
fn a_kernel_that_ends_at_its_start_is_refused_with_its_last_words() {
    let (_server, sandbox) = one();
    add_kernel(&sandbox, "broken", "other", &json!(["sh", "-c", "echo no library >&2; exit 3"]));
    // Which end of it comes first differs from one start to the next.
    for _ in 0..5 {
        let refused = sandbox.post("/contexts", &json!({"kernel": "broken"}));
        let words = "the interpreter ended before it was ready: no library";
        assert!(refused.text().contains(words), "{} {}", refused.status, refused.text());
    }
    let listed = sandbox.http.get(&sandbox.path("/contexts")).expect(200).json();
    assert_eq!(listed, json!([]));
}

/// Few kernels of other languages know another transport than TCP.
#[test]
fn a_kernel_of_another_language_is_reached_by_tcp() {
    let (_server, sandbox) = one();
    let argv = json!(["sh", "-c", "exec python3 -m ipykernel_launcher -f $0", "{connection_file}"]);
    add_kernel(&sandbox, "other", "other", &argv);
    let made = sandbox.post("/contexts", &json!({"id": "k", "kernel": "other"})).expect(201);
    assert_eq!(made.json()["kernel"], "other");
    let code = "import ipykernel; ipykernel.connect.get_connection_info(unpack=True)['transport']";
    assert_eq!(value(&run(&sandbox, code)), "'tcp'");
}
