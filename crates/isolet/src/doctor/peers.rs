//! The certificates by which this node and others trust each other.

use super::finding::Finding;
use isolet_peer::PeerFiles;
use isolet_peer::inspect::{Check, Verdict, inspect};
use isolet_wire::node::NodeName;

const GROUP: &str = "peers";

/// Checks the files of a node. `node` is its configured name.
pub(super) fn check(files: &PeerFiles, node: Option<&NodeName>) -> Vec<Finding> {
    let checks = inspect(files, node, isolet_clock::now_ms() / 1000);
    checks.into_iter().map(finding).collect()
}

fn finding(check: Check) -> Finding {
    let Check { name, verdict, message, remedy } = check;
    let remedy = remedy.unwrap_or_default();
    match verdict {
        Verdict::Ok => Finding::ok(GROUP, name, message),
        Verdict::Warning => Finding::warning(GROUP, name, message, remedy),
        Verdict::Failure => Finding::failure(GROUP, name, message, remedy),
    }
}
