//! Code contexts: what persists in them, what a run returns, and in which order.

use crate::engines;
use isolet_kit::{Rows, SOON, Sandbox, Server, Value, json, one, process, wait_until};
use rustix::process::Signal;

fn post(sandbox: &Sandbox, context: &str, body: &Value) -> Value {
    sandbox.post(&format!("/contexts/{context}/run"), body).expect(200).json()
}

fn run(sandbox: &Sandbox, context: &str, code: &str) -> Value {
    post(sandbox, context, &json!({ "code": code }))
}

/// The text of the last expression's value.
fn value(answer: &Value) -> &str {
    let results = answer["results"].as_array().expect("results");
    let last = results.iter().rfind(|one| one["kind"] == "result");
    last.and_then(|one| one["data"]["text/plain"].as_str()).unwrap_or("(none)")
}

fn python(sandbox: &Sandbox, code: &str) -> Value {
    run(sandbox, "python", code)
}

fn js(sandbox: &Sandbox, code: &str) -> Value {
    run(sandbox, "javascript", code)
}

fn make(sandbox: &Sandbox, body: &Value) -> Value {
    sandbox.post("/contexts", body).expect(201).json()
}

/// Promises: CX1.
#[test]
fn definitions_of_a_python_run_persist() {
    engines::each(|sandbox| {
        let mut rows = Rows::new();
        python(sandbox, "import math\nx = 20\ndef twice(n):\n    return 2 * n\nclass P: pass");
        let cases = [
            ("an expression", "twice(x) + 2", "42"),
            ("an import", "math.floor(1.5)", "1"),
            ("a class", "P.__module__", "'__main__'"),
            ("the last value", "_", "'__main__'"),
            ("lines before it", "y = 1\ny += 1\ny", "2"),
            ("an await", "import asyncio\nawait asyncio.sleep(0)\n'woke'", "'woke'"),
            ("a statement has none", "x = 21", "(none)"),
            ("None is none", "print()", "(none)"),
            ("a semicolon keeps it", "x;", "(none)"),
            ("a decorated text", "'''a\nb'''", "'a\\nb'"),
            ("no code", "", "(none)"),
            ("a comment", "# nothing", "(none)"),
        ];
        for (name, code, wanted) in cases {
            rows.row(name, || {
                let answer = python(sandbox, code);
                assert_eq!(
                    (value(&answer), &answer["exception"]),
                    (wanted, &Value::Null),
                    "{answer}"
                );
            });
        }
        rows.row("the start directory", || {
            assert_eq!(value(&python(sandbox, "import os; os.getcwd()")), "'/workspace'");
        });
        rows.row("a module beside it", || {
            python(sandbox, "open('beside.py', 'w').write('z = 9')");
            assert_eq!(value(&python(sandbox, "import beside; beside.z")), "9");
        });
    });
}

/// Promises: CX1.
#[test]
fn definitions_of_a_javascript_run_persist() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    js(&sandbox, "const x = 20; let y = 1; function twice(n) { return 2 * n; } class P {}");
    let cases = [
        ("an expression", "twice(x) + 2", "42"),
        ("a const again", "const x = 21; x", "21"),
        ("a let again", "let y = 2; y", "2"),
        ("an await", "await new Promise(done => setTimeout(() => done('woke'), 5))", "'woke'"),
        ("require", "require('path').join('a', 'b')", "'a/b'"),
        (
            "import",
            "import fs, { existsSync as is } from 'fs'\n[typeof fs.readFileSync, is('/')].join()",
            "'function,true'",
        ),
        ("import of all", "import * as os from 'node:os'; os.EOL", "'\\n'"),
        ("an import that is called", "(await import('path')).sep", "'/'"),
        ("an import in a text", "'import(1) from \"x\"'", "'import(1) from \"x\"'"),
        ("undefined is none", "undefined", "(none)"),
        ("null", "null", "null"),
        ("a large number", "2n ** 70n", "1180591620717411303424n"),
        ("an object", "({ a: 1, b: [2] })", "{ a: 1, b: [ 2 ] }"),
        ("a class", "new P()", "P {}"),
        ("the start directory", "process.cwd()", "'/workspace'"),
    ];
    for (name, code, wanted) in cases {
        rows.row(name, || {
            let answer = js(&sandbox, code);
            assert_eq!((value(&answer), &answer["exception"]), (wanted, &Value::Null), "{answer}");
        });
    }
    rows.row("an object is JSON, too", || {
        let answer = js(&sandbox, "({ a: [1, null] })");
        assert_eq!(answer["results"][0]["data"]["application/json"], json!({"a": [1, null]}));
    });
    rows.row("a module beside it", || {
        sandbox.exec("echo 'export const z = 9' >/workspace/beside.mjs");
        assert_eq!(value(&js(&sandbox, "import { z } from './beside.mjs'; z")), "9");
    });
}

