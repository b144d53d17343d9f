//! The shell behind a context of bash, and the code that it is given.

use crate::connection::shell_log::LogCursor;
use crate::launch::Refusal;
use crate::shell::Shell;
use isolet_wire::response::RefusalReason;
use serde::Deserialize;

/// The shell behind a context, and how far it was heard.
#[derive(Debug)]
pub(super) struct BashShell {
    pub(super) shell: Shell,
    /// Its process id; still known after its end.
    pub(super) pid: i32,
    pub(super) place: LogCursor,
    /// The exit of a run with which bash ended, while the end of bash was not told.
    pub(super) exit: Option<i32>,
}

/// What a run is to be given.
#[derive(Debug, Deserialize)]
pub(super) struct Code {
    pub(super) code: String,
    pub(super) stdin: Option<String>,
}

impl Code {
    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, or bash cannot.
    pub(super) fn of(body: &[u8]) -> Result<Self, Refusal> {
        let bad = |text: &str| (RefusalReason::BadAsk, text.to_owned());
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
