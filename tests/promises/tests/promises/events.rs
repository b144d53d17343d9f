//! Events of sandboxes arrive as things happen, in order, and once for each reader.

use isolet_kit::{Http, SOON, Server, Stream, Value, json, one, process, wait_until};

fn follow(http: &Http, path: &str, last: Option<u64>) -> Stream {
    let http = last.map_or_else(|| http.clone(), |id| http.with("last-event-id", &id.to_string()));
    let stream = http.try_open("GET", path, None).expect("an answer");
    assert_eq!(stream.status, 200);
    stream
}

/// The next events up to the first one of this name.
fn until(stream: &mut Stream, last: &str) -> Vec<(String, Value)> {
    let mut seen = Vec::new();
    loop {
        let event = stream.event().unwrap_or_else(|| panic!("it ended after {seen:?}"));
        let data: Value = serde_json_of(&event.data);
        let name = event.name.clone();
        seen.push((event.name, data));
        if name == last {
            return seen;
        }
    }
}

fn serde_json_of(text: &str) -> Value {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn names(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(name, _)| name.as_str()).collect()
}

fn put_to_sleep(server: &Server, path: &str) {
    wait_until("it sleeps", SOON, || {
        let reply = server.http().post(&format!("{path}/sleep"), &json!({}));
        (reply.status == 200).then_some(())
    });
}

/// Promises: L9.
#[test]
fn events_of_a_life_arrive_in_order() {
    let mut server = Server::start();
    let key = server.add_key(&["--tenant", "other"]);
    let mut strangers = follow(&Http::new(server.port(), Some(&key)), "/v1/events", None);
    let mut all = follow(&server.http(), "/v1/events", None);
    let sandbox = server.sandbox_with(&json!({"id": "life"}));
    let mut own = follow(&server.http(), &sandbox.path("/events"), None);
    sandbox.command("dev", "exit 3");
    sandbox.http.delete(&sandbox.path("/sessions/dev")).expect(204);
    put_to_sleep(&server, &sandbox.path(""));
    sandbox.exec("exit 4");
    sandbox.delete();
    let events = until(&mut all, "destroyed");
    let wanted = [
        "created",
        "running",
        "session_created",
        "command_started",
        "command_exited",
        "session_deleted",
        "sleeping",
        "woke",
        "running",
        "command_started",
        "command_exited",
        "destroyed",
    ];
    assert_eq!(names(&events), wanted, "{events:?}");
    let field = |at: usize, name: &str| events[at].1[name].clone();
    assert_eq!((field(2, "session"), field(3, "session")), (json!("dev"), json!("dev")));
    assert_eq!((field(4, "code"), field(10, "code")), (json!(3), json!(4)));
    assert_eq!((field(3, "command"), field(9, "session")), (field(4, "command"), Value::Null));
    let ids: Vec<u64> = events.iter().filter_map(|(_, data)| data["id"].as_u64()).collect();
    assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ids:?}");
    assert!(events.iter().all(|(_, data)| data["sandbox"] == "life" && data["at_ms"].is_u64()));
    assert_eq!(until(&mut own, "destroyed"), events[2..], "the same, of one sandbox");
    assert!(own.event().is_none(), "a sandbox's stream ends with it");
    let other = Http::new(server.port(), Some(&key));
    other.post("/v1/sandboxes", &json!({"id": "theirs"})).expect(201);
    let first = until(&mut strangers, "created");
    assert_eq!((first.len(), &first[0].1["sandbox"]), (1, &json!("theirs")));
}

/// Promises: L9.
#[test]
fn a_reader_of_events_continues_after_its_last_event() {
    let (mut server, sandbox) = one();
    let http = server.http();
    let mut first = follow(&http, "/v1/events", None);
    sandbox.exec("true");
    let seen = until(&mut first, "command_exited");
    let last = seen[1].1["id"].as_u64().expect("an id");
    drop(first);
    put_to_sleep(&server, &sandbox.path(""));
    let mut back = follow(&http, "/v1/events", Some(last));
    assert_eq!(names(&until(&mut back, "sleeping")), ["sleeping"]);
    let mut from_before = follow(&http, "/v1/events", Some(last - 1));
    assert_eq!(names(&until(&mut from_before, "sleeping")), ["command_exited", "sleeping"]);
    server.restart();
    let mut after = follow(&http, "/v1/events", Some(last));
    let gap = until(&mut after, "gap");
    assert_eq!((gap.len(), &gap[0].1["from"]), (1, &json!(last + 1)), "{gap:?}");
    sandbox.exec("true");
    let woke = until(&mut after, "woke");
    assert!(woke[0].1["id"].as_u64() > Some(last), "ids of a later server are higher");
    let odd = http.with("last-event-id", "soon");
    assert_eq!(odd.try_open("GET", "/v1/events", None).expect("an answer").status, 400);
}