/// Promises: CX2.
#[test]
fn an_error_has_its_name_its_message_and_only_the_users_lines() {
    let (_server, sandbox) = one();
    engines::driver(&sandbox);
    let mut rows = Rows::new();
    let cases = [
        (
            "python",
            "def f():\n    return 1 / 0\nf()",
            "ZeroDivisionError",
            "division by zero",
            "return 1 / 0",
        ),
        ("python", "1 +", "SyntaxError", "invalid syntax", "1 +"),
        (
            "python",
            "try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('v') from e",
            "ValueError",
            "v",
            "direct cause",
        ),
        (
            "python",
            "class E(Exception):\n    def __str__(self): raise ValueError\nraise E()",
            "E",
            "",
            "raise E()",
        ),
        ("python", "def r(): r()\nr()", "RecursionError", "maximum recursion", "repeated"),
        ("python", "import sys; sys.exit(3)", "SystemExit", "3", "sys.exit(3)"),
        (
            "javascript",
            "function f() { null.x }\nf()",
            "TypeError",
            "Cannot read properties of null",
            "at f (cell-",
        ),
        ("javascript", "syntax error", "SyntaxError", "Unexpected identifier", "SyntaxError"),
        (
            "javascript",
            "function r() { r() }; r()",
            "RangeError",
            "Maximum call stack",
            "at r (cell-",
        ),
        ("javascript", "throw 5", "Uncaught", "5", "5"),
        ("javascript", "await Promise.reject(new Error('late'))", "Error", "late", "late"),
        ("javascript", "process.exit(3)", "ProcessExit", "3", "ProcessExit"),
        (
            "javascript",
            "setTimeout(() => { throw new Error('in a timer') }); await new Promise(() => {})",
            "Error",
            "in a timer",
            "in a timer",
        ),
    ];
    for (context, code, name, message, line) in cases {
        rows.row(code, || {
            let answer = run(&sandbox, context, code);
            let reply = &answer["exception"];
            assert_eq!(reply["name"], name, "{answer}");
            assert!(
                reply["message"].as_str().is_some_and(|text| text.contains(message)),
                "{reply}"
            );
            let lines = reply["traceback"].to_string();
            assert!(lines.contains(line), "{lines}");
            assert!(!lines.contains("<isolet>") && !lines.contains("node:inspector"), "{lines}");
            assert_eq!(answer["died"], Value::Null);
        });
    }
}

