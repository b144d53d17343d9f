//! The events of a command in the format of Cloudflare's bridge.

use crate::foundation::error::ApiError;
use crate::stream::event_stream::EventBuffer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use isolet_wire::response::CommandExit;
use serde::Serialize;
use utoipa::ToSchema;

const FAILED: &str = "exec_error";

/// The data of `exit`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BridgeExitEvent {
    /// 128 and the signal where a signal ended the command.
    exit_code: i32,
}

/// The data of `error`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BridgeErrorEvent<'a> {
    /// For programs: the error code.
    code: &'a str,
    /// For people: what went wrong.
    error: &'a str,
}

/// Appends output of a stream, in base64.
pub(crate) fn write_output(out: &mut EventBuffer, name: &str, bytes: &[u8]) {
    out.line_event(name, &STANDARD.encode(bytes));
}

/// Appends the end of the command. Lost output makes it an error: `lost` bytes were no longer
/// available.
pub(crate) fn write_exit(out: &mut EventBuffer, exit: &CommandExit, lost: u64) {
    if exit.timed_out {
        let message = format!("the command was ended at its timeout (exit {})", exit.code);
        return out.event(None, "error", &BridgeErrorEvent { code: FAILED, error: &message });
    }
    if lost > 0 {
        let message = format!("{lost} bytes of output were not read in time");
        return out.event(None, "error", &BridgeErrorEvent { code: FAILED, error: &message });
    }
    out.event(None, "exit", &BridgeExitEvent { exit_code: exit.code });
}

/// Appends the end of the stream by an error.
pub(crate) fn write_error(out: &mut EventBuffer, failure: &ApiError) {
    let data = BridgeErrorEvent { code: failure.code, error: &failure.message };
    out.event(None, "error", &data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_keep_their_bytes() {
        let mut out = EventBuffer::default();
        write_output(&mut out, "stdout", b"\xff\n");
        write_exit(&mut out, &CommandExit { code: 3, ..CommandExit::default() }, 0);
        write_exit(&mut out, &CommandExit { code: 3, ..CommandExit::default() }, 5);
        write_exit(
            &mut out,
            &CommandExit { code: 137, timed_out: true, ..CommandExit::default() },
            0,
        );
        write_error(&mut out, &ApiError::bad_request("n\"o"));
        let lines = [
            "event: stdout",
            "data: /wo=",
            "",
            "event: exit",
            r#"data: {"exit_code":3}"#,
            "",
            "event: error",
            r#"data: {"code":"exec_error","error":"5 bytes of output were not read in time"}"#,
            "",
            "event: error",
            r#"data: {"code":"exec_error","error":"the command was ended at its timeout (exit 137)"}"#,
            "",
            "event: error",
            r#"data: {"code":"bad_request","error":"n\"o"}"#,
            "",
            "",
        ];
        assert_eq!(out.as_str(), lines.join("\n"));
    }
}
