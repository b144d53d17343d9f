//! Removes from answers what differs from run to run, and compares them. The rule is described in
//! `tests/baseline/README.md`.

use isolet_kit::Value;
use std::collections::BTreeMap;

/// Fields with a time or a measurement, in addition to those whose names end in `_ms` or `_at`.
const VOLATILE: [&str; 13] = [
    "pid",
    "shell_pid",
    "createdAt",
    "timestamp",
    "modified",
    "last_activity",
    "as_of",
    "cpu_seconds",
    "mem_seconds",
    "mem_peak_bytes",
    "memory_peak_bytes",
    "version",
    "inode",
];
/// Fields that end like those of times but hold settings of the client.
const SET: [&str; 3] = ["timeout_ms", "command_timeout_ms", "grace_ms"];

/// The names that replace values of one run, by those values.
pub(crate) type Names = BTreeMap<String, String>;

/// The answer without values that differ from run to run.
pub(crate) fn normal(value: Value, names: &Names) -> Value {
    match value {
        Value::Object(fields) => {
            let code = fields.get("code").is_some_and(Value::is_string);
            let directory = fields.get("type").is_some_and(|kind| kind == "directory");
            let each = fields.into_iter().map(|(name, value)| {
                let text = matches!(name.as_str(), "message" | "hint") || (code && name == "error");
                let hidden = volatile(&name) || text || (directory && name == "size");
                let value = match value {
                    value if name == "usage" => kinds(value),
                    value if hidden => kind(value),
                    value => normal(value, names),
                };
                (name, value)
            });
            Value::Object(each.collect())
        }
        Value::Array(all) => all.into_iter().map(|one| normal(one, names)).collect(),
        Value::String(text) => Value::String(named(text, names)),
        other => other,
    }
}

fn volatile(name: &str) -> bool {
    let time = name.ends_with("_ms") || name.ends_with("_at");
    (time && !SET.contains(&name)) || VOLATILE.contains(&name)
}

/// Replaces every field of an object by its type.
fn kinds(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, kinds(value))).collect())
        }
        other => kind(other),
    }
}

/// The type of a value; null stays null.
fn kind(value: Value) -> Value {
    match value {
        Value::Number(_) => "<number>".into(),
        Value::String(_) => "<text>".into(),
        other => other,
    }
}

/// Replaces the values of this run by their names, the longest first, because one may contain
/// another.
fn named(mut text: String, names: &Names) -> String {
    let mut all: Vec<_> = names.iter().collect();
    all.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    for (name, value) in all {
        text = text.replace(value.as_str(), &format!("<{name}>"));
    }
    text
}

/// The places where an answer differs from the recorded one: a missing field or another value. New
/// fields are no difference.
pub(crate) fn differences(at: &str, was: &Value, is: &Value) -> Vec<String> {
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => {
            let each = was.iter().flat_map(|(name, was)| {
                let at = format!("{at}/{name}");
                match is.get(name) {
                    Some(is) => differences(&at, was, is),
                    None => vec![format!("{at} is gone; it was {was}")],
                }
            });
            each.collect()
        }
        (Value::Array(was), Value::Array(is)) if was.len() == is.len() => {
            let each = was.iter().zip(is).enumerate();
            each.flat_map(|(n, (was, is))| differences(&format!("{at}/{n}"), was, is)).collect()
        }
        (was, is) if was == is => Vec::new(),
        (was, is) => vec![format!("{at} is {is}; it was {was}")],
    }
}
