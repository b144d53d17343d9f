//! Recordings of terminals, in a format for any asciicast player.

use isolet_kit::{Reply, SOON, Sandbox, Terminal, Value, json, one, wait_until};

fn list(sandbox: &Sandbox) -> Vec<Value> {
    let all = sandbox.http.get(&sandbox.path("/recordings")).expect(200).json();
    all.as_array().expect("a list").clone()
}

fn begin(sandbox: &Sandbox, session: &str) -> Reply {
    sandbox.post(&format!("/terminals/{session}/recording"), &json!({}))
}

/// The header and the events of a recording.
fn cast(sandbox: &Sandbox, id: &Value) -> (Value, Vec<(f64, String, String)>) {
    let path = sandbox.path(&format!("/recordings/{}", id.as_str().expect("an id")));
    let reply = sandbox.http.get(&path).expect(200);
    assert_eq!(reply.header("content-type"), Some("application/x-asciicast"));
    let text = String::from_utf8(reply.body).expect("it is UTF-8");
    assert!(text.ends_with('\n'), "only whole lines");
    let mut lines = text.lines().map(serde);
    let head = lines.next().expect("a head");
    let events: Vec<_> = lines
        .map(|event| {
            let text = |at: usize| event[at].as_str().expect("text").to_owned();
            (event[0].as_f64().expect("a time"), text(1), text(2))
        })
        .collect();
    assert!(events.is_sorted_by(|a, b| a.0 <= b.0), "time goes on");
    (head, events)
}

fn serde(line: &str) -> Value {
    line.parse().unwrap_or_else(|error| panic!("{line:?} is no JSON: {error}"))
}

fn shown(events: &[(f64, String, String)]) -> String {
    events.iter().filter(|event| event.1 == "o").map(|event| event.2.as_str()).collect()
}

/// Promises: Z8.
#[test]
fn a_recording_holds_all_that_was_shown_and_begins_with_the_screen() {
    let (_server, sandbox) = one();
    let mut terminal = sandbox.terminal("cols=100&rows=30");
    terminal.line("echo 'b'efore", "before\r\n");
    assert_eq!(begin(&sandbox, "never").status, 404);
    let made = begin(&sandbox, "default").expect(201).json();
    assert_eq!((&made["session"], &made["ended_at"]), (&json!("default"), &Value::Null), "{made}");
    assert_eq!(begin(&sandbox, "default").expect(200).json()["id"], made["id"], "one at a time");
    let from = reads_all(&sandbox, &mut terminal);
    terminal.line("printf 'w\\303\\274rze\\xff \\e[31mred\\e[0m'; echo '.'", "red");
    terminal.resize(90, 20);
    terminal.line("stty size; echo 's'ized", "20 90\r\nsized\r\n");
    let while_it_grows = wait_until("it is written", SOON, || {
        let (_, events) = cast(&sandbox, &made["id"]);
        shown(&events).contains("sized\r\n").then_some(events)
    });
    assert!(while_it_grows.iter().any(|event| event.1 == "r" && event.2 == "90x20"));
    terminal.type_in("exit\r");
    assert_eq!(terminal.end(), 1000);
    let ended = wait_until("it ends with its terminal", SOON, || {
        let all = list(&sandbox);
        assert_eq!(all.len(), 1, "its recorder is not listed as a client: {all:?}");
        (!all[0]["ended_at"].is_null()).then(|| all[0].clone())
    });
    let (head, events) = cast(&sandbox, &made["id"]);
    assert_eq!(
        (&head["version"], &head["width"], &head["height"]),
        (&json!(2), &json!(100), &json!(30))
    );
    assert!(shown(&events).contains("before"), "it starts with the screen");
    let all = shown(&events);
    assert!(all.contains("würze\u{FFFD} \u{1b}[31mred"), "{all}");
    let raw = &terminal.output[usize::try_from(from - terminal.base).expect("small")..];
    assert!(all.ends_with(&String::from_utf8_lossy(raw).into_owned()), "{all}");
    assert_eq!(
        (&ended["cut"], &ended["size"]),
        (&json!(false), &json!(size(&sandbox, &made["id"])))
    );
    let path = sandbox.path(&format!("/recordings/{}", made["id"].as_str().expect("an id")));
    sandbox.http.delete(&path).expect(204);
    assert_eq!((list(&sandbox).len(), sandbox.http.get(&path).status), (0, 404));
    for bad in ["..%2f..%2fkey", "x", "%00", ".."] {
        let status = sandbox.http.get(&sandbox.path(&format!("/recordings/{bad}"))).status;
        assert!(matches!(status, 400 | 404), "{bad}: {status}");
    }
}

/// Reads up to the end of the terminal's output: what was printed until now, such as a prompt, is
/// in the first screen of a recording or after it, and from there on both have the same bytes.
fn reads_all(sandbox: &Sandbox, terminal: &mut Terminal) -> u64 {
    let said = sandbox.http.get(&sandbox.path("/terminals")).expect(200).json();
    let said = said[0]["offset"].as_u64().expect("an offset");
    while terminal.offset() < said {
        assert!(terminal.step(SOON), "it reads up to {said}");
    }
    terminal.offset()
}