/// An error whose text contained half of a surrogate pair once became invalid JSON: `exception` was
/// null, so the run looked successful.
/// Promises: CX13.
#[test]
fn an_error_is_reported_whatever_its_text_is() {
    engines::each(|sandbox| {
        let mut rows = Rows::new();
        for (code, name, message) in [
            (r#"raise Exception("x\ud800y")"#, "Exception", "x\u{fffd}y"),
            (r#"raise Exception("\udc80")"#, "Exception", "\u{fffd}"),
            (r#"raise Exception("\ud83d\ude00")"#, "Exception", "\u{1f600}"),
            (r#"raise KeyError("\\ud800", 1)"#, "KeyError", "('\\\\ud800', 1)"),
        ] {
            rows.row(code, || {
                let answer = python(sandbox, code);
                let reply = &answer["exception"];
                assert_eq!((&reply["name"], &reply["message"]), (&json!(name), &json!(message)));
                assert_eq!(answer["results_lost"], 0, "{answer}");
            });
        }
        rows.row("a result", || {
            let code = "class P:\n    def _repr_html_(self): return 'x\\ud800y'\nP()";
            let answer = python(sandbox, code);
            assert_eq!(answer["results"][0]["data"]["text/html"], "x\u{fffd}y", "{answer}");
        });
    });
    let (_server, sandbox) = one();
    engines::driver(&sandbox);
    let mut rows = Rows::new();
    for (context, code, message) in [
        ("python", r#"import sys; sys.exit("x\ud800y")"#, "x\u{fffd}y"),
        ("javascript", r#"throw new Error("x\ud800y")"#, "x\u{fffd}y"),
        ("javascript", r#"throw new Error("\ud83d\ude00")"#, "\u{1f600}"),
        ("javascript", r#"throw new Error("\\ud800")"#, "\\ud800"),
        ("javascript", r#"throw new Error("\u{1f600}".repeat(1e6).slice(1))"#, "\u{fffd}\u{1f600}"),
    ] {
        rows.row(code, || {
            let answer = run(&sandbox, context, code);
            let reply = answer["exception"]["message"].as_str().unwrap_or_default();
            assert!(reply.starts_with(message), "{}", answer["exception"]["name"]);
            assert_eq!(answer["results_lost"], 0);
        });
    }
    rows.row("a result of JavaScript", || {
        let answer = js(&sandbox, r#"({ "a\udc00": "\\ud800\ud800" })"#);
        let reply = &answer["results"][0]["data"]["application/json"];
        assert_eq!(reply, &json!({"a\u{fffd}": "\\ud800\u{fffd}"}), "{answer}");
    });
    rows.row("a raised value that is not an error is reported as one", || {
        let answer = python(&sandbox, "import os\nos.write(3, b'\\0\\0\\0\\3\\3abc');");
        assert_eq!(answer["exception"]["name"], "Error", "{answer}");
        let text = answer["exception"]["message"].as_str().unwrap_or_default();
        assert!(text.contains("cannot be read"), "{answer}");
    });
}

/// Promises: CX3.
#[test]
fn output_arrives_in_the_order_in_which_it_was_written() {
    let (_server, sandbox) = one();
    engines::driver(&sandbox);
    let code = "import subprocess, sys\nprint('a')\nprint('b', file=sys.stderr)\n\
                subprocess.run(['echo', 'c'])\nprint('d', file=sys.stderr)\nprint('e')\n\
                display(6)\nprint('g', end='')\n7";
    let script = "console.log('a'); console.error('b');\n\
                  require('child_process').spawnSync('echo', ['c'], { stdio: 'inherit' });\n\
                  console.error('d'); process.stdout.write('e\\n'); display(6);\n\
                  process.stdout.write('g'); 7";
    let wanted =
        "stdout a\n|stderr b\n|stdout c\n|stderr d\n|stdout e\n|result 6|stdout g|result 7|end ";
    for (context, code) in [("python", code), ("javascript", script)] {
        let path = sandbox.path(&format!("/contexts/{context}/run"));
        let mut stream = sandbox.http.events(&path, &json!({ "code": code }));
        let mut seen = Vec::new();
        while let Some(event) = stream.event() {
            let data: Value = event.data.parse().expect("JSON");
            let text = match event.name.as_str() {
                "result" => &data["data"]["text/plain"],
                _ => &data["data"],
            };
            seen.push(format!("{} {}", event.name, text.as_str().unwrap_or_default()));
        }
        assert_eq!(seen.join("|"), wanted, "{context}");
    }
}

/// Children write to the streams themselves. An agent without a processor once found what the code
/// had written to standard error together with what a child had written later to standard output, and
/// read the child's first.
/// Promises: CX3.
#[test]
fn a_late_agent_keeps_the_order_of_what_code_and_children_wrote() {
    let (server, sandbox) = one();
    engines::driver(&sandbox);
    let python = "import os, subprocess, sys\nprint(os.getpid(), file=STREAM)\n\
                  while ') T ' not in open('/proc/1/stat').read(): pass\n";
    let node = "STREAM(process.pid);\n\
                while (!require('fs').readFileSync('/proc/1/stat', 'latin1').includes(') T '));\n\
                const sh = (text) => require('child_process').execSync(text, { stdio: 'inherit' });\n";
    let on = |text: &str, stream| text.replace("STREAM", stream);
    let child_after = (
        on(python, "sys.stderr") + "print('b', file=sys.stderr)\nsubprocess.run(['echo', 'c'])",
        on(node, "console.error") + "console.error('b'); sh('echo c');",
        "stderr b\n|stdout c\n|end ",
    );
    let child_between = (
        on(python, "sys.stdout") + "print('b')\nos.system('echo c >&2')\nprint('d')",
        on(node, "console.log") + "console.log('b'); sh('echo c >&2'); console.log('d');",
        "stdout b\n|stderr c\n|stdout d\n|end ",
    );
    let mut rows = Rows::new();
    for (name, (in_python, in_node, wanted)) in
        [("after the code", child_after), ("between the code", child_between)]
    {
        for (context, code) in [("python", in_python), ("javascript", in_node)] {
            rows.row(&format!("{context}: a child {name}"), || {
                let seen = seen_after_a_stop(&server, &sandbox, context, &code);
                assert_eq!(seen, wanted);
            });
        }
    }
}

/// A process that is stopped until this value is dropped.
struct Stopped(i32);

impl Stopped {
    fn new(pid: i32) -> Self {
        process::signal(pid, Signal::STOP);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        process::signal(self.0, Signal::CONT);
    }
}

/// Runs code that prints its process id, waits until the agent is stopped, and writes. The agent
/// continues when everything is written, or waits for the agent. Returns the events after the process
/// id, without results.
fn seen_after_a_stop(server: &Server, sandbox: &Sandbox, context: &str, code: &str) -> String {
    let agent = server.agent();
    let path = sandbox.path(&format!("/contexts/{context}/run"));
    let mut stream = sandbox.http.events(&path, &json!({ "code": code }));
    let first = stream.event().expect("the process id");
    let data: Value = first.data.parse().expect("JSON");
    let inside = data["data"].as_str().expect("text").trim().to_owned();
    let proc = |pid: i32, file: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
    };
    let is_it = |pid: &i32| {
        let status = proc(*pid, "status");
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        process::parent(*pid) == Some(agent) && ids.split_whitespace().next_back() == Some(&inside)
    };
    let interpreter = process::all().into_iter().find(is_it).expect("the interpreter");
    let stopped = Stopped::new(agent);
    wait_until("everything is written, or waits for the agent", SOON, || {
        let place = proc(interpreter, "wchan");
        let between_runs = place.contains("ep_poll") && {
            let children = proc(interpreter, &format!("task/{interpreter}/children"));
            children.is_empty()
        };
        (between_runs || place.contains("unix_stream")).then_some(())
    });
    drop(stopped);
    let mut seen = Vec::new();
    while let Some(event) = stream.event() {
        let data: Value = event.data.parse().expect("JSON");
        if event.name != "result" {
            seen.push(format!("{} {}", event.name, data["data"].as_str().unwrap_or_default()));
        }
    }
    seen.join("|")
}

/// Promises: CX3.
#[test]
fn output_arrives_while_the_code_runs() {
    engines::each(|sandbox| {
        let code = "print('first', end='')\nwhile not __import__('os').path.exists('/workspace/go'): pass\nprint('second')";
        let mut stream =
            sandbox.http.events(&sandbox.path("/contexts/python/run"), &json!({"code": code}));
        let first = stream.event().expect("an event");
        assert!(first.name == "stdout" && first.data.contains("first"), "{first:?}");
        assert_eq!(sandbox.exec("touch /workspace/go")["exit_code"], 0);
        let second = stream.event().expect("another");
        assert!(second.data.contains("second"), "{second:?}");
        assert_eq!(stream.event().expect("the end").name, "end");
    });
}

/// Promises: CX4.
#[test]
fn everything_that_jupyter_displays_is_returned() {
    let (_server, sandbox) = one();
    engines::driver(&sandbox);
    let mut rows = Rows::new();
    let shown = |code: &str| {
        let answer = python(&sandbox, code);
        assert_eq!(answer["exception"], Value::Null, "{answer}");
        answer["results"].clone()
    };
    python(&sandbox, "def of(name, said):\n    return type('T', (), {name: lambda self: said})()");
    let cases = [
        ("_repr_html_", "'<b>x</b>'", "text/html", json!("<b>x</b>")),
        ("_repr_markdown_", "'# x'", "text/markdown", json!("# x")),
        ("_repr_svg_", "'<svg/>'", "image/svg+xml", json!("<svg/>")),
        ("_repr_png_", "b'\\x89PNG'", "image/png", json!("iVBORw==")),
        ("_repr_jpeg_", "b'\\xff\\xd8'", "image/jpeg", json!("/9g=")),
        ("_repr_latex_", "'$x$'", "text/latex", json!("$x$")),
        ("_repr_json_", "{'a': 1}", "application/json", json!({"a": 1})),
    ];
    for (name, said, kind, wanted) in cases {
        rows.row(name, || {
            let results = shown(&format!("of('{name}', {said})"));
            assert_eq!(results[0]["data"][kind], wanted, "{results}");
            assert!(
                results[0]["data"]["text/plain"].is_string(),
                "a text representation is included"
            );
        });
    }
    rows.row("a bundle", || {
        let code = "class B:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n        \
                    return {'text/html': 'h', 'text/plain': 'p'}, {'text/html': {'w': 1}}\nB()";
        let results = shown(code);
        assert_eq!(results[0]["data"], json!({"text/html": "h", "text/plain": "p"}));
        assert_eq!(results[0]["metadata"], json!({"text/html": {"w": 1}}));
    });
    rows.row("display within the code", || {
        let results = shown("for n in range(3): display(n)\n'end'");
        let kinds: Vec<_> =
            results.as_array().expect("a list").iter().map(|one| &one["kind"]).collect();
        assert_eq!(kinds, ["display", "display", "display", "result"]);
    });
    rows.row("a figure without show()", || {
        // The part of matplotlib that the test needs, without its 40 MB.
        let module = "import sys\nnumbers = []\nclass Figure:\n    def savefig(self, out, **_): out.write(b'png')\n\
                      def plot(*_): numbers.append(1)\ndef get_fignums(): return list(numbers)\n\
                      def figure(_): return Figure()\ndef close(_): numbers.clear()\ndef show(): raise SystemError";
        sandbox.exec("mkdir -p /workspace/matplotlib; touch /workspace/matplotlib/__init__.py");
        python(&sandbox, &format!("open('matplotlib/pyplot.py', 'w').write('''{module}''')"));
        let results = shown("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\nplt.plot([2])");
        let pictures: Vec<_> =
            results.as_array().expect("a list").iter().map(|one| &one["data"]["image/png"]).collect();
        assert_eq!(pictures, [&json!("cG5n"), &json!("cG5n")], "{results}");
        assert_eq!(shown("1").as_array().map(Vec::len), Some(1), "each is shown once");
    });
    rows.row("of JavaScript", || {
        let answer = js(
            &sandbox,
            "({ [Symbol.for('Jupyter.display')]() { return { 'text/html': '<i>' } } })",
        );
        assert_eq!(answer["results"][0]["data"]["text/html"], "<i>");
    });
    rows.row("oversized results are left out with a notice", || {
        let results = shown("of('_repr_png_', b'x' * 20_000_000)");
        assert_eq!(results[0]["cut"]["image/png"], 20_000_000, "{}", results[0]["cut"]);
        assert!(results[0]["data"].get("image/png").is_none());
    });
}

/// Promises: CX7.
#[test]
fn contexts_are_made_listed_and_ended() {
    let (server, sandbox) = one();
    let made = make(
        &sandbox,
        &json!({"id": "mine", "cwd": "/usr", "env": {"A": "b"}, "timeout_ms": 60_000}),
    );
    assert_eq!(
        (&made["language"], &made["cwd"], &made["runs"]),
        (&json!("python"), &json!("/usr"), &json!(0))
    );
    assert_eq!(
        value(&run(&sandbox, "mine", "import os; (os.getcwd(), os.environ['A'])")),
        "('/usr', 'b')"
    );
    let other = make(&sandbox, &json!({"language": "js"}));
    let id = other["id"].as_str().expect("an id");
    assert_eq!(value(&run(&sandbox, id, "1 + 1")), "2");
    assert_eq!(run(&sandbox, "mine", "id")["exception"], Value::Null, "each has its own names");
    let listed = sandbox.http.get(&sandbox.path("/contexts")).expect(200).json();
    let ids: Vec<_> =
        listed.as_array().expect("a list").iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, [json!(id), json!("mine")]);
    assert_eq!(sandbox.post("/contexts", &json!({"id": "mine"})).expect(409).error(), "exists");
    assert_eq!(
        sandbox.post("/contexts", &json!({"cwd": "/nowhere"})).expect(400).error(),
        "bad_cwd"
    );
    assert_eq!(
        sandbox.post("/contexts", &json!({"language": "perl"})).expect(400).error(),
        "bad_field"
    );
    assert_eq!(
        sandbox.post("/contexts/none/run", &json!({"code": ""})).expect(404).error(),
        "no_context"
    );
    run(&sandbox, "mine", "import subprocess; subprocess.Popen(['sleep', '4713'])");
    for status in [204, 404] {
        assert_eq!(sandbox.http.delete(&sandbox.path("/contexts/mine")).status, status);
    }
    assert_eq!(
        sandbox.says("pgrep -fc 'sleep 471[3]'"),
        "0\n",
        "processes that it started end with it"
    );
    assert_eq!(sandbox.http.get(&sandbox.path("/contexts/mine")).expect(404).error(), "no_context");
    server.healthy();
}

/// Promises: CX7.
#[test]
fn a_restart_of_the_server_keeps_contexts_and_what_runs_in_them() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    python(&sandbox, "x = 41");
    let body = json!({"code": "import time\nwhile not __import__('os').path.exists('/workspace/go'): time.sleep(.01)\nx += 1"});
    let stream = sandbox.http.events(&sandbox.path("/contexts/python/run"), &body);
    server.kill();
    drop(stream);
    server.restart();
    let sandbox = Sandbox { http: server.http(), ..sandbox };
    let info = sandbox.http.get(&sandbox.path("/contexts/python")).expect(200).json();
    assert_eq!((&info["busy"], &info["runs"]), (&json!(true), &json!(2)), "{info}");
    sandbox.exec("touch /workspace/go");
    assert_eq!(value(&python(&sandbox, "x")), "42");
}

/// Promises: CX7.
#[test]
fn a_sleep_ends_contexts_and_reports_it() {
    let (_server, sandbox) = one();
    python(&sandbox, "x = 1");
    wait_until("it can be put to sleep", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    let listed = sandbox.http.get(&sandbox.path("/contexts")).expect(200).json();
    assert_eq!(listed, json!([]));
    let first = python(&sandbox, "x");
    assert_eq!(first["lost"], json!(["contexts"]), "{first}");
    assert_eq!(first["exception"]["name"], "NameError");
    assert!(python(&sandbox, "1").get("lost").is_none(), "reported once");
}

/// Promises: CX7.
#[test]
fn a_context_of_a_session_shares_its_directory_environment_and_end() {
    let (_server, sandbox) = one();
    let spec = json!({"id": "s", "cwd": "/tmp", "env": {"A": "of s"}});
    sandbox.post("/sessions", &spec).expect(201);
    make(&sandbox, &json!({"id": "own", "session": "s"}));
    assert_eq!(
        value(&run(&sandbox, "own", "import os; (os.getcwd(), os.environ['A'])")),
        "('/tmp', 'of s')"
    );
    assert_eq!(sandbox.http.delete(&sandbox.path("/sessions/s")).status, 204);
    assert_eq!(sandbox.http.get(&sandbox.path("/contexts/own")).status, 404);
    sandbox.exec("mkdir -p /workspace/in /workspace/out; echo secret >/workspace/out/f");
    let scope = json!({"id": "part", "file_access": {"read": [], "write": ["in"]}});
    sandbox.post("/sessions", &scope).expect(201);
    make(&sandbox, &json!({"id": "within", "session": "part"}));
    let seen = run(&sandbox, "within", "import os; sorted(os.listdir('/workspace'))");
    assert_eq!(value(&seen), "['.sessions', 'in']", "{seen}");
    assert_eq!(sandbox.http.delete(&sandbox.path("/sessions/part")).status, 204);
    assert_eq!(sandbox.http.get(&sandbox.path("/contexts/within")).status, 404);
}
