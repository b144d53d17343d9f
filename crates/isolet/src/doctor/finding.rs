//! The result of one check.

use serde::Serialize;

/// How a check ended, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Ok,
    /// Sandboxes run, but something is worse than it could be, or was not checked.
    Warning,
    /// Sandboxes, or a feature that the settings ask for, do not work.
    Failure,
}

impl Status {
    /// The exit code of `isolet doctor` when this is the worst result.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Failure => 2,
        }
    }
}

/// The result of one check, as `--json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) group: &'static str,
    pub(crate) check: &'static str,
    pub(crate) status: Status,
    /// `false` if the check could not be made.
    pub(crate) checked: bool,
    pub(crate) message: String,
    /// What the operator can do: a package, a setting or a command.
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(group: &'static str, check: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { group, check, status: Status::Ok, checked: true, message, remedy: None }
    }

    pub(crate) fn warning(
        group: &'static str,
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self { status: Status::Warning, remedy, ..Self::ok(group, check, message) }
    }

    pub(crate) fn failure(
        group: &'static str,
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self { status: Status::Failure, remedy, ..Self::ok(group, check, message) }
    }

    /// A check that could not be made.
    pub(crate) fn unchecked(
        group: &'static str,
        check: &'static str,
        reason: &str,
        remedy: impl Into<String>,
    ) -> Self {
        let message = format!("not checked: {reason}");
        Self { checked: false, ..Self::warning(group, check, message, remedy) }
    }

    /// A check that needs root.
    pub(crate) fn needs_root(group: &'static str, check: &'static str) -> Self {
        Self::unchecked(group, check, "needs root", "run `sudo isolet doctor`")
    }
}

/// The worst status of all findings.
pub(crate) fn worst(findings: &[Finding]) -> Status {
    findings.iter().map(|finding| finding.status).max().unwrap_or(Status::Ok)
}
