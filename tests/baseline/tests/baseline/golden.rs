//! Golden answers: the calls of every dialect, and their recorded answers.

use crate::normalize::{Names, differences, normal};
use isolet_kit::{Options, Reply, Rows, Server, Value, json};
use std::fs;
use std::path::Path;

/// The dialects, by the names of their files below `golden/`.
const DIALECTS: [&str; 4] = ["native", "isorun", "cloudflare", "pokee"];

/// A server with the shipped configuration, because Isorun's client requests an image by an alias
/// in it.
fn server() -> Server {
    Options::new().config("[images.aliases]\n\"node:22-slim\" = \"host\"\n").start()
}

/// The recorded calls of a dialect, with their answers.
fn calls_of(dialect: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/{dialect}.json"));
    let bytes = fs::read(path).expect("it is committed");
    serde_json::from_slice(&bytes).expect("a list")
}

/// Makes the calls of one file in order and returns each answer in its normal form.
fn play(server: &Server, calls: &[Value]) -> Vec<Value> {
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
fn every_dialect_answers_as_recorded() {
    let mut rows = Rows::new();
    for dialect in DIALECTS {
        let calls = calls_of(dialect);
        let server = server();
        let answers = play(&server, &calls);
        for (n, (call, is)) in calls.iter().zip(&answers).enumerate() {
            rows.row(&format!("{dialect} {n}: {}", call["call"]), || {
                let found = differences("", &call["answer"], is);
                assert!(found.is_empty(), "{found:#?}");
            });
        }
    }
}
