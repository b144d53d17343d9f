//! Golden answers: the calls of every dialect, and what the baseline answered.

use crate::normalize::{Names, differences, normal};
use crate::read;
use isolet_kit::{Options, Reply, Rows, Server, Value, json};

/// The dialects, by the names of their files below `golden/`.
pub(crate) const DIALECTS: [&str; 4] = ["native", "isorun", "cloudflare", "pokee"];

/// A server with the shipped configuration, because Isorun's client requests an image by an alias
/// in it.
pub(crate) fn server() -> Server {
    Options::new().config("[images.aliases]\n\"node:22-slim\" = \"host\"\n").start()
}

/// Makes the calls of one file in order and returns each answer in its normal form.
pub(crate) fn play(server: &Server, calls: &[Value]) -> Vec<Value> {
    let mut names = Names::new();
    names.insert("port".to_owned(), server.port().to_string());
    calls.iter().map(|call| answer(&send(server, call, &names), call, &mut names)).collect()
}

fn send(server: &Server, call: &Value, names: &Names) -> Reply {
    let line = call["call"].as_str().expect("a call");
    let (method, path) = line.split_once(' ').expect("a method, then a path");
    let mut path = path.to_owned();
    for (name, value) in names {
        path = path.replace(&format!("<{name}>"), value);
    }
    let mut http = server.http();
    for (name, value) in call["headers"].as_object().into_iter().flatten() {
        http = http.with(name, value.as_str().expect("a text"));
    }
    let body = match (&call["body"], &call["text"]) {
        (Value::Null, Value::Null) => None,
        (Value::Null, text) => {
            http = http.with("content-type", "application/octet-stream");
            Some(text.as_str().expect("a text").to_owned())
        }
        (body, _) => Some(body.to_string()),
    };
    http.send(method, &path, body.as_deref().map(str::as_bytes))
}

fn answer(reply: &Reply, call: &Value, names: &mut Names) -> Value {
    let body = match reply.header("content-type") {
        Some(kind) if kind.starts_with("text/event-stream") => events(&reply.text()),
        Some(kind) if kind.starts_with("application/json") => reply.json(),
        _ => reply.text().into(),
    };
    for (name, pointer) in call["take"].as_object().into_iter().flatten() {
        let value = body.pointer(pointer.as_str().expect("a pointer"));
        let value = value.and_then(Value::as_str).unwrap_or_else(|| panic!("{call}: {body}"));
        names.insert(name.clone(), value.to_owned());
    }
    let kind = reply.header("content-type");
    json!({"status": reply.status, "type": kind, "body": normal(body, names)})
}

/// The events of a stream with their names; comments are left out.
fn events(text: &str) -> Value {
    let event = |part: &str| {
        let field = |name: &str| part.lines().find_map(|line| line.strip_prefix(name));
        let data = field("data: ")?;
        let data: Value = serde_json::from_str(data).unwrap_or_else(|_| data.into());
        Some(json!({"event": field("event: ").unwrap_or("message"), "data": data}))
    };
    text.split("\n\n").filter_map(event).collect()
}

/// Promises: F39.
#[test]
fn every_dialect_answers_as_the_baseline_did() {
    let mut rows = Rows::new();
    for dialect in DIALECTS {
        let calls = read(&format!("golden/{dialect}.json"));
        let calls = calls.as_array().expect("a list");
        let server = server();
        let answers = play(&server, calls);
        for (n, (call, is)) in calls.iter().zip(&answers).enumerate() {
            rows.row(&format!("{dialect} {n}: {}", call["call"]), || {
                // The member `now` records an answer that was changed on purpose, with the reason.
                let changed = call["now"].is_object();
                assert_eq!(changed, call["why"].is_string(), "a change has a reason: {call}");
                let was = if changed { &call["now"] } else { &call["answer"] };
                let found = differences("", was, is);
                assert!(found.is_empty(), "{found:#?}");
            });
        }
    }
}
