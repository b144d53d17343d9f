//! The shell of a bash context, and the code of its runs.

use crate::connection::shell_log::LogCursor;
use crate::launch::Refusal;
use crate::shell::Shell;
use isolet_wire::response::RefusalReason;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The shell of a bash context, and the position in its log.
#[derive(Debug)]
pub(super) struct BashShell {
    pub(super) shell: Shell,
    /// Process id of bash, which is kept after its end.
    pub(super) pid: i32,
    pub(super) place: LogCursor,
    /// Exit code of the run with which bash ended, until the end of bash is reported.
    pub(super) exit: Option<i32>,
}

/// The code, input and environment variables of a run.
#[derive(Debug, Deserialize)]
pub(super) struct Code {
    pub(super) code: String,
    pub(super) stdin: Option<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, Option<String>>,
}

impl Code {
    /// Parses the body of a run.
    ///
    /// # Errors
    /// The body is invalid, or bash cannot run it.
    pub(super) fn of(body: &[u8]) -> Result<Self, Refusal> {
        let bad = |text: &str| (RefusalReason::BadRequest, text.to_owned());
        let code: Self = match body {
            [] => return Err(bad("there is no code")),
            _ => serde_json::from_slice(body).map_err(|_| bad("the code does not read"))?,
        };
        if code.code.contains('\0') {
            return Err(bad("bash knows no NUL byte"));
        }
        Ok(code)
    }
}