fn size(sandbox: &Sandbox, id: &Value) -> usize {
    let path = sandbox.path(&format!("/recordings/{}", id.as_str().expect("an id")));
    sandbox.http.get(&path).expect(200).body.len()
}

/// Promises: Z8.
#[test]
fn an_attach_starts_a_recording_that_a_call_ends_and_that_keeps_nothing_awake() {
    let (_server, sandbox) = one();
    let mut terminal = sandbox.terminal("record=1");
    terminal.line("echo 'r'ecorded", "recorded\r\n");
    let listed = sandbox.http.get(&sandbox.path("/terminals")).expect(200).json();
    assert_eq!(listed[0]["clients"].as_array().map(Vec::len), Some(1), "its recorder is hidden");
    let rest = "/terminals/default/recording";
    sandbox.http.delete(&sandbox.path(rest)).expect(204);
    let all = list(&sandbox);
    assert!(all.len() == 1 && !all[0]["ended_at"].is_null(), "{all:?}");
    terminal.line("echo 'n'ot", "not\r\n");
    let (_, events) = cast(&sandbox, &all[0]["id"]);
    let said = shown(&events);
    assert!(said.contains("recorded\r\n") && !said.contains("not\r\n"), "{said}");
    sandbox.http.delete(&sandbox.path(rest)).expect(404);
    begin(&sandbox, "default").expect(201);
    terminal.close();
    wait_until("a recorder keeps nothing awake", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    let all = wait_until("it has ended", SOON, || {
        let all = list(&sandbox);
        all.iter().all(|one| !one["ended_at"].is_null()).then_some(all)
    });
    assert_eq!(all.len(), 2);
    assert_eq!(sandbox.info()["state"], "sleeping", "listing wakes no sandbox");
}

/// A recording's note was once read while it grew, and its recorder was checked after that had
/// ended: the recording was listed as cut off, with an old size.
/// Promises: F46.
#[test]
fn f46_a_recording_that_ends_while_it_is_listed_is_whole() {
    let (_server, sandbox) = one();
    for _ in 0..20 {
        let mut terminal = sandbox.terminal("record=1");
        terminal.line("echo 'r'ecorded", "recorded\r\n");
        terminal.type_in("exit\r");
        let ended = wait_until("it ends", SOON, || {
            let all = list(&sandbox);
            (!all[0]["ended_at"].is_null()).then(|| all[0].clone())
        });
        assert_eq!(ended["cut"], false, "{ended}");
        assert_eq!(ended["size"], size(&sandbox, &ended["id"]), "{ended}");
        let id = ended["id"].as_str().expect("an id");
        sandbox.http.delete(&sandbox.path(&format!("/recordings/{id}"))).expect(204);
    }
}

/// Byte for byte: a recording whose server was killed continues where its file was complete.
/// Promises: Z8.
#[test]
fn a_recording_continues_after_its_server_was_killed() {
    let (mut server, sandbox) = one();
    let mut terminal = sandbox.terminal("");
    terminal.line("stty -echo; echo 'g'o", "go\r\n");
    let made = begin(&sandbox, "default").expect(201).json();
    let from = terminal.offset();
    terminal.type_in("for i in $(seq 1 300); do echo line $i; sleep 0.01; done; echo 'e'nd\r");
    terminal.sees("line 100\r\n");
    wait_until("a part is written", SOON, || {
        shown(&cast(&sandbox, &made["id"]).1).contains("line 20\r\n").then_some(())
    });
    let place = terminal.place();
    server.kill();
    server.launch();
    server.wait_until_ready();
    let mut after =
        sandbox.try_terminal(&format!("events=1&{place}")).expect("the client is admitted");
    after.sees("end\r\n");
    let said = wait_until("the recording has grown", SOON, || {
        let said = shown(&cast(&sandbox, &made["id"]).1);
        said.contains("end\r\n").then_some(said)
    });
    let lines: String = (1..=300).map(|n| format!("line {n}\r\n")).collect();
    assert!(said.contains(&lines), "{said}");
    assert_eq!(list(&sandbox)[0]["ended_at"], Value::Null, "it still grows");
    assert!(from > 0);
    after.type_in("exit\r");
    after.end();
    wait_until("it ends", SOON, || (!list(&sandbox)[0]["ended_at"].is_null()).then_some(()));
    assert_eq!(list(&sandbox)[0]["cut"], false);
}

/// Promises: Z8.
#[test]
fn heavy_a_recording_ends_at_64_mib_and_reports_it() {
    let (_server, sandbox) = one();
    let mut terminal = sandbox.terminal("record=1");
    // Without an end: what a recorder misses that does not keep up does not count.
    terminal.type_in("yes $(head -c 78 /dev/zero | tr '\\0' a)\r");
    let all = wait_until("it ends", SOON, || {
        let all = list(&sandbox);
        (!all[0]["ended_at"].is_null()).then_some(all)
    });
    let size = all[0]["size"].as_u64().expect("a size");
    assert!(all[0]["cut"] == true && size <= 64 << 20, "{all:?}");
    let (_, events) = cast(&sandbox, &all[0]["id"]);
    let last = events.last().expect("an event");
    assert!(last.1 == "m" && last.2.contains("64 MiB"), "{last:?}");
}