/// Promises: L9.
#[test]
fn a_failure_is_reported_with_its_cause_and_following_wakes_nothing() {
    let (server, sandbox) = one();
    put_to_sleep(&server, &sandbox.path(""));
    let mut own = follow(&server.http(), &sandbox.path("/events"), Some(0));
    assert_eq!(names(&until(&mut own, "sleeping")), ["gap", "created", "running", "sleeping"]);
    assert_eq!(sandbox.info()["state"], "sleeping");
    sandbox.exec("true");
    process::kill(server.agent());
    let events = until(&mut own, "failed");
    let failed = &events[events.len() - 1].1;
    assert_eq!(failed["cause"], sandbox.info()["cause"], "{failed}");
    assert!(failed["cause"].as_str().is_some_and(|cause| !cause.is_empty()));
}

/// The data of the next event of this name.
fn next(stream: &mut Stream, name: &str) -> Value {
    until(stream, name).pop().expect("the last of them").1
}

/// Promises: J16.
#[test]
fn processes_and_terminals_are_reported_as_they_begin_and_end() {
    let (mut server, sandbox) = one();
    let mut own = follow(&server.http(), &sandbox.path("/events"), None);
    let start = |body: &Value| sandbox.post("/processes", body).expect(201);
    start(&json!({"id": "web", "command": "exec sleep 1000"}));
    let begun = next(&mut own, "process_started");
    assert_eq!((&begun["process"], &begun["session"]), (&json!("web"), &Value::Null));
    start(&json!({"id": "short", "command": "exit 3", "session": "dev"}));
    assert_eq!(next(&mut own, "process_started")["process"], "short");
    let ended = next(&mut own, "process_exited");
    assert_eq!((&ended["process"], &ended["session"]), (&json!("short"), &json!("dev")));
    assert_eq!((&ended["code"], &ended["signal"]), (&json!(3), &Value::Null));
    sandbox.post("/processes/web/kill", &json!({})).expect(200);
    let ended = next(&mut own, "process_exited");
    assert_eq!((&ended["process"], &ended["code"]), (&json!("web"), &json!(143)));
    assert_eq!(ended["signal"], 15);

    let mut terminal = sandbox.terminal("session=dev");
    assert_eq!(next(&mut own, "terminal_opened")["session"], "dev");
    terminal.type_in("exit\n");
    assert_eq!(next(&mut own, "terminal_ended")["session"], "dev");

    // The next server finds the processes, reports them again, and reports their end.
    start(&json!({"id": "on", "command": "exec sleep 1000"}));
    let _terminal = sandbox.terminal("session=dev");
    server.kill();
    server.restart();
    let mut own = follow(&server.http(), &sandbox.path("/events"), None);
    let mut found = Vec::new();
    while found.len() < 2 {
        let event = own.event().expect("it goes on");
        let data = serde_json_of(&event.data);
        match event.name.as_str() {
            "process_started" => assert_eq!(data["process"], "on"),
            "terminal_opened" => assert_eq!(data["session"], "dev"),
            _ => continue,
        }
        found.push(event.name);
    }
    assert_ne!(found[0], found[1], "each is reported once");
    sandbox.http.delete(&sandbox.path("/processes/on")).expect(204);
    let ended = loop {
        let event = own.event().expect("it goes on");
        if event.name == "process_exited" {
            break event;
        }
    };
    let last = ended.id.parse().expect("a number");
    let ended = serde_json_of(&ended.data);
    assert_eq!((&ended["process"], &ended["code"]), (&json!("on"), &Value::Null));
    // If nobody follows when a process ends, the next follower receives its end, once. The reader
    // continues after the last event, because the server may notice its disconnection late and have
    // sent the event to it.
    drop(own);
    start(&json!({"id": "late", "command": "true"}));
    sandbox.post("/processes/late/wait", &json!({"exit": true})).expect(200);
    let mut own = follow(&server.http(), &sandbox.path("/events"), Some(last));
    let late = next(&mut own, "process_exited");
    assert_eq!((&late["process"], &late["code"]), (&json!("late"), &json!(0)));
    start(&json!({"id": "asleep", "command": "exec sleep 1000"}));
    put_to_sleep(&server, &sandbox.path(""));
    let lost = next(&mut own, "process_exited");
    assert_eq!((&lost["process"], &lost["code"]), (&json!("asleep"), &Value::Null));
}
