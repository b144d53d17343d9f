//! The text has the form of OpenMetrics, and `docs/metrics.md` lists what it contains.

use super::*;
use crate::streams::Stream;
use std::collections::BTreeMap;
use std::time::Duration;

/// Where the table of the document starts and ends.
const TABLE: (&str, &str) = ("<!-- table of metrics -->\n", "<!-- end of the table -->");

/// Metrics with a series of every family.
fn full() -> Metrics {
    let metrics = Metrics::new("1.2.3");
    let tenant = metrics.tenants.of("acme");
    tenant.commands.inc();
    metrics.streams.add(Stream::FilesIn, 7);
    metrics.commands.shell.observe(Duration::from_millis(3));
    metrics.snapshot.set_sandboxes("running", 2);
    metrics.fleet.set_nodes("ready", 3);
    metrics.snapshot.set_queue("store", 0);
    metrics.webhooks.set(1, 0, 0);
    metrics.requests.set_in_progress("calls", 1);
    metrics
}

/// A family as its comments describe it.
#[derive(Default)]
struct Described {
    kind: String,
    help: String,
    unit: Option<String>,
    labels: Vec<String>,
    samples: usize,
}

/// Reads the text line by line, and checks the order and the names.
fn families(text: &str) -> BTreeMap<String, Described> {
    let mut all: BTreeMap<String, Described> = BTreeMap::new();
    let mut current = String::new();
    let body = text.strip_suffix("# EOF\n").expect("the text ends with EOF");
    for line in body.lines() {
        assert!(!line.is_empty() && line.trim() == line, "{line:?}");
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let word = words.next().unwrap();
            let name = words.next().unwrap();
            let value = words.next().unwrap().to_owned();
            if name != current {
                assert!(!all.contains_key(name), "{name} occurs twice");
                current = name.to_owned();
            }
            let family = all.entry(current.clone()).or_default();
            assert_eq!(family.samples, 0, "a comment follows samples: {line}");
            match word {
                "HELP" => family.help = value,
                "TYPE" => family.kind = value,
                "UNIT" => family.unit = Some(value),
                _ => panic!("{line}"),
            }
            continue;
        }
        let family = all.get_mut(&current).expect("a sample follows its comments");
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("{line} in {current}"));
        let suffixes: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_count", "_sum"],
            kind => panic!("{current} is a {kind}"),
        };
        assert!(suffixes.contains(&suffix), "{line}");
        family.samples += 1;
        for label in labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()) {
            let name = label.split_once('=').expect("a label").0.to_owned();
            if name != "le" && !family.labels.contains(&name) {
                family.labels.push(name);
            }
        }
    }
    all
}

/// Promises: MT1.
#[test]
fn mt1_the_text_is_openmetrics_with_units_in_the_names() {
    assert!(CONTENT_TYPE.starts_with("application/openmetrics-text; version=1.0.0"));
    let all = families(&full().text().unwrap());
    for (name, family) in &all {
        assert!(family.help.ends_with('.') && !family.help.ends_with(".."), "{name}");
        assert!(family.samples > 0, "{name}");
        if let Some(unit) = &family.unit {
            assert!(name.ends_with(&format!("_{unit}")), "{name}: {unit}");
        }
        let measures = ["_seconds", "_bytes"].into_iter().any(|end| name.ends_with(end));
        assert_eq!(measures, family.unit.is_some(), "{name}");
        assert!(name.starts_with("isolet_") || name.starts_with("process_"), "{name}");
        assert!(!name.ends_with("_total"), "{name} gets its suffix from the type");
    }
    assert!(all.len() > 30, "{}", all.len());
}

/// Promises: MT2.
#[test]
fn mt2_no_label_names_a_sandbox() {
    let allowed = [
        "cause",
        "code",
        "direction",
        "kind",
        "operation",
        "process",
        "queue",
        "reason",
        "result",
        "source",
        "state",
        "stream",
        "tenant",
        "version",
    ];
    for (name, family) in families(&full().text().unwrap()) {
        assert!(family.labels.iter().all(|label| allowed.contains(&label.as_str())), "{name}");
    }
}

/// The rows of the document, from the registry.
fn table() -> String {
    let mut rows = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, family) in families(&full().text().unwrap()) {
        let total = if family.kind == "counter" { "_total" } else { "" };
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let help = family.help.trim_end_matches('.');
        let kind = family.kind;
        rows.push_str(&format!("| `{name}{total}` | {kind} | {} | {help} |\n", labels.join(", ")));
    }
    rows
}

/// With `ISOLET_WRITE_METRICS` set, writes the table into the document instead.
#[test]
fn the_document_lists_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (start, end) = TABLE;
    let (before, rest) = text.split_once(start).expect("the table starts");
    let (found, after) = rest.split_once(end).expect("the table ends");
    if std::env::var_os("ISOLET_WRITE_METRICS").is_some() {
        std::fs::write(path, format!("{before}{start}{}{end}{after}", table())).unwrap();
        return;
    }
    assert_eq!(found, table(), "write it with ISOLET_WRITE_METRICS=1");
}
