//! Prints findings: a table with remedies, or JSON.

use super::finding::{Finding, Status, worst};
use crate::client::output::{supports_color, write};
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write as _;

/// Width of the column of names: that of the longest one.
const NAME_WIDTH: usize = 20;

/// What `isolet doctor --json` prints.
#[derive(Serialize)]
struct Report<'a> {
    /// The worst status of all findings.
    status: Status,
    findings: &'a [Finding],
}

pub(super) fn print(findings: &[Finding], json: bool) -> Result<()> {
    if json {
        let report = Report { status: worst(findings), findings };
        return write(true, format!("{}\n", serde_json::to_string_pretty(&report)?).as_bytes());
    }
    write(true, text(findings, supports_color(&std::io::stdout())).as_bytes())
}

fn text(findings: &[Finding], colours: bool) -> String {
    let paint = |text: &str, colour: &str| match colours {
        true => format!("\x1b[{colour}m{text}\x1b[0m"),
        false => text.to_owned(),
    };
    let mut lines = String::new();
    let mut group = "";
    for finding in findings {
        if finding.group != group {
            group = finding.group;
            let _ = writeln!(lines, "{}", paint(group, "1"));
        }
        let (word, colour) = shown(finding.status);
        let status = paint(&format!("{word:<7}"), colour);
        let check = finding.check;
        let _ = writeln!(lines, "  {status}  {check:<NAME_WIDTH$}  {}", finding.message);
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(lines, "           {:<NAME_WIDTH$}  -> {remedy}", "");
        }
    }
    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    let _ = writeln!(
        lines,
        "ok: {}, warnings: {}, failures: {}",
        count(Status::Ok),
        count(Status::Warning),
        count(Status::Failure)
    );
    lines
}

fn shown(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Ok => ("ok", "32"),
        Status::Warning => ("warning", "33"),
        Status::Failure => ("failure", "31"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_stand_below_their_line_and_colours_only_on_terminals() {
        let findings = [
            Finding::ok("host", "kernel", "Linux 6.1"),
            Finding::failure("host", "user", "not root", "use sudo"),
        ];
        let plain = text(&findings, false);
        assert!(plain.contains("  failure  user                  not root\n"), "{plain}");
        assert!(plain.contains("  -> use sudo\nok: 1, warnings: 0, failures: 1\n"), "{plain}");
        assert!(!plain.contains('\x1b'));
        assert!(text(&findings, true).contains("\x1b[31mfailure\x1b[0m"));
        assert_eq!(worst(&findings).exit_code(), 2);
        assert_eq!(worst(&findings[..1]).exit_code(), 0);
    }
}
