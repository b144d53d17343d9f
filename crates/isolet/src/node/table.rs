//! The nodes as a table.

use crate::client::list::text;
use crate::client::output::sanitize;
use serde_json::Value;
use std::fmt::Write as _;

/// What stands for a detail that only keys of the tenant `default` see, and for the load of a node
/// whose lease has ended: etcd has only that of its registration.
const UNKNOWN: &str = "-";

/// One row, in the order of [`HEAD`].
type Row = [String; 8];

const HEAD: [&str; 8] =
    ["NODE", "STATE", "REGION", "SANDBOXES", "MEMORY (MiB)", "VERSION", "ADDRESS", "LABELS"];

/// All nodes as a table.
pub(super) fn table(list: &Value, colours: bool) -> String {
    let paint = |text: &str, colour: &str| match colours {
        true => format!("\x1b[{colour}m{text}\x1b[0m"),
        false => text.to_owned(),
    };
    let nodes = list["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<Row> = nodes.iter().map(row).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default().max(HEAD[column].len())
    };
    let line = |cells: &Row, colour: Option<&str>| {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let padded = format!("{cell:<0$}", width(column));
            let painted = match colour.filter(|_| column == 1) {
                Some(colour) => paint(&padded, colour),
                None => padded,
            };
            let _ = write!(line, "{painted}  ");
        }
        line.trim_end().to_owned()
    };
    let mut table = paint(&line(&HEAD.map(str::to_owned), None), "1") + "\n";
    for (node, cells) in nodes.iter().zip(&rows) {
        table.push_str(&line(cells, Some(colour(node))));
        table.push('\n');
    }
    table
}

fn colour(node: &Value) -> &'static str {
    match node["state"].as_str() {
        Some("ready") if node["cordoned"] != true => "32",
        Some("lost" | "dead") => "31",
        _ => "33",
    }
}

fn row(node: &Value) -> Row {
    let details = &node["details"];
    let is_gone = matches!(node["state"].as_str(), Some("lost" | "dead"));
    let part = |of: &Value, most: &Value| match (of.as_u64(), most.as_u64()) {
        (Some(of), Some(most)) if !is_gone => format!("{of}/{most}"),
        _ => UNKNOWN.to_owned(),
    };
    let detail = |name: &str| match &details[name] {
        Value::Null => UNKNOWN.to_owned(),
        value => text(value),
    };
    let state = text(&node["state"]);
    let state = if node["cordoned"] == true { format!("{state},cordoned") } else { state };
    let labels = node["labels"].as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(name, value)| format!("{}={}", sanitize(name), text(value))).collect();
    let load = &details["load"];
    let capacity = &details["capacity"];
    [
        text(&node["name"]),
        state,
        text(&node["region"]),
        part(&load["sandboxes"], &capacity["sandboxes"]),
        part(&load["memory_reserved_mib"], &capacity["memory_mib"]),
        detail("version"),
        detail("address"),
        labels.join(","),
    ]
}

/// What else an operator should know about the list.
pub(super) fn notes(list: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    if list["is_current"] == false {
        let here = text(&list["here"]);
        notes
            .push(format!("node {here} has lost its connection to etcd; the list may be outdated"));
    }
    for skipped in list["skipped"].as_array().into_iter().flatten() {
        notes.push(format!(
            "skipped the key {} in etcd: {}; delete it if no node of the fleet wrote it",
            text(&skipped["key"]),
            text(&skipped["reason"])
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_has_details_only_if_they_are_known() {
        let list = json!({"here": "a", "is_current": false, "nodes": [
            {"name": "node-1", "region": "eu", "labels": {"gpu": "yes"}, "state": "ready",
             "cordoned": true, "details": {
                "address": "10.0.0.1:7301", "version": "1.2", "started_at_ms": 1,
                "capacity": {"memory_mib": 100, "sandboxes": 9},
                "load": {"memory_reserved_mib": 40, "sandboxes": 2}}},
            {"name": "b", "region": "\u{1b}[31m", "labels": {}, "state": "dead", "cordoned": false},
        ], "skipped": [{"key": "isolet/nodes/x", "reason": "unknown"}]});
        let plain = table(&list, false);
        let lines: Vec<&str> = plain.lines().collect();
        assert!(lines[1].contains("ready,cordoned  eu"), "{plain}");
        assert!(lines[1].contains("2/9") && lines[1].contains("40/100"), "{plain}");
        assert!(lines[1].ends_with("10.0.0.1:7301  gpu=yes"), "{plain}");
        assert!(lines[2].starts_with("b ") && lines[2].ends_with('-'), "{plain}");
        assert!(!plain.contains('\u{1b}'), "text of etcd controls no terminal");
        let coloured = table(&list, true);
        assert!(coloured.contains("\x1b[33mready,cordoned\x1b[0m"), "{coloured}");
        let notes = notes(&list);
        assert!(notes[0].contains("outdated") && notes[1].contains("isolet/nodes/x"), "{notes:?}");
    }
}
