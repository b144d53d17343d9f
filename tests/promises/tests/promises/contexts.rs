//! Code contexts: what stays in them, what comes back of a run, and in which order.

use crate::engines;
use isolet_kit::{Rows, SOON, Sandbox, Server, Value, json, one, wait_until};

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

#[test]
fn what_a_run_of_python_makes_stays_for_the_next() {
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

#[test]
fn what_a_run_of_javascript_makes_stays_for_the_next() {
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

#[test]
fn an_error_has_its_name_its_message_and_the_users_lines_alone() {
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
            let told = &answer["exception"];
            assert_eq!(told["name"], name, "{answer}");
            assert!(told["message"].as_str().is_some_and(|text| text.contains(message)), "{told}");
            let lines = told["traceback"].to_string();
            assert!(lines.contains(line), "{lines}");
            assert!(!lines.contains("<isolet>") && !lines.contains("node:inspector"), "{lines}");
            assert_eq!(answer["died"], Value::Null);
        });
    }
}

/// An error whose text held half of a pair of surrogates was JSON that nobody reads: `exception`
/// was null, and the run a success to whoever looked there.
#[test]
fn an_error_is_told_whatever_its_text_is() {
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
                let told = &answer["exception"];
                assert_eq!((&told["name"], &told["message"]), (&json!(name), &json!(message)));
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
            let told = answer["exception"]["message"].as_str().unwrap_or_default();
            assert!(told.starts_with(message), "{}", answer["exception"]["name"]);
            assert_eq!(answer["results_lost"], 0);
        });
    }
    rows.row("a result of JavaScript", || {
        let answer = js(&sandbox, r#"({ "a\udc00": "\\ud800\ud800" })"#);
        let told = &answer["results"][0]["data"]["application/json"];
        assert_eq!(told, &json!({"a\u{fffd}": "\\ud800\u{fffd}"}), "{answer}");
    });
    rows.row("what is no error at all is one", || {
        let answer = python(&sandbox, "import os\nos.write(3, b'\\0\\0\\0\\3\\3abc');");
        assert_eq!(answer["exception"]["name"], "Error", "{answer}");
        let text = answer["exception"]["message"].as_str().unwrap_or_default();
        assert!(text.contains("cannot be read"), "{answer}");
    });
}

#[test]
fn output_comes_in_the_order_in_which_it_was_written() {
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

#[test]
fn output_is_told_while_the_code_runs() {
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

#[test]
fn what_jupyter_shows_is_shown() {
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
            assert!(results[0]["data"]["text/plain"].is_string(), "a text stands beside");
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
        // What matplotlib has of it, without its 40 MB.
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
    rows.row("what is too large is left out, and told", || {
        let results = shown("of('_repr_png_', b'x' * 20_000_000)");
        assert_eq!(results[0]["cut"]["image/png"], 20_000_000, "{}", results[0]["cut"]);
        assert!(results[0]["data"].get("image/png").is_none());
    });
}

#[test]
fn contexts_are_made_listed_and_ended() {
    let (server, sandbox) = one();
    let made = make(
        &sandbox,
        &json!({"id": "mine", "cwd": "/usr", "env": {"A": "b"}, "timeout_ms": 5000}),
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
    assert_eq!(run(&sandbox, "mine", "id")["exception"], Value::Null, "each has names of its own");
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
    assert_eq!(sandbox.says("pgrep -fc 'sleep 471[3]'"), "0\n", "what it started ends with it");
    assert_eq!(sandbox.http.get(&sandbox.path("/contexts/mine")).expect(404).error(), "no_context");
    server.healthy();
}

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

#[test]
fn a_sleep_ends_contexts_and_says_so() {
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
    assert!(python(&sandbox, "1").get("lost").is_none(), "told once");
}

#[test]
fn a_context_of_a_session_has_its_surroundings_and_its_end() {
    let (_server, sandbox) = one();
    let wish = json!({"id": "s", "cwd": "/tmp", "env": {"A": "of s"}});
    sandbox.post("/sessions", &wish).expect(201);
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
